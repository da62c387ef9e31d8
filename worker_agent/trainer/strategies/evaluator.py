"""The evaluator: a replica beside the gang, which reads each checkpoint that the leader completes and tells how good it
is on the validation rows. It trains with nobody, and ends when the training is over and its last checkpoint judged.

Serves every strategy that writes checkpoints, in either Keras.
"""

from time import perf_counter, time
from typing import Any

import tensorflow as tf

from worker_agent.protocol.records import PhaseName, Summary
from worker_agent.trainer.emit import say
from worker_agent.trainer.loop.evaluate import Evaluation, ReplicaEvaluation
from worker_agent.trainer.model.learners import learner_of
from worker_agent.trainer.outcome import TrainingFailed
from worker_agent.trainer.recipe import data, recipe_file
from worker_agent.trainer.recipe.run_size import size_of
from worker_agent.trainer.saving.gang_checkpoints import Checkpoints, written_by
from worker_agent.trainer.saving.state import Variables, load
from worker_agent.trainer.setup import runtime
from worker_agent.trainer.setup.memory import peak_bytes
from worker_agent.trainer.strategies.interface import Process


def train(process: Process) -> None:
    """Judge the checkpoint that this attempt begins with, if any, and every one that it writes."""
    run, spec = process.run, process.run.spec
    process.emitter.phase(PhaseName.BUILDING)
    if run.checkpoints is None:
        raise TrainingFailed("An evaluator reads checkpoints, and this run writes none", remedy="keep at least one")
    runtime.seed_everything(spec.seed)
    runtime.set_precision(spec.precision)
    recipe = recipe_file.load(run.entry, run.code, spec.params)
    rows, judged = data.Rows(recipe, "train").whole, data.Rows(recipe, "validation")
    data.check_judged(judged)
    learner = learner_of(recipe.model(), tf.distribute.get_strategy())
    learner.create_variables(rows.batch(spec.global_batch_size, drop_remainder=True).element_spec)
    state = Variables([*learner.state, tf.Variable(0, dtype=tf.int64, trainable=False)])  # the count of steps is last
    evaluation = ReplicaEvaluation(learner, judged, process.stop, batch=spec.global_batch_size)
    process.emitter.facts(keras=runtime.keras_in_words(), devices=process.devices[:1], precision=spec.precision)
    process.emitter.phase(PhaseName.EVALUATING)
    checkpoints = Checkpoints(run, process.emitter)
    size = size_of(spec, rows=data.count_rows(rows), replicas=1)
    checkpoints.take_up(state, size=size, rate=None)
    if run.restore is not None:
        _judge(process, evaluation, *checkpoints.start)
    for place, marker in written_by(run.attempt, run.checkpoints, sleep=process.stop.sleep):
        if load(place, state):  # else it has been dropped, and was not the last
            _judge(process, evaluation, marker.step, marker.epoch)


def _judge(process: Process, evaluation: Evaluation, step: int, epoch: int) -> None:
    """Tell loss and metrics of the values that the model has now."""
    began = perf_counter()
    metrics: dict[str, Any] = {f"val_{name}": value for name, value in evaluation.run().items()}
    process.emitter.log(step, metrics)
    process.emitter.record(Summary(at=time(), epoch=epoch, metrics=metrics))
    process.emitter.facts(memory_bytes=peak_bytes())
    values = "  ".join(f"{name} {value:.4f}" for name, value in metrics.items())
    say(f"step {step}  {values}  ({perf_counter() - began:.1f} s)")
