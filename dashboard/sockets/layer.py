"""The channel layer of production: Redis pub/sub, one subscription per process and group, however many pages listen.

Channels' own groups give each page a subscription and a queue of its own, and each event of each page a task and a
thread: 180 µs. Here a page is a `Listener`, and an event is one call for each that has joined its group.

Pub/sub keeps nothing: what is announced while the connection to Redis is down is gone, and redis-py subscribes again
without a word. So each listener of this process is told after every renewed subscription, upon which it lets its page
take a fresh snapshot (`dashboard/sockets/feed.py`).

`publish` is for processes without an event loop, on a connection that stays open. Through asgiref each message would
cost a new loop and a new connection, 4 to 8 ms.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from channels_redis.pubsub import RedisPubSubChannelLayer, RedisPubSubLoopLayer, RedisSingleShardConnection
from redis import Redis
from redis.asyncio.client import PubSub

PUBLISH_TIMEOUT_S = 2.0


class Listener(Protocol):
    """Who joins a group. Both are called by the event loop, and neither may block."""

    def take(self, text: str) -> None:
        """What was published to the group."""

    def missed(self) -> None:
        """Something may have been published that did not arrive."""


class LiveLayer(RedisPubSubChannelLayer):
    """`CHANNEL_LAYERS["default"]["BACKEND"]`; its configuration is that of `RedisPubSubChannelLayer`."""

    def __init__(self, *, hosts: list[str], prefix: str = "asgi") -> None:
        super().__init__(hosts=hosts, prefix=prefix)
        self._prefix = prefix
        self._redis = Redis.from_url(
            hosts[0], socket_timeout=PUBLISH_TIMEOUT_S, socket_connect_timeout=PUBLISH_TIMEOUT_S
        )

    def publish(self, texts: Mapping[str, str]) -> None:
        """Send one text to each group, in one round trip; blocks. Raises redis-py's errors."""
        with self._redis.pipeline(transaction=False) as pipeline:
            for group, text in texts.items():
                pipeline.publish(self._topic(group), text)
            pipeline.execute()

    def heard(self, groups: Sequence[str]) -> list[str]:
        """Those of the groups that somebody has joined, in whatever process; blocks. Raises redis-py's errors."""
        counts = self._redis.pubsub_numsub(*map(self._topic, groups))
        return [group for group, (_, listeners) in zip(groups, counts, strict=True) if listeners]

    def close(self) -> None:
        """End the connection that `publish` and `heard` keep."""
        self._redis.close()

    async def join(self, group: str, listener: Listener) -> None:
        """From now on `listener` takes what is published to `group`. Raises redis-py's errors: then it `leave`s."""
        layer, topic = self._get_layer(), self._topic(group)
        layer.groups.setdefault(topic, set()).add(listener)
        await layer._get_shard(topic).subscribe(topic)

    async def leave(self, group: str, listener: Listener) -> None:
        """`listener` takes nothing more, if it took anything; the last one ends the subscription."""
        layer, topic = self._get_layer(), self._topic(group)
        listeners = layer.groups.get(topic, set())
        listeners.discard(listener)
        if not listeners and layer.groups.pop(topic, None) is not None:
            await layer._get_shard(topic).unsubscribe(topic)

    def _topic(self, group: str) -> str:
        return f"{self._prefix}__group__{group}"

    def _get_layer(self) -> RedisPubSubLoopLayer:
        layer = super()._get_layer()
        for number, shard in enumerate(layer._shards):
            if not isinstance(shard, _Shard):
                layer._shards[number] = _Shard(shard.host, layer)
        return layer


class _Shard(RedisSingleShardConnection):
    """One connection: hands what arrives to the listeners of its group, and tells all of a renewed subscription."""

    def _ensure_redis(self) -> None:
        is_new = self._redis is None
        super()._ensure_redis()
        if is_new:
            self._pubsub = _PubSub(self._redis.connection_pool, on_renewed=self._tell_all)

    def _receive_message(self, message: Mapping[str, bytes] | None) -> None:
        if message is None:
            return
        text = message["data"].decode()
        for listener in self.channel_layer.groups.get(message["channel"].decode(), ()):
            listener.take(text)

    def _tell_all(self) -> None:
        for listeners in self.channel_layer.groups.values():
            for listener in listeners:
                listener.missed()


class _PubSub(PubSub):
    """redis-py's subscription, which calls `on_connect` whenever it has to connect anew (never for the first time)."""

    def __init__(self, pool: Any, *, on_renewed: Callable[[], None]) -> None:
        super().__init__(pool)
        self._on_renewed = on_renewed

    async def on_connect(self, connection: Any) -> None:
        """Subscribe again, then say that there was a gap."""
        await super().on_connect(connection)
        self._on_renewed()
