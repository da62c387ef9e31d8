"""Builds a job's program once and says what it found: `python -m worker_agent.trainer.trial.build FOLDER`, in a
sandbox.

FOLDER holds a plan (of no replica) and the code. A recipe is loaded as under one device, its model is built, and model
and rows are held against what the job asks for, by the rules of the trainer's own rooms. Unless the trial leaves it
out, one replica's first batch is trained, step by step in Python, so that an error has the user's own line. Of a script
only what can be seen without running it is looked at. The answer is `FOLDER/result.json`: findings, and facts in words.

A finding is certain where one of those rules refuses, and nothing that it saw depends on the sandbox. Its `why` is then
the sentence with which the training itself would end, without the full stop; what that sentence says to do, behind a
colon, is the finding's remedy.
"""

import ast
import importlib.util
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from worker_agent.machine.sandbox import NO_NETWORK
from worker_agent.protocol import codec
from worker_agent.protocol.findings import Finding
from worker_agent.protocol.job.job_spec import keras_of, parts_of, replicas_in_sync
from worker_agent.protocol.job.requirements import lines_of
from worker_agent.protocol.states import Keras, Kind, Strategy
from worker_agent.replica.folder import PLAN_FILE, RESULT_FILE
from worker_agent.trainer.failure import failure_of
from worker_agent.trainer.outcome import NodeLacks, TrainingFailed, leave
from worker_agent.trainer.recipe import recipe_file
from worker_agent.trainer.script import launcher
from worker_agent.trainer.setup import keras_alias
from worker_agent.trainer.training_run import TrainingRun, from_plan
from worker_agent.trainer.trial.surroundings import Surroundings

_UNKNOWN = -2  # tf.data.UNKNOWN_CARDINALITY
_NETWORK_WORDS = ("URLError", "gaierror", "URL fetch failure", "Network is unreachable", "name resolution")
_REMEDY = "Correct the program; what it raised is its own"
_REMEDY_REFUSED = "Correct the program, or what the job asks of it"
_UNSUITED = "the training set does not suit the job"
_UNFIT = "the model does not suit the job"
# Where a sentence of the trainer's begins to say what to do.
_WHAT_TO_DO = re.compile(r": (?=(?:call|choose|give|install|leave|let|set|split|use) )")


