"""What the job page shows beside the job itself: figures, replicas, `TF_CONFIG`, settings. For `job.py`."""

import json
import math
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import accumulate

from django.conf import settings

from dashboard.templatetags.trainyard import MISSING, figure, group, replica_name
from dashboard.views.job.checkpoints import CheckpointList
from dashboard.views.job.files import files_of
from dashboard.views.job.log_lines import SERIES_COLOURS, gang_in_order
from dashboard.views.job.pausing import pausing_of
from dashboard.views.job.step_time import step_time
from dashboard.views.job.strategy import strategy_panel
from dashboard.views.job.timeline import timeline_of
from dashboard.views.job.words import JobRow, failure_of, is_over
from dashboard.views.tiles import Tile
from orchestrator.domain.loss import loss_name
from orchestrator.domain.words import counted
from orchestrator.queries import checkpoints as checkpoint_queries
from orchestrator.queries import jobs as job_queries
from orchestrator.queries import printed, restarts, strategy_tests, telemetry
from orchestrator.queries.rows import Job, Replica, User
from worker_agent.protocol.job.gang_shape import device_count, process_count
from worker_agent.protocol.reports import RunningReplica
from worker_agent.protocol.states import Cause, JobStatus, Kind, ReplicaStatus

SPARK_POINTS = 60
RATES = ("loss", "examples_per_s", "step_time_ms", "steps_per_s")
SHARES = ("accuracy", "acc")
TOLD_BY_SCRIPT = 4
# What a person asked for: the row of the job's progress says what has come of it.
WISHED = (JobStatus.PAUSING, JobStatus.PAUSED, JobStatus.STOPPING, JobStatus.STOPPED)


@dataclass(frozen=True)
class ReplicaRow:
    """A process in the table; `place` is its place in the gang, `log` what its log is asked for by, `beat` what its
    node last said of it."""

    replica: Replica
    place: int
    colour: int
    name: str
    log: str
    devices: str
    beat: RunningReplica | None
    ending: str
    tf_config: dict[str, str] | None


def state_of(job: Job, user: User, *, now: datetime | None = None) -> dict[str, object]:
    """The context of everything that changes with the job's state."""
    now = now or datetime.now(UTC)
    attempts = job_queries.attempts(job)
    everybody = gang_in_order(job)
    gang = [replica for replica in everybody if not replica.superseded]
    place = {str(replica): place for place, replica in enumerate(gang)}
    rows = [_replica_row(replica, place[str(replica)]) for replica in gang]
    present = next((each for each in attempts if each.number == job.attempt), None)
    failed = failure_of(job, gang, blame=present.blame if present else "")
    if failed:
        rows.sort(key=lambda row: row.replica.outcome not in ("failed", "lost"))
    restarted = restarts.of_job(job)
    row, changeable, over = JobRow.of(job, now=now), job.may_be_changed_by(user), is_over(job)
    checkpoints = CheckpointList(checkpoint_queries.of_job(job), job.typed_spec)
    in_lines = printed.offered(job)
    first_step = present.resumed_step if present else None
    return {
        "job": job,
        "row": row,
        "processes": process_count(job.typed_spec),
        "devices": device_count(job.typed_spec),
        "nodes_used": len({replica.node_name for replica in gang}),
        "over": over,
        "said": job.status in WISHED,
        "can_stop": changeable and not over and job.status != JobStatus.STOPPING,
        "first_step": first_step,
        "grace_s": round(settings.STOP_GRACE_S),
        "changeable": changeable,
        "can_delete": changeable and over,
        "can_retry": user.may_run_jobs and over,
        "can_clone": user.may_run_jobs,
        "resume_from": checkpoints.newest_usable if failed and over and user.may_run_jobs else None,
        "failed": failed,
        "tiles": [] if failed or (over and not job.attempt) else _tiles(job, gang, row),
        "replicas": rows,
        "replaced": [_replica_row(replica, place[str(replica)]) for replica in everybody if replica.superseded],
        "step_time": step_time(job, gang, began=present.running_at if present else None, now=now),
        "strategy_test": strategy_tests.of_job(job),
        "strategy": strategy_panel(job, gang),
        "printed": in_lines,
        "printed_names": ", ".join(each.name for each in in_lines),
        "at_work": sum(replica.status == ReplicaStatus.RUNNING for replica in gang),
        "attempts": attempts,
        "timeline": timeline_of(job, attempts, everybody, now=now),
        "restarts": list(zip(restarted, accumulate(int(each.counted) for each in restarted), strict=True)),
        "checkpoints": checkpoints,
        "events": job_queries.events(job),
        "files": files_of(job, job_queries.artifacts(job), everybody),
        "ends_at": now + timedelta(seconds=row.remaining_s) if row.remaining_s is not None else None,
    } | pausing_of(job, checkpoints, first_step=first_step, changeable=changeable)


def _replica_row(replica: Replica, place: int) -> ReplicaRow:
    # What it said after another process had been launched in its place.
    refused = f"{counted(replica.refused, 'late record')} refused" if replica.refused else ""
    return ReplicaRow(
        replica=replica,
        place=place,
        colour=place % SERIES_COLOURS + 1,
        name=replica_name(str(replica)),
        log=f"{replica}.{replica.incarnation}" if replica.superseded else str(replica),
        devices=_devices(replica),
        beat=_beat_of(replica),
        ending=", ".join(filter(None, [_ending(replica), refused])),
        tf_config=_marked(replica),
    )


def _beat_of(replica: Replica) -> RunningReplica | None:
    """What the node's last heartbeat says of this process, while it holds it."""
    held = replica.node.held_replicas if replica.held and replica.node else []
    return next((each for each in held if (each.replica_id, each.attempt) == (replica.pk, replica.attempt)), None)


