"""What holds a job up becomes lines of its history: one when it is found, one when it is over, none on noise."""

import random

import pytest

from orchestrator import enqueue, series
from orchestrator.models import Job, Replica
from orchestrator.services.gang import slowness
from tests.services.gang.gangs import later, make_gang_job, make_lab, run
from worker_agent.protocol.records import StepPart
from worker_agent.protocol.states import JobStatus


@pytest.fixture
def gang(now):
    """The processes of two workers that train."""
    return run(make_gang_job(make_lab()), now)


class Trainers:
    """Tells what both workers measured, a sample every ten seconds, and has it looked at."""

    def __init__(self, gang: list[Replica], now) -> None:
        self._gang, self._now, self._samples = gang, now, 0

    def measure(self, *own_ms: float, input_ms: float = 0.0) -> None:
        """Each worker computes for so long, the quicker one waits."""
        self._samples += 1
        at = later(self._now, 10 * self._samples)
        for replica, ms in zip(self._gang, own_ms, strict=True):
            parts = {StepPart.COMPUTE: ms, StepPart.WAIT: max(own_ms) - ms, StepPart.INPUT: input_ms}
            for part, value in parts.items():
                curve = series.curve_of([self._samples], [at.timestamp()], [value])
                series.append([series.Addition(series.Owner(replica_id=replica.pk), part.series, curve)])
        slowness.tell(job_id=self._gang[0].job_id, now=at)


def history(job: Job) -> list[str]:
    return list(job.events.filter(kind__startswith="slowed_by").order_by("pk").values_list("text", flat=True))


def test_a_straggler_is_told_once_and_its_end_once(gang, now):
    job, trainers = gang[0].job, Trainers(gang, now)
    for _ in range(2):
        trainers.measure(10, 17)
    assert history(job) == []
    for _ in range(4):
        trainers.measure(10, 17)
    assert history(job) == ["Worker 1 (node-2) is 1.7 × slower than the others."]
    for _ in range(4):
        trainers.measure(10, 10)
    assert history(job)[1:] == ["Worker 1 (node-2) is as fast as the others again."]
    for _ in range(4):
        trainers.measure(20, 10)
    assert history(job)[2:] == ["Worker 0 (node-1) is 2.0 × slower than the others."]
    assert set(job.events.filter(kind="slowed_by_straggler").values_list("replica", flat=True)) == {
        each.pk for each in gang
    }


def test_a_gang_that_waits_for_input_is_told(gang, now):
    job, trainers = gang[0].job, Trainers(gang, now)
    for _ in range(3):
        trainers.measure(5, 5, input_ms=15)
    assert history(job) == ["The training waits for its input, 75 % of each step."]
    for _ in range(3):
        trainers.measure(5, 5)
    assert history(job)[1:] == ["The training no longer waits for its input."]


def test_nothing_is_told_of_noise(gang, now):
    trainers, chance = Trainers(gang, now), random.Random(3)
    for _ in range(40):
        trainers.measure(*(10 + chance.gauss(0, 0.5) + (chance.random() < 0.1) * 10 for _ in gang))
    assert history(gang[0].job) == []


def test_what_was_told_of_an_earlier_attempt_is_not_over_in_the_next(gang, now):
    job, trainers = gang[0].job, Trainers(gang, now)
    for _ in range(3):
        trainers.measure(10, 17)
    Job.objects.filter(pk=job.pk).update(attempt=2)
    slowness.tell(job_id=job.pk, now=later(now, 40))
    assert len(history(job)) == 1


def test_the_history_is_not_flooded_and_ended_jobs_have_none(gang, now):
    job, trainers = gang[0].job, Trainers(gang, now)
    for turn in range(slowness.MOST_TOLD + 4):
        for _ in range(3):
            trainers.measure(10, 10 if turn % 2 else 17)
    assert len(history(job)) == slowness.MOST_TOLD
    Job.objects.filter(pk=job.pk).update(status=JobStatus.SUCCEEDED.value)
    job.events.all().delete()
    for _ in range(3):
        trainers.measure(10, 17)
    assert history(job) == []


def test_a_look_is_asked_for_once_in_a_while(monkeypatch):
    class FakeRedis:
        marks: set[str] = set()

        def set(self, key, _, *, nx, ex):
            assert nx
            assert ex == enqueue.SLOWNESS_S
            return key not in self.marks and not self.marks.add(key)

    sent = []
    monkeypatch.setattr(enqueue, "_redis", lambda _: FakeRedis())
    monkeypatch.setattr(enqueue, "_put", lambda *name, **given: sent.append((*name, given)))
    for job_id in (1, 1, 2):
        enqueue._look_once(job_id)
    assert sent == [(enqueue.LOOK_FOR_SLOWNESS, "control", {"job_id": each}) for each in (1, 2)]
