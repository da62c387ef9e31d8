"""The agent as a whole: its parts, the one thread that decides, the heartbeat, and leaving in good order.

`__main__` makes one and runs it. Events come from the command door, the runner and the uploader; the core answers
with instructions, which are carried out here in order.
"""

import contextlib
import queue
import threading
import time
from pathlib import Path

import structlog

from worker_agent.daemon import core
from worker_agent.daemon.command_worker import CommandReceiver, CommandWorker
from worker_agent.daemon.control_plane import ControlPlane
from worker_agent.daemon.inventory import Devices, ReplicaLoad, Sampler, take_inventory
from worker_agent.daemon.journal import Journal
from worker_agent.daemon.leftovers import Leftovers
from worker_agent.daemon.permits import Permits
from worker_agent.daemon.probes.building import Builder
from worker_agent.daemon.probes.prober import Prober
from worker_agent.daemon.replica_runner import ReplicaRunner
from worker_agent.daemon.settings import AgentIdentity, remove_socket_folder, socket_path
from worker_agent.daemon.transfer.checkpoint_transfer import CheckpointCache, CheckpointUploads
from worker_agent.daemon.transfer.file_uploads import FileUploads
from worker_agent.daemon.transfer.program_store import ProgramStore
from worker_agent.daemon.transfer.shipper import RedisChannel, Shipper
from worker_agent.daemon.transfer.shipping_plan import ShippingPlan
from worker_agent.daemon.zygotes import Zygotes
from worker_agent.machine import cgroup
from worker_agent.protocol.commands import Expect, Launch, Probe, Stop, WithdrawProbe
from worker_agent.protocol.job.gang_shape import has_chief, is_leader
from worker_agent.protocol.reports import Ack, Goodbye, Heartbeat, Hello, RunningReplica
from worker_agent.replica.cleanup import GROUP_PREFIX
from worker_agent.replica.lease import LeaseKeeper

DRAIN_S = 3.0

_END_S = core.SHUTDOWN_SAVING_S + 2.0
_POLL_S = 0.02

log = structlog.get_logger("agent")


