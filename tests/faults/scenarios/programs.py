"""Promises that need a job of their own: how a program ends, one that will not, a stolen process id.

A table like that of the faults; each runs from submission to the checker's verdict.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import psutil

from tests.faults.checker import Verdict, check
from tests.faults.injectors import AGENT, RANK, Scene
from tests.faults.installation.machines import settle
from tests.faults.installation.yard import TERMINAL, Yard, until

PID_TRIES = 200


@dataclass(frozen=True)
class Scenario:
    """`promise` is the row of docs/faults.md that it tries; `missing` says why it cannot be tried here."""

    name: str
    promise: str
    run: Callable[[Yard, random.Random], Verdict]
    missing: Callable[[], str] = str


def ends_so(yard: Yard, _: random.Random, *, end: str, cause: str, words: str) -> Verdict:
    """A program that ends badly by itself is told in words, once."""
    job_id = yard.count(steps=5, workers=2, end=end)
    job = yard.wait_for(job_id, *TERMINAL)
    verdict = check(yard, job_id)
    if job["cause"] != cause or words not in job["reason"]:
        verdict.wrong.append(f"I1: j-{job_id} ended by {end!r} and says {job['cause']}: {job['reason']}")
    if job["reason"].count(words) > 1:
        verdict.wrong.append(f"I1: j-{job_id} says it twice: {job['reason']}")
    return verdict


def stubborn(yard: Yard, _: random.Random) -> Verdict:
    """Neither the program nor what it left in a session of its own heeds SIGTERM; both are gone soon after a stop."""
    job_id = yard.count(steps=1000, workers=2, end="stubborn")
    yard.wait_for(job_id, "running")
    yard.post(f"/jobs/{job_id}/stop")
    yard.wait_for(job_id, "stopped", within_s=40)
    return check(yard, job_id, asked=frozenset({"stop"}))


def pid_taken_over(yard: Yard, chance: random.Random) -> Verdict:
    """While an agent is away its training ends and somebody else gets the process id: nobody signals that one."""
    job_id = yard.count(steps=200, workers=1)
    yard.wait_for(job_id, "running")
    scene = Scene(yard, job_id, chance)
    node, (rank,) = scene.node(), scene.ranks()
    yard.machines[node].kill("agent")
    shim = rank.parent()
    for process in (shim, rank):
        if process is not None:
            process.kill()
    until(lambda: not psutil.pid_exists(rank.pid), within_s=10)
    impostor = _start_as(yard, node, rank.pid)
    yard.start_agent(node)
    yard.wait_for_nodes()
    job = yard.wait_for(job_id, *TERMINAL, within_s=180)
    verdict = check(yard, job_id)
    if yard.noted(node, "impostor").exists() or yard.machines[node].programs["impostor"].poll() is not None:
        verdict.wrong.append(f"I5: process {rank.pid}, which had nothing to do with j-{job_id}, was signalled")
    if not impostor:
        verdict.wrong.append(f"I5: nobody else could be given the process id {rank.pid}: nothing was tried")
    if job["status"] != "succeeded":
        verdict.wrong.append(f"I1: j-{job_id} is {job['status']}: {job['reason']}")
    yard.machines[node].end("impostor")
    return verdict


SCENARIOS = (
    Scenario("the program raises", RANK, partial(ends_so, end="raise", cause="exception", words="canary is silent")),
    Scenario("the program leaves with 3", RANK, partial(ends_so, end="exit", cause="exit_code", words="exit code 3")),
    Scenario("the program has no memory", RANK, partial(ends_so, end="memory", cause="out_of_memory", words="memory")),
    Scenario("a process that will not die", "process that will not die", stubborn),
    Scenario("its pid is somebody else's", AGENT, pid_taken_over),
)


def _start_as(yard: Yard, node: str, pid: int) -> bool:
    """Start a bystander that has this process id: the kernel counts on from what it is told."""
    machine = yard.machines[node]
    for _ in range(PID_TRIES):
        with open("/proc/sys/kernel/ns_last_pid", "w") as last:  # noqa: PTH123 - written and used in one breath
            last.write(str(pid - 1))
        if yard.start_bystander(node, "impostor") == pid:
            settle(0.5)
            return True
        machine.kill("impostor")
    yard.start_bystander(node, "impostor")
    return False
