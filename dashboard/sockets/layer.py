"""The channel layer of production: Redis pub/sub that tells its consumers when it may have missed something.

Pub/sub keeps nothing: what is announced while the connection to Redis is down is gone, and redis-py subscribes again
without a word. So each consumer of this process gets a `live.gap` message after every renewed subscription, upon which
it lets its page take a fresh snapshot (`dashboard/sockets/feed.py`).

It also has a way in for processes without an event loop: `publish`, on a connection that stays open. Through asgiref
each message would cost a new loop and a new connection, 4 to 8 ms.
"""

from collections.abc import Callable, Mapping
from typing import Any

from channels_redis.pubsub import RedisPubSubChannelLayer, RedisPubSubLoopLayer, RedisSingleShardConnection
from redis import Redis
from redis.asyncio.client import PubSub

GAP = {"type": "live.gap"}
PUBLISH_TIMEOUT_S = 2.0


class GapAwareChannelLayer(RedisPubSubChannelLayer):
    """`CHANNEL_LAYERS["default"]["BACKEND"]`; its configuration is that of `RedisPubSubChannelLayer`."""

    def __init__(self, *, hosts: list[str], prefix: str = "asgi") -> None:
        super().__init__(hosts=hosts, prefix=prefix)
        self._prefix = prefix
        self._redis = Redis.from_url(
            hosts[0], socket_timeout=PUBLISH_TIMEOUT_S, socket_connect_timeout=PUBLISH_TIMEOUT_S
        )

    def publish(self, messages: Mapping[str, object]) -> None:
        """Send one message to each group, in one round trip; blocks. Raises redis-py's errors."""
        with self._redis.pipeline(transaction=False) as pipeline:
            for group, message in messages.items():
                pipeline.publish(f"{self._prefix}__group__{group}", self.serialize(message))
            pipeline.execute()

    def close(self) -> None:
        """End the connection that `publish` keeps."""
        self._redis.close()

    def _get_layer(self) -> RedisPubSubLoopLayer:
        layer = super()._get_layer()
        for number, shard in enumerate(layer._shards):
            if not isinstance(shard, _Shard):
                layer._shards[number] = _Shard(shard.host, layer)
        return layer


class _Shard(RedisSingleShardConnection):
    """One connection, whose renewed subscription is told to everyone who listens in this process."""

    def _ensure_redis(self) -> None:
        is_new = self._redis is None
        super()._ensure_redis()
        if is_new:
            self._pubsub = _PubSub(self._redis.connection_pool, on_renewed=self._tell_all)

    def _tell_all(self) -> None:
        gap = self.channel_layer.channel_layer.serialize(GAP)
        for queue in self.channel_layer.channels.values():
            queue.put_nowait(gap)


class _PubSub(PubSub):
    """redis-py's subscription, which calls `on_connect` whenever it has to connect anew (never for the first time)."""

    def __init__(self, pool: Any, *, on_renewed: Callable[[], None]) -> None:
        super().__init__(pool)
        self._on_renewed = on_renewed

    async def on_connect(self, connection: Any) -> None:
        """Subscribe again, then say that there was a gap."""
        await super().on_connect(connection)
        self._on_renewed()
