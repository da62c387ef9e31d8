"""The form that asks for a strategy test: its candidates, its budget, and what is typed into it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dashboard.forms import label_of, sentence_of
from dashboard.labels import in_labels
from dashboard.views.strategy_tests.layouts import NUMBERS, number_in, numbers_of
from orchestrator.services.errors import FieldError
from orchestrator.services.strategy_tests.creating import LAYOUT, MINUTES
from worker_agent.protocol.job.job_spec import FIELDS
from worker_agent.protocol.job.strategies import PARTICULAR, STRATEGIES
from worker_agent.protocol.states import Kind, Strategy

OF_JOB = ("job.global_batch_size", "job.epochs")
OF_TEST = {"name": "", "minutes": f"{MINUTES:g}", "samples": "", "repeats": "2", "metric": "", "value": ""}
TARGET = "Give the metric and its value, such as val_loss and 0.1, or neither."


@dataclass(frozen=True)
class Proposal:
    """A row of the form: a strategy, why it cannot run as it stands ("" if it can), and what was refused of it."""

    strategy: Strategy
    why_not: str
    error: str = ""

    @property
    def label(self) -> str:
        """What people call it."""
        return STRATEGIES[self.strategy].label

    @property
    def summary(self) -> str:
        """What it does."""
        return STRATEGIES[self.strategy].summary

    @property
    def fields(self) -> list[tuple[str, str]]:
        """(name, label) of its numbers."""
        return [(f"{self.strategy}.{name}", FIELDS[name].label) for name in numbers_of(self.strategy)]


class TestForm:
    """`values` as typed, `errors` by field, `chosen` the strategies that are ticked. `base` is the job's request."""

    __test__ = False  # pytest would collect a class of this name

    def __init__(self, base: Mapping[str, Any], values: Mapping[str, str], chosen: Sequence[str]) -> None:
        self.base = base
        self.values = dict(values)
        self.chosen = [strategy for strategy in Strategy if strategy in chosen]
        self.errors: dict[str, str] = {}

    @classmethod
    def sent(cls, base: Mapping[str, Any], post: Mapping[str, str], chosen: Sequence[str]) -> "TestForm":
        """What a browser sent."""
        numbers = [f"{strategy}.{name}" for strategy in Strategy for name in numbers_of(strategy)]
        return cls(base, {name: post.get(name, "") for name in (*OF_TEST, *OF_JOB, *numbers)}, chosen)

    def value(self, name: str) -> str:
        """What stands in the field of that name."""
        return self.values.get(name, "")

    @property
    def is_recipe(self) -> bool:
        """Whether the job has a batch, epochs and examples to be counted."""
        return bool(self.base.get("kind", Kind.RECIPE) == Kind.RECIPE)

    def layout_of(self, strategy: Strategy) -> dict[str, Any]:
        """The candidate of a row, with what the job asked for beside the numbers, where the strategy reads it."""
        numbers = {name: self.value(f"{strategy}.{name}") for name in numbers_of(strategy)}
        typed = {name: number_in(text) for name, text in numbers.items() if text.strip()}
        return {"strategy": strategy.value, **kept(self.base, strategy), **typed}

    def job(self) -> dict[str, Any]:
        """The job that all candidates share."""
        typed = {name.removeprefix("job."): number_in(self.value(name)) for name in OF_JOB if self.value(name).strip()}
        return {name: value for name, value in self.base.items() if name not in LAYOUT} | typed

    def request(self) -> dict[str, object]:
        """What the form asks `creating.create` for. What is no number has its error at once."""
        metric, value = self.value("metric").strip(), self.value("value").strip()
        if bool(metric) != bool(value):
            self.errors["metric"] = TARGET
        target = {"metric": metric, "value": self._number("value", 0.0)} if metric and value else None
        return {
            "name": self.value("name").strip(),
            "job": self.job(),
            "candidates": [self.layout_of(strategy) for strategy in self.chosen],
            "samples": self._whole("samples", 0),
            "minutes": self._number("minutes", MINUTES),
            "repeats": self._whole("repeats", 2),
            "target": target,
        }

    def refuse(self, errors: Sequence[FieldError]) -> None:
        """Put each error at its field; what belongs to none stands under ""."""
        for error in errors:
            place, said = self._place(error.field), sentence_of(in_labels(error.message))
            if not place and error.field.startswith("job."):
                said = f"{label_of(error.field.removeprefix('job.'))}: {said}"
            self.errors[place] = f"{self.errors[place]} {said}" if place in self.errors else said

    def _place(self, name: str) -> str:
        if name.startswith("candidates."):
            number, _, own = name.removeprefix("candidates.").partition(".")
            strategy = self.chosen[int(number)]
            return f"{strategy}.{own}" if own in numbers_of(strategy) else strategy.value
        if name == "target":
            return "metric"
        return name if name in self.values or name == "candidates" else ""

    def _number(self, name: str, default: float) -> float:
        try:
            return float(self.value(name).strip() or default)
        except ValueError:
            self.errors[name] = "A number."
            return default

    def _whole(self, name: str, default: int) -> int:
        found = number_in(self.value(name).replace("\u202f", "").replace(" ", "")) if self.value(name) else default
        if isinstance(found, int):
            return found
        self.errors[name] = "A whole number."
        return default


def kept(asked: Mapping[str, Any], strategy: Strategy) -> dict[str, Any]:
    """Of a request or a layout, what another strategy keeps: not its numbers, and only what it reads."""
    unread = PARTICULAR - STRATEGIES[strategy].reads
    names = [name for name in LAYOUT if name not in ("strategy", *NUMBERS) and name not in unread]
    return {name: asked[name] for name in names if name in asked}
