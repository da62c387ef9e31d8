"""The gang meets before TensorFlow does.

TensorFlow waits for a missing peer without end, holding the interpreter's lock, so nothing in the process could time
out or answer a signal. Therefore the processes meet here first, in plain Python: worker 0 listens on its own port from
the very start of the process, the others say hello, and when all are there it answers "go", lets the port free and
TensorFlow takes over, which then takes a fraction of a second. A peer that never comes is named. For what may still go
wrong inside TensorFlow's own start, `tensorflow_guard` ends the process from a C thread.
"""

import contextlib
import errno
import faulthandler
import json
import socket
from collections.abc import Iterator
from time import monotonic, sleep

from worker_agent.protocol.states import Cause
from worker_agent.trainer.outcome import TrainingFailed
from worker_agent.trainer.setup.stopping import StopSignal
from worker_agent.trainer.training_run import Member, TrainingRun

RETRY_S = 0.02
HELLO_BYTES = 1024
SPEAK_S = 1.0


class Meeting:
    """Worker 0's side: an open door from the moment the object is made."""

    def __init__(self, run: TrainingRun) -> None:
        self._run = run
        self._door = listen(run.me)
        self._door.settimeout(RETRY_S)

    def gather(self, *, deadline: float, stop: StopSignal) -> None:
        """Wait for everybody's hello, free the port, then let everybody go. Raises `TrainingFailed` with names."""
        came: dict[str, socket.socket] = {}
        try:
            self._wait_for_all(came, deadline, stop)
            self._door.close()
            for guest in came.values():
                with contextlib.suppress(OSError):
                    guest.sendall(b"go\n")
        finally:
            for open_socket in (self._door, *came.values()):
                open_socket.close()

    def _wait_for_all(self, came: dict[str, socket.socket], deadline: float, stop: StopSignal) -> None:
        waiting = {member.name for member in self._run.others}
        while waiting - came.keys():
            stop.check()
            if monotonic() > deadline:
                raise never_came(self._run, sorted(waiting - came.keys()))
            for name in [name for name, guest in came.items() if _has_left(guest)]:
                came.pop(name).close()
                _tell_missing(came, waiting)
            try:
                guest, _ = self._door.accept()
            except TimeoutError:
                continue
            name = _hello_of(guest, self._run.rendezvous_key)
            if name not in waiting:  # a probe of the port, or somebody of another gang
                guest.close()
                continue
            if name in came:  # it lost its line and comes again
                came[name].close()
            guest.settimeout(0)
            came[name] = guest
            _tell_missing(came, waiting)


def join(run: TrainingRun, host: Member, *, deadline: float, stop: StopSignal) -> None:
    """The other workers' side: say hello to `host` until it answers, then wait until TensorFlow listens there."""
    hear_go(run, host, deadline=deadline, stop=stop)
    wait_for_ports(run, [host], deadline=deadline, stop=stop)


def hear_go(run: TrainingRun, host: Member, *, deadline: float, stop: StopSignal) -> None:
    """Say hello to `host` until it answers that everybody is there. Who is missing is named: the host, or whom it has
    told to be missing as well."""
    missing = [host.name]
    while (named := _ask_who_is_missing(run, host, stop, deadline)) != []:
        missing = named or missing
        if monotonic() > deadline:
            raise never_came(run, missing)
        sleep(RETRY_S)


def wait_for_ports(run: TrainingRun, members: list[Member], *, deadline: float, stop: StopSignal) -> None:
    """Until each of `members` accepts connections. Raises `TrainingFailed` naming who does not."""
    stop.check()
    while members := [member for member in members if not _accepts(member)]:
        if monotonic() > deadline:
            raise never_came(run, [member.name for member in members])
        sleep(RETRY_S)
        stop.check()


def listen(member: Member) -> socket.socket:
    """A listening socket on the member's own address; raises `TrainingFailed(PORT_TAKEN)`."""
    door = socket.socket(socket.AF_INET6 if ":" in member.host else socket.AF_INET, socket.SOCK_STREAM)
    door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        try:
            door.bind((member.host, member.port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise
            door.bind(("", member.port))  # the address belongs to a translator in front of this machine
        door.listen(64)
    except OSError as error:
        door.close()
        raise TrainingFailed(
            f"Port {member.port} of {member.host}, meant for {member.name}, is taken ({error.strerror}).",
            Cause.PORT_TAKEN,
        ) from error
    return door


def check_port(member: Member) -> None:
    """Raise `TrainingFailed(PORT_TAKEN)` when somebody else has this process's port."""
    listen(member).close()


@contextlib.contextmanager
def tensorflow_guard(timeout_s: float) -> Iterator[None]:
    """End the process (status 1, its stacks in the log) when TensorFlow's own start hangs inside."""
    faulthandler.dump_traceback_later(timeout_s, exit=True)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


def never_came(run: TrainingRun, names: list[str]) -> TrainingFailed:
    """The failure that names who did not come."""
    where = {member.name: f"{member.name} ({member.host}:{member.port})" for member in run.gang}
    who = ", ".join(where.get(name, name) for name in names)
    return TrainingFailed(
        f"The gang did not meet: {who} did not come within {run.rendezvous_timeout_s:g} s.", Cause.RENDEZVOUS_TIMEOUT
    )


def _ask_who_is_missing(run: TrainingRun, host: Member, stop: StopSignal, deadline: float) -> list[str] | None:
    """Who is missing, as the host says it last, while the line holds: nobody when it says "go", None when it says
    nothing."""
    stop.check()
    missing: list[str] | None = None
    rest = b""
    with contextlib.suppress(OSError), socket.create_connection((host.host, host.port), timeout=SPEAK_S) as line:
        line.sendall(json.dumps({"key": run.rendezvous_key, "name": run.me.name}).encode() + b"\n")
        line.settimeout(RETRY_S)
        while monotonic() <= deadline:
            stop.check()
            try:
                data = line.recv(HELLO_BYTES)
            except TimeoutError:
                continue
            if not data:
                break
            *said, rest = (rest + data).split(b"\n")
            if said and said[-1] == b"go":
                return []
            missing = said[-1].decode().split() if said else missing
    return missing


def _tell_missing(came: dict[str, socket.socket], waiting: set[str]) -> None:
    """Everybody who is there hears who is not, to name them if they never come."""
    missing = " ".join(sorted(waiting - came.keys()))
    for guest in came.values() if missing else ():
        with contextlib.suppress(OSError):
            guest.sendall(f"{missing}\n".encode())


def _hello_of(guest: socket.socket, key: str) -> str:
    """The name a guest gives, "" for whoever does not speak our language in time."""
    guest.settimeout(SPEAK_S)
    try:
        hello = json.loads(guest.makefile("rb").readline(HELLO_BYTES))
        return str(hello["name"]) if hello["key"] == key else ""
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def _has_left(guest: socket.socket) -> bool:
    try:
        return guest.recv(1, socket.MSG_PEEK) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


def _accepts(member: Member) -> bool:
    try:
        socket.create_connection((member.host, member.port), timeout=SPEAK_S).close()
    except OSError:
        return False
    return True
