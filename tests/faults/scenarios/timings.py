"""How soon: the promises that name seconds, measured on a counting gang and checked against their limits."""

import random
import signal
import time
from collections.abc import Callable
from functools import partial

from tests.faults.checker import Verdict, check
from tests.faults.injectors import AGENT, LOST, RANK, REDIS, Scene, agent_killed
from tests.faults.installation import counting
from tests.faults.installation.yard import NODES, TERMINAL, Yard, until
from tests.faults.scenarios.programs import Scenario

NOTICED_WITHIN_S, ENDED_WITHIN_S, AGAIN_WITHIN_S = 30.0, 20.0, 30.0


def lost_node_is_noticed(yard: Yard, chance: random.Random) -> Verdict:
    """From the cable that is taken out to the node that counts as lost."""
    name, verdict = chance.choice(NODES), Verdict()
    yard.machines[name].unplug()
    try:
        within(verdict, "node lost, noticed", NOTICED_WITHIN_S, lambda: _state(yard, name) == "lost")
    finally:
        yard.machines[name].plug_in()
        yard.wait_for_nodes()
    return verdict


def killed_rank_is_replaced(yard: Yard, chance: random.Random) -> Verdict:
    """From SIGKILL to the end of the gang, and to the next one at work."""
    job_id, verdict = yard.count(steps=100), Verdict()
    yard.wait_for(job_id, "running")
    chance.choice(Scene(yard, job_id, chance).ranks()).kill()
    first = f"/jobs/{job_id}/replicas?attempt=1"
    within(
        verdict,
        "rank killed, gang ended",
        ENDED_WITHIN_S,
        lambda: all(each["status"] == "exited" for each in yard.get(first)),
    )
    within(
        verdict,
        "… and at work again",
        AGAIN_WITHIN_S,
        lambda: (job := yard.job(job_id))["attempt"] == 2 and job["status"] in ("running", *TERMINAL),
    )
    return checked(yard, job_id, verdict)


def emptied_redis_is_filled_again(yard: Yard, _: random.Random) -> Verdict:
    """From the loss of the launch commands on their way to a gang at work."""
    for name in NODES:
        yard.machines[name].signal("agent", signal.SIGSTOP)
    job_id, verdict = yard.count(steps=20), Verdict()
    yard.wait_for(job_id, "launching")
    with yard.redis() as client:
        client.flushall()
    for name in NODES:
        yard.machines[name].signal("agent", signal.SIGCONT)
    at_work = ("running", *TERMINAL)
    within(verdict, "Redis emptied, gang at work", AGAIN_WITHIN_S, lambda: yard.job(job_id)["status"] in at_work)
    return checked(yard, job_id, verdict)


def killed_agents_find_their_training(yard: Yard, chance: random.Random) -> Verdict:
    """Ten kills in a row: the same processes until the end."""
    job_id, verdict = yard.count(steps=900), Verdict()
    yard.wait_for(job_id, "running")
    scene = Scene(yard, job_id, chance)
    before = {rank.pid for rank in scene.ranks()}
    agent_killed(scene, times=10)
    done = {truth.pid for truth in counting.read(yard.truth, job_id) if truth.is_done}
    same = before == {rank.pid for rank in scene.ranks()} | done
    verdict.figures.append(
        f"agent killed ten times: {'the same' if same else 'other'} {len(before)} training processes"
    )
    verdict.wrong += [] if same else [f"I5: j-{job_id} has other processes after its agent was killed"]
    return checked(yard, job_id, verdict)


TIMINGS = (
    Scenario("a lost node is noticed", LOST, lost_node_is_noticed),
    Scenario("a killed rank is replaced", RANK, killed_rank_is_replaced),
    Scenario("an emptied Redis is filled again", REDIS, emptied_redis_is_filled_again),
    Scenario("killed agents find their training", AGENT, killed_agents_find_their_training),
)


def within(verdict: Verdict, what: str, limit_s: float, is_so: Callable[[], bool]) -> None:
    """Wait until it is so, and note how long that took: a figure, and a violation beyond the limit."""
    began = time.monotonic()
    until(is_so, within_s=2 * limit_s, what=partial(str, what))
    took_s = time.monotonic() - began
    verdict.figures.append(f"{what}: {took_s:.1f} s")
    if took_s > limit_s:
        verdict.wrong.append(f"I1: {what} after {took_s:.1f} s, promised within {limit_s:.0f} s")


def checked(yard: Yard, job_id: int, verdict: Verdict, *, within_s: float = 120.0) -> Verdict:
    """The verdict with that on the job, which has to end well."""
    job = yard.wait_for(job_id, *TERMINAL, within_s=within_s)
    if job["status"] != "succeeded":
        verdict.wrong.append(f"I1: j-{job_id} is {job['status']}: {job['reason']}")
    verdict.add(check(yard, job_id))
    return verdict


def _state(yard: Yard, name: str) -> str:
    return next(str(node["state"]) for node in yard.get("/nodes") if node["name"] == name)
