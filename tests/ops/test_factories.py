"""The factories give rows that the database and the protocol accept."""

import pytest

from orchestrator.models import Job
from tests.factories import make_job, make_node, make_replica
from worker_agent.protocol.states import JobStatus, ReplicaStatus

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("status", list(JobStatus))
def test_a_job_in_any_status_has_a_typed_spec(status: JobStatus) -> None:
    job = Job.objects.get(pk=make_job(status=status).pk)
    assert job.typed_spec.name == "tiny"
    assert job.attempts.count() == job.attempt


def test_replicas_of_one_gang_hold_different_ports() -> None:
    job = make_job(status=JobStatus.RUNNING)
    first, second = (make_replica(job, node=make_node(job.cluster), index=index) for index in range(2))
    assert first.port != second.port
    assert first.held
    assert not make_replica(job, index=2, status=ReplicaStatus.EXITED).held
