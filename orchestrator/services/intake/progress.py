"""How far jobs are, and what their replicas told of themselves: a batch becomes one update of each row. `records` calls
this."""

import json
import logging
from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial

from django.db.models import F

from orchestrator import live
from orchestrator.domain.loss import loss_name
from orchestrator.domain.sketch import Sketch, extended
from orchestrator.domain.words import storable
from orchestrator.many_rows import update_rows
from orchestrator.models import Attempt, Job, Replica
from orchestrator.queries.jobs import Began
from orchestrator.queries.jobs import advance as job_advance
from orchestrator.series import Points
from orchestrator.services.gang import figures
from orchestrator.services.transitions import announce_advances, announce_job, announce_replicas
from worker_agent.protocol.job.gang_shape import is_leader, is_with_chief
from worker_agent.protocol.records import FactValue, Progress, Summary
from worker_agent.protocol.states import Kind, Strategy

COUNT_MAX = 2**31 - 1
STEP_MAX = 2**63 - 1
logger = logging.getLogger(__name__)

FACTS_PER_REPLICA = 100
FACTS_BYTES = 65_536
METRICS_PER_JOB = 100
METRIC_NAME_CHARS = 200
JOBS_REMEMBERED = 4096
COUNTS = ("step", "total_steps", "epoch", "epochs")
Said = tuple[Replica, Sequence[Progress | Summary], Sequence[Points]]


class _Known:
    """What of a job in an attempt is not read with every batch. Nobody but ingest writes sketches."""

    def __init__(self, *, with_chief: bool, sketch: Sketch, measured: Iterable[str]) -> None:
        self.with_chief, self.sketch, self.measured = with_chief, sketch, set(measured)
        self.began = Began()


