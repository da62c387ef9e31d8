"""Builds a job's program once and says what it found: `python -m worker_agent.trainer.trial.build FOLDER`, in a
sandbox.

FOLDER holds a plan (of no replica) and the code. Of a script only what can be seen without running it is looked at. The
answer is `FOLDER/result.json`: findings, and facts in words.
"""

import ast
import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec

from worker_agent.machine.sandbox import NO_NETWORK
from worker_agent.protocol import codec
from worker_agent.protocol.findings import Finding
from worker_agent.protocol.job.gang_shape import keras_of
from worker_agent.protocol.job.requirements import lines_of
from worker_agent.protocol.states import Keras, Kind
from worker_agent.replica.folder import PLAN_FILE, RESULT_FILE
from worker_agent.trainer.outcome import leave
from worker_agent.trainer.recipe import recipe_file
from worker_agent.trainer.script import launcher
from worker_agent.trainer.setup import keras_alias
from worker_agent.trainer.training_run import from_plan
from worker_agent.trainer.trial.judgement import Trial


def main(folder: Path) -> int:
    """As far as the program goes: the first thing that fails is a finding, and the last one. Writes the answer."""
    plan = codec.decode_plan((folder / PLAN_FILE).read_bytes())
    offline = bool(os.environ.pop(NO_NETWORK, ""))  # the program sees what it would see in training
    run, asked = from_plan(plan, cores=os.cpu_count() or 1), plan.trial
    trial = Trial(run, offline=offline, gpus=asked is None or asked.gpus)
    try:
        if run.spec.kind is Kind.SCRIPT:
            _read_script(trial)
        else:
            recipe_file.check(run.entry)
            if keras_of(run.spec) is Keras.TF_KERAS:
                keras_alias.install()
            from worker_agent.trainer.trial import recipe_trial

            recipe_trial.build(trial, trains=asked is None or asked.trains)
    except (Exception, SystemExit) as error:
        trial.fail(error)
    (folder / RESULT_FILE).write_bytes(msgspec.json.encode((trial.findings, trial.facts)))
    return 0


def _read_script(trial: Trial) -> None:
    """Its packages, looked for and not imported."""
    run = trial.run
    trial.stage = f"the file {run.entry.name} cannot be read"
    sys.path[:0] = [str(run.entry.parent), str(launcher.working_folder(run)), str(run.code)]
    missing = [name for name in _imports(run.entry) if importlib.util.find_spec(name) is None]
    if missing and not lines_of(run.spec.requirements):
        what = f"the file {run.entry.name} imports {', '.join(missing)}, which this node does not have"
        remedy = "Name the package among the job's packages, or install it on every node"
        trial.findings.append(Finding(what, "the import would fail", remedy, blocks=False))
    trial.facts["Script"] = "read, not run"


def _imports(entry: Path) -> Iterator[str]:
    """The packages that a program's first file imports at its top level, without those under `try`."""
    for node in ast.parse(entry.read_bytes(), filename=str(entry)).body:
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [node.module]
        yield from dict.fromkeys(name.partition(".")[0] for name in names)


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    leave(main(Path(sys.argv[1])))
