"""Processes of a gang that are launched anew while the others go on, and the ledger of it (`models.Replacement`).

Which ones those are is `domain/gang/separable_parts.py`'s answer, by way of `failure.decide`; `services/gang/gang.py`
has it carried out. Who comes back comes back on its node, at its port and on its devices, which stay its own meanwhile:
the others know no other address. It is a new replica of the next incarnation; the one before is superseded and moves
nothing any more.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial

from django.db.models import F

from orchestrator.domain.gang.reasons import LAST_LINES, REASON_CHARS, adding, listed, reason_of
from orchestrator.domain.gang.separable_parts import Part, in_words
from orchestrator.domain.lifecycle import TERMINAL_REPLICA
from orchestrator.models import Attempt, Checkpoint, Job, Replacement, Replica
from orchestrator.services import outbox, transitions
from orchestrator.services.checkpoints import checkpoint_registry
from orchestrator.services.checkpoints.checkpoint_registry import NotThere
from orchestrator.services.gang import gang_facts
from orchestrator.services.gang.launching import launch_of
from worker_agent.protocol.states import Cause, ReplicaStatus

EVENT = "part_replaced"
# A checkpoint that is on its way is waited for; one that has not come by then will not.
CHECKPOINT_WITHIN = timedelta(seconds=60)


def carry_out(job: Job, parts: Sequence[Part], *, now: datetime) -> str:
    """Take each part a step further: written down, ended, launched. May be called again at any time.

    Returns why it cannot be done, and the whole gang has to be launched again; "" else.
    """
    for part in parts:
        rows = _rows_of(job, part)
        entry = _written_down(job, part, now)
        # What ended keeps its port and devices for the one that takes its place.
        job.replicas.filter(pk__in=[row.pk for row in rows], held=False).update(held=True)
        left = [row for row in rows if row.status not in TERMINAL_REPLICA]
        for row in left:
            if row.stop_sent_at is None:
                outbox.post_stop(replica=row, reason=f"{entry.failed} has ended, and it begins anew with it.", now=now)
        ready_at = entry.at + timedelta(seconds=part.again.wait_s)
        if not left and now >= ready_at and (problem := _launch(job, part, rows, entry, now)):
            return problem
    return ""


def note_back(job: Job, *, now: datetime) -> None:
    """Close the entries of the ledger whose processes are all at work again."""
    entries = list(job.replacements.filter(attempt=job.attempt, back_at=None))
    if not entries:
        return
    rows = {row.words: row for row in job.replicas.filter(attempt=job.attempt, superseded=False)}
    for entry in entries:
        if all(_is_back(rows.get(words)) for words in entry.replicas):
            Replacement.objects.filter(pk=entry.pk).update(back_at=now)
            lasted_s = (now - entry.at).total_seconds()
            text = f"{_names(entry.replicas)} at work again after {lasted_s:.1f} s."
            transitions.record(kind=EVENT, text=text, job=job)


def give_up(job: Job) -> None:
    """The whole gang ends: nothing is kept any longer for processes that were to come back."""
    job.replicas.filter(held=True, status=ReplicaStatus.EXITED.value).update(held=False)


def _rows_of(job: Job, part: Part) -> list[Replica]:
    present = job.replicas.filter(attempt=job.attempt, superseded=False).select_related("node", "job")
    wanted = {(member.role.value, member.index) for member in part.members}
    return [row for row in present if (row.role, row.index) in wanted]


def _written_down(job: Job, part: Part, now: datetime) -> Replacement:
    """The part's entry in the ledger. What only lost a peer is blamed until it is known which one had failed."""
    why, replicas = part.why, [f"{member.role.value} {member.index}" for member in part.members]
    columns = {
        "failed": f"{why.role.value} {why.index}",
        "at": why.ended_at or now,
        "cause": (why.cause or Cause.EXIT_CODE).value,
        "reason": reason_of(why)[:REASON_CHARS],
        "node_name": why.node_name,
        "node": job.cluster.nodes.filter(name=why.node_name).first(),
    }
    pending = job.replacements.filter(pk__in=gang_facts.pending(job))
    entry = next((each for each in pending if each.replicas == replicas), None)
    if entry is not None:
        Replacement.objects.filter(pk=entry.pk).update(**columns)
        entry.refresh_from_db()
        return entry
    entry = Replacement.objects.create(
        job=job, attempt=job.attempt, replicas=replicas, step_reached=job.step, **columns
    )
    transitions.record(kind=EVENT, text=_said(part), job=job, node=entry.node)
    transitions.announce_replicas(job.pk)
    return entry


def _said(part: Part) -> str:
    verb = "is" if len(part.members) == 1 else "are"
    when = ""
    if part.again.number:
        when = f", in {part.again.wait_s:.0f} s (restart {part.again.number} of those that count)"
    them = "it" if len(part.members) == 1 else "them"
    onward = f"the others wait for {them}" if part.from_checkpoint else "the others go on"
    failed = reason_of(part.why).partition(LAST_LINES)[0]  # which its own event tells
    return adding(failed, f"So {in_words(part.members)} {verb} launched again{when}; {onward}.")


def _launch(job: Job, part: Part, rows: Sequence[Replica], entry: Replacement, now: datetime) -> str:
    spec, attempt = job.typed_spec, Attempt.objects.get(job=job, number=job.attempt)
    begin = checkpoint_registry.to_begin_with(job, spec, now=now) if part.from_checkpoint else None
    if isinstance(begin, NotThere):
        return begin.message if now - entry.at > CHECKPOINT_WITHIN else ""
    Replica.objects.filter(pk__in=[row.pk for row in rows]).update(superseded=True, held=False)
    for row in rows:
        again = _next_incarnation(row)
        if again.node is not None:
            outbox.post(
                node=again.node,
                replica=again,
                now=now,
                build=partial(
                    launch_of, row=again, spec=spec, cluster=job.cluster, folder=attempt.checkpoint_place, begin=begin
                ),
            )
    Replacement.objects.filter(pk=entry.pk).update(step_reached=job.step)
    text = f"{in_words(part.members)} {'is' if len(rows) == 1 else 'are'} launched"
    if part.from_checkpoint:
        text += (
            f", from the checkpoint at step {begin.step}" if begin else ", from the beginning: no checkpoint is kept"
        )
        _go_back(job, entry, begin)
    transitions.record(kind=EVENT, text=f"{text}.", job=job)
    transitions.announce_replicas(job.pk)
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
    transitions.announce_job(job)


def _next_incarnation(row: Replica) -> Replica:
    return Replica.objects.create(
        job=row.job,
        attempt=row.attempt,
        role=row.role,
        index=row.index,
        incarnation=row.incarnation + 1,
        node=row.node,
        node_name=row.node_name,
        host=row.host,
        port=row.port,
        devices=row.devices,
        device_kind=row.device_kind,
        tf_config=row.tf_config,
    )


def _is_back(row: Replica | None) -> bool:
    return row is not None and (row.status == ReplicaStatus.RUNNING or row.cause == Cause.COMPLETED)


def _names(replicas: Sequence[str]) -> str:
    return f"{listed(replicas)} {'is' if len(replicas) == 1 else 'are'}"
