"""The agent's hands: prepares replicas, starts their shims, watches them, asks them to end.

One thread per replica that has not ended. Whatever happens, the replica's spool gets an Exit record: from its shim, or
from here when there is none. The shim, not the agent, is the parent that matters; an agent that restarts finds it by
`shim.json` (pid, start time and boot, so never a bystander) and goes on watching.
"""

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import structlog

from worker_agent.daemon.control_plane import NotFetched
from worker_agent.daemon.core import Event, ReplicaEnded, ReplicaKey, ReplicaStarted, key_of
from worker_agent.daemon.journal import Journal
from worker_agent.daemon.probes import checkpoint_place
from worker_agent.daemon.transfer.checkpoint_transfer import CheckpointCache
from worker_agent.daemon.transfer.program_store import ProgramStore
from worker_agent.daemon.zygotes import Zygotes
from worker_agent.machine.listeners import bound, listener
from worker_agent.machine.processes import Identity, boot_id, describe, identify, is_alive, send_signal
from worker_agent.protocol.codec import plain, typed
from worker_agent.protocol.commands import Launch, Stop
from worker_agent.protocol.ending import Ending
from worker_agent.protocol.job.archive import ArchiveRefused
from worker_agent.protocol.job.job_spec import keeps_checkpoints
from worker_agent.protocol.records import Stream
from worker_agent.protocol.states import Cause
from worker_agent.replica.cleanup import end_orphans
from worker_agent.replica.folder import (
    SHIM_LOG,
    ShimState,
    append_exit,
    find_exit,
    read_shim_state,
    read_stop,
    write_stop,
)
from worker_agent.replica.leftovers import TrackedLeftover, resources_held, write_leftovers
from worker_agent.replica.spool import Writer
from worker_agent.replica.verdict import StopRequest

WATCH_S = 1.0
# A shim may take 5 s for stacks, and 5 s more to see that nothing is left.
OVERTIME_S = 15.0

_FIRST_LOOK_S = 0.02
_SHIM_LOG_CHARS = 1000

log = structlog.get_logger("runner")


class Refused(Exception):
    """The replica cannot start: with which cause, and why."""

    def __init__(self, cause: Cause, message: str) -> None:
        super().__init__(message)
        self.cause = cause


@dataclass(slots=True)
class _Replica:
    """A replica between launch and end; `restored` if an earlier agent was told of it. `lock` guards who its shim is
    against a stop at the same moment."""

    key: ReplicaKey
    launch: Launch
    folder: Path
    restored: bool
    stopping: threading.Event = field(default_factory=threading.Event)
    unwritten_stop: StopRequest | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)
    shim: Identity | None = None
    overdue_at: float = float("inf")

    def stop_request(self) -> StopRequest | None:
        """The stop that was asked for, if any, also where the disk could not keep it."""
        return read_stop(self.folder) or self.unwritten_stop

    def pass_on_stop(self, *, grace_s: float) -> None:
        """Ask the shim to end, if there is one yet. Who calls holds the lock."""
        if self.shim is not None:
            self.overdue_at = min(self.overdue_at, time.monotonic() + grace_s + OVERTIME_S)
            send_signal(self.shim, signal.SIGTERM)


