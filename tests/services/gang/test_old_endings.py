"""The migration that gave endings to rows of the version before."""

import importlib

import pytest
from django.apps import apps

from orchestrator.models import Attempt, Job, Replica
from tests.factories import make_job, make_replica
from worker_agent.protocol.causes import Blame
from worker_agent.protocol.ending import Ending, digest_of
from worker_agent.protocol.states import Cause, JobStatus, ReplicaStatus

migration = importlib.import_module("orchestrator.migrations.0015_endings")
PEER = "A peer went away: UnavailableError: The tasks are unhealthy (stopped sending heartbeats)"
pytestmark = pytest.mark.django_db


def ended_before(cause: str, reason: str, job: Job | None = None, **columns: object) -> Replica:
    replica = make_replica(job, index=Replica.objects.count(), status=ReplicaStatus.EXITED)
    Replica.objects.filter(pk=replica.pk).update(cause=cause, reason=reason, **columns)
    return replica


@pytest.mark.parametrize(
    ("cause", "columns", "reason", "ending", "said"),
    [
        ("exception", {"exit_code": 1}, PEER, {"code": 1, "lost_peer": True, "silent": True}, PEER),
        ("exception", {"exit_code": 1}, "ValueError: cancelled", {"code": 1}, "ValueError: cancelled"),
        (
            "signal",
            {"signal": 6},
            "Killed. The last lines it wrote:\na\nCoordination service agent",
            {"signal": 6, "lost_peer": True, "last_lines": "a\nCoordination service agent"},
            "Killed.",
        ),
        ("paused", {"exit_code": 75}, "It saved a checkpoint and left.", {"code": 75, "saved": True}, None),
        (
            "hung",
            {"signal": 9},
            "No step. The kernel's view: suspended.",
            {"signal": 9, "kernel_saw": "suspended."},
            "No step.",
        ),
    ],
)
def test_what_was_told_in_words_becomes_data(
    cause: str, columns: dict[str, int], reason: str, ending: dict[str, object], said: str | None
) -> None:
    replica = ended_before(cause, reason, **columns)
    migration.give_endings(apps, None)
    replica.refresh_from_db()
    said = reason if said is None else said
    assert replica.typed_ending == Ending(cause=Cause(cause), digest=digest_of(said), **ending)  # type: ignore[arg-type]
    assert replica.reason == said


@pytest.mark.parametrize(
    ("cause", "signals", "blame"),
    [
        ("node_lost", [], Blame.MACHINE),
        ("exception", [], Blame.PEER),
        ("rendezvous_timeout", [], Blame.PEER),
        ("agent_shutdown", [], Blame.PERSON),
        ("lease_lost", [], Blame.PLATFORM),
        ("signal", [9, 6], Blame.MACHINE),
        ("signal", [None], Blame.MACHINE),
        ("signal", [6, 6], Blame.PEER),
    ],
)
def test_the_machines_are_blamed_for_what_they_did_only(cause: str, signals: list[int | None], blame: Blame) -> None:
    job = make_job(status=JobStatus.FAILED)
    for number in signals:
        ended_before(cause, "", job, signal=number)
    job.attempts.update(cause=cause, blame="machines")
    migration.name_who_is_to_blame(apps, None)
    assert Attempt.objects.get(job=job).blame == blame
