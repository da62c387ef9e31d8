"""Real gangs of TensorFlow: what they lose, where they are cut, how they are paused, and what that may cost them.

Scenarios like the others. Every job has checkpoints. Where its steps are exact it is compared with a training of the
same settings that nothing happened to, of which each installation has one.
"""

import contextlib
import math
import random
import signal
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any

import httpx
import psutil

from orchestrator.domain.gang.reasons import sentence_in
from tests.faults.checker import SAME_LOSS, Verdict, check
from tests.faults.injectors import LOST, RANK, Scene, cut_between_nodes, machine_lost, no_nftables
from tests.faults.installation.counting import CLUSTER
from tests.faults.installation.training import TF_LIMIT_S, submit
from tests.faults.installation.yard import PORTS, TERMINAL, Yard, until
from tests.faults.scenarios.programs import Scenario

INTERVAL = 100
LONG = {"epochs": 80, "checkpoint_steps": INTERVAL}
GANG = LONG | {"strategy": "multi_worker_mirrored", "workers": 3, "global_batch_size": 96}
SERVED = LONG | {"strategy": "parameter_server", "workers": 2, "ps": 1, "global_batch_size": 64}
PAUSE = "paused, resumed, drained"
BETWEEN = "nodes do not reach one another"
CUT_S = 25.0
# Longer than what is on its way is waited for: a machine that is back before that sends it.
AWAY_S = 60.0
# Longer than a process may be silent here (`hang_after_s`), and some of the time in which the next launch has to meet.
LONG_CUT: dict[str, Any] = {"role": "worker", "index": 1, "seconds": 100.0, "says": "chief 0"}


def gang_loses(
    yard: Yard, chance: random.Random, *, strategy: dict[str, Any], lose: Callable[[Scene], str], exact: bool = True
) -> Verdict:
    """A real gang loses a part; it ends well, with the ledger right and, where its steps are `exact`, none missing and
    all as if nothing had happened. The ledger says what `lose` says; where that says nothing, nothing may restart."""
    job_id = _real_gang(yard, strategy)
    lost = lose(Scene(yard, job_id, chance))
    yard.wait_for(job_id, *TERMINAL, within_s=TF_LIMIT_S)
    verdict = check(yard, job_id, interval=INTERVAL if exact else None)
    _judge_ledger(yard, job_id, verdict, names=lost)
    if exact:
        _compare(yard, job_id, verdict)
    return verdict


def loses_what_was_not_sent(yard: Yard, chance: random.Random) -> Verdict:
    """Without a shared folder, a machine is lost with a complete checkpoint that it could not send yet: the job goes on
    from the last that had arrived, so what is done again is an interval and what was trained since."""
    with _own_store(yard):
        job_id = _real_gang(yard, GANG)
        scene = Scene(yard, job_id, chance, long_s=AWAY_S)
        machine = yard.machines[_one_of(scene, "worker")["node"]]
        yard.control.signal("web", signal.SIGSTOP)  # it takes the files; what replicas say comes another way
        try:
            arrived = until(partial(_last_before_one_on_its_way, yard, job_id), within_s=TF_LIMIT_S)
            machine.unplug()
        finally:
            yard.control.signal("web", signal.SIGCONT)
        lost = loses_chiefs_machine(scene)
        yard.wait_for(job_id, *TERMINAL, within_s=TF_LIMIT_S)
    verdict = check(yard, job_id, interval=2 * INTERVAL)  # the machine was gone before the next was complete
    _judge_ledger(yard, job_id, verdict, names=lost)
    for entry in yard.get(f"/jobs/{job_id}/restarts"):
        if entry["step_resumed"] != arrived or entry["step_reached"] < arrived + INTERVAL:
            verdict.wrong.append(f"I7: j-{job_id} had step {arrived} in its store, its ledger says {entry}")
    _compare(yard, job_id, verdict)
    return verdict


