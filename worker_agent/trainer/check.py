"""Builds a job's program once and says what it found: `python -m worker_agent.trainer.check FOLDER`, in a sandbox.

FOLDER holds a plan (of no replica) and the code. A recipe is loaded as under one device, its model is built and trained
by one replica's first batch, step by step in Python, so that an error has the user's own line; its rows, files and
batches are held against what the job asks for. Of a script only what can be seen without running it is looked at. The
answer is `FOLDER/result.json`: findings, and facts in words.
"""

import ast
import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from worker_agent.folder import PLAN_FILE
from worker_agent.protocol import codec
from worker_agent.protocol.findings import Finding
from worker_agent.protocol.job_spec import keras_of, parts_of, replicas_in_sync
from worker_agent.protocol.requirements import lines_of
from worker_agent.protocol.states import Keras, Kind, Strategy
from worker_agent.sandbox import NO_NETWORK
from worker_agent.trainer import keras_alias, program
from worker_agent.trainer.failure import failure_of
from worker_agent.trainer.outcome import TrainingFailed
from worker_agent.trainer.process import leave
from worker_agent.trainer.run import Run, from_plan

RESULT_FILE = "result.json"

# Strategies whose worker processes each read an input of their own.
_MANY_INPUTS = frozenset({Strategy.MULTI_WORKER_MIRRORED, Strategy.PARAMETER_SERVER})
_NETWORK_WORDS = ("URLError", "gaierror", "URL fetch failure", "Network is unreachable", "name resolution")
_REMEDY = "Correct the program; what it raised is its own"
_UNSUITED = "the training set does not suit the job"
_UNFIT = "the model does not suit the job"
_REMEDIES = {
    _UNSUITED: "Change that setting of the job, or the data",
    _UNFIT: "Change that setting of the job, or the model",
}


class Check:
    """One look at a program: `findings` and `facts` grow as far as it comes; `stage` is what is being tried."""

    def __init__(self, run: Run) -> None:
        self.findings: list[Finding] = []
        self.facts: dict[str, str] = {}
        self._run = run
        self._spec = run.spec
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
        program.check(self._run.entry)
        if keras_of(self._spec) is Keras.TF_KERAS:
            keras_alias.install()
        from worker_agent.trainer import runtime
        from worker_agent.trainer.data import Rows
        from worker_agent.trainer.loop.learner import check_model
        from worker_agent.trainer.strategies.pipe.stages import Plan

        runtime.configure(self._run)
        runtime.seed_everything(self._spec.seed)
        runtime.set_precision(self._spec.precision)
        recipe = program.load(self._run.entry, self._run.code, self._spec.params)
        self.facts["Keras"] = runtime.keras_in_words()
        self._stage = "the program's build_model() fails"
        model = check_model(recipe.model())
        self._settings(model)
        if self._spec.strategy is Strategy.TENSOR_PARALLEL:
            self._stage = "the program's build_layouts() fails"
            recipe.layouts()
        if self._spec.strategy is Strategy.PIPELINE:
            self._stage = "the program's build_stages() fails"
            places = [f"stage {place}" for place in range(self._spec.workers * self._spec.devices_per_worker)]
            Plan(recipe.stages(len(places)), places).cut(model)
        self._stage = 'the program\'s build_dataset(params, "train") fails'
        rows = Rows(recipe, "train")
        dataset = rows.whole
        self._stage = _UNSUITED
        self._count(dataset)
        self._divide(rows)
        self._stage = "the model cannot be trained on the first batch"
        batch = max(1, self._spec.global_batch_size // (replicas_in_sync(self._spec) * parts_of(self._spec)))
        model.run_eagerly = True
        model.fit(dataset.batch(batch).take(1), epochs=1, verbose=0)
        self.facts["Parameters"] = _number(int(model.count_params()))
        self.facts["First batch"] = f"{batch} rows, one step done"
        self._stage = 'the program\'s build_dataset(params, "validation") fails'
        validation = Rows(recipe, "validation")
        if validation.exist:
            self.facts["Validation rows"] = _rows_in_words(int(validation.whole.cardinality().numpy()))

    def _settings(self, model: Any) -> None:
        """What the loop would refuse of this model with the job's settings."""
        from worker_agent.trainer.loop.rate import rate_of
        from worker_agent.trainer.loop.step import check_own_step
        from worker_agent.trainer.size import Size

        self._stage = _UNFIT
        if self._spec.strategy is Strategy.TENSOR_PARALLEL:
            from worker_agent.trainer.strategies.tensor import variables

            variables.checked(model)
        check_own_step(model, parts=self._spec.accumulation, jit=self._spec.jit)
        size = Size(rows=1, batch=1, steps_per_epoch=1, epochs=1)
        rate_of(self._run, getattr(model.optimizer, "inner_optimizer", model.optimizer), size, replicas=2)

    def _count(self, dataset: Any) -> None:
        """Rows against the batch, where the dataset knows them: reading it through may take long."""
        from worker_agent.trainer.data import count_rows
        from worker_agent.trainer.size import size_of

        rows = int(dataset.cardinality().numpy())
        self.facts["Rows"] = _rows_in_words(rows)
        if rows == -2:  # tf.data.UNKNOWN_CARDINALITY
            return
        batch = self._spec.global_batch_size
        size = size_of(rows=count_rows(dataset), global_batch=batch, replicas=1, epochs=1)
        self.facts["Steps an epoch"] = _number(size.steps_per_epoch)
        if left := rows % batch:
            self.facts["Left over"] = f"{left} rows an epoch, others in each, as they fill no batch of {batch}"

    def _divide(self, rows: Any) -> None:
        """Which worker would read what, and the files against the workers."""
        workers = self._spec.workers
        if self._spec.strategy not in _MANY_INPUTS or workers == 1:
            return
        division = rows.division(self._spec.sharding, pipelines=workers)
        self.facts["Shared out"] = division.reason
        if division.reads_apart:
            rows.of_pipeline(division, pipelines=workers, pipeline=workers - 1)
        elif division.files:
            what = f"{division.files} files do not divide by {workers} workers"
            why = "every worker reads all of them and throws most rows away"
            remedy = f"Write a multiple of {workers} files, or let build_dataset take shard=(n, i)"
            self.findings.append(Finding(what, why, remedy, blocks=False))

    def _script(self) -> None:
        """Its packages, looked for and not imported."""
        self._stage = f"the file {self._run.entry.name} cannot be read"
        sys.path[:0] = [str(self._run.entry.parent), str(self._run.code / self._spec.working_dir), str(self._run.code)]
        if self._spec.working_dir and not (self._run.code / self._spec.working_dir).is_dir():
            raise TrainingFailed(f"The program has no folder {self._spec.working_dir}, its working directory.")
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
        if os.environ.get(NO_NETWORK) and any(words in message for words in _NETWORK_WORDS):
            why = f"it wanted the network, which this check does not have ({message})"
            what = self._stage.replace("fails", "was not tried to its end")
            return Finding(what, why, "Nothing, if its nodes have the network", blocks=False)
        return Finding(self._stage, message, _REMEDIES.get(self._stage, _REMEDY))


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


def _rows_in_words(count: int) -> str:
    return _number(count) if count >= 0 else "not known before they are read"


def main(folder: Path) -> int:
    """Look, and write the answer."""
    plan = codec.decode_plan((folder / PLAN_FILE).read_bytes())
    check = Check(from_plan(plan, cores=os.cpu_count() or 1))
    check.look()
    (folder / RESULT_FILE).write_bytes(msgspec.json.encode((check.findings, check.facts)))
    return 0


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    leave(main(Path(sys.argv[1])))
