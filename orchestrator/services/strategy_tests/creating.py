"""Making a strategy test from a request, extending it by a candidate, and making it again."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from django.db import transaction

from orchestrator.models import Candidate, StrategyTest, TestStatus, User
from orchestrator.queries import strategy_tests
from orchestrator.services import transitions
from orchestrator.services.advice import advising
from orchestrator.services.errors import Conflict, FieldError, Forbidden, Invalid
from orchestrator.services.jobs import submission
from orchestrator.services.jobs.submission import Checked
from orchestrator.services.programs import programs
from orchestrator.services.programs.programs import Program
from orchestrator.services.strategy_tests.running import changeable
from worker_agent.protocol.codec import plain
from worker_agent.protocol.job.job_spec import JobSpec
from worker_agent.protocol.job.strategies import STRATEGIES
from worker_agent.protocol.states import Kind

# What makes a candidate; everything else is the same for all of a test.
LAYOUT = (
    *("strategy", "workers", "devices_per_worker", "ps", "model_parallel", "micro_batches", "min_shard_bytes"),
    *("accumulation", "communication", "cross_device", "precision", "jit"),
)
CANDIDATES_MOST = 20
# In place of candidates: the best ones of one's latest advice for the job.
ADVISED, ADVISED_MOST = "advised", 5
ROUNDS_MOST = 10
MINUTES, MINUTES_MOST = 3.0, 24 * 60.0


class Asked(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A strategy test as it is asked for. `job` is as `POST /jobs` takes it; each candidate has fields of `LAYOUT`."""

    name: str = ""
    job: dict[str, Any]
    candidates: list[dict[str, Any]]
    samples: int = 0
    minutes: float = MINUTES
    repeats: int = 2
    target: dict[str, Any] | None = None


def create(*, asked: Mapping[str, object], by: User) -> StrategyTest:
    """Check everything, and begin; `Invalid` names every wrong field, `candidates.0.workers` for instance."""
    if not by.may_run_jobs:
        raise Forbidden("Your role lets you look at strategy tests, not create them.")
    job = asked.get("job")
    if asked.get("candidates") == ADVISED and isinstance(job, Mapping):
        asked = {**asked, "candidates": advising.advised(request=job, by=by, most=ADVISED_MOST)}
    try:
        wish = msgspec.convert(asked, Asked)
    except msgspec.ValidationError as error:
        raise Invalid([FieldError(_field_in(str(error)), _said_in(str(error)))]) from error
    errors = list(_errors_in(wish))
    base = {name: value for name, value in wish.job.items() if name not in LAYOUT}
    program = programs.resolve(base, by=by)
    checked = [submission.check({**base, **layout}, by=by, program=program) for layout in wish.candidates]
    for place, each in enumerate(checked):
        errors += _at(place, each)
    if errors:
        raise Invalid(list(dict.fromkeys(errors)))
    return _begin(wish, base, checked, by)


def extend(*, test_id: int, layout: Mapping[str, object], by: User) -> Candidate:
    """One more candidate, which runs as often as the others; a test that was over goes on."""
    test = changeable(test_id, by)
    had = test.candidates.all()
    if len(had) >= CANDIDATES_MOST:
        raise Conflict(f"A test has at most {CANDIDATES_MOST} candidates.")
    if any(each.layout == layout for each in had):
        raise Conflict("The test has this candidate already.")
    checked = submission.check({**test.request, **layout}, by=by)
    if checked.errors:
        raise Invalid(checked.errors)
    with transaction.atomic():
        row = _candidate(test, len(had), layout, _spec(checked, test.samples, test.minutes))
        test.status, test.ended_at = TestStatus.RUNNING.value, None
        test.save(update_fields=["status", "ended_at"])
        transitions.record(kind="strategy_test", text=f"{by.username} added {row.label} to {test}.", actor=by)
    return row


def again(*, test_id: int, by: User) -> StrategyTest:
    """A new test that asks for the same."""
    test = strategy_tests.get(by, test_id)
    target = {"metric": test.target_metric, "value": test.target_value} if test.target_value is not None else None
    return create(
        asked={
            "name": test.name,
            "job": test.request,
            "candidates": [each.layout for each in test.candidates.all() if not each.withdrawn],
            **{"samples": test.samples, "minutes": test.minutes, "repeats": test.rounds, "target": target},
        },
        by=by,
    )


