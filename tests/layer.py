"""The channel layer of unit tests: Channels' own in memory, with the way in that the product uses."""

from collections.abc import Mapping
from typing import Any

from asgiref.sync import async_to_sync
from channels.layers import InMemoryChannelLayer


class MemoryLayer(InMemoryChannelLayer):
    """What `dashboard/sockets/layer.py` is to Redis."""

    def publish(self, messages: Mapping[str, Any]) -> None:
        """Send one message to each group; blocks."""
        async_to_sync(self._publish)(messages)

    async def _publish(self, messages: Mapping[str, Any]) -> None:
        for group, message in messages.items():
            await self.group_send(group, message)
