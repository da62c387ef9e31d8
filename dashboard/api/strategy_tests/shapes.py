"""What REST takes and gives about strategy tests, as types."""

from datetime import datetime
from typing import Any, Literal

from ninja import Field, Schema

from orchestrator.queries.rows import TestStatus
from orchestrator.services.strategy_tests import creating


class Target(Schema):
    """A metric, and the value that is good enough."""

    metric: str
    value: float


class StrategyTestRequest(Schema):
    """A strategy test to be made. Errors come field by field, such as `candidates.0.workers`."""

    name: str = Field(default="", description="Empty: the job's.")
    job: dict[str, Any] = Field(description="As `POST /jobs` takes it, without what a candidate says.")
    candidates: list[dict[str, Any]] | Literal["advised"] = Field(
        description=f"Each some of: {', '.join(creating.LAYOUT)}. advised: the best of your latest advice for this job."
    )
    samples: int = Field(default=0, ge=0, description="Examples for each run; 0: all epochs of the job.")
    minutes: float = Field(
        default=creating.MINUTES, gt=0, le=creating.MINUTES_MOST, description="At most, for each run."
    )
    repeats: int = Field(default=2, ge=1, le=creating.ROUNDS_MOST, description="Runs of each candidate.")
    target: Target | None = Field(default=None, description="The time to it decides, not the examples per second.")


class Figure(Schema):
    """Over the runs."""

    median: float
    low: float
    high: float


class Candidate(Schema):
    """A strategy with its layout, and what its runs measured."""

    place: int
    label: str
    layout: dict[str, Any]
    status: Literal["waiting", "running", "measured", "beaten", "failed", "withdrawn"]
    reason: str
    jobs: list[int]
    examples_per_s: Figure | None = Field(description="Of a script that tells none: steps per second.")
    step_time_ms: Figure | None
    efficiency: float | None = Field(description="Of what as many single devices would do; needs one_device as well.")
    epoch_s: float | None
    target_s: Figure | None
    final: dict[str, float] = Field(description="The metrics at the end of the last run.")
    parts: dict[str, float] = Field(description="Of a step, in ms; of runs longer than 20 s.")
    staleness: float | None
    memory_bytes: float | None
    device_hours: float
    restarts: int


class Verdict(Schema):
    """Who won; not `sure` where another may be as good."""

    place: int | None
    strategy: str
    sentence: str
    sure: bool


class StrategyTest(Schema):
    """A test as it stands."""

    id: int
    name: str
    status: TestStatus
    owner: str
    cluster: str
    samples: int
    minutes: float
    repeats: int
    target: Target | None
    created_at: datetime
    ended_at: datetime | None
    candidates: list[Candidate]
    verdict: Verdict


class TestLine(Schema):
    """A test in a list."""

    id: int
    name: str
    status: TestStatus
    owner: str
    created_at: datetime
    ended_at: datetime | None


class TestPage(Schema):
    """One page, newest first."""

    items: list[TestLine]
    next: int | None = Field(description="Give it as `before` for the next page; null on the last.")
