"""The line between a node's agent and Redis, which a test can cut: then nothing comes through and nobody is told."""

import json
import socket
import threading
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

_LOOK_S = 0.1
_BYTES = 65_536


class Line:
    """Forwards bytes between a port of its own and Redis. While it is cut it holds on to what it was given: connections
    stay open, new ones are taken, and nothing is answered, as behind a cable that was pulled."""

    def __init__(self, host: str, port: int) -> None:
        self._redis = (host, port)
        self._closing, self._whole = threading.Event(), threading.Event()
        self._whole.set()
        self._server = socket.create_server(("127.0.0.1", 0))
        self._server.settimeout(_LOOK_S)
        self.port: int = self._server.getsockname()[1]
        self._threads = [threading.Thread(target=self._listen)]
        self._threads[0].start()

    @classmethod
    def of_node(cls, folder: Path) -> "Line":
        """Put a line before the agent that has joined in this data folder; it takes it at its next start."""
        file = folder / "agent.json"
        identity = json.loads(file.read_text())
        address = urlsplit(identity["redis_url"])
        assert address.hostname is not None
        assert address.port is not None
        line = cls(address.hostname, address.port)
        place = address.netloc.rpartition(":")[0]
        identity["redis_url"] = urlunsplit(address._replace(netloc=f"{place}:{line.port}"))
        file.write_text(json.dumps(identity))
        return line

    def cut(self) -> None:
        """Let nothing through."""
        self._whole.clear()

    def mend(self) -> None:
        """Let everything through again, also what was held back."""
        self._whole.set()

    def close(self) -> None:
        """Close every connection and end."""
        self._closing.set()
        for thread in self._threads:
            thread.join()
        self._server.close()

    def _listen(self) -> None:
        while not self._closing.is_set():
            with suppress(TimeoutError):
                near, _ = self._server.accept()
                far = socket.create_connection(self._redis)
                for ends in ((near, far), (far, near)):
                    self._threads.append(threading.Thread(target=self._forward, args=ends))
                    self._threads[-1].start()

    def _forward(self, taker: socket.socket, giver: socket.socket) -> None:
        taker.settimeout(_LOOK_S)
        with suppress(OSError):
            while not self._closing.is_set():
                if not self._whole.wait(_LOOK_S):
                    continue
                with suppress(TimeoutError):
                    if not (data := taker.recv(_BYTES)):
                        break
                    giver.sendall(data)
        for end in (taker, giver):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        taker.close()