def paused(yard: Yard, _: random.Random, *, ask: Callable[[Yard, int], str]) -> Verdict:
    """A real gang is asked to save and leave, and goes on from there: no step is done twice, none is missing."""
    job_id = _real_gang(yard, GANG)
    asked = ask(yard, job_id)
    job = yard.wait_for(job_id, *TERMINAL, within_s=TF_LIMIT_S)
    verdict = check(yard, job_id, asked=frozenset({asked}), interval=0)
    if (job["status"], job["attempt"]) != ("succeeded", 2):
        verdict.wrong.append(f"I1: j-{job_id} is {job['status']} after {job['attempt']} attempts: {job['reason']}")
    steps = [step for step, _ in _losses(yard, job_id)]
    if twice := len(steps) - len(set(steps)):
        verdict.wrong.append(f"I7: j-{job_id} did {twice} steps twice")
    _compare(yard, job_id, verdict)
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


def loses_rank(scene: Scene, *, role: str, number: signal.Signals = signal.SIGKILL) -> str:
    """One process of that role; who it is, in words."""
    victim = _one_of(scene, role)
    with contextlib.suppress(psutil.NoSuchProcess):
        psutil.Process(victim["pid"]).send_signal(number)
    return f"{victim['role']} {victim['index']} on {victim['node']}"


def loses_chiefs_machine(scene: Scene) -> str:
    """The machine on which the first worker runs; as it is to be named."""
    node = str(_one_of(scene, "worker")["node"])
    machine_lost(scene, node=node)
    return f"worker 0 on {node} was lost"


def cut_off(scene: Scene, *, role: str, index: int, seconds: float = CUT_S, says: str = "peer went away") -> str:
    """For a while the machine of that process reaches the control plane, but no other. `says` is what comes of it."""
    cut_between_nodes(scene, node=str(_one_of(scene, role, index)["node"]), seconds=seconds)
    return says


GANGS = (
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
    Scenario("MultiWorkerMirrored loses its chief's machine, own store", LOST, loses_what_was_not_sent),
    Scenario(
        "MultiWorkerMirrored has a rank that hangs",
        RANK,
        partial(gang_loses, strategy=GANG, lose=partial(loses_rank, role="worker", number=signal.SIGSTOP)),
    ),
    Scenario(
        "MultiWorkerMirrored, the first worker's machine cut off from the others",
        BETWEEN,
        partial(gang_loses, strategy=GANG, lose=partial(cut_off, role="worker", index=0)),
        no_nftables,
    ),
    Scenario(
        "MultiWorkerMirrored, another worker's machine cut off from the others",
        BETWEEN,
        partial(gang_loses, strategy=GANG, lose=partial(cut_off, role="worker", index=2)),
        no_nftables,
    ),
    Scenario("paused and resumed", PAUSE, partial(paused, ask=pause_and_resume)),
    Scenario("its node drained", PAUSE, partial(paused, ask=drain_a_node)),
    Scenario(
        "ParameterServer loses a worker",
        RANK,
        partial(gang_loses, strategy=SERVED, lose=partial(loses_rank, role="worker"), exact=False),
    ),
    Scenario(
        "ParameterServer loses a ps",
        RANK,
        partial(gang_loses, strategy=SERVED, lose=partial(loses_rank, role="ps"), exact=False),
    ),
    Scenario(
        "ParameterServer has a worker that hangs",
        RANK,
        partial(
            gang_loses, strategy=SERVED, lose=partial(loses_rank, role="worker", number=signal.SIGSTOP), exact=False
        ),
    ),
    Scenario(
        "ParameterServer, a worker's machine cut off from the others",
        BETWEEN,
        partial(gang_loses, strategy=SERVED, lose=partial(cut_off, role="worker", index=1, says=""), exact=False),
        no_nftables,
    ),
    Scenario(
        "ParameterServer, a worker's machine cut off from the others for long",
        BETWEEN,
        partial(gang_loses, strategy=SERVED, lose=partial(cut_off, **LONG_CUT), exact=False),
        no_nftables,
    ),
)


def _real_gang(yard: Yard, strategy: dict[str, Any]) -> int:
    """A recipe's job that could go on from a checkpoint; its number."""
    job_id = submit(yard, **strategy)
    until(
        lambda: any(each["usable"] for each in yard.get(f"/jobs/{job_id}/checkpoints")),
        within_s=TF_LIMIT_S,
        what=lambda: str(yard.job(job_id)),
    )
    return job_id


