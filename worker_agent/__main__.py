"""The agent's command line: `python -m worker_agent join URL --token …` once, `python -m worker_agent run` after that.

Errors that a person can do something about end with status 2 and one sentence.
"""

import argparse
import logging
import os
import signal
import socket
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import psutil
import structlog

from worker_agent.daemon import control_plane, zygotes
from worker_agent.daemon.addresses import address_towards, own_addresses, with_current_address
from worker_agent.daemon.agent import Agent
from worker_agent.daemon.control_plane import Rejected, Unreachable
from worker_agent.daemon.inventory import Devices, take_inventory
from worker_agent.daemon.settings import AgentIdentity, DataFolderError, held, read_identity, write_identity
from worker_agent.protocol.joining import JoinRequest

DEFAULT_DATA = Path("~/.trainyard-agent")
USAGE_ERROR = 2
# A signal that comes just before a thread blocks does not wake it, so nothing waits for one for longer.
LOOK_EVERY_S = 0.1


def main(arguments: list[str] | None = None) -> int:
    """Join, run, or both; the exit status."""
    given = _parse(arguments)
    _configure_logs()
    data = given.data.expanduser().resolve()
    try:
        with held(data):
            if given.command == "join":
                _join(given, data)
                if given.no_run:
                    return 0
            identity = read_identity(data)
            if identity is None:
                raise DataFolderError(f"no node has joined with {data}: run `join` first")
            _run(given, data, identity)
    except (DataFolderError, Unreachable, Rejected) as error:
        sys.stderr.write(f"trainyard agent: {error}\n")
        return USAGE_ERROR
    return 0


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument(
        "--data", type=Path, default=DEFAULT_DATA, help=f"the agent's data folder (default {DEFAULT_DATA})"
    )
    common.add_argument(
        "--zygote",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="keep TensorFlow imported for quick starts, about 0.5 GB of memory (default: yes)",
    )
    common.add_argument(
        "--zygote-idle",
        type=float,
        default=zygotes.default_idle_s(memory_bytes=psutil.virtual_memory().total),
        metavar="SECONDS",
        help="let go of it when nothing has started for so long, until something does; 0: never "
        "(default: 0 on machines with 64 GB of memory or more, else 600)",
    )
    common.add_argument(
        "--end-replicas-on-exit",
        action="store_true",
        help="end the training processes with the agent (default: they go on and are found again)",
    )
    parser = argparse.ArgumentParser(prog="python -m worker_agent", description="Trainyard's agent on a machine.")
    commands = parser.add_subparsers(dest="command", required=True)
    join = commands.add_parser("join", parents=[common], help="register this machine, then run")
    join.add_argument("url", help="where Trainyard is, e.g. https://trainyard.example.org")
    join.add_argument("--token", required=True, help="the one-time token from the cluster's page")
    join.add_argument("--name", default="", help="the node's name (default: the host name)")
    join.add_argument("--address", default="", help="where other nodes reach this one (default: as the cluster says)")
    join.add_argument("--slots", type=int, default=0, help="CPU slots where there is no GPU (default: one per core)")
    join.add_argument("--if-new", action="store_true", help="join only if this folder has not joined; then run")
    join.add_argument("--no-run", action="store_true", help="only join")
    commands.add_parser("run", parents=[common], help="run as the node that this folder is")
    return parser.parse_args(arguments)


def _join(given: argparse.Namespace, data: Path) -> None:
    """Exchange the token for an identity and keep it in the data folder."""
    earlier = read_identity(data)
    if earlier is not None:
        if given.if_new:
            return
        raise DataFolderError(
            f"{data} has already joined {earlier.url} as node {earlier.node_name!r}: "
            "use `run`, or another folder for another node"
        )
    url = str(given.url).rstrip("/")
    if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
        raise DataFolderError(f"{url!r} is not a web address such as https://trainyard.example.org")
    if given.slots < 0:
        raise DataFolderError("--slots cannot be negative")
    try:
        request = JoinRequest(
            token=given.token,
            name=given.name or socket.gethostname(),
            address=given.address,
            inventory=take_inventory(Devices(cpu_slots=given.slots)),
            own_addresses=own_addresses(),
            address_towards=address_towards(url),
        )
        grant = control_plane.join(url, request)
    except (Unreachable, OSError) as error:
        raise DataFolderError(f"{url} could not be reached: {error}") from error
    except Rejected as error:
        raise DataFolderError(f"joining was refused: {error}") from error
    granted = msgspec.structs.asdict(grant) | {"address": grant.address or request.address or request.address_towards}
    identity = AgentIdentity(**granted, url=url, cpu_slots=given.slots, address_given=bool(given.address))
    write_identity(data, identity)
    sys.stderr.write(f"This machine is node {grant.node_name!r} of cluster {grant.cluster!r} now.\n")


def _run(given: argparse.Namespace, data: Path, identity: AgentIdentity) -> None:
    """Run until SIGTERM or SIGINT; a second one does not wait any longer."""
    present = with_current_address(identity)
    if present != identity:
        write_identity(data, present)
    received = 0

    def receive(*_: object) -> None:
        # No `Event.set`: a signal may come while this thread holds the event's lock on its way into `wait`.
        nonlocal received
        received += 1
        if received > 1:
            os._exit(1)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, receive)
    agent = Agent(data, present, with_zygotes=given.zygote, zygote_idle_s=given.zygote_idle)
    agent.start()
    while not received:
        time.sleep(LOOK_EVERY_S)
    agent.close(end_replicas=given.end_replicas_on_exit)


def _configure_logs() -> None:
    """Plain lines on stderr; of Celery only what is wrong."""
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s %(message)s")
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.KeyValueRenderer(key_order=["timestamp", "level", "event"]),
        ],
        logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
    )


if __name__ == "__main__":
    sys.exit(main())
