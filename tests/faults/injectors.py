"""The faults: a table of small functions. Each strikes, lets the fault last as it must, and heals what it broke.

A fault knows the scene (which installation, which job is watched, a seeded choice of node) and nothing of the checker.
What cannot be injected on this machine says why, and is reported as skipped, never as passed.
"""

import contextlib
import random
import shutil
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import httpx
import psutil

from tests.faults.installation import counting
from tests.faults.installation.disks import no_ext4
from tests.faults.installation.machines import Machine, settle
from tests.faults.installation.yard import CONTROL, NODES, Yard, until
from worker_agent.protocol.reports import REPORTS_KEY

TWO_HOURS_S = 7200
ADOPTED_WITHIN_S = 10.0


@dataclass
class Scene:
    """Where a fault strikes. `short_s` is shorter than the lease, `long_s` longer than lease and grace together.

    `interval` is that of the job's checkpoints, None where it writes none. `asked` gathers what was asked for as a
    person, `struck` the faults that it saw, `wrong` what a fault itself saw go wrong.
    """

    yard: Yard
    job_id: int
    random: random.Random
    short_s: float = 4.0
    long_s: float = 20.0
    interval: int | None = None
    asked: set[str] = field(default_factory=set)
    struck: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def node(self) -> str:
        """One of the nodes, of those that the job is on if it is on any."""
        replicas = self.yard.get(f"/jobs/{self.job_id}/replicas")
        return self.random.choice(sorted({each["node"] for each in replicas}) or list(NODES))

    def ranks(self) -> list[psutil.Process]:
        """The job's training processes."""
        return sorted(self.yard.training(job_id=self.job_id), key=lambda process: process.pid)

    def stop(self) -> None:
        """Ask for its end, as a person; who comes too late, or second, is told so."""
        code = self.yard.rest.post(f"/jobs/{self.job_id}/stop").status_code
        if code == httpx.codes.OK:
            self.asked.add("stop")
        elif code != httpx.codes.CONFLICT:
            self.wrong.append(f"I1: a person who stopped it was answered {code}")


@dataclass(frozen=True)
class Fault:
    """`promise` is the row of docs/faults.md that it tries."""

    name: str
    promise: str
    strike: Callable[[Scene], None]
    missing: Callable[[], str] = str


def program_killed(scene: Scene, *, names: tuple[str, ...], away_s: float = 2.0) -> None:
    """Programs of the control plane, by SIGKILL, started again a little later."""
    for name in names:
        scene.yard.control.kill(name)
    settle(away_s)
    for name in names:
        scene.yard.restart(name)
    until(scene.yard.answers, within_s=60)


def redis_emptied(scene: Scene) -> None:
    """Every command, report and acknowledgement on the way is gone."""
    with scene.yard.redis() as client:
        client.flushall()


def program_stalled(scene: Scene, *, name: str) -> None:
    """It neither answers nor ends."""
    scene.yard.control.signal(name, signal.SIGSTOP)
    settle(scene.long_s)
    scene.yard.control.signal(name, signal.SIGCONT)


def database_away(scene: Scene) -> None:
    """Nothing can be written for a while."""
    scene.yard.database.take_away()
    try:
        settle(scene.long_s)
    finally:
        scene.yard.database.give_back()


def agent_killed(scene: Scene, *, times: int) -> None:
    """The training goes on in the same processes, and is known again."""
    node = scene.node()
    attempt, before = scene.yard.job(scene.job_id)["attempt"], _pids(scene, node)
    for _ in range(times):
        scene.yard.machines[node].kill("agent")
        settle(0.5)
        heard = scene.yard.last_heard_of(node)
        scene.yard.start_agent(node)
        until(lambda: scene.yard.last_heard_of(node) != heard, within_s=60)  # noqa: B023 - called at once
    at_end = {truth.pid for truth in counting.read(scene.yard.truth, scene.job_id) if truth.is_done}
    gone = before - _pids(scene, node) - at_end
    job = scene.yard.job(scene.job_id)
    if gone and (job["attempt"], job["status"]) == (attempt, "running"):
        scene.wrong.append(f"I5: killing the agent of {node} ended {sorted(gone)}")


def cut_off(
    scene: Scene, *, seconds: Callable[[Scene], float], cut: Callable[..., None], heal: Callable[..., None]
) -> None:
    """A node and the control plane do not hear each other, in one of several ways."""
    machine = scene.yard.machines[scene.node()]
    cut(machine, scene.yard.control)
    try:
        settle(seconds(scene))
    finally:
        heal(machine, scene.yard.control)
    scene.yard.wait_for_nodes()


