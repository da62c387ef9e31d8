"""Whether the ports of a gang can be opened here, and whether the gang's nodes reach each other through them.

Each node opens the ports that it would have, for a few seconds, and visits those of the others until they answer: so
both directions are tried, and it does not matter who hears of it first. A visitor says who it is; the host answers
whether it sees the file that this visitor has put into the shared folder of checkpoints. Called by `prober.py`; the
supervisor asks `bound` before a launch.
"""

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from worker_agent.protocol.commands import Door, Probe
from worker_agent.protocol.findings import Finding

VISIT_S = 2.0
PAUSE_S = 0.1

_LINE_BYTES = 512
_SEEN, _UNSEEN = b"seen", b"unseen"


@dataclass
class _Meeting:
    """One node's side: who has still to come."""

    probe: Probe
    sees: Callable[[str], bool]
    awaited: set[tuple[str, str]] = field(default_factory=set)
    complete: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass
class Met:
    """What a meeting showed: findings, the own doors that were `taken`, and those of others that did not answer."""

    findings: list[Finding] = field(default_factory=list)
    taken: list[str] = field(default_factory=list)
    unreached: dict[str, Finding] = field(default_factory=dict)


def bound(port: int) -> socket.socket:
    """A socket on the port, where TensorFlow will listen, too; raises OSError when somebody else has it."""
    opened = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.bind(("", port))
    except OSError:
        opened.close()
        raise
    return opened


def meet(probe: Probe, *, sees: Callable[[str], bool]) -> Met:
    """Open the node's own doors and visit the others, for `probe.window_s` at the longest.

    `sees(name)` tells whether the file that the node `name` has put into the shared folder is there.
    """
    return asyncio.run(_meet(_Meeting(probe, sees)))


async def _meet(meeting: _Meeting) -> Met:
    probe, met = meeting.probe, Met()
    deadline = asyncio.get_running_loop().time() + probe.window_s
    async with contextlib.AsyncExitStack() as stack:
        for door in probe.own:
            try:
                opened = bound(door.port)
                server = await asyncio.start_server(partial(_host, meeting, door.label), sock=opened, limit=_LINE_BYTES)
            except OSError as error:
                met.findings.append(_taken(probe, door, error))
                met.taken.append(door.label)
                continue
            stack.push_async_callback(server.wait_closed)
            stack.callback(server.close)
            meeting.awaited |= {(door.label, other.node) for other in probe.others}
        await asyncio.gather(*(_visit(probe, door, met, deadline) for door in probe.others))
        if meeting.awaited:  # whoever could not come says so itself
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(deadline):
                    await meeting.complete.wait()
    return met


async def _host(meeting: _Meeting, label: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer one visitor, who leaves first, so that nothing of the port is left over."""
    with contextlib.suppress(OSError, TimeoutError, ValueError):
        async with asyncio.timeout(VISIT_S):
            greeting, _, name = (await reader.readline()).strip().rpartition(b" ")
            visitor = name.decode("ascii", "replace")
            if greeting == _greeting(meeting.probe) and visitor in {door.node for door in meeting.probe.others}:
                answer = _SEEN if await asyncio.to_thread(meeting.sees, visitor) else _UNSEEN
                writer.write(greeting + b" " + answer + b"\n")
                await writer.drain()
                await reader.read(1)
                meeting.awaited.discard((label, visitor))
    writer.close()
    if not meeting.awaited:
        meeting.complete.set()


async def _visit(probe: Probe, door: Door, met: Met, deadline: float) -> None:
    """Until the door answers, or the time is over."""
    loop, problem = asyncio.get_running_loop(), "nobody answered there"
    while (left := deadline - loop.time()) > 0:
        try:
            async with asyncio.timeout(min(VISIT_S, left)):
                reader, writer = await asyncio.open_connection(door.host, door.port, limit=_LINE_BYTES)
                try:
                    writer.write(_greeting(probe) + b" " + probe.node.encode() + b"\n")
                    greeting, _, answer = (await reader.readline()).strip().rpartition(b" ")
                finally:
                    writer.close()
            if greeting == _greeting(probe):
                if answer != _SEEN:
                    met.findings.append(_not_shared(probe, door))
                return
            problem = "something else answers there"
        except TimeoutError:
            problem = "no answer came: a firewall may drop what is sent there, or another program has the port"
        except (OSError, ValueError) as error:
            problem = _reason(error)
        await asyncio.sleep(PAUSE_S)
    met.unreached[door.label] = Finding(
        f"{probe.node} does not reach {door.label} at {door.host}:{door.port} on {door.node}",
        f"{problem}, and the processes of a gang have to reach each other in both directions",
        f"Open the cluster's port range between {probe.node} and {door.node}, and see that {door.host} is the address "
        f"at which other nodes reach {door.node}",
    )


def _reason(error: Exception) -> str:
    """The system's own words: asyncio puts others in their place."""
    number = error.errno if isinstance(error, OSError) else None
    return (os.strerror(number) if number and number > 0 else str(error)).lower()


def _greeting(probe: Probe) -> bytes:
    return f"trainyard-probe {probe.key}".encode()


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
        f"Mount the shared folder at {probe.checkpoints} on both nodes, or empty the cluster's checkpoint place: then "
        "Trainyard keeps checkpoints in its own store",
    )
