"""Processes of a gang that are launched anew while the others go on, and the ledger of it (`models.Replacement`).

Which ones those are is `domain/gang/separable_parts.py`'s answer, by way of `decisions.decide`; `services/gang/gang.py`
has it carried out. Who comes back comes back on its node, at its port and on its devices, which stay its own meanwhile:
the others know no other address. It is a new replica of the next incarnation; the one before is superseded and moves
nothing any more.
"""

from collections.abc import Sequence
from dataclasses import fields
from datetime import datetime, timedelta

from django.conf import settings
from django.db.models import F

from orchestrator.domain.gang.reasons import REASON_CHARS, ReplicaFacts, adding, reason_of, sentence_of, they_are
from orchestrator.domain.gang.separable_parts import Part
from orchestrator.domain.lifecycle import TERMINAL_REPLICA
from orchestrator.domain.placement.planning import PlannedReplica
from orchestrator.models import Attempt, Checkpoint, Job, Replacement, Replica
from orchestrator.services import outbox, transitions
from orchestrator.services.checkpoints import checkpoint_registry
from orchestrator.services.checkpoints.checkpoint_registry import NotThere
from orchestrator.services.gang import figures
from orchestrator.services.gang.launching import launch
from worker_agent.protocol.states import Cause, ReplicaStatus

EVENT = "part_replaced"
# For a checkpoint that is on its way, from the failure on; then the whole gang is launched again.
PART_WAITS_AT_MOST = timedelta(seconds=60)


def carry_out(job: Job, parts: Sequence[Part], *, now: datetime) -> str:
    """Take each part a step further: written down, ended, launched. May be called again at any time.

    Returns why it cannot be done, and the whole gang has to be launched again; "" else.
    """
    for part in parts:
        rows = _rows_of(job, part.members)
        entry = _written_down(job, part, rows)
        # What ended keeps its port and devices for the one that takes its place.
        entry.replaced.filter(held=False).update(held=True)
        left = [row for row in rows if row.status not in TERMINAL_REPLICA]
        for row in left:
            if row.stop_sent_at is None:
                outbox.post_stop(
                    replica=row, reason=f"{entry.failed.words} has ended, and it starts again with it.", now=now
                )
        ready_at = _failed_at(entry, now) + timedelta(seconds=part.again.wait_s)
        if not left and now >= ready_at and (problem := _launch(job, part, rows, entry, now)):
            return problem
    return ""


def note_back(job: Job, *, now: datetime) -> None:
    """Close the entries of the ledger whose processes are all at work again."""
    entries = list(job.replacements.filter(failed__attempt=job.attempt, back_at=None).select_related("failed"))
    if not entries:
        return
    present = {(row.role, row.index): row for row in job.replicas.filter(attempt=job.attempt, superseded=False)}
    for entry in entries:
        members = list(entry.replaced.all())
        if all(_is_back(present.get((row.role, row.index))) for row in members):
            Replacement.objects.filter(pk=entry.pk).update(back_at=now)
            back, lasted_s = they_are([row.words for row in members]), (now - _failed_at(entry, now)).total_seconds()
            transitions.record(kind=EVENT, text=f"{back} at work again after {lasted_s:.1f} s.", job=job)


def release_places(job: Job) -> None:
    """The whole gang ends: nothing is kept any longer for processes that were to come back."""
    job.replicas.filter(held=True, status=ReplicaStatus.EXITED.value).update(held=False)


def _rows_of(job: Job, members: Sequence[ReplicaFacts]) -> list[Replica]:
    rows = job.replicas.filter(pk__in=[member.replica_id for member in members])
    return list(rows.select_related("node", "job", "replacement__failed"))


def _written_down(job: Job, part: Part, rows: Sequence[Replica]) -> Replacement:
    """The part's entry in the ledger. What only lost a peer is blamed until it is known which one had failed."""
    (failed,), reason = _rows_of(job, [part.why]), reason_of(part.why)[:REASON_CHARS]
    if (entry := rows[0].replacement) is not None:
        entry.failed, entry.reason = failed, reason
        entry.save(update_fields=["failed", "reason"])
        return entry
    entry = Replacement.objects.create(job=job, failed=failed, reason=reason, step_reached=job.step)
    Replica.objects.filter(pk__in=[row.pk for row in rows]).update(replacement=entry)
    transitions.record(kind=EVENT, text=_said(part), job=job, node=failed.node)
    transitions.announce_replicas(rows)
    return entry


def _failed_at(entry: Replacement, now: datetime) -> datetime:
    return entry.failed.ended_at or now


def _said(part: Part) -> str:
    number, wait_s = part.again.number, part.again.wait_s
    when = f", in {wait_s:.0f} s (restart {number} of those that count)" if number else ""
    them = "it" if len(part.members) == 1 else "them"
    onward = f"the others wait for {them}" if part.from_checkpoint else "the others continue"
    they = they_are([member.words for member in part.members])
    return adding(sentence_of(part.why), f"So {they} launched again{when}; {onward}.")


def _launch(job: Job, part: Part, rows: Sequence[Replica], entry: Replacement, now: datetime) -> str:
    spec = job.typed_spec
    begin = checkpoint_registry.to_begin_with(job, spec, now=now) if part.from_checkpoint else None
    if isinstance(begin, NotThere):
        return begin.message if now - _failed_at(entry, now) > PART_WAITS_AT_MOST else ""
    entry.replaced.update(superseded=True, held=False)
    attempt = Attempt.objects.get(job=job, number=job.attempt)
    for row in rows:
        launch(_next_incarnation(row), spec, attempt=attempt, begin=begin, now=now)
    Replacement.objects.filter(pk=entry.pk).update(step_reached=job.step)
    text = f"{they_are([row.words for row in rows])} launched"
    if part.from_checkpoint:
        origin = f"the checkpoint at step {begin.step}" if begin else "the beginning: no checkpoint is kept"
        text += f", from {origin}"
        _go_back(job, entry, begin)
    transitions.record(kind=EVENT, text=f"{text}.", job=job)
    transitions.announce_replicas(rows)
    return ""


def _go_back(job: Job, entry: Replacement, begin: Checkpoint | None) -> None:
    """What was done since the checkpoint is done again; one that this launch did not complete, it writes anew."""
    step = begin.step if begin else 0
    Replacement.objects.filter(pk=entry.pk).update(step_resumed=step)
    Checkpoint.objects.filter(job=job, attempt=job.attempt, step__gt=step, usable=False).delete()
    Job.objects.filter(pk=job.pk).update(
        step=step,
        epoch=begin.epoch if begin else 0,
        metrics=begin.metrics if begin else {},
        revision=F("revision") + 1,
    )
    job.refresh_from_db()
    figures.renew(job)
    transitions.announce_job(job)


def _next_incarnation(row: Replica) -> Replica:
    place = {column.name: getattr(row, column.name) for column in fields(PlannedReplica)}
    again = row.incarnation + 1
    return Replica.objects.create(
        job=row.job, attempt=row.attempt, incarnation=again, lease_s=settings.LEASE_S, **place
    )


def _is_back(row: Replica | None) -> bool:
    return row is not None and (row.status == ReplicaStatus.RUNNING or row.cause == Cause.COMPLETED)
