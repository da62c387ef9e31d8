"""The command receiver: only genuine commands, once each."""

import base64

import pytest

from tests.agent.plans import make_launch
from worker_agent.daemon.command_worker import CommandReceiver, celery_app
from worker_agent.daemon.settings import AgentIdentity
from worker_agent.protocol.codec import encode
from worker_agent.protocol.commands import COMMAND_TASK, Command, Stop
from worker_agent.protocol.envelope import BadEnvelope, seal

KEY = b"k" * 32
STOP = Stop(command_id=1, replica_id=2, attempt=3)
IDENTITY = AgentIdentity(
    url="http://127.0.0.1:1",
    node_id="0123456789ab",
    node_key=KEY.hex(),
    node_name="node-1",
    cluster="local",
    redis_url="redis://127.0.0.1:1/0",
    heartbeat_s=1.0,
    address="127.0.0.1",
)


@pytest.fixture
def taken() -> list[Command]:
    return []


@pytest.fixture
def receiver(taken: list[Command]) -> CommandReceiver:
    return CommandReceiver(IDENTITY, taken.append, lambda _launch: True)


def sealed(
    body: bytes | None = None, *, node_id: str = "0123456789ab", key: bytes = KEY, expires_at: float = 100.0
) -> str:
    envelope = seal(body if body is not None else encode(STOP), node_id=node_id, key=key, expires_at=expires_at)
    return base64.b64encode(envelope).decode()


def test_a_genuine_command_comes_in_once(receiver: CommandReceiver, taken: list[Command]) -> None:
    envelope = sealed()
    receiver.receive(envelope, now=50.0)
    with pytest.raises(BadEnvelope, match="used before"):
        receiver.receive(envelope, now=50.0)
    assert taken == [STOP]
    launch = make_launch()
    receiver.receive(sealed(encode(launch)), now=50.0)
    assert taken == [STOP, launch]


def test_a_launch_that_is_no_longer_wanted_stays_outside(taken: list[Command]) -> None:
    receiver = CommandReceiver(IDENTITY, taken.append, lambda _launch: False)
    receiver.receive(sealed(encode(make_launch())), now=50.0)
    receiver.receive(sealed(), now=50.0)
    assert taken == [STOP]


@pytest.mark.parametrize(
    ("envelope", "words"),
    [
        (sealed(node_id="another"), "another node"),
        (sealed(key=b"x" * 32), "signature"),
        (sealed(expires_at=49.0), "expired"),
        (sealed(b"\x81\xa4type\xa3run"), "no command"),
        (base64.b64encode(b"junk").decode(), "not an envelope"),
        ("!!!", "not base64"),
        ("é", "not base64"),
    ],
)
def test_anything_else_stays_outside(
    receiver: CommandReceiver, taken: list[Command], envelope: str, words: str
) -> None:
    with pytest.raises(BadEnvelope, match=words):
        receiver.receive(envelope, now=50.0)
    assert taken == []


def test_a_changed_byte_anywhere_is_noticed(receiver: CommandReceiver, taken: list[Command]) -> None:
    data = base64.b64decode(sealed())
    for position in range(len(data)):
        changed = bytearray(data)
        changed[position] ^= 1
        with pytest.raises(BadEnvelope):
            receiver.receive(base64.b64encode(changed).decode(), now=50.0)
    assert taken == []


def test_the_celery_app_has_one_task_and_takes_json_only(receiver: CommandReceiver, taken: list[Command]) -> None:
    app = celery_app(IDENTITY, receiver)
    # Other tests load the control plane's shared tasks into this process, and so into every Celery application of it.
    own = [name for name, task in app.tasks.items() if not task.__module__.startswith(("celery.", "orchestrator."))]
    assert own == [COMMAND_TASK]
    assert app.conf.accept_content == ["json"]
    assert app.conf.worker_enable_remote_control is False
    assert app.conf.broker_transport_options["unacked_key"] == "unacked.0123456789ab"
    app.tasks[COMMAND_TASK](envelope="!!!")
    assert taken == []
