"""The agent's receiver: a Celery worker on queue `node.<id>` with one task: check the envelope, hand the command in.

JSON only, no remote control, no results: what anybody with write access to Redis can do here is to have an envelope
refused. The task returns in milliseconds; what a command means is the core's business.
"""

import base64
import threading
import time
from collections.abc import Callable

import msgspec
import structlog
from celery import Celery
from celery.worker import WorkController
from celery.worker import state as worker_state

from worker_agent.daemon.settings import AgentIdentity
from worker_agent.protocol.codec import decode_command
from worker_agent.protocol.commands import COMMAND_TASK, Command, Launch, queue_name
from worker_agent.protocol.envelope import BadEnvelope, SeenNonces, open_envelope

CONCURRENCY = 2

_END_S = 1.5

log = structlog.get_logger("commands")


class CommandReceiver:
    """Lets genuine commands in, once each, and launches only if `is_permitted` says that they are still wanted. Where
    it cannot say so (None), the command is not acknowledged, and comes again if wanted."""

    def __init__(
        self, identity: AgentIdentity, handle: Callable[[Command], None], is_permitted: Callable[[Launch], bool | None]
    ) -> None:
        self._identity = identity
        self._handle = handle
        self._is_permitted = is_permitted
        self._nonces = SeenNonces()
        self._lock = threading.Lock()

    def receive(self, envelope: str, *, now: float) -> None:
        """Check and hand in one command; raises `BadEnvelope`."""
        try:
            data = base64.b64decode(envelope, validate=True)
        except ValueError as error:
            raise BadEnvelope("it is not base64 text") from error
        body, nonce = open_envelope(data, node_id=self._identity.node_id, key=self._identity.key, now=now)
        try:
            command = decode_command(body)
        except msgspec.DecodeError as error:
            raise BadEnvelope("it holds no command that this agent knows") from error
        with self._lock:
            self._nonces.claim(nonce)
        if not isinstance(command, Launch) or self._is_permitted(command):
            self._handle(command)


class CommandWorker:
    """The Celery worker, in a thread of its own so that the agent's signals stay the agent's."""

    def __init__(self, identity: AgentIdentity, receiver: CommandReceiver) -> None:
        self._identity = identity
        self._app = celery_app(identity, receiver)
        self._thread = threading.Thread(target=self._run, name="commands", daemon=True)

    def start(self) -> None:
        """Begin to take commands; while Redis is away it keeps trying."""
        self._thread.start()

    def close(self) -> None:
        """Take no more; does not wait for a Redis that does not answer."""
        worker_state.should_stop = 0
        self._thread.join(_END_S)

    def _run(self) -> None:
        while worker_state.should_stop is None:
            try:
                WorkController(
                    app=self._app,
                    hostname=f"agent@{self._identity.node_id}",
                    pool="threads",
                    concurrency=CONCURRENCY,
                    queues=[queue_name(self._identity.node_id)],
                    without_gossip=True,
                    without_mingle=True,
                    without_heartbeat=True,
                ).start()
            except Exception:
                log.exception("the command worker ended, starting it again")
                time.sleep(1.0)


def celery_app(identity: AgentIdentity, receiver: CommandReceiver) -> Celery:
    """The Celery application with its one task."""
    node_id = identity.node_id
    # No fixups: Celery would load Django wherever DJANGO_SETTINGS_MODULE happens to be set.
    app = Celery(f"trainyard-agent-{node_id}", broker=identity.redis_url, set_as_current=False, fixups=[])
    app.conf.update(
        accept_content=["json"],
        task_serializer="json",
        result_backend=None,
        task_ignore_result=True,
        task_acks_late=False,
        task_default_queue=queue_name(node_id),
        worker_prefetch_multiplier=1,
        worker_enable_remote_control=False,
        worker_send_task_events=False,
        worker_hijack_root_logger=False,
        worker_cancel_long_running_tasks_on_connection_loss=False,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        broker_transport_options={
            "socket_timeout": 10,
            "socket_connect_timeout": 5,
            "socket_keepalive": True,
            "health_check_interval": 10,
            "unacked_key": f"unacked.{node_id}",
            "unacked_index_key": f"unacked_index.{node_id}",
            "unacked_mutex_key": f"unacked_mutex.{node_id}",
        },
    )

    def command(envelope: object) -> None:
        try:
            receiver.receive(str(envelope), now=time.time())
        except BadEnvelope as error:
            log.warning("command refused", reason=str(error))

    app.task(name=COMMAND_TASK)(command)
    app.finalize()
    return app
