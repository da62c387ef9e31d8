"""The channel layer of unit tests: that of the product without Redis, within one process."""

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence

from dashboard.sockets.layer import Listener


class MemoryLayer:
    """What `dashboard/sockets/layer.py` is to Redis."""

    def __init__(self) -> None:
        self.groups: dict[str, dict[Listener, asyncio.AbstractEventLoop]] = defaultdict(dict)

    def heard(self, groups: Sequence[str]) -> list[str]:
        """Those with a listener."""
        return [group for group in groups if self.groups.get(group)]

    def publish(self, texts: Mapping[str, str]) -> None:
        """Hand one text to each group, in the loops of those who listen."""
        for group, text in texts.items():
            for listener, loop in tuple(self.groups[group].items()):
                loop.call_soon_threadsafe(listener.take, text)

    async def join(self, group: str, listener: Listener) -> None:
        """From now on."""
        self.groups[group][listener] = asyncio.get_running_loop()

    async def leave(self, group: str, listener: Listener) -> None:
        """No longer."""
        self.groups[group].pop(listener, None)