def _devices(replica: Replica) -> str:
    if not replica.devices:
        return MISSING
    kind, first, last = replica.device_kind.upper(), min(replica.devices), max(replica.devices)
    if len(replica.devices) == 1:
        return f"{kind} {first}"
    if last - first + 1 == len(replica.devices):
        return f"{kind} {first}–{last}"  # noqa: RUF001
    return f"{kind} " + ", ".join(str(index) for index in sorted(replica.devices))


def _ending(replica: Replica) -> str:
    if replica.status not in (ReplicaStatus.EXITED, ReplicaStatus.LOST):
        return replica.phase
    if replica.signal:
        return f"signal {replica.signal}"
    if replica.exit_code is not None:
        if replica.typed_ending and replica.typed_ending.saved:
            return f"exit {replica.exit_code} (saved)"
        return f"exit {replica.exit_code}" + (" (asked to stop)" if replica.cause == Cause.STOPPED else "")
    return ""


def _marked(replica: Replica) -> dict[str, str] | None:
    """`TF_CONFIG` as text, cut at the replica's own address, so that the page can mark it."""
    if not replica.tf_config:
        return None
    text, own = json.dumps(replica.tf_config, indent=2), f"{replica.host}:{replica.port}"
    return dict(zip(("before", "own", "after"), text.partition(own), strict=True))


def _tiles(job: Job, gang: list[Replica], row: JobRow) -> list[Tile]:
    """A recipe's are all there from the beginning; a script's are those that it has told, beside its time."""
    is_script, metric = job.typed_spec.kind is Kind.SCRIPT, _headline_metric(job.metrics)
    loss_of_script = loss_name(job.metrics)
    by_script = sorted(job.metrics, key=lambda name: (name != loss_of_script, name))[:TOLD_BY_SCRIPT]
    shown = by_script if is_script else list(filter(None, [metric]))
    told_by_leader = {f"step_time_ms/{replica_name(str(each))}": str(each) for each in gang}
    names_wanted = [*RATES, *told_by_leader, *shown]
    series = telemetry.series(job, names=names_wanted, points=SPARK_POINTS)
    names = {str(replica) for replica in gang}

    def latest(name: str) -> dict[str, float]:
        views = [view for view in series.get(name, ()) if view.attempt == job.attempt and view.replica in names]
        return {view.replica: view.values[-1] for view in views if view.values}

    def curve(name: str) -> list[float]:
        views = [view for view in series.get(name, ()) if view.attempt == job.attempt]
        firsts = [view for view in views if view.replica == views[0].replica]
        return [value for value in firsts[-1].values if math.isfinite(value)] if firsts else []

    loss, rates, times, steps = (latest(name) for name in RATES)
    spoken_for = {who: value for name, who in told_by_leader.items() for value in latest(name).values()}
    times = spoken_for or times
    devices = device_count(job.typed_spec)
    slowest = max(times, key=lambda name: times[name], default="")
    each = f"{group(sum(rates.values()) / devices)} per device" if rates and devices > 1 else ""
    rates_of_it = [
        Tile(
            "Examples per second",
            group(sum(rates.values())) if rates else MISSING,
            note=each,
            key="eps",
            values=curve("examples_per_s"),
        ),
        Tile(
            "Step time",
            f"{times[slowest]:.1f}" if times else MISSING,
            "ms",
            f"slowest: {replica_name(slowest)}" if len(times) > 1 else "",
            key="ms",
            values=curve("step_time_ms"),
        ),
        Tile(
            "Steps per second",
            f"{next(iter(steps.values())):.1f}" if steps else MISSING,
            key="sps",
            values=curve("steps_per_s"),
        ),
    ]
    if is_script:
        told = [_metric_tile(job, name, "last reported", curve(name)) for name in shown]
        told += [tile for tile in rates_of_it if tile.figure != MISSING]
        return [Tile("Time at work", row.lasted if row.began else MISSING, key="time"), *told[:TOLD_BY_SCRIPT]]
    no_epoch = [] if job.epoch > 1 else [Tile("Metric of an epoch", MISSING)]
    return [
        _loss_tile(job, next(iter(loss.values()), None), curve("loss")),
        *([_metric_tile(job, metric, f"epoch {job.epoch} of {job.epochs}", curve(metric))] if metric else no_epoch),
        *rates_of_it,
    ]


def _loss_tile(job: Job, of_step: float | None, values: list[float]) -> Tile:
    """The mean over the last epoch, which is what lists and REST call a job's loss; until there is one, the last
    step's."""
    validation = job.metrics.get("val_loss")
    note = "" if validation is None else f"validation {figure(validation)}"
    if "loss" in job.metrics:
        mean = figure(job.metrics["loss"])
        return Tile("Loss, mean of an epoch", mean, note=note, key="of loss", values=values)
    return Tile("Loss of the last step", figure(of_step), note=note, key="loss-of-step", values=values)


def _metric_tile(job: Job, name: str, note: str, values: list[float]) -> Tile:
    value, share = job.metrics[name], name.removeprefix("val_") in SHARES
    shown, unit = figure(value), ""
    if share:
        shown, unit = f"{value * 100:.1f}" if isinstance(value, int | float) else shown, "%"
    return Tile(_metric_title(name), shown, unit, note, key=f"of {name}", values=values)


def _metric_title(name: str) -> str:
    """`val_accuracy` as people say it."""
    validation = name.startswith("val_")
    words = name.removeprefix("val_").replace("_", " ")
    return f"Validation {words}" if validation else words.capitalize()


def _headline_metric(metrics: dict[str, object]) -> str:
    """The metric of the second tile: a validation metric before a training metric; "" where there is none."""
    names = [name for name in metrics if name not in ("loss", "val_loss")]
    return next((name for name in names if name.startswith("val_")), names[0] if names else "")
