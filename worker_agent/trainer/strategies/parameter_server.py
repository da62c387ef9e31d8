"""ParameterServer: variables live on the ps processes, each worker makes its own updates, a chief hands out the work.

Speaks tf_keras: under Keras 3 updates get lost. Workers and ps only serve; the chief builds the model, schedules
executions of several steps through a `Pump` and is the only one with anything to tell. `global_batch_size` examples
make one update of one worker.
"""

import tensorflow as tf

from worker_agent.protocol.states import Role
from worker_agent.trainer import rendezvous
from worker_agent.trainer.strategies.coordinator import Coordinator
from worker_agent.trainer.strategies.interface import Task


def train(task: Task) -> None:
    """In the chief: the training. In a worker or ps: serve until the process is ended from outside."""
    if task.run.role is Role.CHIEF:
        _coordinate(task)
    else:
        _serve(task)


def _serve(task: Task) -> None:
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    server = tf.distribute.Server(
        resolver.cluster_spec(), job_name=resolver.task_type, task_index=resolver.task_id, protocol="grpc"
    )
    task.emitter.phase("serving", server.target)
    # Not server.join(): it would hold the interpreter, and nothing could be written or answered any more.
    task.stop.wait()


def _coordinate(task: Task) -> None:
    run = task.run
    task.emitter.phase("rendezvous", f"{len(run.gang)} processes")
    rendezvous.wait_for_ports(run, run.others, deadline=task.deadline(), stop=task.stop)
    with rendezvous.tensorflow_guard(run.rendezvous_timeout_s):
        strategy = tf.distribute.ParameterServerStrategy(tf.distribute.cluster_resolver.TFConfigClusterResolver())
    Coordinator(task, strategy).train()
