"""The checker finds what is wrong: on a job that is right in all, and then in all but one thing."""

import json
from collections.abc import Callable
from math import nan
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.faults import checker
from tests.faults.checker import INVARIANTS, Evidence

STEPS = 5
LINES = [f"count {step} of {STEPS}" for step in range(1, STEPS + 1)]


class PaperYard:
    """What a yard answers, written down: one job of two attempts, the first of which was killed on node a."""

    def __init__(self, folder: Path) -> None:
        self.truth = folder
        self.status = "succeeded"
        self.secrets = ["canary"]
        self.series = {1: [1, 2], 2: [1, 2, 3, 4, 5]}
        self.lines = {1: LINES[:2], 2: LINES}
        self.path = ["submitted", "launching", "running", "restarting", "submitted", "launching", "running"]
        self.page_status, self.page_text, self.actor = "succeeded", "", "admin"
        self.ledger = [{"attempt": 1, "steps_lost": 2}]
        self.device_job: int | None = None
        self.listens: set[int] = set()
        self.held: list[tuple[int]] = []
        self.left: list[Any] = []
        self.began = {1: 0.0, 2: 20.0}
        self.bystanders: dict[str, int] = {}
        self.pages = SimpleNamespace(get=lambda path: SimpleNamespace(text=self.page()))
        self.database = SimpleNamespace(rows=lambda query: self.held)
        self.machines = {"a": SimpleNamespace(listening=lambda: self.listens)}

    def write_truth(self) -> None:
        for attempt, said in ((1, 2), (2, STEPS)):
            at = self.began[attempt]
            notes: list[dict[str, Any]] = [{"pid": 10 + attempt, "role": "worker:0", "environment": {}, "at": at}]
            for step in range(1, said + 1):
                notes += [
                    {"step": step, "loss": 1.0 / step, "line": LINES[step - 1], "at": at + step},
                    {"said": step, "at": at + step},
                ]
            notes.append({"done": True, "at": at + said + 5})
            lines = "".join(json.dumps(note) + "\n" for note in notes)
            (self.truth / f"1-{attempt}-{attempt}.jsonl").write_text(lines)

    def page(self) -> str:
        return f'<span class="ty-status is-pill"\n data-status="{self.page_status}">{self.page_text}</span>'

    def job(self, job_id: int) -> dict[str, Any]:
        return {"id": 1, "status": self.status, "attempt": 2, "reason": "", "total_steps": STEPS}

    def training(self, *, job_id: int) -> list[Any]:
        return self.left

    def get(self, path: str, **query: Any) -> Any:
        match path.rpartition("/")[2]:
            case "events":
                path_walked = [*self.path, self.status]
                return [{"kind": f"job_{status}", "actor": self.actor, "text": ""} for status in path_walked]
            case "replicas":
                number = query["attempt"]
                row = {"id": number, "role": "worker", "index": 0, "node": "a", "port": 21000, "status": "exited"}
                ending: dict[str, object] = {"exit_code": 0, "cause": "completed"}
                return [row | (ending if number > 1 else {"exit_code": None, "cause": "signal"})]
            case "series":
                rows = [
                    {"attempt": n, "replica": "worker:0", "steps": steps, "values": [1.0 / step for step in steps]}
                    for n, steps in self.series.items()
                ]
                return {"loss": rows}
            case "logs":
                text = "".join(f"{line}\n" for line in self.lines[query["attempt"]])
                return {"text": text[query["offset"] :], "next": len(text)}
            case "restarts":
                return self.ledger
            case _:
                return [{"name": "a", "devices": [{"index": 0, "job": self.device_job}]}]


def set_to(name: str, value: Any) -> Callable[[PaperYard], None]:
    return lambda yard: setattr(yard, name, value)


