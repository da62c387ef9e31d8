"""Who this agent is and where its files are: `agent.json`, the lock on the data folder, socket places."""

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from worker_agent.machine.files import locked, write_atomically
from worker_agent.protocol.joining import Grant
from worker_agent.replica.training_process import with_package_in_reach

_AGENT_FILE = "agent.json"
_LOCK_FILE = "agent.lock"
_SOCKET_PATH_MAX = 100
_SECRET_PREFIXES = ("TRAINYARD_", "DJANGO_", "CELERY_")


class DataFolderError(Exception):
    """The data folder cannot be used: the message says why, in words for the person at the terminal."""


class AgentIdentity(Grant, frozen=True, kw_only=True):
    """`agent.json`, mode 0600: what the control plane granted, and what was said when joining.

    `address_given`: a person chose the address, so it stays; `interface` and `address_range` are what the cluster
    asked for last.
    """

    url: str
    cpu_slots: int = 0
    address_given: bool = True

    @property
    def key(self) -> bytes:
        """The node's own key."""
        return bytes.fromhex(self.node_key)


def read_identity(data: Path) -> AgentIdentity | None:
    """Who the agent of this folder is; None when it has not joined."""
    try:
        return msgspec.json.decode((data / _AGENT_FILE).read_bytes(), type=AgentIdentity)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        raise DataFolderError(f"{data / _AGENT_FILE} is damaged: {error}") from error


def write_identity(data: Path, identity: AgentIdentity) -> None:
    """Remember who the agent is, readable by its own user only."""
    write_atomically(data / _AGENT_FILE, msgspec.json.format(msgspec.json.encode(identity)))


@contextlib.contextmanager
def held(data: Path) -> Iterator[None]:
    """Hold the data folder, creating it; raises `DataFolderError` while another agent has it."""
    with contextlib.ExitStack() as stack:
        try:
            data.mkdir(parents=True, exist_ok=True, mode=0o700)
            stack.enter_context(locked(data / _LOCK_FILE))
        except BlockingIOError as error:
            raise DataFolderError(f"another agent is running on {data}") from error
        except OSError as error:
            raise DataFolderError(f"{data} cannot be used as data folder: {error.strerror}") from error
        yield


def socket_path(data: Path, name: str) -> str:
    """Where a Unix socket of this agent is: in its data folder, or, as names are limited to 108 bytes, elsewhere."""
    path = data / name
    if len(os.fsencode(path)) <= _SOCKET_PATH_MAX:
        return str(path)
    folder = _socket_folder(data)
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.stat().st_uid != os.getuid() or folder.is_symlink():
        raise DataFolderError(f"{folder} belongs to somebody else")
    return str(folder / name)


def remove_socket_folder(data: Path) -> None:
    """When the agent leaves: what `socket_path` has made elsewhere, if nothing is in it."""
    with contextlib.suppress(OSError):
        _socket_folder(data).rmdir()


def _socket_folder(data: Path) -> Path:
    digest = hashlib.sha256(os.fsencode(data)).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"trainyard-{os.getuid()}-{digest}"


def program_environment(base: Mapping[str, str]) -> dict[str, str]:
    """The environment of shims and zygotes: the agent's, without what is secret, and with this package in reach."""
    return with_package_in_reach({name: value for name, value in base.items() if not name.startswith(_SECRET_PREFIXES)})