def cut_between_nodes(scene: Scene, *, node: str, seconds: float) -> None:
    """A node hears the control plane, but none of the other nodes, nor do they hear it."""
    machines = scene.yard.machines
    others = ", ".join(machine.address for name, machine in machines.items() if name != node)
    machines[node].filter(f"input ip saddr {{ {others} }} drop")
    machines[node].filter(f"output ip daddr {{ {others} }} drop")
    try:
        settle(seconds)
    finally:
        machines[node].clear_filter()


def machine_lost(scene: Scene, *, node: str = "", notice_s: float = 0.0) -> None:
    """As by a power cut: the line is dead and nothing runs there any more. With a notice, all that runs there gets
    SIGTERM so long before. Later it comes back."""
    node = node or scene.node()
    machine = scene.yard.machines[node]
    if notice_s:
        machine.signal("agent", signal.SIGTERM)
        for process in scene.yard.training(node=node):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.terminate()
        settle(notice_s)
    machine.unplug()
    _end_all(scene, node)
    settle(scene.long_s)
    _come_back(scene, node)


def power_cut(scene: Scene, *, seconds: Callable[[Scene], float]) -> None:
    """All that runs there is gone, and so is what its disk had not synchronised. It starts again after so long."""
    node = scene.node()
    machine = scene.yard.machines[node]
    machine.unplug()
    scene.yard.disks[node].lose_power()
    _end_all(scene, node)
    scene.yard.disks[node].recover()
    settle(seconds(scene))
    _come_back(scene, node)


def _end_all(scene: Scene, node: str) -> None:
    scene.yard.machines[node].kill("agent")
    for process in scene.yard.training(node=node):
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


def _come_back(scene: Scene, node: str) -> None:
    scene.yard.machines[node].plug_in()
    scene.yard.start_agent(node)
    scene.yard.wait_for_nodes()


def rank_signalled(scene: Scene, *, number: signal.Signals) -> None:
    """One of the job's processes: one that trains, or the parent of one that was started cold."""
    ranks = scene.ranks()
    if ranks:
        scene.random.choice(ranks).send_signal(number)


def disk_full(scene: Scene) -> None:
    """Not a byte can be written in the agent's folder for a while."""
    folder = scene.yard.agent_folder(scene.node())
    ballast = folder / "ballast"
    with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
        while file.write(bytes(max(shutil.disk_usage(folder).free, 4096))):
            pass
    settle(scene.short_s)
    ballast.unlink()


def clock_off(scene: Scene, *, by_s: int) -> None:
    """The wall clock of a node jumps, and jumps back."""
    node = scene.node()
    scene.yard.set_clock(node, by_s)
    settle(scene.long_s)
    scene.yard.set_clock(node, 0)


def reports_repeated(scene: Scene, *, late_s: float) -> None:
    """What is on its way to ingest comes twice, in another order, and once more when everybody has gone on."""
    yard = scene.yard
    yard.control.signal("ingest", signal.SIGSTOP)
    settle(3.0)
    with yard.redis() as client:
        entries = [fields for _, fields in client.xrange(REPORTS_KEY)]
        again = entries * 2
        scene.random.shuffle(again)
        for fields in again:
            client.xadd(REPORTS_KEY, fields)
        yard.control.signal("ingest", signal.SIGCONT)
        settle(late_s)
        for fields in entries:
            client.xadd(REPORTS_KEY, fields)


def commands_repeated(scene: Scene) -> None:
    """A command waits for its agent twice more: as when a broker delivers again what was not acknowledged."""
    yard, node = scene.yard, scene.node()
    yard.machines[node].signal("agent", signal.SIGSTOP)
    settle(scene.short_s)
    queue = f"node.{yard.node_id(node)}"
    with yard.redis() as client:
        for message in client.lrange(queue, 0, -1) * 2:
            client.lpush(queue, message)
    yard.machines[node].signal("agent", signal.SIGCONT)


def port_stolen(scene: Scene) -> None:
    """Between the choice of a port and its use somebody else takes it, and keeps it."""
    replicas = scene.yard.get(f"/jobs/{scene.job_id}/replicas")
    if not replicas:
        return
    victim = scene.random.choice(replicas)
    machine = scene.yard.machines[victim["node"]]
    machine.take_port("thief", victim["port"])
    settle(scene.long_s)
    machine.end("thief")


def cancelled_twice(scene: Scene) -> None:
    """Two people stop the job at the same moment, whatever it is doing."""
    people = [threading.Thread(target=scene.stop) for _ in range(2)]
    for person in people:
        person.start()
    for person in people:
        person.join()


def no_nftables() -> str:
    """Why there are no one-way cuts, nor cuts between nodes; empty when there can be."""
    return "" if shutil.which("nft", path="/usr/sbin:/usr/bin:/sbin") else "nft (Debian's nftables) is not installed"


def _pids(scene: Scene, node: str) -> set[int]:
    return {process.pid for process in scene.yard.training(node=node)} & {rank.pid for rank in scene.ranks()}


def _short(scene: Scene) -> float:
    return scene.short_s


