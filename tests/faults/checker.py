"""The one checker: after every fault, the ten invariants of a job, from what people see and from the truth beside it.

`check(yard, job_id)` waits for late news for as long as the promises allow and returns what is wrong, with counts of
points and lines emitted, stored, lost and doubled. A process ended by a signal may take along what it said in its last
second; one on a node that was given up may have said more than is known. Neither may anything be doubled.
"""

import json
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any

from orchestrator.domain.lifecycle import JOB_TRANSITIONS, TERMINAL_JOB
from tests.faults.installation import counting
from tests.faults.installation.counting import Truth
from tests.faults.installation.yard import Yard
from worker_agent.protocol.states import JobStatus

PATIENCE_S = 30.0
ENDED_WITHIN_S = 10.0
# What a step done again may differ by: the promise to users. Measured: nothing at all, on the same kind of processor.
SAME_LOSS = 1e-6
# What a process ended by a signal (SIGKILL, or a SIGTERM that it does not handle) may take along: said, and not on its
# disk yet. That is 0.05 s, at a power cut 0.2 s, and as much as a busy machine adds.
TAIL_S = 1.0
GAP = re.compile(r"… ([\d,]+) bytes of output were left out \(")
STATUS = re.compile(r'is-pill"\s+data-status="(\w+)"')


@dataclass
class Counts:
    """Of points or of lines."""

    emitted: int = 0
    stored: int = 0
    lost: int = 0
    doubled: int = 0

    def add(self, other: "Counts") -> None:
        for name in vars(self):
            setattr(self, name, getattr(self, name) + getattr(other, name))


@dataclass
class Verdict:
    """What is wrong, as `I2: …`, what was counted, and measured, in words."""

    wrong: list[str] = field(default_factory=list)
    figures: list[str] = field(default_factory=list)
    points: Counts = field(default_factory=Counts)
    lines: Counts = field(default_factory=Counts)

    def add(self, other: "Verdict") -> None:
        self.wrong += other.wrong
        self.figures += other.figures
        self.points.add(other.points)
        self.lines.add(other.lines)


@dataclass
class Evidence:
    """All that is known of a job at one moment. `asked` are the actions that a person took; `interval` the most steps
    that a restart may cost, which goes on from a checkpoint; None for a program that begins anew."""

    yard: Yard
    job_id: int
    asked: frozenset[str]
    interval: int | None
    verdict: Verdict = field(default_factory=Verdict)

    @cached_property
    def job(self) -> Any:
        return self.yard.job(self.job_id)

    @cached_property
    def events(self) -> list[Any]:
        return list(self.yard.get(f"/jobs/{self.job_id}/events", limit=1000))

    @cached_property
    def replicas(self) -> list[Any]:
        attempts = range(1, self.job["attempt"] + 1)
        return [each for n in attempts for each in self.yard.get(f"/jobs/{self.job_id}/replicas", attempt=n)]

    @cached_property
    def truths(self) -> list[Truth]:
        return counting.read(self.yard.truth, self.job_id)

    @cached_property
    def stored(self) -> dict[tuple[int, str], list[tuple[int, float]]]:
        found = self.yard.get(f"/jobs/{self.job_id}/series", names="loss", points=20_000).get("loss", [])
        return {
            (view["attempt"], view["replica"]): list(zip(view["steps"], view["values"], strict=True)) for view in found
        }

    @cached_property
    def page(self) -> str:
        return self.yard.pages.get(f"/jobs/{self.job_id}/").text

    def log(self, attempt: int, replica: str) -> str:
        """The whole output of a process as stored."""
        text, offset = "", 0
        while True:
            query = {"replica": replica, "attempt": attempt, "offset": offset, "limit": 1_000_000}
            piece = self.yard.get(f"/jobs/{self.job_id}/logs", **query)
            if not piece["text"]:
                return text
            text, offset = text + piece["text"], piece["next"]

    def must_have(self, truth: Truth) -> int:
        """How many of its steps must have arrived."""
        row = next((each for each in self.replicas if each["id"] == truth.replica_id), None)
        if row is None or row["status"] == "lost":
            return 0
        ended_by_itself = row["exit_code"] is not None
        return truth.said if ended_by_itself else truth.surely_said(before_s=TAIL_S)


