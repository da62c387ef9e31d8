"""MultiWorkerMirrored: one process per machine (or part of it), one all-reduce a step over the network."""

import tensorflow as tf

from worker_agent.protocol.job.choices import Communication
from worker_agent.protocol.states import DeviceKind
from worker_agent.trainer.emit import say
from worker_agent.trainer.outcome import TrainingFailed
from worker_agent.trainer.setup import rendezvous
from worker_agent.trainer.strategies.interface import Process
from worker_agent.trainer.strategies.mirrored import synchronous

_Implementation = tf.distribute.experimental.CommunicationImplementation


def train(process: Process) -> None:
    """Meet the gang, then train as one of it. A chief computes like a worker, and comes first."""
    run = process.run
    asked, on_gpus = run.spec.communication, run.device_kind is DeviceKind.GPU
    if asked == Communication.NCCL and not on_gpus:
        raise TrainingFailed("NCCL connects GPUs, and this gang has CPU devices", remedy="choose auto or ring")
    options = tf.distribute.experimental.CommunicationOptions(implementation=_Implementation[asked.name])
    process.meet()
    with rendezvous.tensorflow_guard(run.rendezvous_timeout_s):
        strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)
    if run.leads and strategy.num_replicas_in_sync < run.workers * run.devices:
        say("MultiWorkerMirrored computes on one CPU device per worker: the others' cores only give it threads")
    # On CPUs, and wherever NCCL is not, TensorFlow's runtime reduces in a ring.
    communication = "NCCL" if on_gpus and asked != Communication.RING else "RING over gRPC"
    synchronous.train(process, strategy, communication=communication)
