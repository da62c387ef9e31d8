"""Carries out what a preflight asks of this node: its checkpoint folder, doors, devices, TPU, the program.

Each probe has a thread of its own and touches nothing that runs. Called by `agent.py`; what was found goes to `tell`.
"""

import contextlib
import threading
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import structlog

from worker_agent.daemon.probes import checkpoint_place, port_check
from worker_agent.daemon.probes.building import Builder, Built
from worker_agent.daemon.transfer.program_store import CodeStore
from worker_agent.daemon.zygotes import Zygotes
from worker_agent.machine.tpu_address import why_silent
from worker_agent.protocol.commands import Probe
from worker_agent.protocol.findings import Finding
from worker_agent.protocol.reports import Device, Probed
from worker_agent.protocol.states import DeviceKind

PROBES_MAX = 8
REMEMBERED = 1000
NOT_BUILT = Built([], tried=False)

log = structlog.get_logger("prober")


class _Running(NamedTuple):
    """A probe under way; `unwanted` is set once nobody waits for it."""

    thread: threading.Thread
    unwanted: threading.Event


class Prober:
    """All probes of this node; `devices` says what it has now, `tell` takes the reports."""

    def __init__(
        self,
        data: Path,
        *,
        node_id: str,
        code: CodeStore,
        zygotes: Zygotes,
        devices: Callable[[], list[Device]],
        tell: Callable[[Probed], None],
    ) -> None:
        self._node_id = node_id
        self._builder = Builder(data, code, zygotes)
        self._devices = devices
        self._tell = tell
        self._seen: OrderedDict[int, None] = OrderedDict()
        self._running: dict[int, _Running] = {}

    def begin(self, probe: Probe) -> None:
        """Start it in a thread of its own; one that came before is not done again."""
        if probe.preflight_id in self._seen:
            return
        self._remember(probe.preflight_id)
        self._running = {number: each for number, each in self._running.items() if each.thread.is_alive()}
        if len(self._running) >= PROBES_MAX:
            why = f"{probe.node} has {PROBES_MAX} other checks to do"
            self._say(probe, [Finding("nothing was checked", why, "Check again in a moment", blocks=False)])
            return
        unwanted = threading.Event()
        name = f"probe-{probe.preflight_id}"
        thread = threading.Thread(target=self._run, args=(probe, unwanted), name=name, daemon=True)
        self._running[probe.preflight_id] = _Running(thread, unwanted)
        thread.start()

    def end(self, preflight_id: int) -> None:
        """Nobody waits for this one any more: end what it is building. One that has not come yet is not begun."""
        self._remember(preflight_id)
        if preflight_id in self._running:
            self._running[preflight_id].unwanted.set()

    def close(self) -> None:
        """End what is being built; nobody hears of it."""
        for each in self._running.values():
            each.unwanted.set()
        for each in self._running.values():
            each.thread.join(timeout=2.0)

    def _remember(self, preflight_id: int) -> None:
        self._seen[preflight_id] = None
        if len(self._seen) > REMEMBERED:
            self._seen.popitem(last=False)

    def _run(self, probe: Probe, unwanted: threading.Event) -> None:
        try:
            self._examine(probe, unwanted)
        except Exception as error:
            log.exception("a probe failed", preflight=probe.preflight_id)
            self._say(probe, [Finding(f"{probe.node} could not be checked", str(error), "Read its agent's log")])

    def _examine(self, probe: Probe, unwanted: threading.Event) -> None:
        findings = [*_absent(probe, self._devices()), *_silent_tpu(probe)]
        met = port_check.Met()
        tried = checkpoint_place.marker(probe.checkpoints, key=probe.key, node=probe.node)
        try:
            problems = checkpoint_place.problems_of(probe.checkpoints, tried=tried) if probe.checkpoints else []
            if probe.own:
                shared = bool(probe.checkpoints) and not any(problem.blocks for problem in problems)
                met = port_check.meet(probe, sees=_sight(probe) if shared else lambda _name: True)
        finally:
            if probe.checkpoints:
                with contextlib.suppress(OSError):
                    tried.unlink()
        findings += [*problems, *met.findings]
        built = self._build(probe, unwanted) if probe.builds else NOT_BUILT
        self._say(probe, [*findings, *built.findings], met, built)

    def _build(self, probe: Probe, unwanted: threading.Event) -> Built:
        gpus = any(device.kind == DeviceKind.GPU for device in self._devices())
        return self._builder.build(probe, wait=unwanted.wait, gpus=gpus)

    def _say(
        self,
        probe: Probe,
        findings: list[Finding],
        met: port_check.Met | None = None,
        built: Built = NOT_BUILT,
    ) -> None:
        met = met or port_check.Met()
        self._tell(
            Probed(
                node_id=self._node_id,
                preflight_id=probe.preflight_id,
                findings=findings,
                taken=met.taken,
                unreached=met.unreached,
                facts=built.facts,
                tried=built.tried,
            )
        )


def _sight(probe: Probe) -> Callable[[str], bool]:
    return lambda name: checkpoint_place.marker(probe.checkpoints, key=probe.key, node=name).exists()


def _absent(probe: Probe, devices: list[Device]) -> list[Finding]:
    """Devices that the job would get and that are not there (any more)."""
    here = {device.index for device in devices if device.kind == probe.device_kind}
    absent = [str(index) for index in probe.devices if index not in here]
    if not absent:
        return []
    what = f"{probe.node} has no {probe.device_kind.upper()} {', '.join(absent)}"
    return [Finding(what, f"it sees {len(here)} now", "Restart its agent, so that it tells anew what it has")]


def _silent_tpu(probe: Probe) -> list[Finding]:
    """The address of a TPU at which nothing answers this node."""
    why = why_silent(probe.spec.tpu)
    if not why:
        return []
    sentence = f"The TPU {probe.spec.tpu} does not answer {probe.node}: {why}"
    remedy = "Check its address, that it is running, and that this node can reach it"
    return [Finding("the job's TPU does not answer", sentence, remedy, certain=True)]
