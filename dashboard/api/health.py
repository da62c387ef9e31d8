"""For load balancers and container health checks: is the process alive, and does what it needs answer? Open to all,
and so without names, versions or addresses."""

import logging

from django.conf import settings
from django.db import DatabaseError, connection
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe
from redis import Redis
from redis.exceptions import RedisError

ANSWER_WITHIN_S = 2.0

logger = logging.getLogger(__name__)


@require_safe
@never_cache
def healthz(request: HttpRequest) -> HttpResponse:
    """200 as long as the web server answers at all."""
    return JsonResponse({"status": "ok"})


@require_safe
@never_cache
def readyz(request: HttpRequest) -> HttpResponse:
    """200 when database and Redis answer, else 503 and which of them does not."""
    parts = {"database": _database_answers(), "redis": _redis_answers()}
    words = {name: "ok" if answers else "no answer" for name, answers in parts.items()}
    ready = all(parts.values())
    return JsonResponse({"status": "ok" if ready else "not ready", **words}, status=200 if ready else 503)


def _database_answers() -> bool:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except DatabaseError:
        logger.warning("the database does not answer", exc_info=True)
        return False
    return True


def _redis_answers() -> bool:
    try:
        with Redis.from_url(
            settings.REDIS_URL, socket_timeout=ANSWER_WITHIN_S, socket_connect_timeout=ANSWER_WITHIN_S
        ) as redis:
            return bool(redis.ping())
    except (RedisError, OSError) as error:
        logger.warning("Redis does not answer: %s", error)
        return False
