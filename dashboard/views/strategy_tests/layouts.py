"""Layouts of strategies as forms have them: which numbers each strategy has, and what they begin with on a cluster."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dashboard.forms import sentence_of
from dashboard.labels import in_labels
from orchestrator.domain.placement.planning import NodeView
from orchestrator.services.errors import FieldError
from worker_agent.protocol.job.job_spec import FIELDS
from worker_agent.protocol.job.strategies import STRATEGIES
from worker_agent.protocol.states import DeviceKind, Strategy

NUMBERS = ("workers", "devices_per_worker", "ps", "model_parallel", "micro_batches")
LABELS = {name: FIELDS[name].label for name in NUMBERS}
MICRO_BATCHES = 4


def numbers_of(strategy: Strategy) -> list[str]:
    """The numbers that a layout of this strategy has."""
    return [name for name in NUMBERS if name in STRATEGIES[strategy].reads]


def first_numbers(strategy: Strategy, nodes: Sequence[NodeView]) -> dict[str, int]:
    """A layout that takes all of the cluster's nodes, or all devices of one: GPUs where there are any."""
    kind = DeviceKind.GPU if any(node.count(DeviceKind.GPU) for node in nodes) else DeviceKind.CPU
    counts = [count for node in nodes if (count := node.count(kind))]
    row = STRATEGIES[strategy]
    alone = row.one_cpu_device and kind is DeviceKind.CPU
    of_gang = 1 if alone or "ps" in row.reads else min(counts, default=1)
    known = {
        "workers": max(2, len(counts)),
        "devices_per_worker": of_gang if row.is_gang else max(2, *counts, 2),
        "ps": 1,
        "model_parallel": 2,
        "micro_batches": MICRO_BATCHES,
    }
    return {name: known[name] for name in numbers_of(strategy)}


def number_in(text: str) -> int | str:
    """A whole number as such; other words as they were typed, for the service to refuse."""
    word = text.strip()
    return int(word) if word.isascii() and word.isdecimal() and len(word) < 16 else word


@dataclass
class LayoutForm:
    """One more candidate, as typed."""

    values: Mapping[str, str] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)

    def value(self, name: str) -> str:
        """What stands in the field of that name."""
        return self.values.get(name, Strategy.MIRRORED.value if name == "strategy" else "")

    @property
    def fields(self) -> list[tuple[str, str]]:
        """(name, label) of the numbers."""
        return list(LABELS.items())

    @property
    def strategies(self) -> list[tuple[str, str]]:
        """(value, label) of the choice."""
        return [(strategy.value, row.label) for strategy, row in STRATEGIES.items()]

    @property
    def general(self) -> str:
        """What is wrong beyond the fields."""
        return self.errors.get("", "")

    def layout(self) -> dict[str, Any]:
        """What it asks for: of the numbers those that its strategy has and that were given."""
        strategy = self.value("strategy")
        numbers = numbers_of(Strategy(strategy)) if strategy in set(Strategy) else []
        return {"strategy": strategy} | {
            name: number_in(self.value(name)) for name in numbers if self.value(name).strip()
        }

    def refuse(self, errors: Sequence[FieldError]) -> None:
        """Put each error at its field; what belongs to none stands under ""."""
        for error in errors:
            place = error.field if error.field in ("strategy", *NUMBERS) else ""
            self.errors.setdefault(place, sentence_of(in_labels(error.message)))
