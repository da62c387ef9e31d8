"""Tries a recipe: model and rows are held against what the job asks for, by the rules of the trainer's own rooms.

Imported once it is settled which Keras this process holds.
"""

from typing import Any

from worker_agent.protocol.findings import Finding
from worker_agent.protocol.job.choices import Validator
from worker_agent.protocol.job.gang_shape import least_replicas, parts_of, replicas_in_sync
from worker_agent.protocol.job.strategies import STRATEGIES
from worker_agent.trainer.loop.rate import rate_of
from worker_agent.trainer.model.compiled_model import check_model
from worker_agent.trainer.recipe import recipe_file
from worker_agent.trainer.recipe.data import Rows, check_judged, count_rows
from worker_agent.trainer.recipe.division import Policy
from worker_agent.trainer.recipe.recipe_file import Recipe
from worker_agent.trainer.recipe.run_size import Size, size_of
from worker_agent.trainer.setup import runtime
from worker_agent.trainer.strategies.interface import check_of
from worker_agent.trainer.strategies.mirrored import synchronous
from worker_agent.trainer.trial.assessment import Assessment


def build(assessment: Assessment, *, trains: bool) -> Recipe:
    """Load the recipe, build its model as under one device, and look at its rows; the recipe. With `trains`, one
    replica's first batch is trained, step by step in Python, so that an error has the user's own line."""
    run, spec = assessment.run, assessment.run.spec
    runtime.configure(run)
    runtime.seed_everything(spec.seed)
    runtime.set_precision(spec.precision)
    assessment.watch()
    recipe = recipe_file.load(run.entry, run.code, spec.params)
    assessment.facts["Keras"] = runtime.keras_in_words()
    assessment.stage = "the program's build_model() fails"
    model = check_model(recipe.model())
    assessment.stage = 'the program\'s build_dataset(params, "train") fails'
    rows = Rows(recipe, "train")
    workers = spec.workers if "sharding" in STRATEGIES[spec.strategy].reads else 1
    division = rows.division(spec.sharding, pipelines=workers)
    numbers = range(workers) if division.policy is Policy.FILE else [workers - 1]
    inputs = [rows.for_pipeline(division, pipelines=workers, pipeline=number) for number in numbers]
    assessment.stage = "the model does not suit the job"
    parts = (check_of(run) or synchronous.check)(spec, recipe, model, inputs[-1])
    rate_of(run, model.optimizer, Size(rows=1, batch=1, steps_per_epoch=1, total_steps=1), replicas=1)
    _count(assessment, inputs, times=workers if division.reads_apart else 1, parts=parts)
    if workers > 1:
        assessment.facts["Shared out"] = division.reason
    if division.files and not division.reads_apart:
        what = f"{division.files} files do not divide by {workers} workers"
        why = "every worker reads all of them and discards most rows"
        remedy = f"Write a multiple of {workers} files, or let build_dataset take shard=(n, i)"
        assessment.findings.append(Finding(what, why, remedy, blocks=False))
    if trains:
        assessment.stage = "the model cannot be trained on the first batch"
        batch = max(1, spec.global_batch_size // (replicas_in_sync(spec) * parts_of(spec)))
        model.run_eagerly = True
        model.fit(inputs[-1].batch(batch).take(1), epochs=1, verbose=0)
        assessment.facts["First batch"] = f"{batch} rows, one step done"
    if model.built:
        assessment.facts["Parameters"] = _number(int(model.count_params()))
    _validation_rows(assessment, recipe, workers)
    return recipe


def _count(assessment: Assessment, inputs: list[Any], *, times: int, parts: int) -> None:
    """Rows against the batch: whoever has fewest sets the measure (`shared_rows`). Where the number is not known, only
    as many are read as make one batch."""
    spec, facts = assessment.run.spec, assessment.facts
    batch, counts = spec.global_batch_size, [int(each.cardinality().numpy()) for each in inputs]
    facts["Rows"] = _rows_in_words(min(counts) * times)
    is_known = min(counts) >= 0
    if not is_known:
        assessment.stage = "the training set cannot be read"
        counts = [count_rows(each.take(-(-batch // times))) for each in inputs]
    assessment.stage = "the training set does not suit the job"
    size = size_of(spec, rows=min(counts) * times, replicas=least_replicas(spec), parts=parts)
    if is_known:
        facts["Steps per epoch"] = _number(size.steps_per_epoch)
        if left := size.rows % batch:
            facts["Left over"] = f"{left} rows an epoch, others in each, as they fill no batch of {batch}"


def _validation_rows(assessment: Assessment, recipe: Recipe, workers: int) -> None:
    """As whoever judges by them would ask for them."""
    assessment.stage = 'the program\'s build_dataset(params, "validation") fails'
    rows, apart = Rows(recipe, "validation"), assessment.run.spec.validation == Validator.EVALUATOR
    if apart:
        check_judged(rows)
    if not rows.exist:
        return
    shards = 1 if apart or not recipe.takes_shard else workers
    known = int(rows.for_shard(shards, shards - 1).cardinality().numpy())
    whose = f" for each of {shards} workers" if shards > 1 else ""
    assessment.facts["Validation rows"] = _rows_in_words(known) + whose


def _number(count: int) -> str:
    """`3\u202f274\u202f634`, as pages write numbers."""
    return f"{count:,}".replace(",", "\u202f")


def _rows_in_words(count: int) -> str:
    """`count` as TensorFlow tells it: negative where it does not know."""
    return _number(count) if count >= 0 else "not known before they are read"
