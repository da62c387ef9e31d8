"""ParameterServer: variables live on the ps processes, each worker makes its own updates, a chief hands out the work.

Speaks tf_keras: under Keras 3 updates get lost. Workers and ps only serve; the chief builds the model, schedules
executions of several steps through a `Pump` and is the only one with anything to tell but of itself.
`global_batch_size` examples make one update of one worker, shared by its devices.
"""

import tensorflow as tf

from worker_agent.protocol.states import Role
from worker_agent.trainer.setup import rendezvous, runtime
from worker_agent.trainer.strategies.interface import Task
from worker_agent.trainer.strategies.served.coordinator import Coordinator
from worker_agent.trainer.strategies.served.logical_cpus import compute_on_logical_cpus
from worker_agent.trainer.strategies.served.variable_load import partitioner
from worker_agent.trainer.strategies.serving import serve


def train(task: Task) -> None:
    """In the chief: the training. In a worker or ps: serve until the process is ended from outside."""
    devices = task.devices if task.run.role is Role.WORKER else []
    task.emitter.facts(keras=runtime.keras_in_words(), devices=devices)
    if task.run.role is Role.CHIEF:
        _coordinate(task)
    else:
        serve(task)


def _coordinate(task: Task) -> None:
    run, spec = task.run, task.run.spec
    task.emitter.phase("rendezvous", f"{len(run.gang)} processes")
    rendezvous.wait_for_ports(run, run.others, deadline=task.deadline(), stop=task.stop)
    with rendezvous.tensorflow_guard(run.rendezvous_timeout_s):
        strategy = tf.distribute.ParameterServerStrategy(
            tf.distribute.cluster_resolver.TFConfigClusterResolver(),
            variable_partitioner=partitioner(min_shard_bytes=spec.min_shard_bytes, servers=spec.ps),
        )
    # Said of several devices per worker; their parts of a batch are cut in `worker_step`.
    tf.get_logger().addFilter(lambda record: "Please use DistributedDataset" not in record.getMessage())
    if not tf.config.list_logical_devices("GPU"):
        compute_on_logical_cpus(strategy, spec.devices_per_worker)
    Coordinator(task, strategy).train()
