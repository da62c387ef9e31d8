"""What REST takes and gives about advices, as types."""

from datetime import datetime
from typing import Any, Literal

from ninja import Field, Schema

from orchestrator.domain.advice.advice import Level
from orchestrator.queries.rows import AdviceStatus


class Wishes(Schema):
    """What counts for the one who asks."""

    fixed_batch: bool = Field(default=True, description="false: also layouts with the job's batch on every replica.")
    staleness: Literal["refused", "allowed", "welcome"] = Field(
        default="refused", description="Gradients that are some updates old, as under ParameterServer."
    )
    goal: Literal["time", "cost"] = Field(default="time", description="cost: the fewest device-hours.")


class AdviceWishes(Schema):
    """What an advice takes beside the fields of a job."""

    measure: bool = Field(
        default=True, description="Time steps on the node, which takes up to 30 s; false: FLOPs and sizes alone."
    )
    wishes: Wishes = Wishes()


class Predicted(Schema):
    """A step, with its interval and parts in ms; memory of the fullest device."""

    step_time_ms: float
    low_ms: float
    high_ms: float
    formula_ms: float
    parts: dict[str, float]
    examples_per_s: float
    epoch_s: float | None
    device_hours_per_epoch: float | None
    memory_bytes: float
    lost_share: float = Field(description="Of the time, by preemptible machines that are taken away.")


class Remark(Schema):
    """A sentence, and the same as data."""

    code: str
    figures: dict[str, Any]
    sentence: str


class Candidate(Schema):
    """A layout, the best first; a strategy that has none here stands at the end, with the reason."""

    key: str | None
    strategy: str
    layout: dict[str, Any] = Field(description="The fields of a job that make it, to be sent to `POST /jobs`.")
    workers: int
    ps: int
    devices_per_worker: int
    model_parallel: int
    micro_batches: int
    accumulation: int
    global_batch_size: int
    devices: int | None = None
    device_kind: str | None = None
    nodes: list[str] = []
    fits: bool
    predicted: Predicted | None
    efficiency: float | None
    reasons: list[Remark]
    cautions: list[Remark]


class Verdict(Remark):
    """The best layout; not `sure` where another may be as good. `close` are those that are too close to call."""

    strategy: str | None
    key: str | None
    sure: bool
    close: list[str]


class Advice(Schema):
    """An advice as it stands."""

    id: int
    status: AdviceStatus
    level: Level | None = Field(description="instant: by the formula; measured: short runs of the layouts as well.")
    reason: str = Field(description="Why it has failed.")
    created_at: datetime
    ended_at: datetime | None
    candidates: list[Candidate]
    verdict: Verdict | None
    would_change: list[Remark]
    inputs: dict[str, Any] = Field(description="What it was made from.")
