"""The fault suite's two modes: every fault in every state, and seeded faults on a busy cluster for some minutes.

Both give the same rows: fault, state it struck in, what the checker found.
"""

import random
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import httpx

from tests.faults.checker import Verdict, check
from tests.faults.injectors import FAULTS, Fault, Scene
from tests.faults.installation.machines import settle
from tests.faults.installation.training import TF_LIMIT_S, is_saving, submit
from tests.faults.installation.yard import NODES, TERMINAL, Yard, until
from tests.faults.scenarios.programs import Scenario

STATES = ("submitted", "launching", "running", "checkpointing", "stopping")
JOB_LIMIT_S = 240.0
STEPS, WAIT_S = 100, 0.1
# A training that spends most of its time on checkpoints.
INTERVAL = 2
SAVES_OFTEN = {"strategy": "one_device", "epochs": 36, "checkpoint_steps": INTERVAL, "params": {"units": 512}}
BUSY_JOBS, STOPPED_ONES = 2, 0.15
# What counts as a violation beside what the checker says: something does not come true, or is not answered.
FAILURES = (AssertionError, httpx.HTTPError)


@dataclass
class Row:
    """One strike. `skipped` says why there was none."""

    fault: Fault | Scenario
    state: str
    skipped: str = ""
    seconds: float = 0.0
    verdict: Verdict = field(default_factory=Verdict)


def every_fault(
    yard: Yard, *, seed: int, faults: Iterable[Fault] = FAULTS, states: Iterable[str] = STATES, **lasting: float
) -> Iterator[Row]:
    """Each fault in each state, on a job of its own, checked when that has ended."""
    for fault in faults:
        for state in states:
            if missing := fault.missing():
                yield Row(fault, state, skipped=missing)
                continue
            yield one_fault(yard, fault, state, random.Random(f"{seed} {fault.name} {state}"), **lasting)


def every_scenario(yard: Yard, *, seed: int, scenarios: Iterable[Scenario]) -> Iterator[Row]:
    """Each once."""
    for scenario in scenarios:
        row, began = Row(scenario, "its own", skipped=scenario.missing()), time.monotonic()
        if row.skipped:
            yield row
            continue
        try:
            row.verdict = scenario.run(yard, random.Random(f"{seed} {scenario.name}"))
        except FAILURES as error:
            row.verdict.wrong.append(f"I1: {scenario.name}: {error}")
        row.seconds = time.monotonic() - began
        yield row


def one_fault(yard: Yard, fault: Fault, state: str, chance: random.Random, **lasting: float) -> Row:
    """Bring a job into a state, strike, and look at it when it has ended."""
    began = time.monotonic()
    row = Row(fault, state)
    scene = _scene_for(yard, state, chance, **lasting)
    try:
        BRING_TO[state](scene)
        try:
            fault.strike(scene)
        finally:
            if state == "submitted":
                _use(yard, again=True)
        limit_s = JOB_LIMIT_S if scene.interval is None else TF_LIMIT_S
        job = yard.wait_for(scene.job_id, *TERMINAL, within_s=limit_s)
        row.verdict = _verdict(scene, job)
    except FAILURES as error:
        row.verdict.wrong.append(f"I1: j-{scene.job_id} {error}")
    row.seconds = time.monotonic() - began
    return row