def _last_before_one_on_its_way(yard: Yard, job_id: int) -> int:
    """The step of the last checkpoint that has arrived, once another one is complete and has not; 0 before."""
    rows = yard.database.rows(f"SELECT step, usable FROM orchestrator_checkpoint WHERE job_id = {job_id}")
    last = max((step for step, usable in rows if usable), default=0)
    return last if any(step > last for step, usable in rows if not usable) else 0


def _one_of(scene: Scene, role: str, index: int = 0) -> dict[str, Any]:
    """The process of that role and index, as REST shows it."""
    replicas: list[dict[str, Any]] = scene.yard.get(f"/jobs/{scene.job_id}/replicas")
    return next(each for each in replicas if (each["role"], each["index"]) == (role, index))


def _judge_ledger(yard: Yard, job_id: int, verdict: Verdict, *, names: str) -> None:
    """The job has ended well, and was launched again, in whole or in part, at nobody's cost and saying because of whom;
    with nobody to name, not at all."""
    job, ledger = yard.job(job_id), yard.get(f"/jobs/{job_id}/restarts")
    for entry in ledger:
        cost = f"{entry['steps_lost']} steps again, {entry['seconds_lost'] or 0:.0f} s"
        verdict.figures.append(f"{entry['cause']}, {cost}: {sentence_in(entry['reason'])[:300]}")
    if job["status"] != "succeeded" or bool(ledger) != bool(names) or any(entry["counted"] for entry in ledger):
        verdict.wrong.append(f"I7: j-{job_id} is {job['status']} ({job['reason']}), its ledger says {ledger}")
    if names and not any(names in entry["reason"] for entry in ledger):
        verdict.wrong.append(f"I7: j-{job_id} lost {names}, which none of its restarts names")


def _compare(yard: Yard, job_id: int, verdict: Verdict) -> None:
    """Every loss that the job told, and what it ended with, are those of a training that was never interrupted."""
    whole, ended = _never_interrupted(yard)
    metrics = yard.job(job_id)["metrics"]
    apart = max((abs(loss - whole.get(step, math.inf)) for step, loss in _losses(yard, job_id)), default=math.inf)
    at_end = max(abs(metrics.get(name, math.inf) - value) for name, value in ended.items())
    verdict.figures.append(f"losses at most {apart:.1e} from one never interrupted, last metrics {at_end:.1e}")
    if not (apart <= SAME_LOSS and at_end <= SAME_LOSS):
        verdict.wrong.append(f"I2: j-{job_id} is {apart:.1e}, in the end {at_end:.1e}, from one never interrupted")


@cache
def _never_interrupted(yard: Yard) -> tuple[dict[int, float], dict[str, float]]:
    """The loss at each step of a gang that nothing happens to, and its last metrics."""
    job_id = submit(yard, **GANG)
    job = yard.wait_for(job_id, *TERMINAL, within_s=TF_LIMIT_S)
    assert (job["status"], job["attempt"]) == ("succeeded", 1), f"j-{job_id} is {job['status']}: {job['reason']}"
    return dict(_losses(yard, job_id)), job["metrics"]


def _losses(yard: Yard, job_id: int) -> list[tuple[int, float]]:
    """(step, loss) of every launch."""
    views = yard.get(f"/jobs/{job_id}/series", names="loss", points=20_000)["loss"]
    return [point for view in views for point in zip(view["steps"], view["values"], strict=True)]


@contextlib.contextmanager
def _own_store(yard: Yard) -> Iterator[None]:
    """The cluster shares no folder for checkpoints meanwhile, as an administrator has it."""
    _share(yard, "")
    try:
        yield
    finally:
        _share(yard, str(yard.shared))


def _share(yard: Yard, folder: str) -> None:
    (cluster_id,) = yard.database.rows(f"SELECT id FROM orchestrator_cluster WHERE name = '{CLUSTER}'")[0]
    page = f"{yard.url}/admin/orchestrator/cluster/{cluster_id}/change/"
    yard.pages.get(page)
    form = {"name": CLUSTER, "port_first": PORTS[0], "port_last": PORTS[1], "checkpoint_place": folder}
    token = {"csrfmiddlewaretoken": yard.pages.cookies["csrftoken"]}
    answer = yard.pages.post(page, data=form | token, headers={"Referer": page})
    assert answer.status_code == httpx.codes.FOUND, answer.text
    assert yard.get(f"/clusters/{CLUSTER}")["checkpoint_place"] == folder