@dataclass(eq=False)
class ReplicaRunner:
    """All replicas of this node; `post` takes the events for the core. `permitted` says whether a launch is still
    wanted, None while that cannot be known; `position_is_known` whether it is known how far a replica's streams are
    stored."""

    journal: Journal
    programs: ProgramStore
    checkpoints: CheckpointCache
    zygotes: Zygotes
    post: Callable[[Event], None]
    permitted: Callable[[Launch], bool | None]
    position_is_known: Callable[[ReplicaKey], bool]
    _replicas: dict[ReplicaKey, _Replica] = field(default_factory=dict, init=False)

    def spawn(self, launch: Launch, *, restored: bool = False) -> None:
        """Start the replica, or find the shim that an earlier agent started; in a thread of its own. One that was left
        by an earlier agent (`restored`) and has no shim is started if it is still wanted."""
        key = key_of(launch)
        replica = _Replica(key, launch, self.journal.folder(key), restored)
        self._replicas[key] = replica
        if read_stop(replica.folder) is not None:
            replica.stopping.set()
        threading.Thread(target=self._run, args=(replica,), name=f"replica-{key.replica_id}", daemon=True).start()

    def stop(self, stop: Stop) -> None:
        """Ask for the end: of the preparation, or of the process through its shim. The first reason is kept, unless it
        was to save."""
        replica = self._replicas.get(key_of(stop))
        if replica is None:
            return
        request = typed(plain(stop) | {"at": time.time()}, StopRequest)
        try:
            write_stop(replica.folder, request)
        except OSError:  # a full disk: a process ends all the same, as of a SIGTERM from outside
            replica.unwritten_stop = request
        with replica.lock:
            replica.stopping.set()
            replica.pass_on_stop(grace_s=stop.grace_s)

    def write_exit(
        self, key: ReplicaKey, *, cause: Cause, message: str, left: Sequence[TrackedLeftover] = (), last_lines: str = ""
    ) -> None:
        """Say in the spool that it ended, when no shim did."""
        spool = self.journal.spool(key)
        writer = Writer(spool / Stream.SHIM)
        ending, leftovers = Ending(cause=cause, last_lines=last_lines), [tracked.leftover for tracked in left]
        append_exit(writer, spool, ending=ending, message=message, leftovers=leftovers)
        writer.close()

    def _run(self, replica: _Replica) -> None:
        try:
            if read_shim_state(replica.folder) is None:
                if replica.restored:
                    self._check_permit(replica)
                self._start(replica)
            self._watch(replica)
            self._settle(replica)
        except Refused as refusal:
            left = resources_held(replica.launch, patience_s=0) if refusal.cause is Cause.PORT_TAKEN else []
            write_leftovers(replica.folder, left, group="")
            self.write_exit(replica.key, cause=refusal.cause, message=str(refusal), left=left)
        except Exception as error:
            log.exception("replica could not be kept", replica=replica.key.replica_id)
            self.write_exit(replica.key, cause=Cause.LAUNCH_REFUSED, message=f"The agent could not start it: {error}.")
        del self._replicas[replica.key]
        self.post(ReplicaEnded(replica.key))

    def _check_permit(self, replica: _Replica) -> None:
        """Raises `Refused` when a launch that an earlier agent has not begun may have been given to another node, or is
        asked to end before Redis has answered (of what never began, nothing can be stored that its end has to follow).
        """
        self._wait_for_acks(replica.key, wait=replica.stopping.wait)
        permitted = None
        while not replica.stopping.is_set() and (permitted := self.permitted(replica.launch)) is None:
            replica.stopping.wait(WATCH_S)
        _check_stop(replica)
        if not permitted:
            raise Refused(Cause.NODE_LOST, "Its agent ended before it started, and nobody waits for it any more.")

    def _wait_for_acks(self, key: ReplicaKey, *, wait: Callable[[float], object] = time.sleep) -> None:
        """What an earlier agent left is settled only when it is known how far it is stored: a power cut may have taken
        away what was shipped last, and what is written now has to come behind it. `wait(s)` pauses, and is true when
        nobody waits any more."""
        while not self.position_is_known(key) and not wait(_FIRST_LOOK_S):
            pass

    def _start(self, replica: _Replica) -> None:
        """Code, checkpoint, port, place for checkpoints, shim. Raises `Refused`."""
        launch = replica.launch
        plan, path = self.journal.write_plan(launch)
        self.zygotes.expect(launch)
        try:
            self.programs.install(launch.spec.code, Path(plan.code), wait=replica.stopping.wait)
            if launch.restore is not None and not launch.restore.folder:
                self.checkpoints.fetch(launch.restore, Path(plan.restore), wait=replica.stopping.wait)
        except (NotFetched, ArchiveRefused) as error:
            _check_stop(replica)
            raise Refused(Cause.LAUNCH_REFUSED, str(error)) from error
        if launch.tf_config is not None and launch.port:
            check_port(launch.port)
        if launch.checkpoints and keeps_checkpoints(launch.spec):
            check_checkpoint_place(launch)
        _check_stop(replica)
        self.journal.mark_installed(replica.key)
        pid = self.zygotes.start_shim(path, launch, wait=replica.stopping.wait)
        self._adopt(replica, identify(pid))

    def _adopt(self, replica: _Replica, shim: Identity | None) -> None:
        """From now on this is the shim to signal; a stop that came meanwhile is passed on."""
        with replica.lock:
            replica.shim = shim
            if replica.stopping.is_set():
                request = replica.stop_request()
                replica.pass_on_stop(grace_s=request.grace_s if request is not None else 0.0)

    def _watch(self, replica: _Replica) -> None:
        """Until no shim of the replica runs. Another one than we started may have been first: then that one."""
        is_told = False
        while True:
            state = read_shim_state(replica.folder)
            if state is not None and state.shim != replica.shim and is_alive(state.shim):
                self._adopt(replica, state.shim)
            shim = replica.shim
            if shim is None or not is_alive(shim):
                return
            if not is_told and state is not None and state.child_pid:
                is_told = True
                self.post(ReplicaStarted(replica.key, state.child_pid))
            if time.monotonic() > replica.overdue_at:
                log.warning("shim is overdue and is killed", replica=replica.key.replica_id, pid=shim.pid)
                send_signal(shim, signal.SIGKILL)
            with contextlib.suppress(psutil.Error):
                psutil.Process(shim.pid).wait(WATCH_S if is_told else _FIRST_LOOK_S)

    def _settle(self, replica: _Replica) -> None:
        """The shim is gone. If it left no Exit record, end what it left behind and write an honest one."""
        key = replica.key
        if find_exit(self.journal.spool(key)) is not None:
            return
        state = read_shim_state(replica.folder) or (ShimState(shim=replica.shim) if replica.shim else None)
        left = end_orphans(replica.folder, replica.launch, state) if state else []
        request = replica.stop_request()
        self._wait_for_acks(key)
        if request is not None and not request.save:  # whether it had saved, nobody knows
            self.write_exit(key, cause=request.cause, message=request.reason, left=left)
        elif state is not None and state.shim.boot_id != boot_id():
            self.write_exit(key, cause=Cause.NODE_LOST, message="The machine was restarted while it ran.", left=left)
        else:
            message = "The process that watched over the training was killed, so how it ended is not known."
            said = _shim_log(replica.folder)
            self.write_exit(key, cause=Cause.SIGNAL, message=message, left=left, last_lines=said)