class _Jobs:
    """What ingest remembers of jobs. To be forgotten when a transaction failed, for it may be ahead of the table."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[int, int], _Known] = OrderedDict()

    def of(self, jobs: Iterable[Job]) -> dict[int, _Known]:
        """By job id. When an attempt began is read again until its processes are at work: then that stays."""
        marks = {(job.pk, job.attempt): job for job in jobs}
        if unknown := {pk for pk, attempt in marks if (pk, attempt) not in self._known}:
            rows = Job.objects.filter(pk__in=unknown)
            columns = rows.values_list("pk", "attempt", "strategy", "spec__kind", "spec__chief", "sketch", "metrics")
            for pk, attempt, strategy, kind, chief, sketch, metrics in columns:
                with_chief = is_with_chief(Strategy(strategy), is_recipe=kind == Kind.RECIPE, chief=chief)
                self._known[pk, attempt] = _Known(with_chief=with_chief, sketch=sketch, measured=metrics)
        if waiting := [pk for pk, attempt in marks if self._known[pk, attempt].began.at is None]:
            present = Attempt.objects.filter(job__in=waiting, number=F("job__attempt"))
            for pk, attempt, at, step in present.values_list("job_id", "number", "running_at", "resumed_step"):
                self._known[pk, attempt].began = Began(at, step)
        found = {mark[0]: self._known[mark] for mark in marks}
        for mark in marks:
            self._known.move_to_end(mark)
        while len(self._known) > JOBS_REMEMBERED:
            self._known.popitem(last=False)
        return found

    def forget(self) -> None:
        self._known.clear()


known = _Jobs()


def store_progress(said: Sequence[Said], *, now: datetime) -> None:
    """Move these replicas and their jobs forward and announce the jobs. An earlier attempt's replicas move no job.

    Each replica comes with its new points: the leader's loss is sketched.
    """
    _move(said, now)
    present = [each for each in said if each[0].attempt == each[0].job.attempt and not each[0].superseded]
    jobs: dict[int, Job] = {}
    for replica, _, _ in present:
        replica.job = jobs.setdefault(replica.job_id, replica.job)
    about = known.of(jobs.values())
    reached: dict[int, set[str]] = {}
    drawn: dict[int, Sequence[object]] = {}
    for replica, records, points in present:
        job, own = replica.job, about[replica.job_id]
        leads = is_leader(replica.role, replica.index, has_chief=own.with_chief)
        if leads and (sketch := _sketched(own, points)) != own.sketch:
            own.sketch = sketch
            drawn[job.pk] = (sketch, job.attempt)
        for record in records:
            if leads or isinstance(record, Summary):
                reached.setdefault(job.pk, set()).update(_advance(job, record))
                own.measured |= reached[job.pk]
    rows: dict[int, Sequence[object]] = {
        pk: (job.step, job.total_steps, job.epoch, job.epochs, job.attempt)
        for pk, job in jobs.items()
        if pk in reached or pk in drawn
    }
    revisions = update_rows(Job, rows, columns=COUNTS, guard="attempt", counter="revision")
    measured = {pk: names for pk, names in reached.items() if names and pk in revisions}
    metrics = {pk: (jobs[pk].metrics, jobs[pk].attempt) for pk in measured}
    update_rows(Job, metrics, columns=["metrics"], guard="attempt")
    update_rows(Job, drawn, columns=["sketch"], guard="attempt")
    figures.copy({jobs[pk]: names for pk, names in measured.items()})
    advances = {}
    for pk in rows:
        job = jobs[pk]
        job.revision += 1
        if revisions.get(pk) == job.revision:
            advances[pk] = partial(job_advance, job, about[pk].began, measured=pk in measured, now=now)
        else:  # somebody else has changed it since it was read
            announce_job(Job.objects.select_related("owner", "cluster").get(pk=pk))
    announce_advances(advances)


def store_facts(said: Sequence[tuple[Replica, Mapping[str, FactValue]]]) -> None:
    """Merge facts into what is known of each replica and tell its job's page. What is too large or too many is left
    out: pages show facts whole."""
    for replica, news in said:
        known = dict(Replica.objects.values_list("facts", flat=True).get(pk=replica.pk))
        for name, value in news.items():
            if len(known) < FACTS_PER_REPLICA or name in known:
                known[storable(name)] = live.jsonable(value)
        if len(json.dumps(known)) > FACTS_BYTES:
            logger.warning("facts of replica %s are larger than %s bytes and were left out", replica.pk, FACTS_BYTES)
            continue
        Replica.objects.filter(pk=replica.pk).update(facts=known)
    gangs: dict[int, list[Replica]] = defaultdict(list)
    for replica, _ in said:
        gangs[replica.job_id].append(replica)
    for gang in gangs.values():
        announce_replicas(gang)


def _move(said: Sequence[Said], now: datetime) -> None:
    """Steps that replicas had not told before, and when they became known here."""
    moves: dict[int, Sequence[object]] = {}
    for replica, records, _ in said:
        steps = [_within(record.step, STEP_MAX) for record in records if isinstance(record, Progress)]
        if steps and (replica.step is None or max(steps) > replica.step):
            moves[replica.pk] = (max(steps),)
    update_rows(Replica, moves, columns=["step"], same={"stepped_at": now, "moved_at": now})


def _advance(job: Job, record: Progress | Summary) -> set[str]:
    """What a record adds to the job as read; the names of its metrics. Within an attempt nothing goes back."""
    job.epoch = max(job.epoch, _within(record.epoch, COUNT_MAX))
    if isinstance(record, Progress):
        job.step = max(job.step, _within(record.step, STEP_MAX))
        job.total_steps = max(job.total_steps, _within(record.total_steps, STEP_MAX))
        job.epochs = max(job.epochs, _within(record.epochs, COUNT_MAX))
        return set()
    named = set()
    for name, value in record.metrics.items():
        known = storable(name)[:METRIC_NAME_CHARS]
        if known in job.metrics or len(job.metrics) < METRICS_PER_JOB:
            job.metrics[known] = live.jsonable(value)
            named.add(known)
    return named


def _sketched(own: _Known, said: Sequence[Points]) -> Sketch:
    """The small curve with the new points of what is taken as the job's loss."""
    loss = loss_name(own.measured.union(*(points.names for points in said)))
    found = [(points.steps, points.values[points.names.index(loss)]) for points in said if loss in points.names]
    return extended(own.sketch, [step for steps, _ in found for step in steps], [v for _, vs in found for v in vs])


def _within(number: int, most: int) -> int:
    return min(max(number, 0), most)
