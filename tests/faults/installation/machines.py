"""Machines for the fault suite: network namespaces on a switch, each with its own address, programs and faults.

    with Network(home, ["control", "a", "b"]) as network:
        network["a"].start("agent", [...], environment)
        network["a"].unplug()

The test run itself has a port on the switch, as a browser in the office has. Needs root. Leaving the block ends every
program and removes every namespace.
"""

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import AbstractContextManager
from pathlib import Path

from tests.environment import ROOT
from tests.faults.installation.leftovers import NAMESPACE, NAMESPACES

END_LIMIT_S = 30.0
THIEF = """
import socket, sys, time
door = socket.create_server((sys.argv[1], int(sys.argv[2])))
time.sleep(3600)
"""
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


class Machine:
    """One namespace with an address. `programs` are those started here and not ended yet, by name."""

    def __init__(self, network: "Network", name: str, address: str) -> None:
        self.name, self.address = name, address
        self.namespace = f"{network.mark}-{name}"
        self._network = network
        self._logs = network.home / "logs"
        self.programs: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, line: list[str], environment: dict[str, str]) -> int:
        """Start a program here; its process id. It dies with the test run, what it detaches itself does not."""
        with self.log(name).open("ab") as log:
            self.programs[name] = subprocess.Popen(
                ["nsenter", f"--net=/run/netns/{self.namespace}", "--", *line],
                cwd=ROOT,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=_die_with_parent,
            )
        return self.programs[name].pid

    def log(self, name: str) -> Path:
        """What a program has written."""
        return self._logs / f"{self.name}-{name}.log"

    def signal(self, name: str, number: signal.Signals) -> None:
        """SIGSTOP and SIGCONT, mostly."""
        self.programs[name].send_signal(number)

    def kill(self, name: str) -> None:
        """SIGKILL, and wait until it is gone."""
        process = self.programs.pop(name)
        process.kill()
        process.wait()

    def end(self, name: str) -> None:
        """SIGTERM, and SIGKILL to what does not heed it."""
        process = self.programs.pop(name)
        process.send_signal(signal.SIGCONT)
        process.terminate()
        try:
            process.wait(END_LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def unplug(self) -> None:
        """Take the cable out: silence in both directions."""
        _ip("-n", self._network.switch, "link", "set", self._port, "down")

    def plug_in(self) -> None:
        """Put it back."""
        _ip("-n", self._network.switch, "link", "set", self._port, "up")

    def blackhole(self, other: "Machine") -> None:
        """What is sent to `other` is dropped at once, with an error (no route)."""
        _ip("-n", self.namespace, "route", "add", "blackhole", f"{other.address}/32")

    def clear_blackhole(self, other: "Machine") -> None:
        """The route is as before."""
        _ip("-n", self.namespace, "route", "del", "blackhole", f"{other.address}/32")

    def filter(self, rule: str) -> None:
        """A rule of nftables in one of the chains `input` and `output`, such as `input ip saddr 10.0.0.1 drop`."""
        self._nft("add table inet faults")
        for chain in ("input", "output"):
            self._nft(f"add chain inet faults {chain} {{ type filter hook {chain} priority 0; }}")
        self._nft(f"add rule inet faults {rule}")

    def clear_filter(self) -> None:
        """No rules."""
        self._nft("delete table inet faults")

    def take_port(self, name: str, port: int) -> None:
        """A program of somebody else listens there from now on, if nobody did before."""
        self.start(name, [sys.executable, "-S", "-E", "-c", THIEF, self.address, str(port)], dict(os.environ))

    def listening(self) -> set[int]:
        """The TCP ports on which somebody listens here."""
        seen = subprocess.run(
            ["nsenter", f"--net=/run/netns/{self.namespace}", "cat", "/proc/net/tcp", "/proc/net/tcp6"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        rows = [line.split() for line in seen.splitlines()]
        return {int(row[1].rpartition(":")[2], 16) for row in rows if len(row) > 3 and row[3] == "0A"}

    @property
    def _port(self) -> str:
        return f"p-{self.name}"

    def _nft(self, command: str) -> None:
        _run("ip", "netns", "exec", self.namespace, "nft", command)


class Network(AbstractContextManager["Network"]):
    """A switch and its machines. `mark` begins the names of all namespaces and of the test run's own link."""

    def __init__(self, home: Path, names: list[str]) -> None:
        self.home = home
        self.mark = f"{NAMESPACE}{os.getpid()}"
        self.switch = f"{self.mark}-switch"
        subnet = f"10.213.{os.getpid() % 254}"
        self.machines = {name: Machine(self, name, f"{subnet}.{place}") for place, name in enumerate(names, start=1)}
        self._own_address = f"{subnet}.254/24"
        (home / "logs").mkdir(parents=True, exist_ok=True)

    def __getitem__(self, name: str) -> Machine:
        return self.machines[name]

    def __enter__(self) -> "Network":
        try:
            self._build()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End all programs, remove all namespaces."""
        for machine in self.machines.values():
            for name in reversed(list(machine.programs)):
                machine.end(name)
        # Before its peer goes with the switch, which takes it along at some moment.
        if (Path("/sys/class/net") / self.mark).exists():
            _ip("link", "delete", self.mark)
        for namespace in self.namespaces():
            _ip("netns", "delete", namespace)

    def namespaces(self) -> list[str]:
        """Those of this network that there are."""
        return sorted(path.name for path in NAMESPACES.glob(f"{self.mark}-*"))

    def _build(self) -> None:
        _ip("netns", "add", self.switch)
        _ip("-n", self.switch, "link", "add", "bridge", "type", "bridge")
        _ip("-n", self.switch, "link", "set", "bridge", "up")
        for machine in self.machines.values():
            _ip("netns", "add", machine.namespace)
            self._cable(machine._port, ["name", "eth0", "netns", machine.namespace])
            _ip("-n", machine.namespace, "address", "add", f"{machine.address}/24", "dev", "eth0")
            for link in ("lo", "eth0"):
                _ip("-n", machine.namespace, "link", "set", link, "up")
        self._cable("p-own", ["name", self.mark, "netns", str(os.getpid())])
        _ip("address", "add", self._own_address, "dev", self.mark)
        _ip("link", "set", self.mark, "up")

    def _cable(self, port: str, other_end: list[str]) -> None:
        _ip("-n", self.switch, "link", "add", port, "type", "veth", "peer", *other_end)
        _ip("-n", self.switch, "link", "set", port, "master", "bridge", "up")


def unavailable() -> str:
    """Why there can be no machines here; empty when there can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    missing = [program for program in ("ip", "nsenter") if shutil.which(program) is None]
    if missing:
        return f"{' and '.join(missing)} is not installed"
    probe = f"tyf-probe-{os.getpid()}"
    if subprocess.run(["ip", "netns", "add", probe], capture_output=True, check=False).returncode:
        return "this kernel or container allows no network namespaces"
    _ip("netns", "delete", probe)
    return ""


def settle(seconds: float) -> None:
    """Let a fault last. Real time, because the promises are about it."""
    time.sleep(seconds)


def _ip(*words: str) -> None:
    _run("ip", *words)


def _run(*line: str) -> None:
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(line)}: {done.stderr.strip()}"


def _die_with_parent() -> None:
    """Between fork and exec: the kernel ends it with the test run, even after a SIGKILL."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