def _errors_in(wish: Asked) -> list[FieldError]:
    """What is wrong with the test itself."""
    target = wish.target or {}
    checks = [
        ("name", len(wish.name) > 100, "at most 100 characters"),
        ("candidates", not 1 <= len(wish.candidates) <= CANDIDATES_MOST, f"1 to {CANDIDATES_MOST} of them"),
        (
            "candidates",
            len({repr(sorted(each.items())) for each in wish.candidates}) < len(wish.candidates),
            "two are the same: leave one out",
        ),
        ("samples", not 0 <= wish.samples <= 2**53, "a whole number from 0 (all epochs) on"),
        ("minutes", not 0 < wish.minutes <= MINUTES_MOST, f"a number above 0, up to {MINUTES_MOST:g}"),
        ("repeats", not 1 <= wish.repeats <= ROUNDS_MOST, f"a whole number from 1 to {ROUNDS_MOST}"),
        (
            "target",
            wish.target is not None
            and not (
                target.keys() == {"metric", "value"}
                and isinstance(target["metric"], str)
                and 0 < len(target["metric"]) <= 200
                and isinstance(target["value"], int | float)
                and math.isfinite(target["value"])
            ),
            'a metric and its value, such as {"metric": "val_loss", "value": 0.1}',
        ),
    ]
    return [FieldError(name, message) for name, is_wrong, message in checks if is_wrong]


def _at(place: int, checked: Checked) -> list[FieldError]:
    """Errors of a candidate at its own fields, the others at those of the job, where they are the same for all."""
    return [
        FieldError(
            f"candidates.{place}.{error.field}" if error.field in LAYOUT else f"job.{error.field}", error.message
        )
        for error in checked.errors
    ]


@transaction.atomic
def _begin(wish: Asked, base: Mapping[str, object], checked: Sequence[Checked], by: User) -> StrategyTest:
    first = checked[0]
    if not isinstance(first.program, Program) or first.cluster is None or first.spec is None:
        raise Invalid(first.errors)  # not reached: without errors all three are there
    code = programs.save(first.program)
    request = dict(base)
    if "code" in request:
        request["code"] = {"filename": code.filename, "sha256": code.sha256, "entry": first.spec.code.entry}
    target = wish.target or {}
    test = StrategyTest.objects.create(
        owner=by,
        cluster=first.cluster,
        code=code,
        name=wish.name or first.spec.name,
        request=request,
        samples=wish.samples,
        minutes=wish.minutes,
        rounds=wish.repeats,
        target_metric=target.get("metric", ""),
        target_value=target.get("value"),
    )
    for place, (layout, each) in enumerate(zip(wish.candidates, checked, strict=True)):
        _candidate(test, place, layout, _spec(each, wish.samples, wish.minutes))
    text = f"{by.username} began {test} with {len(checked)} candidates."
    transitions.record(kind="strategy_test", text=text, actor=by)
    return test


def _spec(checked: Checked, samples: int, minutes: float) -> JobSpec:
    """The candidate's whole job, within the budget of the test."""
    spec = checked.spec
    if spec is None:
        raise Invalid(checked.errors)
    seconds = math.ceil(minutes * 60)
    budget: dict[str, Any] = {"time_limit_s": min(spec.time_limit_s or seconds, seconds)}
    if samples and spec.kind is Kind.RECIPE:
        steps = math.ceil(samples / spec.global_batch_size)
        budget["max_steps"] = min(spec.max_steps or steps, steps)
    return msgspec.structs.replace(spec, **budget)


def _candidate(test: StrategyTest, place: int, layout: Mapping[str, object], spec: JobSpec) -> Candidate:
    return Candidate.objects.create(test=test, place=place, layout=dict(layout), label=label_of(spec), spec=plain(spec))


def label_of(spec: JobSpec) -> str:
    """A layout in a few words: MultiWorkerMirrored, 2 workers × 4 devices."""
    row = STRATEGIES[spec.strategy]
    parts = []
    if spec.workers > 1 or spec.ps:
        parts.append(f"{spec.workers} worker{'' if spec.workers == 1 else 's'}")
    if spec.devices_per_worker > 1:
        parts.append(f"{spec.devices_per_worker} devices" if not parts else f"× {spec.devices_per_worker} devices")
    words = " ".join(parts) + (f" + {spec.ps} ps" if spec.ps else "")
    return f"{row.label}, {words}" if words else row.label


def _field_in(told: str) -> str:
    """The field that msgspec's sentence names: `Expected `int`, got `str` - at `$.samples``."""
    return told.rpartition("at `$")[2].strip("`.").replace("[", ".").replace("]", "") if "at `$" in told else ""


def _said_in(told: str) -> str:
    return told.partition(" - at `$")[0].replace("`", "")
