"""Loopback ports for the embedded processes: is one free, who has it, and a stretch that nothing uses yet."""

import errno
import secrets
import socket

import psutil

LOOPBACK = "127.0.0.1"
# Below the kernel's ephemeral range (32768 and up), above the registered services most machines run.
TRAINING_FIRST, TRAINING_LAST, TRAINING_COUNT = 20000, 31999, 200


class PortInUse(Exception):
    """A port that was asked for by number belongs to somebody else."""


def require_free(port: int) -> int:
    """The port itself, or a free one for 0; raises `PortInUse` naming the program that has it."""
    if port == 0:
        return any_free()
    try:
        socket.create_server((LOOPBACK, port)).close()
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise PortInUse(f"Port {port} on {LOOPBACK} cannot be used: {error.strerror}.") from None
        raise PortInUse(
            f"Port {port} on {LOOPBACK} is in use by {_holder(port)}. Choose another one with --port."
        ) from None
    return port


def is_free(port: int) -> bool:
    """Whether something could listen there now."""
    try:
        socket.create_server((LOOPBACK, port)).close()
    except OSError:
        return False
    return True


def any_free() -> int:
    """A port the kernel considers free now."""
    with socket.create_server((LOOPBACK, 0)) as server:
        return int(server.getsockname()[1])


def training_range() -> tuple[int, int]:
    """First and last of a stretch of ports for TensorFlow in which nothing listens; chosen at random, so that several
    installations on one machine rarely meet."""
    starts = range(TRAINING_FIRST, TRAINING_LAST - TRAINING_COUNT + 2, TRAINING_COUNT)
    used = {each.laddr.port for each in psutil.net_connections("tcp") if each.laddr}
    quiet = [first for first in starts if used.isdisjoint(range(first, first + TRAINING_COUNT))]
    first = secrets.choice(quiet or list(starts))
    return first, first + TRAINING_COUNT - 1


def _holder(port: int) -> str:
    for connection in psutil.net_connections("tcp"):
        if connection.status == psutil.CONN_LISTEN and connection.laddr.port == port and connection.pid:
            return f"{psutil.Process(connection.pid).name()} (process {connection.pid})"
    return "another program"
