"""One action on many jobs: each for itself, with a reason where it cannot be, and told in the history."""

import pytest

from orchestrator.models import Event, Job, User
from orchestrator.services.errors import Invalid
from orchestrator.services.jobs import bulk
from orchestrator.services.jobs.bulk import MOST_AT_ONCE, Action, Outcome
from tests.factories import make_job
from worker_agent.protocol.states import JobStatus

pytestmark = pytest.mark.django_db


def reasons(outcomes: list[Outcome]) -> list[str]:
    return [each.why_not for each in outcomes]


def test_what_can_be_stopped_is_and_the_rest_says_why_not(member: User, teammate: User) -> None:
    own, ended = make_job(owner=member), make_job(owner=member, status=JobStatus.SUCCEEDED)
    ids = [own.pk, ended.pk, make_job(owner=teammate).pk, 999, own.pk]
    expected = [
        "",
        "The job has already ended: it succeeded.",
        "Only its owner or an administrator may change this job.",
        "There is no such job (any more).",
    ]
    assert reasons(bulk.foresee(action=Action.STOP, job_ids=ids, by=member)) == expected
    assert Job.objects.get(pk=own.pk).status == JobStatus.SUBMITTED
    assert reasons(bulk.carry_out(action=Action.STOP, job_ids=ids, by=member)) == expected
    assert Job.objects.get(pk=own.pk).status == JobStatus.STOPPED
    assert [event.actor for event in own.events.filter(kind="job_stopped")] == [member]
    again = bulk.carry_out(action=Action.STOP, job_ids=ids[:1], by=member)
    assert reasons(again) == ["The job has already ended: it was stopped."]


def test_many_are_deleted_and_each_leaves_a_line(member: User) -> None:
    ended, waiting = make_job(owner=member, status=JobStatus.FAILED), make_job(owner=member)
    ids = [ended.pk, waiting.pk]
    foreseen = reasons(bulk.foresee(action=Action.DELETE, job_ids=ids, by=member))
    assert reasons(bulk.carry_out(action=Action.DELETE, job_ids=ids, by=member)) == foreseen
    assert foreseen == ["", "The job has not ended: stop it first."]
    assert list(Job.objects.all()) == [waiting]
    assert [event.text for event in Event.objects.filter(kind="job_deleted")] == [
        f"mel deleted j-{ids[0]} (tiny) of mel."
    ]


def test_many_are_tagged_and_untagged(member: User) -> None:
    jobs = [make_job(owner=member) for _ in range(2)]
    ids = [job.pk for job in jobs]
    for action, tags in ((Action.TAG, ["north"]), (Action.TAG, ["north"]), (Action.UNTAG, [])):
        assert reasons(bulk.carry_out(action=action, job_ids=ids, by=member, tag="North")) == ["", ""]
        assert [job.tags for job in Job.objects.all()] == [tags, tags]
    with pytest.raises(Invalid, match="A tag is one word"):
        bulk.carry_out(action=Action.TAG, job_ids=ids, by=member, tag="<b>")


def test_a_viewer_changes_nothing(member: User, viewer: User) -> None:
    job = make_job(owner=member)
    for action in Action:
        assert reasons(bulk.carry_out(action=action, job_ids=[job.pk], by=viewer, tag="x")) == [
            "Your role lets you look at jobs, not change them."
        ]


def test_too_many_at_once_are_refused_as_a_whole(member: User) -> None:
    job = make_job(owner=member)
    with pytest.raises(Invalid, match="At most 200 jobs can be chosen at once, and these are 10000"):
        bulk.carry_out(action=Action.STOP, job_ids=range(job.pk, job.pk + 10_000), by=member)
    assert Job.objects.get().status == JobStatus.SUBMITTED
    assert MOST_AT_ONCE == 200
