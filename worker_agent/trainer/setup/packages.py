"""Packages that a job requires, beside those of the agent: installed once per node and set of requirements, and put on
the import path before anything else of the job runs.

pip works out what is missing beside the agent's own packages, and that alone is installed, from wheels of the index
that this node's pip is configured with, into a folder named by the requirements' digest. Replicas that come at once
wait for the first. Folders that nothing used for a month go. Runs inside the training process, so that its output is in
the job's log, and a stop or the time limit ends it like anything else.
"""

import contextlib
import json
import os
import shutil
import site
import subprocess
import sys
import time
from pathlib import Path

from worker_agent.machine.files import locked
from worker_agent.protocol.job.requirements import digest_of, lines_of, problem_of
from worker_agent.protocol.records import PhaseName
from worker_agent.trainer.emit import Emitter, say
from worker_agent.trainer.outcome import TrainingFailed
from worker_agent.trainer.training_run import TrainingRun

LIMIT_S = 900.0
KEPT_S = 30 * 86_400.0

_READY = ".ready"


def provide(run: TrainingRun, emitter: Emitter) -> None:
    """Put what the job requires on the import path, of this process and of those it starts.

    Raises `TrainingFailed` with pip's own reason.
    """
    text = run.spec.requirements
    if not lines_of(text):
        return
    if problem := problem_of(text):
        raise TrainingFailed(f"Requirements: {problem}.")
    emitter.phase(PhaseName.INSTALLING, ", ".join(lines_of(text))[:200])
    root = run.environments or run.folder / "environments"
    layer = root / digest_of(text)
    root.mkdir(parents=True, exist_ok=True, mode=0o700)
    with locked(root / f"{layer.name}.lock", wait=True):
        if not (layer / _READY).exists():
            _prune(root)
            _install(lines_of(text), layer)
        os.utime(layer)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(layer), os.environ.get("PYTHONPATH")]))
    sys.path.insert(0, str(layer))
    site.addsitedir(str(layer))


def _install(lines: list[str], layer: Path) -> None:
    """Two calls of pip: what is missing, and that into the folder. A folder without `_READY` was cut off."""
    began = time.monotonic()
    fresh = layer.with_suffix(".new")
    for old in (fresh, layer):
        shutil.rmtree(old, ignore_errors=True)
    fresh.mkdir(mode=0o700)
    wanted = fresh / "requirements.txt"
    wanted.write_text("\n".join(lines) + "\n")
    report = fresh / "report.json"
    _pip("install", "--dry-run", "--quiet", "--report", str(report), "--requirement", str(wanted))
    missing = [
        f"{item['metadata']['name']}=={item['metadata']['version']}"
        for item in json.loads(report.read_text())["install"]
    ]
    if missing:
        say(f"trainyard: installing {', '.join(missing)}")
        _pip("install", "--quiet", "--no-deps", "--target", str(fresh), *missing)
    report.unlink()
    (fresh / _READY).touch()
    fresh.rename(layer)
    packages = "1 package" if len(missing) == 1 else f"{len(missing)} packages"
    say(f"trainyard: {packages} ready after {time.monotonic() - began:.1f} s")


def _pip(*arguments: str) -> None:
    """pip of this interpreter, with its own configuration; only wheels, so that nothing is run to install it."""
    command = [sys.executable, "-m", "pip", *arguments, "--only-binary", ":all:", "--no-input"]
    environment = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    try:
        done = subprocess.run(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LIMIT_S
        )
    except subprocess.TimeoutExpired as late:
        raise TrainingFailed(f"The requirements were not installed within {LIMIT_S:g} s.") from late
    sys.stdout.write(done.stdout)
    if done.returncode:
        errors = [line.removeprefix("ERROR: ") for line in done.stdout.splitlines() if line.startswith("ERROR: ")]
        reason = errors[-1] if errors else (done.stdout.strip().splitlines() or ["pip ended without a message"])[-1]
        raise TrainingFailed(f"The requirements could not be installed: {reason.rstrip('.')}.")


def _prune(root: Path) -> None:
    for folder in root.iterdir():
        with contextlib.suppress(OSError):
            if folder.is_dir() and folder.stat().st_mtime < time.time() - KEPT_S:
                shutil.rmtree(folder, ignore_errors=True)
