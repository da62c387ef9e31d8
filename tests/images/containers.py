"""A container of a service: namespaces around a program of an image, as an engine makes them.

What counts for the program is as under Docker: it is (below its init) the first process of a process namespace that
dies with it. It has a file system, host name, network and /dev/shm of its own, the image's user and environment, and
volumes that begin as the image's folder. The file system outlives the program, as a restarted container's does.
"""

import signal
import subprocess
import time
from pathlib import Path

import psutil

from tests.faults.installation.machines import Machine
from tests.images import builder
from tests.images.composition import Service
from tests.waiting import wait_until

FIRST = Path(__file__).with_name("first.sh")
UNSHARE, NSENTER = "/usr/bin/unshare", "/usr/bin/nsenter"
NAMESPACES = ("--pid", "--fork", "--kill-child", "--mount", "--uts", "--ipc", "--cgroup")
INIT = ("/usr/bin/tini-static", "/usr/sbin/docker-init")
PROGRAM = "main"


class Container:
    """One service's container, on a machine of the network. `home` holds what all containers share: volumes, hosts."""

    def __init__(self, service: Service, machine: Machine, home: Path) -> None:
        self.service, self.machine, self._home = service, machine, home
        self._config = builder.config(service.image)
        self._id = builder.buildah("from", f"localhost/{service.image}")
        self.root = Path(builder.buildah("mount", self._id))
        self.environment = (
            dict(line.split("=", 1) for line in self._config["Env"]) | self._person() | service.environment
        )
        self.started_at = 0.0

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The program, from outside; it ends with the container, with its exit status."""
        return self.machine.programs[PROGRAM]

    @property
    def is_running(self) -> bool:
        """Whether it was started and has not ended."""
        return PROGRAM in self.machine.programs and self.process.poll() is None

    @property
    def first(self) -> psutil.Process:
        """Process 1 of the container."""
        assert self.is_running, f"{self.service.name} ended by itself:\n{self.log[-5000:]}"
        return psutil.Process(self.process.pid).children()[0]

    @property
    def log(self) -> str:
        """What it has written."""
        return self.machine.log(PROGRAM).read_text(errors="replace")

    def start(self) -> None:
        """Run the service's command, or the image's, and wait until it is inside."""
        self.started_at = time.monotonic()
        program = [*(self._config.get("Entrypoint") or []), *(self.service.command or self._config["Cmd"])]
        mounts = [(self._home / "hosts", Path("/etc/hosts")), *self._volumes()]
        if self.service.has_init:
            program = [INIT[1], "--", *program]
            mounts.append((Path(INIT[0]), Path(INIT[1])))
        for _, place in mounts:
            inside = self.root / place.relative_to("/")
            if not inside.exists():
                inside.touch()
        about = [self.root, self.service.name, self.service.shm_bytes, "{}:{}".format(*self._user()), self._folder]
        words = [*about, *(path for mount in mounts for path in mount), "--", *program]
        self.machine.start(PROGRAM, [UNSHARE, *NAMESPACES, "--", str(FIRST), *map(str, words)], self.environment)
        wait_until(self._is_inside, what=lambda: self.log)

    def execute(self, *line: str, timeout_s: float = 60.0, more: dict[str, str] | None = None) -> tuple[int, str]:
        """Run a command in it as its user (`docker exec`): exit status and output; 124 when it took too long."""
        user, group = self._user()
        target = (NSENTER, "-t", str(self.first.pid), "-m", "-u", "-i", "-n", "-p", "-r", "-w")
        enter = [*target, "-S", str(user), "-G", str(group)]
        try:
            done = subprocess.run(
                [*enter, "--", "/bin/sh", "-c", 'cd "$0" && exec "$@"', self._folder, *line],
                env=self.environment | (more or {}),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=timeout_s,
                text=True,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            return 124, str(error)
        return done.returncode, done.stdout

    def check_health(self) -> tuple[bool, str]:
        """Its health check, once, and what it said."""
        health = self.service.health
        assert health is not None
        if not self.is_running:
            return False, "it does not run"
        status, said = self.execute(*health.line, timeout_s=health.timeout_s)
        return status == 0, said

    def kill(self) -> None:
        """SIGKILL to process 1, and everything in the container with it."""
        self.first.kill()
        self._ended()

    def stop(self) -> bool:
        """What `docker stop` does; whether it ended by itself within its time."""
        self.first.send_signal(signal.Signals[self._config.get("StopSignal") or "SIGTERM"])
        try:
            self.process.wait(self.service.stop_grace_s)
        except subprocess.TimeoutExpired:
            self.kill()
            return False
        self._ended()
        return True

    def remove(self) -> None:
        """End it and give its file system back."""
        if self.is_running:
            self.kill()
        builder.buildah("rm", self._id)

    def _ended(self) -> None:
        self.process.wait()
        self.started_at = 0.0
        del self.machine.programs[PROGRAM]

    def _is_inside(self) -> bool:
        assert self.is_running, self.log
        children = psutil.Process(self.process.pid).children()
        return bool(children) and Path(f"/proc/{children[0].pid}/root").readlink() == self.root

    @property
    def _folder(self) -> str:
        return self._config.get("WorkingDir") or "/"

    def _user(self) -> tuple[int, int]:
        name = self._config.get("User") or "root"
        return next((int(row[2]), int(row[3])) for row in self._passwd() if row[0] == name)

    def _person(self) -> dict[str, str]:
        """The environment variables that an engine adds."""
        name = self._config.get("User") or "root"
        return {"HOSTNAME": self.service.name, "HOME": next(row[5] for row in self._passwd() if row[0] == name)}

    def _passwd(self) -> list[list[str]]:
        return [line.split(":") for line in (self.root / "etc/passwd").read_text().splitlines()]

    def _volumes(self) -> list[tuple[Path, Path]]:
        """Volumes and their places; one that is new begins as what the image has there, owner included."""
        mounts = []
        for volume, place in self.service.volumes.items():
            kept = self._home / "volumes" / volume
            if not kept.exists():
                kept.parent.mkdir(exist_ok=True)
                subprocess.run(["cp", "-a", self.root / place.lstrip("/"), kept], check=True)
            mounts.append((kept, Path(place)))
        return mounts
