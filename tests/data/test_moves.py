"""Which step each process reached, and when that became known here, whatever the clock of its node says."""

from collections.abc import Callable
from datetime import timedelta

import pytest

from orchestrator import live
from orchestrator.ingest import Ingest
from orchestrator.models import Job
from tests.data.conftest import NOW
from tests.data.fakes import FakeAgent, FakeRedis
from tests.factories import make_replica
from worker_agent.protocol.records import Phase, Progress

pytestmark = pytest.mark.django_db
Step = Callable[[], int]


def progress(step: int) -> Progress:
    return Progress(at=7200.0, step=step, total_steps=100, epoch=1, epochs=5)


def test_a_step_is_noted_with_the_time_of_its_arrival(agent: FakeAgent, step: Step) -> None:
    agent.say(progress(3), progress(5))
    agent.send()
    step()
    agent.replica.refresh_from_db()
    assert (agent.replica.step, agent.replica.stepped_at, agent.replica.moved_at) == (5, NOW, NOW)


def test_what_was_told_before_is_no_move(agent: FakeAgent, ingest: Ingest) -> None:
    agent.say(progress(5), progress(5), progress(6))
    for place in range(3):
        agent.send(place, place + 1)
        with live.gathered():
            ingest.step(NOW + timedelta(seconds=place))
        agent.replica.refresh_from_db()
        assert (agent.replica.step, agent.replica.moved_at) == ((5, NOW), (5, NOW), (6, NOW + timedelta(seconds=2)))[
            place
        ]


def test_a_milestone_is_a_sign_of_life(agent: FakeAgent, step: Step) -> None:
    agent.say(Phase(at=7200.0, name="saving"))
    agent.send()
    step()
    agent.replica.refresh_from_db()
    assert (agent.replica.phase, agent.replica.step, agent.replica.moved_at) == ("saving", None, NOW)
    assert agent.replica.stepped_at is None


def test_only_who_leads_moves_the_job(redis: FakeRedis, agent: FakeAgent, step: Step) -> None:
    other = FakeAgent(redis, make_replica(agent.replica.job, index=1))
    other.say(progress(9))
    other.send()
    agent.say(progress(4))
    agent.send()
    step()
    other.replica.refresh_from_db()
    agent.replica.job.refresh_from_db()
    assert (other.replica.step, agent.replica.job.step) == (9, 4)


def test_beside_a_chief_worker_0_moves_no_job(redis: FakeRedis, agent: FakeAgent, step: Step) -> None:
    job = agent.replica.job
    Job.objects.filter(pk=job.pk).update(spec=job.spec | {"chief": True})
    chief = FakeAgent(redis, make_replica(job, role="chief"))
    chief.say(progress(4))
    chief.send()
    agent.say(progress(9))
    agent.send()
    step()
    job.refresh_from_db()
    assert job.step == 4