def check_port(port: int) -> None:
    """Raise `Refused` when something on this machine listens on the port already."""
    try:
        bound(port).close()
    except OSError as error:
        pid = listener("", port)
        by = f", by {describe(pid)}" if pid else ""
        raise Refused(Cause.PORT_TAKEN, f"Port {port} is in use on this machine already{by}.") from error


def check_checkpoint_place(launch: Launch) -> None:
    """Raise `Refused` when checkpoints cannot be written to the folder that the cluster shares."""
    folder = str(Path(launch.checkpoints).parent)
    with checkpoint_place.marked(folder, key=f"{launch.replica_id}-{launch.attempt}", node="launch") as problems:
        blocking = next((problem for problem in problems if problem.blocks), None)
    if blocking is not None:
        raise Refused(Cause.LAUNCH_REFUSED, f"{blocking.what[:1].upper()}{blocking.sentence[1:]}.")


def _check_stop(replica: _Replica) -> None:
    request = replica.stop_request() if replica.stopping.is_set() else None
    if request is not None:
        raise Refused(request.cause, f"{request.reason} It had not started yet.")


def _shim_log(folder: Path) -> str:
    """What the shim itself said last, if anything."""
    with contextlib.suppress(OSError):
        return (folder / SHIM_LOG).read_text(errors="replace").replace("\0", "").strip()[-_SHIM_LOG_CHARS:]
    return ""
