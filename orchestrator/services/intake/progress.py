"""How far jobs are, and what their replicas told of themselves: a batch becomes one update of each row. `records` calls
this."""

import json
import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime

from django.db.models import F

from orchestrator import live
from orchestrator.domain.sketch import extended
from orchestrator.domain.words import storable
from orchestrator.models import Attempt, Job, Replica
from orchestrator.queries.jobs import Began
from orchestrator.services.gang import figures
from orchestrator.services.intake.bulk import update_rows
from orchestrator.services.transitions import announce_advance, announce_job, announce_replicas
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
COUNTS = {"step": STEP_MAX, "total_steps": STEP_MAX, "epoch": COUNT_MAX, "epochs": COUNT_MAX}
COLUMNS = (*COUNTS, "metrics", "sketch")
Said = tuple[Replica, Sequence[Progress | Summary], tuple[list[int], list[float]]]


def store_progress(said: Sequence[Said], *, now: datetime) -> None:
    """Move these replicas and their jobs forward and announce the jobs. An earlier attempt's replicas move no job.

    Each replica comes with steps and values of its new points of the loss: those of the leader are sketched.
    """
    _move(said, now)
    jobs: dict[int, Job] = {}
    asked = Job.objects.filter(pk__in={replica.job_id for replica, _, _ in said})
    gangs = {pk: read for pk, *read in asked.values_list("pk", "spec__kind", "spec__chief")}
    reached: dict[int, set[str]] = defaultdict(set)
    for replica, records, (steps, losses) in said:
        if replica.attempt == replica.job.attempt and not replica.superseded:
            job = jobs.setdefault(replica.job_id, replica.job)
            kind, chief = gangs[job.pk]
            with_chief = is_with_chief(Strategy(job.strategy), is_recipe=kind == Kind.RECIPE, chief=chief)
            leads = is_leader(replica.role, replica.index, has_chief=with_chief)
            for record in records:
                if leads or isinstance(record, Summary):
                    reached[job.pk] |= _advance(job, record)
            if leads and steps:
                job.sketch = extended(job.sketch, steps, losses)
    rows: dict[int, Sequence[object]] = {
        pk: (*(getattr(job, name) for name in COLUMNS), job.attempt) for pk, job in jobs.items()
    }
    revisions = update_rows(Job, rows, columns=COLUMNS, guard="attempt", counter="revision")
    figures.copy({jobs[pk]: names for pk, names in reached.items() if pk in revisions})
    present = Attempt.objects.filter(job__in=jobs, number=F("job__attempt"))
    began = {pk: Began(at, step) for pk, at, step in present.values_list("job_id", "running_at", "resumed_step")}
    for pk, job in jobs.items():
        job.revision += 1
        if revisions.get(pk) == job.revision:
            announce_advance(job, began.get(pk, Began()), now=now)
        else:  # somebody else has changed it since it was read
            announce_job(Job.objects.select_related("owner", "cluster").get(pk=pk))


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
            moves[replica.pk] = (max(steps), now, now)
    update_rows(Replica, moves, columns=("step", "stepped_at", "moved_at"))


def _advance(job: Job, record: Progress | Summary) -> set[str]:
    """What a record adds to the job as read; the names of its metrics. Within an attempt nothing goes back."""
    for name, most in COUNTS.items():
        setattr(job, name, max(getattr(job, name), _within(getattr(record, name, 0), most)))
    named = set()
    for name, value in record.metrics.items() if isinstance(record, Summary) else ():
        known = storable(name)[:METRIC_NAME_CHARS]
        if known in job.metrics or len(job.metrics) < METRICS_PER_JOB:
            job.metrics[known] = live.jsonable(value)
            named.add(known)
    return named


def _within(number: int, most: int) -> int:
    return min(max(number, 0), most)
