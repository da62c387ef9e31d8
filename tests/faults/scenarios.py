"""Promises that need a job of their own: how a program ends, real gangs of TensorFlow that lose a part, stolen pids.

A table like that of the faults; each runs from submission to the checker's verdict.
"""

import contextlib
import random
import signal
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import psutil

from tests.faults.checker import Verdict, check
from tests.faults.injectors import AGENT, LOST, RANK, Scene, machine_lost
from tests.faults.machines import settle
from tests.faults.training import TF_LIMIT_S, submit
from tests.faults.yard import TERMINAL, Yard, until

INTERVAL = 100
LONG = {"epochs": 80, "checkpoint_steps": INTERVAL}
GANG = LONG | {"strategy": "multi_worker_mirrored", "workers": 3, "global_batch_size": 96}
SERVED = LONG | {"strategy": "parameter_server", "workers": 2, "ps": 1, "global_batch_size": 64}
PID_TRIES = 200
PAUSE = "paused, resumed, drained"


@dataclass(frozen=True)
class Scenario:
    """`promise` is the row of docs/reliability.md that it tries."""

    name: str
    promise: str
    run: Callable[[Yard, random.Random], Verdict]


def ends_so(yard: Yard, _: random.Random, *, end: str, cause: str, words: str) -> Verdict:
    """A program that ends badly by itself is told in words, once."""
    job_id = yard.count(steps=5, workers=2, end=end)
    job = yard.wait_for(job_id, *TERMINAL)
    verdict = check(yard, job_id)
    if job["cause"] != cause or words not in job["reason"]:
        verdict.wrong.append(f"I1: j-{job_id} ended by {end!r} and says {job['cause']}: {job['reason']}")
    if job["reason"].count(words) > 1:
        verdict.wrong.append(f"I1: j-{job_id} says it twice: {job['reason']}")
    return verdict


def stubborn(yard: Yard, _: random.Random) -> Verdict:
    """Neither the program nor what it left in a session of its own heeds SIGTERM; both are gone soon after a stop."""
    job_id = yard.count(steps=1000, workers=2, end="stubborn")
    yard.wait_for(job_id, "running")
    yard.post(f"/jobs/{job_id}/stop")
    yard.wait_for(job_id, "stopped", within_s=40)
    return check(yard, job_id, asked=frozenset({"stop"}))


def pid_taken_over(yard: Yard, chance: random.Random) -> Verdict:
    """While an agent is away its training ends and somebody else gets the process id: nobody signals that one."""
    job_id = yard.count(steps=200, workers=1)
    yard.wait_for(job_id, "running")
    scene = Scene(yard, job_id, chance)
    node, (rank,) = scene.node(), scene.ranks()
    yard.machines[node].kill("agent")
    shim = rank.parent()
    for process in (shim, rank):
        if process is not None:
            process.kill()
    until(lambda: not psutil.pid_exists(rank.pid), within_s=10)
    impostor = _start_as(yard, node, rank.pid)
    yard.start_agent(node)
    yard.wait_for_nodes()
    job = yard.wait_for(job_id, *TERMINAL, within_s=180)
    verdict = check(yard, job_id)
    if yard.noted(node, "impostor").exists() or yard.machines[node].programs["impostor"].poll() is not None:
        verdict.wrong.append(f"I5: process {rank.pid}, which had nothing to do with j-{job_id}, was signalled")
    if not impostor:
        verdict.wrong.append(f"I5: nobody else could be given the process id {rank.pid}: nothing was tried")
    if job["status"] != "succeeded":
        verdict.wrong.append(f"I1: j-{job_id} is {job['status']}: {job['reason']}")
    yard.machines[node].end("impostor")
    return verdict


def gang_loses(
    yard: Yard, chance: random.Random, *, strategy: dict[str, Any], lose: Callable[[Scene], None], whole: bool = True
) -> Verdict:
    """A real gang that has checkpoints loses a part; it ends well, with the ledger right and no step missing."""
    job_id = _real_gang(yard, strategy)
    scene = Scene(yard, job_id, chance)
    lose(scene)
    job = yard.wait_for(job_id, *TERMINAL, within_s=TF_LIMIT_S)
    verdict = check(yard, job_id, interval=INTERVAL if whole else None)
    ledger = yard.get(f"/jobs/{job_id}/restarts")
    if job["status"] != "succeeded" or not ledger or any(entry["counted"] for entry in ledger):
        verdict.wrong.append(f"I7: j-{job_id} is {job['status']} ({job['reason']}), its ledger says {ledger}")
    return verdict


