"""Where the other nodes reach this one: chosen anew at each start, unless a person has chosen."""

import msgspec
import pytest

from tests.agent.stack import free_port
from worker_agent.daemon import addresses
from worker_agent.daemon.addresses import own_addresses, with_current_address
from worker_agent.daemon.settings import AgentIdentity
from worker_agent.protocol.joining import OwnAddress

OWN = [OwnAddress(interface="lo", address="127.0.0.1"), OwnAddress(interface="eth1", address="10.1.0.5")]


@pytest.fixture
def identity(monkeypatch: pytest.MonkeyPatch) -> AgentIdentity:
    """A node that was at 10.0.0.9, whose control plane does not answer now."""
    monkeypatch.setattr(addresses, "own_addresses", lambda: OWN)
    return AgentIdentity(
        url=f"http://127.0.0.1:{free_port()}",
        node_id="0123456789ab",
        node_key="00" * 32,
        node_name="node-1",
        cluster="lab",
        redis_url="redis://127.0.0.1:1/0",
        heartbeat_s=1.0,
        address="10.0.0.9",
        address_given=False,
    )


def test_this_machine_has_its_loopback() -> None:
    assert OwnAddress(interface="lo", address="127.0.0.1") in own_addresses()


@pytest.mark.parametrize(
    ("known", "address"),
    [
        ({}, "127.0.0.1"),
        ({"interface": "eth1"}, "10.1.0.5"),
        ({"address_range": "10.1.0.0/16"}, "10.1.0.5"),
        ({"interface": "ib0"}, "10.0.0.9"),
        ({"interface": "eth1", "address_given": True}, "10.0.0.9"),
        ({"url": "http://no-such-host.invalid"}, "10.0.0.9"),
    ],
)
def test_a_start_takes_the_address_that_fits_now_and_else_the_last_one(
    identity: AgentIdentity, known: dict[str, object], address: str
) -> None:
    before = msgspec.structs.replace(identity, **known)
    assert with_current_address(before) == msgspec.structs.replace(before, address=address)
