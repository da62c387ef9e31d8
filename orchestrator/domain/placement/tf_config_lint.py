"""The traps of a hand-written TF_CONFIG, found before any process starts: each with what, why and remedy.

Callers: `services/jobs/submission.py`, for the form and for REST. An error blocks the job; a warning is shown.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping

from orchestrator.domain.placement.planning import ClusterView
from orchestrator.domain.words import counted
from worker_agent.protocol.findings import Finding
from worker_agent.protocol.job.gang_shape import computing_roles, has_chief
from worker_agent.protocol.job.job_spec import JobSpec
from worker_agent.protocol.job.strategies import STRATEGIES
from worker_agent.protocol.states import Role

LARGEST = 100_000
EXAMPLE = '{"cluster": {"worker": ["10.0.0.1:20000", "10.0.0.2:20000"]}}'
ROLES = tuple(role.value for role in Role)
# TensorFlow's older name for the leader of MultiWorkerMirrored.
OLD_CHIEF = "master"


def lint(written: str, spec: JobSpec, cluster: ClusterView | None) -> list[Finding]:
    """Everything that is wrong with the text for a gang of this shape; [] when a gang can be started with it.

    `cluster` None leaves out what depends on the nodes. What cannot be read as a cluster is one finding.
    """
    read = _cluster_in(written)
    if isinstance(read, Finding):
        return [read]
    whole, members = read
    found = [*_task(whole), *_roles(members, spec), *_counts(members, spec)]
    addresses = [(role, index, address) for role, each in members.items() for index, address in enumerate(each)]
    found += [*_form(addresses), *_twice(addresses)]
    if cluster is not None and not found:
        found += _places(addresses, cluster)
    return found


def leaves_chief_out(written: str) -> bool:
    """Whether the text describes workers and parameter servers without a chief."""
    read = _cluster_in(written)
    return not isinstance(read, Finding) and "ps" in read[1] and "chief" not in read[1]


def _cluster_in(written: str) -> tuple[Mapping[str, object], dict[str, list[str]]] | Finding:
    remedy = f"Write for instance {EXAMPLE}"
    if len(written) > LARGEST:
        return Finding("TF_CONFIG is too long", f"it has {len(written)} characters, more than {LARGEST}", "Shorten it")
    try:
        whole = json.loads(written)
    except RecursionError:
        return Finding("TF_CONFIG is nested too deeply", "its JSON has thousands of levels of brackets", remedy)
    except ValueError as error:
        return Finding("TF_CONFIG is not JSON", str(error).rstrip("."), remedy)
    if not isinstance(whole, dict) or not isinstance(whole.get("cluster"), dict) or not whole["cluster"]:
        return Finding("TF_CONFIG has no cluster", "it names the processes and their addresses", remedy)
    members: dict[str, list[str]] = {}
    for role, addresses in whole["cluster"].items():
        if not isinstance(addresses, list) or not all(isinstance(address, str) for address in addresses):
            return Finding(f"{role} has no list of addresses", "every role is a list of host:port", remedy)
        members[role] = addresses
    return whole, members


def _task(whole: Mapping[str, object]) -> Iterator[Finding]:
    if "task" in whole:
        yield Finding(
            "TF_CONFIG contains a task",
            "each process gets its own task; with this one, all of them would be the same process",
            "Remove task: Trainyard fills it in for each process",
        )


def _roles(members: Mapping[str, list[str]], spec: JobSpec) -> Iterator[Finding]:
    for role in members:
        if role == Role.EVALUATOR:
            yield Finding(
                "the evaluator is in the cluster",
                "it does not train with the others, which would wait for it forever",
                "Remove it here and set validation to evaluator: Trainyard starts it outside the cluster",
            )
        elif role == OLD_CHIEF:
            remedy = (
                "Call it chief" if has_chief(spec) else "Make its address one of worker, or call it chief and set chief"
            )
            yield Finding(f"{role} is an old name", "TensorFlow 2 no longer knows it", remedy)
        elif role not in ROLES:
            yield Finding(
                f"there is no role {role[:40]!r}", "TensorFlow starts nothing for it", "Use worker, chief, ps"
            )
    if "ps" in members and "chief" not in members and (has_chief(spec) or not STRATEGIES[spec.strategy].coordinated):
        yield Finding(
            "there are parameter servers but no chief",
            "the chief creates the variables on them and hands out the work; without it the workers wait",
            'Add "chief": ["host:port"], or, if worker 0 leads, as in TensorFlow 1, set `chief` to false',
        )
    if "ps" in members and not STRATEGIES[spec.strategy].coordinated:
        yield Finding(
            "there are parameter servers in it",
            f"{spec.strategy.value} starts none, and the others would wait for them",
            "Remove ps, or choose parameter_server",
        )


def _counts(members: Mapping[str, list[str]], spec: JobSpec) -> Iterator[Finding]:
    coordinated = STRATEGIES[spec.strategy].coordinated
    chiefs = len(members.get("chief", ()))
    if chiefs > 1:
        yield Finding(f"there are {chiefs} chiefs", "only one process can lead", "Keep one")
    elif chiefs and not has_chief(spec):
        yield Finding(
            "a chief is declared, but none is started",
            "the workers would wait for it forever",
            "Set chief, or make its address one of worker",
        )
    elif has_chief(spec) and not chiefs and not coordinated:
        yield Finding(
            "a chief is requested but not declared",
            "it would have no address",
            'Add "chief": ["host:port"], or leave chief out',
        )
    started = sum(role is Role.WORKER for role, _index in computing_roles(spec))
    declared = len(members.get("worker", ()))
    if declared != started:
        yield Finding(
            f"it lists {counted(declared, 'worker address', 'es')} for {counted(started, 'worker')}",
            "TensorFlow waits until every declared process has come, and an undeclared one cannot join",
            f"List {started}, or set workers to {declared + (spec.workers - started)}",
        )
    if coordinated and "ps" in members and len(members["ps"]) != spec.ps:
        yield Finding(
            f"it lists {counted(len(members['ps']), 'ps address', 'es')} for {counted(spec.ps, 'parameter server')}",
            "TensorFlow waits until every declared process has come",
            f"List {spec.ps}, or set ps to {len(members['ps'])}",
        )
    elif coordinated and "ps" not in members:
        yield Finding("it declares no ps", "parameter_server keeps its variables there", 'Add "ps": ["host:port"]')


def _form(addresses: list[tuple[str, int, str]]) -> Iterator[Finding]:
    for role, index, address in addresses:
        host, colon, port = address.rpartition(":")
        shown = f"{role} {index} has the address {address[:80]!r}"
        if not colon or not host:
            yield Finding(shown, "a port is missing, and TensorFlow would not know where to listen", "Write host:port")
        elif not port.isascii() or not port.isdecimal() or not 1024 <= int(port[:6]) <= 65535:
            yield Finding(shown, "its port is not one from 1024 to 65535", "Write host:port with such a port")


def _twice(addresses: list[tuple[str, int, str]]) -> Iterator[Finding]:
    for address, times in Counter(address for _role, _index, address in addresses).items():
        if times > 1:
            who = ", ".join(f"{role} {index}" for role, index, own in addresses if own == address)
            yield Finding(
                f"{address[:80]} is listed {times} times ({who})",
                "only one process can listen at an address; the others fail or join the wrong one",
                "Give each process a port of its own",
            )


def _places(addresses: list[tuple[str, int, str]], cluster: ClusterView) -> Iterator[Finding]:
    nodes: dict[str, list[str]] = {}
    for node in cluster.nodes:
        nodes.setdefault(node.address, []).append(node.name)
    known = ", ".join(f"{address} ({', '.join(names[:8])})" for address, names in list(nodes.items())[:8])
    for role, index, address in addresses:
        host, _, port = address.rpartition(":")
        if host.strip("[]") not in nodes:
            yield Finding(
                f"{role} {index} is to run at {host[:80]}, which is not a node of the cluster",
                "nothing could be started there",
                f"Use an address of {known}",
            )
        elif not cluster.port_first <= int(port) <= cluster.port_last:
            yield Finding(
                f"port {port} of {role} {index} is outside the cluster's range",
                "another program may use it, or a firewall may block it",
                f"Use one of {cluster.port_first} to {cluster.port_last}",
                blocks=False,
            )