def paused(yard: Yard, _: random.Random, *, ask: Callable[[Yard, int], str]) -> Verdict:
    """A real gang is asked to save and leave, and goes on from there: no step is done twice, none is missing."""
    job_id = _real_gang(yard, GANG)
    asked = ask(yard, job_id)
    job = yard.wait_for(job_id, *TERMINAL, within_s=TF_LIMIT_S)
    verdict = check(yard, job_id, asked=frozenset({asked}), interval=0)
    if (job["status"], job["attempt"]) != ("succeeded", 2):
        verdict.wrong.append(f"I1: j-{job_id} is {job['status']} after {job['attempt']} attempts: {job['reason']}")
    steps = [view["steps"] for view in yard.get(f"/jobs/{job_id}/series", names="loss", points=20_000)["loss"]]
    if twice := sum(map(len, steps)) - len({step for run in steps for step in run}):
        verdict.wrong.append(f"I7: j-{job_id} did {twice} steps twice")
    return verdict


def pause_and_resume(yard: Yard, job_id: int) -> str:
    """As from the job page; in between nothing is held."""
    yard.post(f"/jobs/{job_id}/pause")
    yard.wait_for(job_id, "paused", within_s=60)
    held = yard.database.rows(f"SELECT id FROM orchestrator_replica WHERE held AND job_id = {job_id}")
    assert not held, f"j-{job_id} is paused and holds {held}"
    yard.post(f"/jobs/{job_id}/resume")
    return "resume"


def drain_a_node(yard: Yard, job_id: int) -> str:
    """As from the node's page; the node is taken into use again once the job is elsewhere."""
    node = yard.get(f"/jobs/{job_id}/replicas")[0]["node"]
    yard.post(f"/nodes/{yard.node_id(node)}/drain")
    until(lambda: yard.job(job_id)["attempt"] == 2, within_s=TF_LIMIT_S, what=lambda: str(yard.job(job_id)))
    places = {each["node"] for each in yard.get(f"/jobs/{job_id}/replicas")}
    yard.post(f"/nodes/{yard.node_id(node)}/uncordon")
    assert node not in places, f"j-{job_id} was placed on {node}, which was drained"
    return "drain"


def loses_rank(scene: Scene, *, role: str, number: signal.Signals = signal.SIGKILL) -> None:
    """One process of that role."""
    replicas = scene.yard.get(f"/jobs/{scene.job_id}/replicas")
    victim = next(each for each in replicas if each["role"] == role and each["status"] == "running")
    with contextlib.suppress(psutil.NoSuchProcess):
        psutil.Process(victim["pid"]).send_signal(number)


def loses_chiefs_machine(scene: Scene) -> None:
    """The machine on which the first worker runs."""
    replicas = scene.yard.get(f"/jobs/{scene.job_id}/replicas")
    machine_lost(scene, node=next(each["node"] for each in replicas if each["index"] == 0))


SCENARIOS = (
    Scenario("the program raises", RANK, partial(ends_so, end="raise", cause="exception", words="canary is silent")),
    Scenario("the program leaves with 3", RANK, partial(ends_so, end="exit", cause="exit_code", words="exit code 3")),
    Scenario("the program has no memory", RANK, partial(ends_so, end="memory", cause="out_of_memory", words="memory")),
    Scenario("a process that will not die", "process that will not die", stubborn),
    Scenario("its pid is somebody else's", AGENT, pid_taken_over),
    Scenario(
        "MultiWorkerMirrored loses a worker",
        RANK,
        partial(gang_loses, strategy=GANG, lose=partial(loses_rank, role="worker")),
    ),
    Scenario(
        "MultiWorkerMirrored loses its chief's machine",
        LOST,
        partial(gang_loses, strategy=GANG, lose=loses_chiefs_machine),
    ),
    Scenario(
        "MultiWorkerMirrored has a rank that hangs",
        RANK,
        partial(gang_loses, strategy=GANG, lose=partial(loses_rank, role="worker", number=signal.SIGSTOP)),
    ),
    Scenario("paused and resumed", PAUSE, partial(paused, ask=pause_and_resume)),
    Scenario("its node drained", PAUSE, partial(paused, ask=drain_a_node)),
    Scenario(
        "ParameterServer loses a worker",
        RANK,
        partial(gang_loses, strategy=SERVED, lose=partial(loses_rank, role="worker"), whole=False),
    ),
    Scenario(
        "ParameterServer loses a ps",
        RANK,
        partial(gang_loses, strategy=SERVED, lose=partial(loses_rank, role="ps"), whole=False),
    ),
)


def _real_gang(yard: Yard, strategy: dict[str, Any]) -> int:
    """A recipe's job that has written its first checkpoint; its number."""
    job_id = submit(yard, **strategy)
    until(lambda: yard.get(f"/jobs/{job_id}/checkpoints"), within_s=TF_LIMIT_S, what=lambda: str(yard.job(job_id)))
    return job_id


def _start_as(yard: Yard, node: str, pid: int) -> bool:
    """Start a bystander that has this process id: the kernel counts on from what it is told."""
    machine = yard.machines[node]
    for _ in range(PID_TRIES):
        with open("/proc/sys/kernel/ns_last_pid", "w") as last:  # noqa: PTH123 - written and used in one breath
            last.write(str(pid - 1))
        if yard.start_bystander(node, "impostor") == pid:
            settle(0.5)
            return True
        machine.kill("impostor")
    yard.start_bystander(node, "impostor")
    return False
