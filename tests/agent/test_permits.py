"""What the control plane keeps in Redis for the nodes, over a real one: permits of launches, up to the agent that looks
for them, and what was said lately."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
import redis
from celery import current_app

from orchestrator import agents
from tests.agent.plans import make_launch
from tests.agent.stack import RedisServer
from worker_agent.daemon.permits import Permits
from worker_agent.protocol.commands import PERMIT_S, permit_key

pytestmark = pytest.mark.stack
LAUNCH = make_launch(command_id=7)


@pytest.fixture
def server(tmp_path: Path, settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path)
    settings.REDIS_URL = server.url
    monkeypatch.setattr(current_app, "send_task", lambda name, **options: sent.append(options["queue"]))
    sent.clear()
    yield server
    server.kill()


sent: list[str] = []


def send() -> None:
    agents.send(agents.Parcel("0123456789ab", b"k" * 32, b"body", launch=7), now=datetime.now(UTC))


def test_a_launch_is_permitted_while_it_is_sent_and_never_again_once_withdrawn(server: RedisServer) -> None:
    permits = Permits(server.url)
    assert not permits.is_permitted(LAUNCH)
    send()
    send()
    assert permits.is_permitted(LAUNCH)
    with redis.Redis.from_url(server.url) as client:
        assert 0 < client.ttl(permit_key(7)) <= PERMIT_S
    agents.withdraw([7, 8])
    assert not permits.is_permitted(LAUNCH)
    send()  # whoever was late to send it
    assert not permits.is_permitted(LAUNCH)
    assert sent == ["node.0123456789ab"] * 2


def test_a_permit_is_renewed_and_what_was_withdrawn_or_is_gone_stays_so(server: RedisServer) -> None:
    permits = Permits(server.url)
    send()
    with redis.Redis.from_url(server.url) as client:
        client.expire(permit_key(7), 3)
        agents.renew([7, 8])
        assert 3 < client.ttl(permit_key(7)) <= PERMIT_S
        assert not client.exists(permit_key(8))
    assert permits.is_permitted(LAUNCH) is True
    agents.withdraw([7])
    agents.renew([7])
    assert permits.is_permitted(LAUNCH) is False


def test_without_redis_nothing_is_permitted_and_nothing_counts_as_withdrawn(server: RedisServer) -> None:
    permits = Permits(server.url)
    send()
    server.kill()
    assert not permits.is_permitted(LAUNCH)
    assert permits.is_permitted(LAUNCH) is None
    with pytest.raises(agents.NotSent):
        agents.withdraw([7])
    with pytest.raises(agents.NotSent):
        agents.renew([7])
    with pytest.raises(agents.NotSent):
        send()


def test_of_what_is_to_be_said_seldom_the_first_alone_says_it(server: RedisServer) -> None:
    assert agents.first_in(60, ["expect:a", "expect:b"]) == ["expect:a", "expect:b"]
    assert agents.first_in(60, ["expect:b", "expect:c"]) == ["expect:c"]
    with redis.Redis.from_url(server.url) as client:
        assert 0 < client.ttl("trainyard:lately:expect:a") <= 60
    server.kill()
    with pytest.raises(agents.NotSent):
        agents.first_in(60, ["expect:d"])
