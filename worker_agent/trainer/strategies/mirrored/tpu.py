"""TPU: find it, connect, initialise it, then the loop that all synchronous strategies share.

TensorFlow asks for a TPU without a time limit of its own, so it is asked in a thread, and left there when it does not
answer in ours.
"""

import threading
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from worker_agent.machine.tpu_address import why_silent
from worker_agent.protocol.records import PhaseName
from worker_agent.trainer.failure import tpu_refusal, tpu_silent
from worker_agent.trainer.setup.stopping import StopSignal
from worker_agent.trainer.strategies.interface import Process
from worker_agent.trainer.strategies.mirrored import synchronous

POLL_S = 0.1


def train(process: Process) -> None:
    """Train on every core of the TPU that the job names ("": the one of this machine or its environment)."""
    spec, limit_s = process.run.spec, process.run.rendezvous_timeout_s
    process.emitter.phase(PhaseName.RENDEZVOUS, spec.tpu or "the machine's own TPU")
    strategy = within(limit_s, lambda: _connect(spec.tpu), name=spec.tpu, stop=process.stop)
    synchronous.train(process, strategy, communication="TPU interconnect")


def within(limit_s: float, connect: Callable[[], Any], *, name: str, stop: StopSignal) -> Any:
    """What `connect` returns; raises `TrainingFailed` when it raises, or does not return in `limit_s`."""
    answer: list[Any] = []

    def ask() -> None:
        try:
            answer.append(connect())
        except Exception as error:
            answer.append(error)

    asking = threading.Thread(target=ask, name="tpu", daemon=True)
    asking.start()
    waited_s = 0.0
    while asking.is_alive() and waited_s < limit_s:
        stop.check()
        asking.join(POLL_S)
        waited_s += POLL_S
    if not answer:
        raise tpu_silent(name, limit_s, why_silent(name))
    if isinstance(answer[0], Exception):
        raise tpu_refusal(answer[0], name) from answer[0]
    return answer[0]


def _connect(name: str) -> tf.distribute.TPUStrategy:
    resolver = tf.distribute.cluster_resolver.TPUClusterResolver(name or None)
    tf.config.experimental_connect_to_cluster(resolver)
    tf.tpu.experimental.initialize_tpu_system(resolver)
    return tf.distribute.TPUStrategy(resolver)