WRONG: list[tuple[str, str, Callable[[PaperYard], None]]] = [
    ("I1", "a path that the table does not have", set_to("path", ["submitted", "running"])),
    ("I1", "two ends", set_to("path", ["submitted", "launching", "failed", "submitted", "launching", "running"])),
    ("I2", "a point lost", set_to("series", {1: [1, 2], 2: [1, 2, 3, 4]})),
    ("I2", "a point doubled", set_to("series", {1: [1, 2], 2: [1, 2, 2, 3, 4, 5]})),
    ("I2", "a hole", set_to("series", {1: [1, 2], 2: [1, 2, 4, 5]})),
    ("I2", "a point that nobody wrote", set_to("series", {1: [1, 2, 3], 2: [1, 2, 3, 4, 5]})),
    ("I3", "a line lost", set_to("lines", {1: LINES[:2], 2: LINES[:-1]})),
    (
        "I3",
        "a gap that owns up to too little",
        set_to("lines", {1: [], 2: ["… 3 bytes of output were left out (flood)"]}),
    ),
    ("I4", "two attempts at once", set_to("began", {1: 0.0, 2: 3.0})),
    ("I5", "a process left", set_to("left", [SimpleNamespace(pid=7, name=lambda: "python")])),
    ("I6", "a device kept", set_to("device_job", 1)),
    ("I6", "a port held", set_to("held", [(1,)])),
    ("I6", "a port open", set_to("listens", {21000})),
    ("I7", "too much lost", set_to("ledger", [{"attempt": 1, "steps_lost": 900}])),
    ("I7", "a restart that the ledger lacks", set_to("ledger", [])),
    ("I8", "a page behind", set_to("page_status", "running")),
    ("I9", "nobody did it", set_to("actor", None)),
    ("I9", "a launch without a line", set_to("path", ["submitted", "launching", "running"])),
    ("I10", "a secret on the page", set_to("page_text", "canary")),
]


@pytest.fixture
def yard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PaperYard:
    monkeypatch.setattr(checker, "ENDED_WITHIN_S", 0.0)
    return PaperYard(tmp_path)


def found(yard: PaperYard) -> dict[str, list[str]]:
    yard.write_truth()
    evidence = Evidence(yard, 1, frozenset(), 500)  # type: ignore[arg-type]
    return {name: list(invariant(evidence)) for name, invariant in INVARIANTS.items()}


def test_a_job_that_is_right_is_found_right(yard: PaperYard) -> None:
    assert not any(found(yard).values())


@pytest.mark.parametrize(("invariant", "what", "spoil"), WRONG, ids=[what for _, what, _ in WRONG])
def test_one_thing_wrong_is_found(
    yard: PaperYard, invariant: str, what: str, spoil: Callable[[PaperYard], None]
) -> None:
    spoil(yard)
    assert found(yard)[invariant]


def test_what_a_killed_process_took_along_is_no_loss(yard: PaperYard) -> None:
    yard.series = {1: [1], 2: [1, 2, 3, 4, 5]}
    yard.lines[1] = LINES[:1]
    path = yard.truth / "1-1-1.jsonl"
    yard.write_truth()
    path.write_text("\n".join(path.read_text().splitlines()[:-1]) + "\n")
    evidence = Evidence(yard, 1, frozenset(), None)  # type: ignore[arg-type]
    assert not list(INVARIANTS["I2"](evidence))
    assert not list(INVARIANTS["I3"](evidence))


def test_a_process_that_was_ended_before_its_first_note_has_lost_nothing(yard: PaperYard) -> None:
    (yard.truth / "1-1-9.jsonl").touch()
    assert not any(found(yard).values())


def test_a_gap_that_owns_up_is_no_loss(yard: PaperYard) -> None:
    size = len(LINES[0].encode()) + 1
    yard.lines[2] = [f"… {size} bytes of output were left out (the node's disk was full)", *LINES[1:]]
    assert not found(yard)["I3"]


@pytest.mark.parametrize(
    ("series", "words"),
    [
        ({1: [1, 2, 3], 2: [3, 4, 5]}, ""),
        ({1: [1, 2], 2: [4, 5]}, "1 of 5 steps have no point"),
        ({1: [1, 2, 3], 2: [4]}, "1 of 5 steps have no point"),
        ({1: [1, 2, 2], 2: [3, 4, 5]}, "attempt 1: steps are missing or doubled"),
    ],
)
def test_a_training_that_goes_on_has_told_every_step(yard: PaperYard, series: dict[int, list[int]], words: str) -> None:
    yard.series = series
    evidence = Evidence(yard, 1, frozenset(), 2)  # type: ignore[arg-type]
    assert "".join(INVARIANTS["I2"](evidence)) == words


@pytest.mark.parametrize(("again", "is_right"), [(0.4, True), (0.4 + 5e-7, True), (0.4 + 2e-6, False), (nan, False)])
def test_a_step_done_again_has_the_same_loss(yard: PaperYard, again: float, is_right: bool) -> None:
    evidence = Evidence(yard, 1, frozenset(), 2)  # type: ignore[arg-type]
    evidence.stored = {
        (1, "worker:0"): [(1, 0.5), (2, 0.4)],
        (2, "worker:0"): [(2, again), (3, 0.3), (4, 0.2), (5, 0.1)],
    }
    found = list(INVARIANTS["I2"](evidence))
    assert found == ([] if is_right else [f"attempt 2: the loss at step 2 is {again}, it was 0.4"])
