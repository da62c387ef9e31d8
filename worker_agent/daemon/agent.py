"""The agent as a whole: its parts, the one thread that decides, the heartbeat, and leaving in good order.

`__main__` makes one and runs it. Events come from the command door, the supervisor and the uploader; the core answers
with instructions, which are carried out here in order.
"""

import contextlib
import queue
import threading
import time
from pathlib import Path

import structlog

from worker_agent.daemon import core as c
from worker_agent.daemon.app import CommandDoor, CommandWorker
from worker_agent.daemon.control_plane import ControlPlane
from worker_agent.daemon.inventory import Devices, GroupLoad, Sampler, take_inventory
from worker_agent.daemon.journal import Journal
from worker_agent.daemon.leftovers import Leftovers
from worker_agent.daemon.permits import Permits
from worker_agent.daemon.probes.prober import Prober
from worker_agent.daemon.replica_runner import Supervisor
from worker_agent.daemon.settings import AgentIdentity, remove_socket_folder, socket_path
from worker_agent.daemon.transfer.artifact_uploads import Uploader
from worker_agent.daemon.transfer.checkpoint_transfer import CheckpointCache, CheckpointUploads, leads
from worker_agent.daemon.transfer.program_store import CodeStore
from worker_agent.daemon.transfer.shipper import RedisChannel, Shipper
from worker_agent.daemon.transfer.shipping_plan import Shipping
from worker_agent.daemon.zygotes import Zygotes
from worker_agent.machine import cgroup
from worker_agent.protocol.commands import Launch
from worker_agent.protocol.reports import Ack, Heartbeat, Hello, RunningReplica
from worker_agent.replica.cleanup import GROUP_PREFIX
from worker_agent.replica.lease import Keeper
from worker_agent.replica.verdict import StopRequest

DRAIN_S = 3.0

_END_S = c.SHUTDOWN_SAVING_S + 2.0
_POLL_S = 0.02

log = structlog.get_logger("agent")