def random_faults(
    yard: Yard, *, seed: int, minutes: float, faults: Iterable[Fault] = FAULTS, most_steps: int = 300, **lasting: float
) -> Iterator[Row]:
    """Seeded faults, one after the other, on jobs that follow each other; every job is checked when it has ended.

    A row is yielded for every strike, with the verdicts on the jobs that have ended since the one before.
    """
    chance = random.Random(seed)
    possible = [fault for fault in faults if not fault.missing()]
    ends_at = time.monotonic() + 60 * minutes
    open_jobs: dict[int, Scene] = {}
    while time.monotonic() < ends_at:
        row, began = Row(chance.choice(possible), "nothing open"), time.monotonic()
        try:
            row.verdict.add(_ended(open_jobs))
            while len(open_jobs) < BUSY_JOBS:
                scene = Scene(yard, _random_job(yard, chance, most_steps), chance, **lasting)
                open_jobs[scene.job_id] = scene
            settle(chance.uniform(0.0, 6.0))
            scene = open_jobs[chance.choice(sorted(open_jobs))]
            if chance.random() < STOPPED_ONES:
                scene.stop()
            for each in open_jobs.values():
                each.struck.append(f"{row.fault.name} while {yard.job(each.job_id)['status']}")
            row.state = yard.job(scene.job_id)["status"]
            row.fault.strike(scene)
            yard.wait_for_nodes()
        except FAILURES as error:
            row.verdict.wrong.append(f"I1: {row.fault.name}: {error}")
        row.seconds = time.monotonic() - began
        yield row
    for scene in list(open_jobs.values()):
        row = Row(NOTHING, "at the end")
        try:
            yard.wait_for(scene.job_id, *TERMINAL, within_s=JOB_LIMIT_S)
            row.verdict.add(_ended(open_jobs))
        except FAILURES as error:
            row.verdict.wrong.append(_told(scene, f"I1: {error}"))
        yield row


def _submitted(scene: Scene) -> None:
    """It waits, until `one_fault` takes the nodes into use again."""


def _status(*wanted: str) -> Callable[[Scene], None]:
    def bring(scene: Scene) -> None:
        until(lambda: scene.yard.job(scene.job_id)["status"] in (*wanted, *TERMINAL), within_s=60)

    return bring


def _saving(scene: Scene) -> None:
    yard, job_id = scene.yard, scene.job_id
    until(lambda: is_saving(yard, job_id), within_s=TF_LIMIT_S, what=lambda: str(yard.job(job_id)))


def _stopping(scene: Scene) -> None:
    _status("running")(scene)
    settle(1.0)
    scene.stop()


BRING_TO: dict[str, Callable[[Scene], None]] = {
    "submitted": _submitted,
    "launching": _status("launching", "running"),
    "running": _status("running"),
    "checkpointing": _saving,
    "stopping": _stopping,
}
NOTHING = Fault("nothing", "", lambda scene: None)


def _scene_for(yard: Yard, state: str, chance: random.Random, **lasting: float) -> Scene:
    """A counting job for a state, for "checkpointing" a real training; for "submitted" no node takes it."""
    if state == "checkpointing":
        return Scene(yard, submit(yard, **SAVES_OFTEN), chance, interval=INTERVAL, **lasting)
    if state == "submitted":
        _use(yard, again=False)
    return Scene(yard, yard.count(steps=STEPS, wait_s=WAIT_S), chance, **lasting)


def _use(yard: Yard, *, again: bool) -> None:
    """Whether jobs are placed on the nodes."""
    for name in NODES:
        yard.post(f"/nodes/{yard.node_id(name)}/{'uncordon' if again else 'cordon'}")


def _random_job(yard: Yard, chance: random.Random, most_steps: int) -> int:
    return yard.count(
        steps=chance.randint(20, most_steps), wait_s=chance.choice((0.02, 0.1)), workers=chance.randint(1, 3)
    )


def _ended(open_jobs: dict[int, Scene]) -> Verdict:
    """The verdict on all jobs that have ended meanwhile, which are then no longer open."""
    verdict = Verdict()
    for job_id, scene in list(open_jobs.items()):
        job = scene.yard.job(job_id)
        if job["status"] in TERMINAL:
            verdict.add(_verdict(open_jobs.pop(job_id), job))
    return verdict


def _verdict(scene: Scene, job: dict[str, object]) -> Verdict:
    verdict = check(scene.yard, scene.job_id, asked=frozenset(scene.asked), interval=scene.interval)
    expected = ("stopped", "succeeded") if "stop" in scene.asked else ("succeeded",)
    if job["status"] not in expected:
        verdict.wrong.append(f"I1: j-{scene.job_id} is {job['status']}: {job['reason']}")
    verdict.wrong += [f"{words} (j-{scene.job_id})" for words in scene.wrong]
    verdict.wrong = [_told(scene, words) for words in verdict.wrong]
    return verdict


def _told(scene: Scene, words: str) -> str:
    """A violation, with what its job saw before: where faults strike by chance it is found later than it came."""
    return f"{words}; struck by {', '.join(scene.struck)}" if scene.struck else words
