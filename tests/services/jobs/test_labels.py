"""Tags and notes of jobs: what is a tag, who may write them, and that each change is told."""

import pytest

from orchestrator.models import Job, JobTag, User
from orchestrator.queries import jobs as queries
from orchestrator.services.errors import Forbidden, Invalid
from orchestrator.services.jobs import labels
from tests.factories import make_job

pytestmark = pytest.mark.django_db


def told(job: Job) -> list[str]:
    return [event.text for event in job.events.order_by("pk")]


def test_tags_are_tidied_found_and_told_once(member: User) -> None:
    job = make_job(owner=member)
    for _ in range(2):
        labels.set_tags(job_id=job.pk, tags=["Long Run", "baseline", "baseline"], by=member)
    labels.remove_tag(job_id=job.pk, tag="baseline", by=member)
    labels.add_tag(job_id=job.pk, tag="v1.2", by=member)
    job.refresh_from_db()
    assert job.tags == ["long-run", "v1.2"]
    assert {row.word for row in JobTag.objects.all()} == set(job.tags)
    assert told(job) == [
        "Tags: mel added baseline, long-run.",
        "Tags: mel removed baseline.",
        "Tags: mel added v1.2.",
    ]
    assert queries.page(member, tag="v1.2").items == [job]
    assert queries.page(member, search="LONG-RUN").items == [job]
    assert queries.page(member, tag="long").items == []


@pytest.mark.parametrize("tag", ["", "<b>", "a" * 33, "a,b", "nul\0", "-"])
def test_what_is_no_tag_is_refused_with_the_rule(tag: str, member: User) -> None:
    with pytest.raises(Invalid, match="A tag is one word of at most 32 letters"):
        labels.add_tag(job_id=make_job(owner=member).pk, tag=tag, by=member)


def test_a_job_has_a_bounded_number_of_tags_and_of_notes(member: User) -> None:
    job = make_job(owner=member)
    with pytest.raises(Invalid, match="at most 10 tags, and these are 11"):
        labels.set_tags(job_id=job.pk, tags=map(str, range(11)), by=member)
    with pytest.raises(Invalid, match="at most 4000 characters, and these 4001"):
        labels.set_words(job_id=job.pk, tags=["kept"], notes="x" * 4001, by=member)
    job.refresh_from_db()
    assert (job.tags, job.notes, told(job)) == ([], "", [])


def test_notes_are_written_and_removed(member: User) -> None:
    job = make_job(owner=member)
    for notes in ("why:\r\n<b>so</b>", "why:\n<b>so</b>", ""):
        labels.set_notes(job_id=job.pk, notes=notes, by=member)
    assert told(job) == ["mel changed the notes.", "mel removed the notes."]


def test_only_who_may_change_the_job_writes(member: User, teammate: User, viewer: User) -> None:
    job = make_job(owner=member)
    for person in (teammate, viewer):
        with pytest.raises(Forbidden):
            labels.add_tag(job_id=job.pk, tag="x", by=person)
        with pytest.raises(Forbidden):
            labels.set_notes(job_id=job.pk, notes="x", by=person)
