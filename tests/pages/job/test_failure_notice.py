"""Why a job failed and what to do about it, as its page says it."""

from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from django.test import Client
from django.urls import reverse

from orchestrator.models import User
from tests.factories import make_job, make_replica
from worker_agent.protocol.codec import plain
from worker_agent.protocol.ending import Ending
from worker_agent.protocol.states import Cause, JobStatus, ReplicaStatus

Browser = Callable[[User], Client]


@pytest.mark.parametrize("cause", [cause for cause in Cause if cause not in (Cause.COMPLETED, Cause.STOPPED)])
def test_every_cause_has_a_remedy(cause: Cause, client_of: Browser, member: User) -> None:
    job = make_job(owner=member, status=JobStatus.FAILED, cause=cause.value, reason="")
    failed = client_of(member).get(reverse("job", args=[job.pk])).context["failed"]
    assert failed["title"]
    assert failed["remedy"]


@pytest.mark.parametrize(("blame", "looks_at_the_network"), [("peer", True), ("program", False)])
def test_a_gang_in_which_all_only_lost_a_peer_needs_no_other_program(
    blame: str, looks_at_the_network: bool, client_of: Browser, member: User
) -> None:
    lost = "A peer went away: UnavailableError: Socket closed"
    reason = f"worker 0 on n-1 failed: {lost}. No process failed by itself, as in attempt 1."
    job = make_job(owner=member, status=JobStatus.FAILED, cause=Cause.EXCEPTION.value, reason=reason)
    job.attempts.update(blame=blame)
    for index in range(2):
        make_replica(job, index=index, status=ReplicaStatus.EXITED, cause="exception", reason=lost)
    failed = client_of(member).get(reverse("job", args=[job.pk])).context["failed"]
    assert ("reach each other" in failed["remedy"]) == looks_at_the_network
    assert ("Read the traceback" in failed["remedy"]) != looks_at_the_network
    assert reason in (failed["title"], failed["text"])


def test_what_the_training_says_to_do_comes_before_what_the_cause_says(client_of: Browser, member: User) -> None:
    job = make_job(owner=member, status=JobStatus.FAILED, cause=Cause.EXCEPTION.value, reason="worker 0 failed.")
    now = datetime.now(UTC)
    peer = Ending(cause=Cause.EXCEPTION, lost_peer=True, last_lines="lost")
    own = Ending(cause=Cause.EXCEPTION, remedy="choose a smaller batch", last_lines="bye")
    for index, ending in enumerate((peer, own)):
        columns = {"ended_at": now, "cause": "exception", "ending": plain(ending)}
        make_replica(job, index=index, status=ReplicaStatus.EXITED, **columns)
    failed = client_of(member).get(reverse("job", args=[job.pk])).context["failed"]
    assert (failed["remedy"], failed["lines"]) == ("Choose a smaller batch.", "bye")
