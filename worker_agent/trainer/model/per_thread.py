"""What each replica of one process has for itself: the replicas are traced in a thread each."""

import threading
from collections.abc import Callable, Iterator
from typing import Any


class PerThread:
    """A collection of which each thread sees its own."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._here = threading.local()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._mine(), name)

    def __getitem__(self, place: Any) -> Any:
        return self._mine()[place]

    def __contains__(self, each: Any) -> bool:
        return each in self._mine()

    def __iter__(self) -> Iterator[Any]:
        return iter(self._mine())

    def __len__(self) -> int:
        return len(self._mine())

    def _mine(self) -> Any:
        if not hasattr(self._here, "items"):
            self._here.items = self._make()
        return self._here.items


class RowsHere(threading.local):
    """The rows of the batch that this replica works on."""

    count: Any = None