class Agent:
    """One agent on one data folder (which the caller holds locked)."""

    def __init__(self, data: Path, identity: AgentIdentity, *, with_zygotes: bool) -> None:
        self._identity = identity
        self._devices = Devices()
        self._core = c.Core()
        self._events: queue.SimpleQueue[c.Event | None] = queue.SimpleQueue()
        self._closing = threading.Event()
        self._data = data
        notify_path = socket_path(data, "notify.sock")
        self._control_plane = ControlPlane(identity.url, node_id=identity.node_id, key=identity.key)
        self._journal = Journal(data, notify=notify_path)
        self._leftovers = Leftovers(data)
        self._zygotes = Zygotes(data, enabled=with_zygotes)
        self._checkpoints = CheckpointUploads(self._control_plane, self._on_uploaded)
        self._uploads = Uploader(self._control_plane, self._checkpoints.finish)
        code = CodeStore(data, self._control_plane)
        permits = Permits(identity.redis_url)
        self._supervisor = Supervisor(
            self._journal,
            code,
            CheckpointCache(self._control_plane),
            self._zygotes,
            self._events.put,
            permitted=permits.ask,
            knows=lambda key: self._shipper.knows(key),
        )
        self._shipper = Shipper(
            Shipping(node_id=identity.node_id, key=identity.key),
            channel=RedisChannel(identity.redis_url, node_id=identity.node_id, lease=Keeper(self._journal.lease)),
            notify_path=notify_path,
            hello=self._hello,
        )
        self._prober = Prober(
            data,
            node_id=identity.node_id,
            code=code,
            zygotes=self._zygotes,
            devices=lambda: self._devices.slots(identity.cpu_slots),
            tell=self._shipper.tell,
        )
        self._commands = CommandWorker(identity, CommandDoor(identity, self._events.put, permits.allow))
        self._deciding = threading.Thread(target=self._decide, name="core", daemon=True)
        self._beating = threading.Thread(target=self._beat, name="heartbeat", daemon=True)

    def start(self) -> None:
        """Go on with what an earlier agent left, then take commands."""
        cgroup.remove_abandoned(GROUP_PREFIX)
        for event in self._journal.restore():
            self._events.put(event)
        self._zygotes.start()
        self._deciding.start()
        self._shipper.start()
        self._beating.start()
        self._commands.start()
        log.info("agent is up", node=self._identity.node_name, cluster=self._identity.cluster)

    def close(self, *, end_replicas: bool) -> None:
        """Leave: replicas are ended, or go on and are found again by the next agent."""
        self._events.put(c.ShutdownAsked(end_replicas=end_replicas))
        if end_replicas:
            self._wait_for_ends()
        self._commands.close()
        self._prober.close()
        self._zygotes.close()
        self._closing.set()
        self._shipper.drain(timeout_s=DRAIN_S)
        self._events.put(None)
        self._uploads.close()
        self._checkpoints.close()
        self._shipper.close()
        self._control_plane.close()
        remove_socket_folder(self._data)
        log.info("agent has left", replicas_running=self._running())

    def _decide(self) -> None:
        while (event := self._events.get()) is not None:
            try:
                self._carry_out(self._core.handle(event))
            except Exception:
                log.exception("an instruction failed", after=type(event).__name__)

    def _carry_out(self, instructions: list[c.Instruction]) -> None:
        for instruction in instructions:
            match instruction:
                case c.Record(launch):
                    try:
                        self._journal.record(launch)
                    except OSError as error:
                        self._carry_out(self._core.handle(c.NotRecorded(launch, str(error))))
                        return
                case c.Ship(key):
                    self._shipper.add(key, self._journal.spool(key))
                case c.Spawn(launch, restored):
                    self._follow_checkpoints(launch)
                    self._supervisor.spawn(launch, restored=restored)
                case c.SignalStop(key, cause, reason, grace_s, save, stacks):
                    request = StopRequest(
                        at=time.time(), cause=cause, reason=reason, grace_s=grace_s, save=save, stacks=stacks
                    )
                    self._supervisor.stop(key, request)
                case c.WriteExit(key, cause, message):
                    self._supervisor.write_exit(key, cause=cause, message=message)
                case c.Upload(key, launch):
                    self._shipper.wake()
                    log.info("replica ended", replica=key.replica_id, job=launch.job_id)
                    self._leftovers.add(key, self._journal.folder(key))
                    self._follow_checkpoints(launch)
                    self._uploads.add(key, self._journal.folder(key) / "artifacts")
                case c.Remove(key):
                    self._shipper.drop(key)
                    self._journal.remove(key)
                case c.SendAck(command_id, refused):
                    ack = Ack(node_id=self._identity.node_id, command_id=command_id, refused=refused)
                    self._shipper.tell(ack)
                case c.Examine(probe):
                    self._prober.begin(probe)
                case c.EndExamining(preflight_id):
                    self._prober.end(preflight_id)

    def _follow_checkpoints(self, launch: Launch) -> None:
        """What the leading process writes on this node is brought to the control plane's store."""
        if leads(launch) and not launch.checkpoints:
            self._checkpoints.follow(c.Key(launch.replica_id, launch.attempt), self._journal.checkpoints(launch))

    def _on_uploaded(self, key: c.Key) -> None:
        with contextlib.suppress(OSError):
            self._journal.mark_uploaded(key)
        self._events.put(c.Uploaded(key))

    def _hello(self) -> Hello:
        return Hello(
            node_id=self._identity.node_id,
            address=self._identity.address,
            inventory=take_inventory(self._devices, cpu_slots=self._identity.cpu_slots),
        )

    def _beat(self) -> None:
        """Every heartbeat: the machine's load, and every replica that is held with its own."""
        sampler = Sampler(self._devices)
        loads: dict[int, GroupLoad] = {}
        while not self._closing.wait(self._identity.heartbeat_s):
            try:
                held = list(self._core.held.items())
                loads = {replica.pid: loads.get(replica.pid) or GroupLoad() for _, replica in held if replica.pid}
                replicas = [_running(key, replica, loads) for key, replica in held]
                leftovers = self._leftovers.check(now=time.monotonic())
                sample = sampler.take(at=time.time())
            except Exception:  # a node that says nothing any more is given up with all that runs there
                log.exception("a heartbeat was left out")
                continue
            heartbeat = Heartbeat(node_id=self._identity.node_id, sample=sample, replicas=replicas, leftovers=leftovers)
            self._shipper.beat(heartbeat)

    def _running(self) -> int:
        return sum(replica.phase is not c.Phase.ENDED for replica in list(self._core.held.values()))

    def _wait_for_ends(self) -> None:
        deadline = time.monotonic() + _END_S
        while time.monotonic() < deadline and (not self._events.empty() or self._running()):
            time.sleep(_POLL_S)


def _running(key: c.Key, replica: c.Held, loads: dict[int, GroupLoad]) -> RunningReplica:
    load = loads.get(replica.pid)
    cpu_percent, memory_bytes = load.take(replica.pid) if load is not None else (0.0, 0)
    return RunningReplica(
        replica_id=key.replica_id,
        attempt=key.attempt,
        status=replica.status,
        pid=replica.pid,
        cpu_percent=cpu_percent,
        memory_bytes=memory_bytes,
    )