def _long(scene: Scene) -> float:
    return scene.long_s


def _filtered(rule: str) -> Callable[..., None]:
    return lambda machine, control: machine.filter(rule.format(control=control.address))


def _unfilter(machine: Machine, _: Machine) -> None:
    machine.clear_filter()


CABLE = {"cut": lambda machine, _: machine.unplug(), "heal": lambda machine, _: machine.plug_in()}
ROUTE = {"cut": Machine.blackhole, "heal": Machine.clear_blackhole}
DEAF = {"cut": _filtered("input ip saddr {control} drop"), "heal": _unfilter}
MUTE = {"cut": _filtered("output ip daddr {control} drop"), "heal": _unfilter}
RESET = {"cut": _filtered("output ip daddr {control} tcp dport 6379 reject with tcp reset"), "heal": _unfilter}
LOSSY = {"cut": _filtered("input ip saddr {control} numgen random mod 100 < 30 drop"), "heal": _unfilter}

CONTROL_KILLED = "web, scheduler, ingest, Celery worker killed at any point"
REDIS = "Redis killed, emptied, stalled 60 s"
DATABASE = "database down 90 s"
AGENT = "agent killed (also ten times in a row)"
AWAY = "control plane away for an hour"
SHORT_CUT = "partition shorter than the lease"
LONG_CUT = "partition longer than the lease"
LOST = "machine lost"
RANK = "one rank dies or hangs"
NOTICE = "machine shut down or taken back"
DISK = "disk full on the node"
CLOCK = "clock ±2 h"
MESSAGES = "duplicate, reordered, 10-minute-late messages"
CANCEL = "cancel against success, cancel in every state, from two browsers"
PORT = "port stolen between choice and bind"

FAULTS = (
    *(
        Fault(f"{name} killed", CONTROL_KILLED, partial(program_killed, names=(name,)))
        for name in ("web", "celery", "sweep", "ingest")
    ),
    Fault("redis killed", REDIS, partial(program_killed, names=("redis",))),
    Fault("redis emptied", REDIS, redis_emptied),
    Fault("redis stalled", REDIS, partial(program_stalled, name="redis")),
    Fault("ingest stalled", CONTROL_KILLED, partial(program_stalled, name="ingest")),
    Fault("database away", DATABASE, database_away),
    Fault("agent killed", AGENT, partial(agent_killed, times=1)),
    Fault("agent killed ten times", AGENT, partial(agent_killed, times=10)),
    Fault("control plane away", AWAY, partial(program_killed, names=CONTROL, away_s=30.0)),
    Fault("cable out, short", SHORT_CUT, partial(cut_off, seconds=_short, **CABLE)),
    Fault("no route, short", SHORT_CUT, partial(cut_off, seconds=_short, **ROUTE)),
    Fault("deaf, short", SHORT_CUT, partial(cut_off, seconds=_short, **DEAF), no_nftables),
    Fault("mute, short", SHORT_CUT, partial(cut_off, seconds=_short, **MUTE), no_nftables),
    Fault("connections reset", SHORT_CUT, partial(cut_off, seconds=_short, **RESET), no_nftables),
    Fault("a third of the packets lost", SHORT_CUT, partial(cut_off, seconds=_long, **LOSSY), no_nftables),
    Fault("cable out, long", LONG_CUT, partial(cut_off, seconds=_long, **CABLE)),
    Fault("no route, long", LONG_CUT, partial(cut_off, seconds=_long, **ROUTE)),
    Fault("deaf, long", LONG_CUT, partial(cut_off, seconds=_long, **DEAF), no_nftables),
    Fault("mute, long", LONG_CUT, partial(cut_off, seconds=_long, **MUTE), no_nftables),
    Fault("machine lost", LOST, machine_lost),
    Fault("power cut, short", LOST, partial(power_cut, seconds=_short), no_ext4),
    Fault("power cut, long", LOST, partial(power_cut, seconds=_long), no_ext4),
    Fault("machine shut down", NOTICE, partial(machine_lost, notice_s=4.0)),
    Fault("rank killed", RANK, partial(rank_signalled, number=signal.SIGKILL)),
    Fault("rank asked from outside to leave", NOTICE, partial(rank_signalled, number=signal.SIGTERM)),
    Fault("disk full", DISK, disk_full),
    Fault("clock two hours ahead", CLOCK, partial(clock_off, by_s=TWO_HOURS_S)),
    Fault("clock two hours behind", CLOCK, partial(clock_off, by_s=-TWO_HOURS_S)),
    Fault("reports repeated, shuffled, late", MESSAGES, partial(reports_repeated, late_s=10.0)),
    Fault("commands repeated", MESSAGES, commands_repeated),
    Fault("port stolen", PORT, port_stolen),
    Fault("stopped by two people", CANCEL, cancelled_twice),
)
