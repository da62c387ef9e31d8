"""Tries a recipe: model and rows are held against what the job asks for, by the rules of the trainer's own rooms.

Imported once it is settled which Keras this process holds.
"""

from typing import Any

from worker_agent.protocol.findings import Finding
from worker_agent.protocol.job.gang_shape import keras_of, parts_of, replicas_in_sync
from worker_agent.protocol.job.job_spec import JobSpec
from worker_agent.protocol.states import Keras, Strategy
from worker_agent.trainer.loop.rate import rate_of
from worker_agent.trainer.loop.replica_steps import check_jit, check_own_step
from worker_agent.trainer.model.compiled_model import check_model, own_parts, private
from worker_agent.trainer.recipe import recipe_file
from worker_agent.trainer.recipe.data import Rows, check_judged, count_rows
from worker_agent.trainer.recipe.division import Policy
from worker_agent.trainer.recipe.recipe_file import Recipe
from worker_agent.trainer.recipe.run_size import Size, size_of
from worker_agent.trainer.setup import runtime
from worker_agent.trainer.strategies.mirrored import synchronous
from worker_agent.trainer.trial.assessment import Assessment

_UNKNOWN = -2  # tf.data.UNKNOWN_CARDINALITY


def build(assessment: Assessment, *, trains: bool) -> None:
    """Load the recipe, build its model as under one device, and look at its rows. With `trains`, one replica's first
    batch is trained, step by step in Python, so that an error has the user's own line."""
    run, spec = assessment.run, assessment.run.spec
    runtime.configure(run)
    runtime.seed_everything(spec.seed)
    runtime.set_precision(spec.precision)
    assessment.watch()
    recipe = recipe_file.load(run.entry, run.code, spec.params)
    assessment.facts["Keras"] = runtime.keras_in_words()
    stages = _stages(assessment, recipe) if spec.strategy is Strategy.PIPELINE else None
    assessment.stage = "the program's build_model() fails"
    model = check_model(recipe.model())
    assessment.stage = "the model does not suit the job"
    parts = _parts_of_step(spec, model)
    optimizer = getattr(model.optimizer, "inner_optimizer", model.optimizer)
    rate_of(run, optimizer, Size(rows=1, batch=1, steps_per_epoch=1, epochs=1), replicas=1)
    if stages is not None:
        assessment.stage = "the model cannot be cut into stages"
        stages.cut(model)
    dataset = _training_rows(assessment, recipe, parts)
    if spec.strategy is Strategy.TENSOR_PARALLEL:
        assessment.stage = "the model cannot be laid out"
        _lay_out(spec, recipe, model, dataset)
    if trains:
        assessment.stage = "the model cannot be trained on the first batch"
        rows = max(1, spec.global_batch_size // (replicas_in_sync(spec) * parts_of(spec)))
        model.run_eagerly = True
        model.fit(dataset.batch(rows).take(1), epochs=1, verbose=0)
        assessment.facts["First batch"] = f"{rows} rows, one step done"
    if model.built:
        assessment.facts["Parameters"] = _number(int(model.count_params()))
    _validation_rows(assessment, recipe)


def _stages(assessment: Assessment, recipe: Recipe) -> Any:
    """One for each device of the gang."""
    from worker_agent.trainer.strategies.pipe.stages import StagePlan

    assessment.stage = "the program's build_stages() fails"
    places = [f"stage {place}" for place in range(assessment.run.spec.workers * assessment.run.spec.devices_per_worker)]
    return StagePlan(recipe.stages(len(places)), places)


def _parts_of_step(spec: JobSpec, model: Any) -> int:
    """In how many parts the loop would compute a step; raises `TrainingFailed` where the strategy refuses the model."""
    match spec.strategy:
        case Strategy.TENSOR_PARALLEL:
            from worker_agent.trainer.strategies.tensor import variables

            variables.checked(model)
        case Strategy.PIPELINE:
            from worker_agent.trainer.strategies.pipe import learner

            learner.checked(model)
        case strategy if strategy is not Strategy.PARAMETER_SERVER:  # that one takes any model
            if strategy is Strategy.CENTRAL_STORAGE and keras_of(spec) is Keras.KERAS3:
                from worker_agent.trainer.model.keras3 import check_unscaled

                check_unscaled(model)
            parts = synchronous.parts_of(spec.accumulation, own_parts(model))
            check_own_step(model, parts=parts, jit=spec.jit)
            if spec.jit:
                check_jit(model, replicas=_replicas(spec))
            return parts
    return 1


def _training_rows(assessment: Assessment, recipe: Recipe, parts: int) -> Any:
    """Which worker would read what, and whether it suffices: whoever has fewest sets the measure (`shared_rows`). Where
    the number is not known, only as many are read as make one batch. The rows of one, or all where nobody reads apart.
    """
    spec, facts, workers = assessment.run.spec, assessment.facts, _inputs(assessment.run.spec)
    assessment.stage = 'the program\'s build_dataset(params, "train") fails'
    rows = Rows(recipe, "train")
    division = rows.division(spec.sharding, pipelines=workers)
    readers = range(workers) if division.policy is Policy.FILE else [workers - 1]
    inputs = [rows.for_pipeline(division, pipelines=workers, pipeline=worker) for worker in readers]
    times, batch = workers if division.reads_apart else 1, spec.global_batch_size
    counts = [int(each.cardinality().numpy()) for each in inputs]
    is_known = _UNKNOWN not in counts
    facts["Rows"] = _rows_in_words(min(counts) * times if is_known else None)
    if not is_known:
        assessment.stage = "the training set cannot be read"
        counts = [count_rows(each.take(-(-batch // times))) for each in inputs]
    assessment.stage = "the training set does not suit the job"
    size = size_of(rows=min(counts) * times, global_batch=batch, replicas=_replicas(spec), epochs=1, parts=parts)
    if is_known:
        facts["Steps an epoch"] = _number(size.steps_per_epoch)
    if is_known and (left := size.rows % batch):
        facts["Left over"] = f"{left} rows an epoch, others in each, as they fill no batch of {batch}"
    if workers > 1:
        facts["Shared out"] = division.reason
    if division.files and not division.reads_apart:
        what = f"{division.files} files do not divide by {workers} workers"
        why = "every worker reads all of them and throws most rows away"
        remedy = f"Write a multiple of {workers} files, or let build_dataset take shard=(n, i)"
        assessment.findings.append(Finding(what, why, remedy, blocks=False))
    return inputs[-1]


def _lay_out(spec: JobSpec, recipe: Recipe, model: Any, dataset: Any) -> None:
    """What splits each variable, once all of them are there."""
    from worker_agent.trainer.strategies.tensor import layouts
    from worker_agent.trainer.strategies.tensor.tensor_parallel import symbols

    if not all(layer.built for layer in model._flatten_layers()):
        batch = symbols(dataset.batch(spec.global_batch_size), spec.global_batch_size)
        private("keras.src.backend", "compute_output_spec")(model, batch[0], training=False)
    layouts.model_layouts(model, recipe.layouts(), spec.model_parallel)


def _validation_rows(assessment: Assessment, recipe: Recipe) -> None:
    """As whoever judges by them would ask for them."""
    assessment.stage = 'the program\'s build_dataset(params, "validation") fails'
    rows, apart = Rows(recipe, "validation"), assessment.run.spec.validation == "evaluator"
    if apart:
        check_judged(rows)
    if not rows.exist:
        return
    shards = 1 if apart or not recipe.takes_shard else _inputs(assessment.run.spec)
    dataset = rows.for_shard(shards, shards - 1) if shards > 1 else rows.whole
    known = int(dataset.cardinality().numpy())
    whose = f" for each of {shards} workers" if shards > 1 else ""
    assessment.facts["Validation rows"] = _rows_in_words(known if known >= 0 else None) + whose


def _inputs(spec: JobSpec) -> int:
    """How many processes each read an input of their own."""
    return spec.workers if spec.strategy is Strategy.MULTI_WORKER_MIRRORED else 1


def _replicas(spec: JobSpec) -> int:
    """Those in sync, or a number that divides theirs: on CPUs, a worker of several has one replica only."""
    if spec.strategy is Strategy.PARAMETER_SERVER:
        return 1
    return spec.workers if spec.strategy is Strategy.MULTI_WORKER_MIRRORED else replicas_in_sync(spec)


def _number(count: int) -> str:
    """`3\u202f274\u202f634`, as pages write numbers."""
    return f"{count:,}".replace(",", "\u202f")


def _rows_in_words(count: int | None) -> str:
    return "not known before they are read" if count is None else _number(count)