class Check:
    """One look at a program: `findings` and `facts` grow as far as it comes; `stage` is what is being tried.

    `trains` asks for its first batch to be trained; `offline` says that this process has no network, `gpus` that the
    node has GPUs.
    """

    def __init__(self, run: TrainingRun, *, trains: bool = True, offline: bool = False, gpus: bool = True) -> None:
        self.findings: list[Finding] = []
        self.facts: dict[str, str] = {}
        self._run = run
        self._spec = run.spec
        self._trains = trains
        self._offline = offline
        self._surroundings = Surroundings(run.code, gpus=gpus)
        self._stage = "the program"

    def look(self) -> None:
        """As far as the program goes; the first thing that fails is a finding, and the last one."""
        try:
            if self._spec.kind is Kind.SCRIPT:
                self._script()
            else:
                self._recipe()
        except (Exception, SystemExit) as error:
            self.findings.append(self._failed(error))

    def _recipe(self) -> None:
        self._stage = f"the file {self._run.entry.name} cannot be loaded"
        recipe_file.check(self._run.entry)
        if keras_of(self._spec) is Keras.TF_KERAS:
            keras_alias.install()
        from worker_agent.trainer.loop.compiled_model import check_model
        from worker_agent.trainer.recipe.data import Rows
        from worker_agent.trainer.setup import runtime

        runtime.configure(self._run)
        runtime.seed_everything(self._spec.seed)
        runtime.set_precision(self._spec.precision)
        self._surroundings.watch()
        recipe = recipe_file.load(self._run.entry, self._run.code, self._spec.params)
        self.facts["Keras"] = runtime.keras_in_words()
        stages = self._stages(recipe) if self._spec.strategy is Strategy.PIPELINE else None
        self._stage = "the program's build_model() fails"
        model = check_model(recipe.model())
        parts = self._settings(model)
        if stages is not None:
            self._stage = "the model cannot be cut into stages"
            stages.cut(model)
        dataset = self._divide(recipe, Rows(recipe, "train"), parts=parts)
        if self._spec.strategy is Strategy.TENSOR_PARALLEL:
            self._lay_out(recipe, model, dataset)
        if self._trains:
            self._train(model, dataset)
        if model.built:
            self.facts["Parameters"] = _number(int(model.count_params()))
        self._validate(recipe, Rows(recipe, "validation"))

    def _stages(self, recipe: recipe_file.Recipe) -> Any:
        """One for each device of the gang."""
        from worker_agent.trainer.strategies.pipe.stages import Plan

        self._stage = "the program's build_stages() fails"
        places = [f"stage {place}" for place in range(self._spec.workers * self._spec.devices_per_worker)]
        return Plan(recipe.stages(len(places)), places)

    def _settings(self, model: Any) -> int:
        """What the job's strategy would refuse of this model; the parts in which the loop would compute a step."""
        from worker_agent.trainer.loop.compiled_model import own_parts
        from worker_agent.trainer.loop.rate import rate_of
        from worker_agent.trainer.loop.step import check_jit, check_own_step
        from worker_agent.trainer.recipe.run_size import Size
        from worker_agent.trainer.strategies.mirrored import synchronous

        self._stage = _UNFIT
        parts = 1
        match self._spec.strategy:
            case Strategy.TENSOR_PARALLEL:
                from worker_agent.trainer.strategies.tensor import variables

                variables.checked(model)
            case Strategy.PIPELINE:
                from worker_agent.trainer.strategies.pipe import learner

                learner.checked(model)
            case Strategy.PARAMETER_SERVER:
                pass  # it takes any model
            case strategy:
                if strategy is Strategy.CENTRAL_STORAGE and keras_of(self._spec) is Keras.KERAS3:
                    from worker_agent.trainer.loop.keras3 import check_unscaled

                    check_unscaled(model)
                parts = synchronous.parts_of(self._spec.accumulation, own_parts(model))
                check_own_step(model, parts=parts, jit=self._spec.jit)
                if self._spec.jit:
                    check_jit(model, is_shared=strategy is Strategy.CENTRAL_STORAGE, replicas=self._replicas)
        size = Size(rows=1, batch=1, steps_per_epoch=1, epochs=1)
        rate_of(self._run, getattr(model.optimizer, "inner_optimizer", model.optimizer), size, replicas=1)
        return parts

    def _divide(self, recipe: recipe_file.Recipe, rows: Any, *, parts: int) -> Any:
        """Which worker would read what, and whether it suffices; the rows of one, or all where nobody reads apart."""
        from worker_agent.trainer.recipe.division import Policy

        workers = self._inputs
        gives_shards = workers > 1 and recipe.takes_shard and self._spec.sharding == "auto"
        self._stage = 'the program\'s build_dataset(params, "train") fails'
        dataset = rows.of_shard(workers, workers - 1) if gives_shards else rows.whole
        self._stage = _UNSUITED
        division = rows.division(self._spec.sharding, pipelines=workers)
        inputs = [dataset]
        if division.policy is Policy.FILE:
            inputs = [rows.of_pipeline(division, pipelines=workers, pipeline=worker) for worker in range(workers)]
        self._count(inputs, times=workers if division.reads_apart else 1, parts=parts)
        if workers > 1:
            self.facts["Shared out"] = division.reason
        if division.files and not division.reads_apart:
            what = f"{division.files} files do not divide by {workers} workers"
            why = "every worker reads all of them and throws most rows away"
            remedy = f"Write a multiple of {workers} files, or let build_dataset take shard=(n, i)"
            self.findings.append(Finding(what, why, remedy, blocks=False))
        return inputs[-1]

    def _count(self, inputs: list[Any], *, times: int, parts: int) -> None:
        """Rows against the batch; whoever has fewest sets the measure (`shared_rows`). Where the number is not known,
        only as many are read as make one batch."""
        from worker_agent.trainer.recipe.run_size import size_of

        known = [int(each.cardinality().numpy()) for each in inputs]
        rows = None if _UNKNOWN in known else min(known) * times
        self.facts["Rows"] = _rows_in_words(rows)
        batch = self._spec.global_batch_size
        told = self._first_rows(inputs, -(-batch // times)) * times if rows is None else rows
        size = size_of(rows=told, global_batch=batch, replicas=self._replicas, epochs=1, parts=parts)
        if rows is None:
            return
        self.facts["Steps an epoch"] = _number(size.steps_per_epoch)
        if left := rows % batch:
            self.facts["Left over"] = f"{left} rows an epoch, others in each, as they fill no batch of {batch}"

    def _first_rows(self, inputs: list[Any], count: int) -> int:
        """So many, or the fewest that one has; it may be the program's own generator that gives them."""
        from worker_agent.trainer.recipe.data import count_rows

        stage, self._stage = self._stage, "the training set cannot be read"
        found = min(count_rows(each.take(count)) for each in inputs)
        self._stage = stage
        return found

    def _lay_out(self, recipe: recipe_file.Recipe, model: Any, dataset: Any) -> None:
        """What splits each variable, once all of them are there."""
        from worker_agent.trainer.loop.compiled_model import private
        from worker_agent.trainer.strategies.tensor import layouts
        from worker_agent.trainer.strategies.tensor.tensor_parallel import symbols

        self._stage = "the model cannot be laid out"
        rows = self._spec.global_batch_size
        if not all(layer.built for layer in model._flatten_layers()):
            batch = symbols(dataset.batch(rows), rows)
            private("keras.src.backend", "compute_output_spec")(model, batch[0], training=False)
        layouts.of_model(model, recipe.layouts(), self._spec.model_parallel)

    def _train(self, model: Any, dataset: Any) -> None:
        self._stage = "the model cannot be trained on the first batch"
        rows = max(1, self._spec.global_batch_size // (replicas_in_sync(self._spec) * parts_of(self._spec)))
        model.run_eagerly = True
        model.fit(dataset.batch(rows).take(1), epochs=1, verbose=0)
        self.facts["First batch"] = f"{rows} rows, one step done"

    def _validate(self, recipe: recipe_file.Recipe, rows: Any) -> None:
        """The validation rows, as whoever judges by them would ask for them."""
        from worker_agent.trainer.recipe.data import check_judged

        self._stage = 'the program\'s build_dataset(params, "validation") fails'
        apart = self._spec.validation == "evaluator"
        if apart:
            check_judged(rows)
        if not rows.exist:
            return
        shards = 1 if apart or not recipe.takes_shard else self._inputs
        dataset = rows.of_shard(shards, shards - 1) if shards > 1 else rows.whole
        known = int(dataset.cardinality().numpy())
        whose = f" for each of {shards} workers" if shards > 1 else ""
        self.facts["Validation rows"] = _rows_in_words(known if known >= 0 else None) + whose

    @property
    def _inputs(self) -> int:
        """How many processes each read an input of their own."""
        return self._spec.workers if self._spec.strategy is Strategy.MULTI_WORKER_MIRRORED else 1

    @property
    def _replicas(self) -> int:
        """Those in sync, or a number that divides theirs: on CPUs, a worker of several has one replica only."""
        match self._spec.strategy:
            case Strategy.MULTI_WORKER_MIRRORED:
                return self._spec.workers
            case Strategy.PARAMETER_SERVER:
                return 1
            case _:
                return replicas_in_sync(self._spec)

    def _script(self) -> None:
        """Its packages, looked for and not imported."""
        self._stage = f"the file {self._run.entry.name} cannot be read"
        sys.path[:0] = [str(self._run.entry.parent), str(launcher.working_folder(self._run)), str(self._run.code)]
        missing = [name for name in _imports(self._run.entry) if importlib.util.find_spec(name) is None]
        if missing and not lines_of(self._spec.requirements):
            what = f"the file {self._run.entry.name} imports {', '.join(missing)}, which this node does not have"
            remedy = "Name the package among the job's packages, or install it on every node"
            self.findings.append(Finding(what, "the import would fail", remedy, blocks=False))
        self.facts["Script"] = "read, not run"

    def _failed(self, error: BaseException) -> Finding:
        if isinstance(error, SystemExit):
            return Finding(self._stage, f"it called sys.exit({error.code!r})", _REMEDY)
        message = failure_of(error, code=self._run.code, gang_size=1).message.rstrip(".")
        if self._offline and any(words in message for words in _NETWORK_WORDS):
            why = f"it wanted the network, which this check does not have ({message})"
            what = self._stage.replace("fails", "was not tried to its end")
            return Finding(what, why, "Nothing, if its nodes have the network", blocks=False)
        if not isinstance(error, TrainingFailed):
            return Finding(self._stage, message, _REMEDY)
        why, *remedy = _WHAT_TO_DO.split(message, maxsplit=1)
        do = remedy[0][0].upper() + remedy[0][1:] if remedy else _REMEDY_REFUSED
        what = self._stage.replace("fails", "does not suit the job")
        return Finding(what, why, do, certain=not self._may_differ(error))

    def _may_differ(self, error: BaseException) -> bool:
        """Whether the training might have seen something else than this process."""
        seen = self._surroundings
        looked = seen.looked_at_place or (self._offline and seen.looked_outside)
        return looked or isinstance(error, NodeLacks) or isinstance(error.__cause__, OSError)


def _imports(entry: Path) -> Iterator[str]:
    """The packages that a program's first file imports at its top level, without those under `try`."""
    for node in ast.parse(entry.read_bytes(), filename=str(entry)).body:
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [node.module]
        yield from dict.fromkeys(name.partition(".")[0] for name in names)


def _number(count: int) -> str:
    """`3\u202f274\u202f634`, as pages write numbers."""
    return f"{count:,}".replace(",", "\u202f")


def _rows_in_words(count: int | None) -> str:
    return "not known before they are read" if count is None else _number(count)


def main(folder: Path) -> int:
    """Look, and write the answer."""
    plan = codec.decode_plan((folder / PLAN_FILE).read_bytes())
    offline = bool(os.environ.pop(NO_NETWORK, ""))  # the program sees what it would see in training
    trains = plan.trial is None or plan.trial.trains
    gpus = plan.trial is None or plan.trial.gpus
    check = Check(from_plan(plan, cores=os.cpu_count() or 1), trains=trains, offline=offline, gpus=gpus)
    check.look()
    (folder / RESULT_FILE).write_bytes(msgspec.json.encode((check.findings, check.facts)))
    return 0


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    leave(main(Path(sys.argv[1])))
