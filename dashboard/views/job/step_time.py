"""The job page's panel of where the time of a step goes."""

import json
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from dashboard.templatetags.trainyard import replica_name
from orchestrator.domain.step_time import Finding, Holding, findings, recent
from orchestrator.queries.measuring import step_parts
from orchestrator.queries.rows import Job, Replica
from worker_agent.protocol.job.strategies import row_named
from worker_agent.protocol.records import STEP_PARTS_AFTER_S, StepPart
from worker_agent.protocol.states import JobStatus, Kind

LABELS = {
    StepPart.INPUT: "Waiting for input",
    StepPart.COMPUTE: "Compute",
    StepPart.WAIT: "Waiting for the slowest",
    StepPart.COMMUNICATION: "Communication",
    StepPart.APPLY: "Optimizer",
    StepPart.HOST: "Python",
}
# A training of which nothing was measured for longer is not measured, or its calls take that long.
YOUNG = timedelta(minutes=2)
WORDS = {
    Holding.INPUT: "{share} of a step waits for input. Prefetch, cache or decode in parallel in the recipe's dataset.",
    Holding.COMMUNICATION: "{share} of a step sums gradients over the replicas. A larger batch makes that rarer.",
    Holding.APPLY: "{share} of a step goes into the optimizer.",
    Holding.HOST: "{share} of a step is Python between two calls: callbacks, or too few steps per call.",
    Holding.STRAGGLER: "{replica} is {times:.1f} × slower than the others, who wait {share} of a step for it.",
}


@dataclass(frozen=True)
class Slice:
    """A part's bar: `left` and `width` in percent of the longest step shown."""

    part: StepPart
    label: str
    ms: float
    left: float
    width: float


@dataclass(frozen=True)
class Row:
    """A replica's step."""

    name: str
    node: str
    ms: float
    slices: list[Slice]


@dataclass(frozen=True)
class StepTime:
    """Everything the panel prints; falsy while nothing was measured: then `expected` says when
    something may be."""

    rows: list[Row] = field(default_factory=list)
    sentences: list[str] = field(default_factory=list)
    expected: str = ""

    def __bool__(self) -> bool:
        return bool(self.rows)

    @property
    def labels(self) -> str:
        """The name of each part, as JSON for the chart."""
        return json.dumps(LABELS, ensure_ascii=False)

    @property
    def legend(self) -> list[tuple[StepPart, str]]:
        """The parts that any row shows."""
        seen = {each.part for row in self.rows for each in row.slices}
        return [(part, label) for part, label in LABELS.items() if part in seen]


def step_time(job: Job, gang: list[Replica], *, began: datetime | None, now: datetime) -> StepTime:
    """The panel of the job's present attempt, at work since it `began`; `gang` are its replicas, the leader first."""
    samples = step_parts.of_job(job)
    lately = recent(samples)
    longest = max((sum(parts.values()) for parts in lately.values()), default=0.0)
    if not longest:
        return StepTime(expected=_expected(job, began, now))
    nodes = {str(replica): replica.node_name for replica in gang}
    rows = [
        Row(replica_name(name), nodes[name], sum(lately[name].values()), slices_of(lately[name], longest))
        for name in nodes
        if name in lately
    ]
    return StepTime(rows, [_sentence(each, nodes) for each in findings(samples)])


def _expected(job: Job, began: datetime | None, now: datetime) -> str:
    row = row_named(job.strategy)
    if job.status != JobStatus.RUNNING or job.typed_spec.kind is not Kind.RECIPE or not (row and row.times_steps):
        return ""
    is_young = began is not None and now - began < YOUNG
    return f"The first figures come after {STEP_PARTS_AFTER_S:.0f} seconds of training." if is_young else ""


def slices_of(parts: dict[StepPart, float], longest: float) -> list[Slice]:
    """The bar of a step, whose parts are in ms, where the longest one that is shown fills the width."""
    left, slices = 0.0, []
    for part, ms in parts.items():
        width = 100 * ms / longest
        if ms:
            slices.append(Slice(part, LABELS[part], ms, round(left, 2), round(width, 2)))
        left += width
    return slices


def _sentence(finding: Finding, nodes: dict[str, str]) -> str:
    who = f"{replica_name(finding.replica).capitalize()} ({nodes.get(finding.replica, '')})" if finding.replica else ""
    return WORDS[finding.holding].format(share=f"{finding.share * 100:.0f} %", replica=who, times=finding.times)
