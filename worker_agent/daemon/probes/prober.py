"""Carries out what a preflight asks of this node: its checkpoint folder, doors, devices, TPU, the program.

Each probe has a thread of its own and touches nothing that runs. Called by `agent.py`; what was found goes to `tell`.
"""

import asyncio
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import structlog

from worker_agent.daemon.probes import checkpoint_place
from worker_agent.daemon.probes.building import Builder, Built
from worker_agent.daemon.probes.port_check import Meeting
from worker_agent.machine.tpu_address import why_silent
from worker_agent.protocol.commands import Probe
from worker_agent.protocol.findings import Finding
from worker_agent.protocol.reports import Device, Probed
from worker_agent.protocol.states import DeviceKind

PROBES_MAX = 8
REMEMBERED = 1000

log = structlog.get_logger("prober")


@dataclass
class Prober:
    """All probes of this node; `devices` says what it has now, `tell` takes the reports."""

    builder: Builder
    node_id: str
    devices: Callable[[], list[Device]]
    tell: Callable[[Probed], None]
    _unwanted: dict[int, threading.Event] = field(default_factory=dict)
    _threads: list[threading.Thread] = field(default_factory=list)

    def start(self) -> None:
        """Answer for an agent that was killed: nobody waits for what it was building."""
        why = "the agent was killed while it was being built"
        for preflight_id in self.builder.interrupted:
            self._say(preflight_id, Finding("the program was not built", why, "Check again", blocks=False))

    def begin(self, probe: Probe) -> None:
        """Start it in a thread of its own; one that came before is not done again."""
        if probe.preflight_id in self._unwanted:
            return
        wait = self._unwanted_event(probe.preflight_id).wait
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        if len(self._threads) >= PROBES_MAX:
            why = f"{probe.node} has {PROBES_MAX} other checks to do"
            self._say(probe.preflight_id, Finding("nothing was checked", why, "Check again in a moment", blocks=False))
            return
        name = f"probe-{probe.preflight_id}"
        self._threads.append(threading.Thread(target=self._run, args=(probe, wait), name=name, daemon=True))
        self._threads[-1].start()

    def end(self, preflight_id: int) -> None:
        """Nobody waits for this one any more: end what it is building. One that has not come yet is not begun."""
        self._unwanted_event(preflight_id).set()

    def close(self) -> None:
        """End what is being built; nobody hears of it."""
        for unwanted in self._unwanted.values():
            unwanted.set()
        for thread in self._threads:
            thread.join(timeout=2.0)

    def _unwanted_event(self, preflight_id: int) -> threading.Event:
        """Set once nobody waits for this one any more."""
        unwanted = self._unwanted.setdefault(preflight_id, threading.Event())
        if len(self._unwanted) > REMEMBERED:
            del self._unwanted[next(iter(self._unwanted))]
        return unwanted

    def _run(self, probe: Probe, wait: Callable[[float], bool]) -> None:
        try:
            self._examine(probe, wait)
        except Exception as error:
            log.exception("a probe failed", preflight=probe.preflight_id)
            what = f"{probe.node} could not be checked"
            self._say(probe.preflight_id, Finding(what, str(error), "Read its agent's log"))

    def _examine(self, probe: Probe, wait: Callable[[float], bool]) -> None:
        devices = self.devices()
        with checkpoint_place.marked(probe.checkpoints, key=probe.key, node=probe.node) as problems:
            meeting = Meeting(probe, has_place=probe.checkpoints != "" and not any(each.blocks for each in problems))
            if probe.own:
                asyncio.run(meeting.hold())
        built = Built([], tried=False)
        if probe.builds:
            gpus = any(device.kind == DeviceKind.GPU for device in devices)
            built = self.builder.build(probe, wait=wait, gpus=gpus)
        findings = [*_absent(probe, devices), *_silent_tpu(probe), *problems, *meeting.findings, *built.findings]
        met = {"taken": meeting.taken, "unreached": meeting.unreached}
        self._say(probe.preflight_id, *findings, **met, facts=built.facts, tried=built.tried, model=built.model)

    def _say(self, preflight_id: int, *findings: Finding, **more: Any) -> None:
        self.tell(Probed(node_id=self.node_id, preflight_id=preflight_id, findings=list(findings), **more))


def _absent(probe: Probe, devices: list[Device]) -> Iterator[Finding]:
    """Devices that the job would get and that are not there (any more)."""
    here = {device.index for device in devices if device.kind == probe.device_kind}
    if absent := [str(index) for index in probe.devices if index not in here]:
        what = f"{probe.node} has no {probe.device_kind.upper()} {', '.join(absent)}"
        yield Finding(what, f"it sees {len(here)} now", "Restart its agent, so that it reports its devices again")


def _silent_tpu(probe: Probe) -> Iterator[Finding]:
    """The address of a TPU at which nothing answers this node."""
    if why := why_silent(probe.spec.tpu):
        sentence = f"The TPU {probe.spec.tpu} does not answer {probe.node}: {why}"
        remedy = "Check its address, that it is running, and that this node can reach it"
        yield Finding("the job's TPU does not answer", sentence, remedy, certain=True)
