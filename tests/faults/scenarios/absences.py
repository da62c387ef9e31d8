"""Longer absences than those that strike in every state: minutes without the control plane, its database, its Redis.

Scenarios like the others. A gang counts before, throughout and beyond; afterwards every point and line has to be there.
"""

import random
from collections.abc import Callable
from functools import partial

from tests.faults.checker import Verdict
from tests.faults.injectors import AWAY, DATABASE, REDIS, Scene, database_away, program_killed, program_stalled
from tests.faults.installation import counting
from tests.faults.installation.yard import CONTROL, TERMINAL, Yard
from tests.faults.scenarios.programs import Scenario
from tests.faults.scenarios.timings import AGAIN_WITHIN_S, checked, within

WORKERS, WAIT_S, BEYOND_S = 3, 0.25, 120.0
ARRIVED_WITHIN_S, END_LIMIT_S = 60.0, 900.0


def trains_on(yard: Yard, chance: random.Random, *, strike: Callable[[Scene], None], away_s: float) -> Verdict:
    """The same processes of the same launch count all the while; what they said meanwhile arrives soon after."""
    verdict = Verdict()
    job_id = yard.count(steps=int((away_s + BEYOND_S) / WAIT_S), wait_s=WAIT_S, workers=WORKERS)
    yard.wait_for(job_id, "running")
    strike(Scene(yard, job_id, chance, long_s=away_s))
    said = min(truth.said for truth in counting.read(yard.truth, job_id))
    what = f"away for {away_s:.0f} s, until step {said:,} is known"
    within(verdict, what, ARRIVED_WITHIN_S, lambda: yard.job(job_id)["step"] >= said)
    checked(yard, job_id, verdict, within_s=END_LIMIT_S)
    attempt, processes = yard.job(job_id)["attempt"], len(counting.read(yard.truth, job_id))
    verdict.figures.append(
        f"away for {away_s:.0f} s: {verdict.points.emitted:,} points said, {verdict.points.stored:,} stored, "
        f"{verdict.lines.stored:,} lines, by {processes} processes of {attempt} launch"
    )
    if (attempt, processes) != (1, WORKERS):
        verdict.wrong.append(f"I7: j-{job_id} was launched {attempt} times, as {processes} processes")
    return verdict


def launched_again(yard: Yard, chance: random.Random, *, stalled_s: float) -> Verdict:
    """Redis hangs for longer than the lease: the gang is ended by its nodes, and soon at work again after it."""
    job_id, verdict = yard.count(steps=300), Verdict()
    yard.wait_for(job_id, "running")
    program_stalled(Scene(yard, job_id, chance, long_s=stalled_s), name="redis")
    at_work = ("running", *TERMINAL)
    within(
        verdict,
        f"Redis stalled for {stalled_s:.0f} s, gang at work again",
        AGAIN_WITHIN_S,
        lambda: (job := yard.job(job_id))["attempt"] == 2 and job["status"] in at_work,
    )
    checked(yard, job_id, verdict)
    ledger = yard.get(f"/jobs/{job_id}/restarts")
    if [(entry["cause"], entry["counted"]) for entry in ledger] != [("lease_lost", False)]:
        verdict.wrong.append(f"I7: j-{job_id} has in its ledger {ledger}")
    return verdict


ABSENCES = (
    Scenario("database away for 90 s", DATABASE, partial(trains_on, strike=database_away, away_s=90.0)),
    Scenario("Redis stalled for 60 s", REDIS, partial(launched_again, stalled_s=60.0)),
    Scenario(
        "control plane away for 15 minutes",
        AWAY,
        partial(trains_on, strike=partial(program_killed, names=CONTROL, away_s=900.0), away_s=900.0),
    ),
)
