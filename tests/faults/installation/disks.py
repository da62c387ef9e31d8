"""The small disks of the machines. Where this machine can mount ext4 from a file, their power can be cut: what was not
synchronised is gone, and the file system has to recover. Elsewhere they are tmpfs."""

import fcntl
import os
import shutil
import struct
import subprocess
import tempfile
from functools import cache, partial
from pathlib import Path

from tests.waiting import wait_until

SIZE_MB = 128
UNMOUNT_LIMIT_S = 30.0
# `EXT4_IOC_SHUTDOWN` of Linux's fs/ext4/ext4.h, and its flag for not writing the journal out first.
SHUTDOWN, WITHOUT_JOURNAL = 0x8004587D, struct.pack("I", 2)


class Disk:
    """Mounted at `folder`; its content is in a file below `platters`."""

    def __init__(self, folder: Path, platters: Path) -> None:
        self._folder = folder
        self._image = platters / f"{folder.name}.img"

    def make(self) -> None:
        """An empty one."""
        self._folder.mkdir(parents=True)
        if no_ext4():
            _run("mount", "-t", "tmpfs", "-o", f"size={SIZE_MB}m,mode=0700", "trainyard-faults", str(self._folder))
            return
        _make_image(self._image)
        self._mount()
        (self._folder / "lost+found").rmdir()
        self._folder.chmod(0o700)

    def lose_power(self) -> None:
        """From now on nothing is written, and what was not synchronised never will be. Until `recover`."""
        descriptor = os.open(self._folder, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, SHUTDOWN, WITHOUT_JOURNAL)
        finally:
            os.close(descriptor)

    def recover(self) -> None:
        """Mounted again, as after a power cut; whoever had it open has to be gone. A container or another mount
        namespace that was made meanwhile holds the dead file system, which is then mounted again: a copy is not."""
        umount = partial(subprocess.run, ["umount", str(self._folder)], capture_output=True, check=False)
        wait_until(lambda: not umount().returncode, UNMOUNT_LIMIT_S, f"{self._folder} is free")
        copied = shutil.copy(self._image, self._image.with_suffix(".copy"))
        Path(copied).replace(self._image)
        self._mount()

    def unmount(self) -> None:
        """For good."""
        if os.path.ismount(self._folder):
            _run("umount", "-l", str(self._folder))

    def _mount(self) -> None:
        _run("mount", "-o", "loop", str(self._image), str(self._folder))


@cache
def no_ext4() -> str:
    """Why the power of a disk cannot be cut here; empty when it can."""
    if not shutil.which("mkfs.ext4", path="/usr/sbin:/usr/bin:/sbin"):
        return "mkfs.ext4 is not installed"
    with tempfile.TemporaryDirectory(prefix="trainyard-disk-") as folder:
        image, place = Path(folder) / "image", Path(folder) / "place"
        place.mkdir()
        _make_image(image)
        try:
            _run("mount", "-o", "loop", str(image), str(place))
            _run("umount", str(place))
        except subprocess.CalledProcessError as error:
            return f"no ext4 can be mounted from a file here: {error.stderr.strip()}"
    return ""


def _make_image(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(SIZE_MB * 2**20)
    _run("mkfs.ext4", "-q", "-F", "-m", "0", str(path))


def _run(*line: str) -> None:
    subprocess.run(line, capture_output=True, text=True, check=True)
