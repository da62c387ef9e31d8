"""Whether the ports of a gang can be opened here, and whether the gang's nodes reach each other through them.

Each node opens the ports that it would have, for a few seconds, and visits those of the others until they answer: so
both directions are tried, and it does not matter who hears of it first. A visitor says who it is; the host answers
whether it sees the file that this visitor has put into the shared folder of checkpoints. Called by `prober.py`; the
runner asks `bound` before a launch.
"""

import asyncio
import contextlib
import os
from functools import partial

from worker_agent.daemon.probes.checkpoint_place import marker
from worker_agent.machine.listeners import bound
from worker_agent.protocol.commands import Door, Probe
from worker_agent.protocol.findings import Finding

VISIT_S = 2.0
PAUSE_S = 0.1

_LINE_BYTES = 512
_SEEN, _UNSEEN = b"seen", b"unseen"


class Meeting:
    """One node's side; with `has_place`, the files of other nodes are looked for in the shared folder. What it shows:
    findings, the own doors that were `taken`, and those of others that did not answer."""

    def __init__(self, probe: Probe, *, has_place: bool) -> None:
        self.findings: list[Finding] = []
        self.taken: list[str] = []
        self.unreached: dict[str, Finding] = {}
        self._probe = probe
        self._greeting = f"trainyard-probe {probe.key}".encode()
        self._has_place = has_place
        self._visits: dict[tuple[str, str], asyncio.Event] = {}

    async def hold(self) -> None:
        """Open the node's own doors and visit the others, for the probe's `window_s` at the longest."""
        probe = self._probe
        deadline = asyncio.get_running_loop().time() + probe.window_s
        async with contextlib.AsyncExitStack() as stack:
            for door in probe.own:
                host = partial(self._host, door.label)
                try:
                    server = await asyncio.start_server(host, sock=bound(door.port), limit=_LINE_BYTES)
                except OSError as error:
                    self.findings.append(_taken(probe, door, error))
                    self.taken.append(door.label)
                    continue
                stack.push_async_callback(server.wait_closed)
                stack.callback(server.close)
                self._visits |= {(door.label, other.node): asyncio.Event() for other in probe.others}
            await asyncio.gather(*(self._visit(door, deadline) for door in probe.others))
            with contextlib.suppress(TimeoutError):  # whoever could not come says so itself
                async with asyncio.timeout_at(deadline):
                    await asyncio.gather(*(visit.wait() for visit in self._visits.values()))

    async def _host(self, label: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one visitor, who leaves first, so that nothing of the port is left over."""
        with contextlib.suppress(OSError, TimeoutError, ValueError):
            async with asyncio.timeout(VISIT_S):
                greeting, _, name = (await reader.readline()).strip().rpartition(b" ")
                visitor = name.decode("ascii", "replace")
                if greeting == self._greeting and (label, visitor) in self._visits:
                    answer = _SEEN if await asyncio.to_thread(self._sees, visitor) else _UNSEEN
                    writer.write(greeting + b" " + answer + b"\n")
                    await writer.drain()
                    await reader.read(1)
                    self._visits[label, visitor].set()
        writer.close()

    def _sees(self, node: str) -> bool:
        """Whether the node's file is in the shared folder, if there is a folder to look into."""
        return not self._has_place or marker(self._probe.checkpoints, key=self._probe.key, node=node).exists()

    async def _visit(self, door: Door, deadline: float) -> None:
        """Until the door answers, or the time is over."""
        node, loop, problem = self._probe.node, asyncio.get_running_loop(), "nobody answered there"
        while (left := deadline - loop.time()) > 0:
            try:
                async with asyncio.timeout(min(VISIT_S, left)):
                    reader, writer = await asyncio.open_connection(door.host, door.port, limit=_LINE_BYTES)
                    try:
                        writer.write(self._greeting + b" " + node.encode() + b"\n")
                        greeting, _, answer = (await reader.readline()).strip().rpartition(b" ")
                    finally:
                        writer.close()
                if greeting == self._greeting:
                    if answer != _SEEN:
                        self.findings.append(_not_shared(self._probe, door))
                    return
                problem = "something else answers there"
            except TimeoutError:
                problem = "no answer came: a firewall may drop what is sent there, or another program has the port"
            except (OSError, ValueError) as error:
                problem = _reason(error)
            await asyncio.sleep(PAUSE_S)
        self.unreached[door.label] = Finding(
            f"{node} does not reach {door.label} at {door.host}:{door.port} on {door.node}",
            f"{problem}, and the processes of a gang have to reach each other in both directions",
            f"Open the cluster's port range between {node} and {door.node}, and check that other nodes reach "
            f"{door.node} at {door.host}",
        )


def _reason(error: Exception) -> str:
    """The system's own words: asyncio puts others in their place."""
    number = error.errno if isinstance(error, OSError) else None
    return (os.strerror(number) if number and number > 0 else str(error)).lower()


def _taken(probe: Probe, door: Door, error: OSError) -> Finding:
    """A job goes to other ports by itself, unless its owner has written the addresses."""
    written = bool(probe.spec.tf_config)
    remedy = "Name another port in the TF_CONFIG" if written else "The job would be launched on another one"
    return Finding(
        f"port {door.port} cannot be opened on {door.node}",
        f"{_reason(error)}, and {door.label} was to listen there",
        f"{remedy}; find out which program has it (ss -ltnp), and give the cluster a port range of its own",
        blocks=written,
    )


def _not_shared(probe: Probe, door: Door) -> Finding:
    return Finding(
        f"{door.node} does not see what {probe.node} writes into {probe.checkpoints}",
        "checkpoints are written by one node and read by all, so the folder has to be the same one everywhere",
        f"Mount the shared folder at {probe.checkpoints} on both nodes, or empty the cluster's checkpoint folder: then "
        "Trainyard keeps checkpoints in its own store",
    )