class Agent:
    """One agent on one data folder (which the caller holds locked)."""

    def __init__(self, data: Path, identity: AgentIdentity, *, with_zygotes: bool, zygote_idle_s: float = 0.0) -> None:
        self._identity = identity
        self._devices = Devices(cpu_slots=identity.cpu_slots)
        self._core = core.Core()
        self._events: queue.SimpleQueue[core.Event | None] = queue.SimpleQueue()
        self._closing = threading.Event()
        self._data = data
        notify_path = socket_path(data, "notify.sock")
        self._control_plane = ControlPlane(identity.url, node_id=identity.node_id, key=identity.key)
        self._journal = Journal(data, notify=notify_path)
        self._leftovers = Leftovers(data)
        self._zygotes = Zygotes(data, enabled=with_zygotes, idle_s=zygote_idle_s)
        self._checkpoints = CheckpointUploads(self._control_plane, self._on_uploaded)
        self._uploads = FileUploads(self._control_plane, self._journal, self._checkpoints.finish)
        code = ProgramStore(data, self._control_plane)
        permits = Permits(identity.redis_url)
        shipping = ShippingPlan(node_id=identity.node_id, key=identity.key)
        self._runner = ReplicaRunner(
            self._journal,
            code,
            CheckpointCache(self._control_plane),
            self._zygotes,
            self._events.put,
            permitted=permits.is_permitted,
            position_is_known=shipping.position_is_known,
        )
        self._shipper = Shipper(
            shipping,
            channel=RedisChannel(identity.redis_url, node_id=identity.node_id, lease=LeaseKeeper(self._journal.lease)),
            notify_path=notify_path,
            hello=self._hello,
        )
        self._prober = Prober(
            Builder(data, code, self._zygotes),
            node_id=identity.node_id,
            devices=self._devices.slots,
            tell=self._shipper.report,
        )
        self._commands = CommandWorker(identity, CommandReceiver(identity, self._events.put, permits.is_permitted))

    def start(self) -> None:
        """Go on with what an earlier agent left, then take commands."""
        cgroup.remove_abandoned(GROUP_PREFIX)
        for event in self._journal.restore():
            self._events.put(event)
        self._zygotes.start()
        self._prober.start()
        threading.Thread(target=self._decide, name="core", daemon=True).start()
        self._shipper.start()
        threading.Thread(target=self._beat, name="heartbeat", daemon=True).start()
        self._commands.start()
        log.info("agent is up", node=self._identity.node_name, cluster=self._identity.cluster)

    def close(self, *, end_replicas: bool) -> None:
        """Leave: replicas are ended, or go on and are found again by the next agent."""
        self._events.put(core.ShutdownRequested(end_replicas=end_replicas))
        self._shipper.report(Goodbye(node_id=self._identity.node_id))
        if end_replicas:
            deadline = time.monotonic() + _END_S
            while time.monotonic() < deadline and (not self._events.empty() or self._running()):
                time.sleep(_POLL_S)
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

    def _carry_out(self, instructions: list[core.Instruction]) -> None:
        for instruction in instructions:
            match instruction:
                case core.RecordLaunch(launch):
                    try:
                        self._journal.record(launch)
                    except OSError as error:
                        log.warning("a launch could not be recorded", job=launch.job_id, error=str(error))
                        self._carry_out(self._core.handle(core.LaunchNotRecorded(launch)))
                        return
                case core.ShipStreams(key):
                    self._shipper.add(key, self._journal.spool(key))
                    if self._core.held[key].has_ended:
                        self._shipper.finish(key)
                case core.StartReplica(launch, restored):
                    self._follow_checkpoints(launch)
                    self._uploads.follow(core.key_of(launch), launch.spec)
                    self._runner.spawn(launch, restored=restored)
                case Stop() as stop:
                    self._runner.stop(stop)
                case core.WriteExit(key, cause, message):
                    self._runner.write_exit(key, cause=cause, message=message)
                case core.UploadArtifacts(key, launch):
                    self._shipper.finish(key)
                    log.info("replica ended", replica=key.replica_id, job=launch.job_id)
                    self._leftovers.add(key, self._journal.folder(key))
                    self._follow_checkpoints(launch)
                    self._uploads.finish(key, launch.spec)
                case core.RemoveReplica(key):
                    self._shipper.drop(key)
                    self._journal.remove(key)
                case core.SendAck(command_id):
                    ack = Ack(node_id=self._identity.node_id, command_id=command_id)
                    self._shipper.report(ack)
                case Probe() as probe:
                    self._prober.begin(probe)
                case WithdrawProbe(preflight_id=preflight_id):
                    self._prober.end(preflight_id)
                case Expect(keras=keras):
                    self._runner.zygotes.warm(keras)

    def _follow_checkpoints(self, launch: Launch) -> None:
        """What the gang's leader writes on this node is brought to the control plane's store."""
        leads = is_leader(launch.role, launch.index, has_chief=has_chief(launch.spec))
        if leads and not launch.checkpoints:
            self._checkpoints.follow(core.key_of(launch), self._journal.checkpoints(launch))

    def _on_uploaded(self, key: core.ReplicaKey) -> None:
        with contextlib.suppress(OSError):
            self._journal.mark_uploaded(key)
        self._events.put(core.ArtifactsUploaded(key))

    def _hello(self) -> Hello:
        return Hello(
            node_id=self._identity.node_id,
            address=self._identity.address,
            inventory=take_inventory(self._devices),
        )

    def _beat(self) -> None:
        """Every heartbeat: the machine's load, and every replica that is held with its own."""
        sampler = Sampler(self._devices)
        loads: dict[core.ReplicaKey, ReplicaLoad] = {}
        while not self._closing.wait(self._identity.heartbeat_s):
            try:
                held = list(self._core.held.items())
                loads = {key: loads.get(key) or ReplicaLoad() for key, _ in held}
                replicas = [_running(key, replica, loads[key]) for key, replica in held]
                leftovers = self._leftovers.check(now=time.monotonic())
                sample = sampler.sample(at=time.time())
            except Exception:  # a node that says nothing any more is given up with all that runs there
                log.exception("a heartbeat was left out")
                continue
            heartbeat = Heartbeat(node_id=self._identity.node_id, sample=sample, replicas=replicas, leftovers=leftovers)
            self._shipper.send_heartbeat(heartbeat)

    def _running(self) -> int:
        return sum(not replica.has_ended for replica in list(self._core.held.values()))


def _running(key: core.ReplicaKey, replica: core.HeldReplica, load: ReplicaLoad) -> RunningReplica:
    cpu_percent, memory_bytes = load.measure(replica.pid)
    return RunningReplica(
        replica_id=key.replica_id,
        attempt=key.attempt,
        status=replica.status,
        pid=replica.pid,
        cpu_percent=cpu_percent,
        memory_bytes=memory_bytes,
    )
