"""MultiWorkerMirrored: one process per machine (or part of it), one all-reduce a step over the network."""

import tensorflow as tf

from worker_agent.trainer import rendezvous
from worker_agent.trainer.emit import say
from worker_agent.trainer.strategies import synchronous
from worker_agent.trainer.strategies.interface import Task


def train(task: Task) -> None:
    """Meet the gang, then train as one of it."""
    run = task.run
    deadline = task.deadline()
    task.emitter.phase("rendezvous", f"{len(run.gang)} processes")
    if task.meeting is not None:
        task.meeting.gather(deadline=deadline, stop=task.stop)
    else:
        first = next(member for member in run.gang if member.index == 0)
        rendezvous.join(run, first, deadline=deadline, stop=task.stop)
    with rendezvous.tensorflow_guard(run.rendezvous_timeout_s):
        strategy = tf.distribute.MultiWorkerMirroredStrategy()
    if run.chief and strategy.num_replicas_in_sync < run.workers * run.devices:
        say("MultiWorkerMirrored computes on one CPU device per worker: the others' cores only give it threads")
    synchronous.train(task, strategy)
