"""Builds a job's program once and says what it found: the training process of a plan that is a trial.

It has limits of its own; the answer is `result.json` in the plan's folder: findings, facts in words, and what was
measured. Of a script only what can be seen without running it is looked at.
"""

import ast
import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import psutil

from worker_agent.machine.sandbox import confine
from worker_agent.protocol.findings import Finding
from worker_agent.protocol.job.gang_shape import keras_of
from worker_agent.protocol.job.requirements import lines_of
from worker_agent.protocol.job.workload import MeasuredModel
from worker_agent.protocol.plan import Plan, Trial
from worker_agent.protocol.states import Keras, Kind
from worker_agent.replica.folder import RESULT_FILE
from worker_agent.trainer.recipe import recipe_file
from worker_agent.trainer.script import launcher
from worker_agent.trainer.setup import keras_alias
from worker_agent.trainer.training_run import from_plan
from worker_agent.trainer.trial.assessment import Assessment

MEMORY_BYTES_MIN = 4 << 30
LOWEST_PRIORITY = 19


def build(plan: Plan, trial: Trial) -> int:
    """As far as the program goes: the first thing that fails is a finding, and the last one. Writes the answer; the
    status to leave with. One that is trained stands behind whatever trains here: no job waits for it."""
    offline = confine(
        time_s=plan.launch.spec.time_limit_s,
        memory_bytes=max(MEMORY_BYTES_MIN, psutil.virtual_memory().available // 2),
        nice=LOWEST_PRIORITY if trial.trains or trial.question else 0,
    )
    run = from_plan(plan, cores=os.cpu_count() or 1)
    assessment = Assessment(run, offline=offline, gpus=trial.gpus)
    model: MeasuredModel | None = None
    try:
        if run.spec.kind is Kind.SCRIPT:
            _read_script(assessment)
        else:
            recipe_file.declared(run.entry)
            if keras_of(run.spec) is Keras.TF_KERAS:
                keras_alias.install()
            from worker_agent.trainer.trial import measuring, recipe_trial

            recipe = recipe_trial.build(assessment, trains=trial.trains)
            if trial.question is not None:
                assessment.stage = "the model cannot be measured"
                model = measuring.measure(run, recipe, trial.question)
    except (Exception, SystemExit) as error:
        assessment.fail(error)
    (run.folder / RESULT_FILE).write_bytes(msgspec.json.encode((assessment.findings, assessment.facts, model)))
    return 0


def _read_script(assessment: Assessment) -> None:
    """Its packages, looked for and not imported."""
    run = assessment.run
    assessment.stage = f"the file {run.entry.name} cannot be read"
    sys.path[:0] = [str(run.entry.parent), str(launcher.working_folder(run)), str(run.code)]
    missing = [name for name in _imports(run.entry) if importlib.util.find_spec(name) is None]
    if missing and not lines_of(run.spec.requirements):
        what = f"the file {run.entry.name} imports {', '.join(missing)}, which this node does not have"
        remedy = "Name the package among the job's packages, or install it on every node"
        assessment.findings.append(Finding(what, "the import would fail", remedy, blocks=False))
    assessment.facts["Script"] = "read, not run"


def _imports(entry: Path) -> Iterator[str]:
    """The packages that a program's first file imports at its top level, without those under `try`."""
    for node in ast.parse(entry.read_bytes(), filename=str(entry)).body:
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [node.module]
        yield from dict.fromkeys(name.partition(".")[0] for name in names)
