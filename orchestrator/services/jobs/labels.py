"""People's own words about a job: its tags, by which lists find it, and its notes. Views and REST call this."""

import re
from collections.abc import Callable, Iterable

from django.db import transaction
from django.db.models import F

from orchestrator.domain.words import storable
from orchestrator.models import Job, JobTag, User
from orchestrator.services import transitions
from orchestrator.services.errors import FieldError, Invalid
from orchestrator.services.jobs.jobs import owned

TAG_CHARS = 32
TAGS_MOST = 10
NOTES_CHARS = 4000
_TAG = re.compile(r"\w[\w.:+-]*")


def tidy_tag(text: str) -> str:
    """A tag as stored: small letters, words joined by hyphens. `Invalid` where it is none."""
    tag = "-".join(text.lower().split())
    if not _TAG.fullmatch(tag) or len(tag) > TAG_CHARS:
        rule = f"A tag is one word of at most {TAG_CHARS} letters, digits and . : + - _"
        raise Invalid([FieldError("tags", f"{rule}, and {text[:40]!r} is none.")])
    return tag


def set_tags(*, job_id: int, tags: Iterable[str], by: User) -> Job:
    """Give the job these tags and no others; `Invalid` where one is no tag, or where they are too many."""
    wanted = {tidy_tag(tag) for tag in tags}
    return _change_tags(job_id, by, lambda had: wanted)


def add_tag(*, job_id: int, tag: str, by: User) -> Job:
    """Give the job one more tag. One that it has already stays."""
    new = tidy_tag(tag)
    return _change_tags(job_id, by, lambda had: had | {new})


def remove_tag(*, job_id: int, tag: str, by: User) -> Job:
    """Take a tag away, if the job has it."""
    gone = tidy_tag(tag)
    return _change_tags(job_id, by, lambda had: had - {gone})


def set_notes(*, job_id: int, notes: str, by: User) -> Job:
    """Replace the notes, plain text of at most `NOTES_CHARS` characters."""
    text = storable(notes).replace("\r\n", "\n").strip()
    if len(text) > NOTES_CHARS:
        raise Invalid([FieldError("notes", f"Notes have at most {NOTES_CHARS} characters, and these {len(text)}.")])
    with transaction.atomic():
        job = owned(job_id, by)
        if text != job.notes:
            Job.objects.filter(pk=job.pk).update(notes=text, revision=F("revision") + 1)
            said = "changed the notes" if text else "removed the notes"
            _tell(job, kind="job_noted", text=f"{by.get_username()} {said}.", by=by)
    return job


def set_words(*, job_id: int, tags: Iterable[str], notes: str, by: User) -> Job:
    """Tags and notes in one, or neither."""
    with transaction.atomic():
        set_tags(job_id=job_id, tags=tags, by=by)
        return set_notes(job_id=job_id, notes=notes, by=by)


def _change_tags(job_id: int, by: User, change: Callable[[set[str]], set[str]]) -> Job:
    with transaction.atomic():
        job = owned(job_id, by)
        had = set(job.tags)
        tags = sorted(change(had))
        if len(tags) > TAGS_MOST:
            raise Invalid([FieldError("tags", f"A job has at most {TAGS_MOST} tags, and these are {len(tags)}.")])
        if set(tags) != had:
            Job.objects.filter(pk=job.pk).update(tags=tags, revision=F("revision") + 1)
            JobTag.objects.filter(job=job).exclude(word__in=tags).delete()
            JobTag.objects.bulk_create(JobTag(job=job, word=tag) for tag in tags if tag not in had)
            told = [f"added {', '.join(new)}"] if (new := sorted(set(tags) - had)) else []
            told += [f"removed {', '.join(old)}"] if (old := sorted(had - set(tags))) else []
            _tell(job, kind="job_tagged", text=f"Tags: {by.get_username()} {' and '.join(told)}.", by=by)
    return job


def _tell(job: Job, *, kind: str, text: str, by: User) -> None:
    job.refresh_from_db()
    transitions.record(kind=kind, text=text, job=job, actor=by)
    transitions.announce_job(job)
