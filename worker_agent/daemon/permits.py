"""Whether a launch that has arrived is still wanted: asked of Redis at the last moment (`commands.permit_key`)."""

from typing import Any

import redis
import structlog

from worker_agent.protocol.commands import PERMITTED, Launch, permit_key

log = structlog.get_logger("permits")


class Permits:
    """For the command door and the runner; used by several threads."""

    def __init__(self, redis_url: str) -> None:
        self._redis: Any = redis.Redis.from_url(redis_url, socket_timeout=5, socket_connect_timeout=5)

    def is_permitted(self, launch: Launch) -> bool | None:
        """What Redis says, None where it does not answer (after 5 s at the latest)."""
        try:
            allowed: bool = self._redis.get(permit_key(launch.command_id)) == PERMITTED
        except redis.RedisError as error:
            log.warning("a launch is left alone, as its permit cannot be looked for", error=str(error))
            return None
        if not allowed:
            log.info("a launch is no longer wanted", job=launch.job_id, replica=launch.replica_id)
        return allowed