def check(yard: Yard, job_id: int, *, asked: frozenset[str] = frozenset(), interval: int | None = None) -> Verdict:
    """The verdict on a job that has ended, or is about to; what is late is waited for."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        evidence = Evidence(yard, job_id, asked, interval)
        for name, invariant in INVARIANTS.items():
            evidence.verdict.wrong += [f"{name}: j-{job_id} {words}" for words in invariant(evidence)]
        if not evidence.verdict.wrong or time.monotonic() > deadline:
            return evidence.verdict
        time.sleep(1.0)


def one_end(seen: Evidence) -> Iterator[str]:
    """One terminal state, by a legal path."""
    names = {f"job_{status.value}": status for status in JobStatus}
    path = [names[event["kind"]] for event in seen.events if event["kind"] in names]
    for was, to in pairwise(path):
        if to not in JOB_TRANSITIONS[was]:
            yield f"went from {was.value} to {to.value}"
    if [status.value for status in path if status in TERMINAL_JOB] != [seen.job["status"]]:
        yield f"is {seen.job['status']} ({seen.job['reason'][:200]}), its history says {[s.value for s in path]}"


def every_point(seen: Evidence) -> Iterator[str]:
    """Stored points equal what the trainer wrote; where it goes on from checkpoints, every step is among them."""
    if seen.interval is not None:
        yield from _every_step(seen)
    for truth in seen.truths:
        stored = seen.stored.get((truth.attempt, truth.role), [])
        yield from _compared(seen.verdict.points, truth, truth.points, stored, seen.must_have(truth), "points")


def every_line(seen: Evidence) -> Iterator[str]:
    """Output byte for byte, or a counted gap."""
    for truth in seen.truths:
        text = seen.log(truth.attempt, truth.role)
        lines = [line for line in text.split("\n") if line.startswith("count ")]
        whole = lines if text.endswith("\n") else lines[:-1]
        left_out = sum(int(found.replace(",", "")) for found in GAP.findall(text))
        must = seen.must_have(truth)
        if left_out:
            missing = [line for line in truth.lines[:must] if line not in set(whole)]
            size_bytes = sum(len(line.encode()) + 1 for line in missing)
            if size_bytes > left_out:
                yield f"{truth.role} of attempt {truth.attempt}: {size_bytes} bytes missing, {left_out} owned up to"
            continue
        yield from _compared(seen.verdict.lines, truth, truth.lines, whole, must, "lines")


def one_attempt_at_a_time(seen: Evidence) -> Iterator[str]:
    """Never two attempts of one rank at work, nor one rank twice."""
    for role in {truth.role for truth in seen.truths}:
        rank = [truth for truth in seen.truths if truth.role == role]
        for earlier, later in pairwise(rank):
            if later.attempt == earlier.attempt:
                yield f"{role} of attempt {later.attempt} ran as {earlier.pid} and as {later.pid}"
            elif later.began_at < earlier.last_at:
                over_s = earlier.last_at - later.began_at
                yield f"{role}: attempt {earlier.attempt} went on for {over_s:.1f} s beside attempt {later.attempt}"


def nobody_left(seen: Evidence) -> Iterator[str]:
    """No process of an ended job after a while, and no outsider signalled."""
    deadline = time.monotonic() + ENDED_WITHIN_S
    while (left := seen.yard.training(job_id=seen.job_id)) and time.monotonic() < deadline:
        time.sleep(0.5)
    for process in left:
        yield f"left process {process.pid} {process.name()} behind"
    for name, pid in seen.yard.bystanders.items():
        if seen.yard.machines[name].programs["bystander"].poll() is not None:
            yield f"a bystander on {name}, {pid}, has been ended"
        noted = seen.yard.noted(name)
        if noted.exists():
            yield f"a bystander on {name} got signals {noted.read_text().split()}"


def all_given_back(seen: Evidence) -> Iterator[str]:
    """Ports and devices are free."""
    for node in seen.yard.get("/nodes"):
        for device in node["devices"]:
            if device["job"] == seen.job_id:
                yield f"still has device {device['index']} of {node['name']}"
    held = seen.yard.database.rows(f"SELECT id FROM orchestrator_replica WHERE held AND job_id = {seen.job_id}")
    if held:
        yield f"still holds ports, as replicas {held}"
    for replica in seen.replicas:
        if replica["port"] in seen.yard.machines[replica["node"]].listening():
            yield f"{replica['role']} {replica['index']} left port {replica['port']} of {replica['node']} open"


def little_lost(seen: Evidence) -> Iterator[str]:
    """Every restart is in the ledger, and none cost more steps than it may."""
    ledger = seen.yard.get(f"/jobs/{seen.job_id}/restarts")
    if len(ledger) < seen.job["attempt"] - 1 - len(seen.asked & {"resume", "drain"}):
        yield f"has had {seen.job['attempt']} launches and {len(ledger)} restarts in its ledger"
    for entry in ledger:
        if seen.interval is not None and (entry["steps_lost"] or 0) > seen.interval:
            yield f"lost {entry['steps_lost']} steps at the end of attempt {entry['attempt']}"


def page_is_right(seen: Evidence) -> Iterator[str]:
    """The page says what REST says."""
    shown = STATUS.search(seen.page)
    if shown is None or shown[1] != seen.job["status"]:
        yield f"is {seen.job['status']}, its page says {shown and shown[1]}"


def audited(seen: Evidence) -> Iterator[str]:
    """Who did what is in the history."""
    kinds = [event["kind"] for event in seen.events]
    actors = {event["kind"] for event in seen.events if event["actor"]}
    if "job_submitted" not in actors:
        yield "does not say who submitted it"
    if kinds.count("job_launching") != seen.job["attempt"]:
        yield f"had {seen.job['attempt']} attempts, its history has {kinds.count('job_launching')} launches"
    if "stop" in seen.asked and not actors & {"job_stopping", "job_stopped"}:
        yield "was stopped, and does not say by whom"


def nothing_told(seen: Evidence) -> Iterator[str]:
    """No secret in what people see and programs get."""
    shown = {
        "history": json.dumps(seen.events),
        "page": seen.page,
        "REST": json.dumps([seen.job, seen.replicas]),
        "output": "".join(seen.log(truth.attempt, truth.role) for truth in seen.truths),
        "environment": "".join(truth.environment for truth in seen.truths),
    }
    for place, text in shown.items():
        if any(secret in text for secret in seen.yard.secrets):
            yield f"shows a secret in its {place}"


INVARIANTS: dict[str, Callable[[Evidence], Iterator[str]]] = {
    "I1": one_end,
    "I2": every_point,
    "I3": every_line,
    "I4": one_attempt_at_a_time,
    "I5": nobody_left,
    "I6": all_given_back,
    "I7": little_lost,
    "I8": page_is_right,
    "I9": audited,
    "I10": nothing_told,
}


def _every_step(seen: Evidence) -> Iterator[str]:
    """In each attempt one step after the other, over all none missing, and who does a step again gets the same loss."""
    losses: dict[int, float] = {}
    for (attempt, _), points in sorted(seen.stored.items()):
        if any(later != earlier + 1 for (earlier, _), (later, _) in pairwise(points)):
            yield f"attempt {attempt}: steps are missing or doubled"
        for step, loss in points:
            if not abs(losses.setdefault(step, loss) - loss) <= SAME_LOSS:
                yield f"attempt {attempt}: the loss at step {step} is {loss}, it was {losses[step]}"
    last = seen.job["total_steps"] if seen.job["status"] == "succeeded" else max(losses, default=0)
    missing = len(set(range(1, last + 1)) - set(losses))
    seen.verdict.points.add(Counts(emitted=last, stored=last - missing, lost=missing))
    if missing:
        yield f"{missing} of {last} steps have no point"


def _compared(counts: Counts, truth: Truth, told: list[Any], stored: list[Any], must: int, what: str) -> Iterator[str]:
    """`stored` has to be a beginning of `told`, at least `must` long."""
    doubled, lost = len(stored) - len(set(stored)), max(must - len(stored), 0)
    counts.add(Counts(emitted=len(told), stored=len(stored), lost=lost, doubled=doubled))
    whose = f"{truth.role} of attempt {truth.attempt}"
    if doubled:
        yield f"{whose}: {doubled} {what} are doubled"
    elif stored != told[: len(stored)]:
        yield f"{whose}: the stored {what} are not those that were written"
    if lost:
        yield f"{whose}: {lost} of {must} {what} are lost"
