"""A process that only serves: a TensorFlow server on whose devices another process of the gang computes."""

from collections.abc import Callable

import tensorflow as tf

from worker_agent.protocol.job.job_spec import keeps_checkpoints
from worker_agent.protocol.records import PhaseName
from worker_agent.protocol.states import DeviceKind, Role
from worker_agent.trainer.setup.memory import Memory
from worker_agent.trainer.strategies.interface import Process

MEMORY_EVERY_S = 10.0


def serve(process: Process, *, once_there: Callable[[], None] = lambda: None) -> None:
    """Serve until the process is ended from outside; `once_there` is called when others can reach it.

    A server knows nothing of `tf.config`: its devices, memory and threads have to be said once more.
    """
    run = process.run
    config = tf.compat.v1.ConfigProto(intra_op_parallelism_threads=run.threads)
    config.gpu_options.allow_growth = True
    if run.role is Role.WORKER and run.device_kind is DeviceKind.CPU:
        config.device_count["CPU"] = run.devices
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    server = tf.distribute.Server(
        resolver.cluster_spec(),
        job_name=resolver.task_type,
        task_index=resolver.task_id,
        protocol="grpc",
        config=config,
    )
    process.emitter.phase(PhaseName.SERVING, server.target)
    if keeps_checkpoints(run.spec):
        process.stop.serves(lambda cause: process.emitter.phase(PhaseName.LEAVING, cause.value))
    once_there()
    memory = Memory(process.emitter.facts)
    while True:
        memory.tell()
        # Not server.join(): it would hold the interpreter, and nothing could be written or answered any more.
        process.stop.sleep(MEMORY_EVERY_S)
