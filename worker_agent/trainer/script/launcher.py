"""Any Python program as one replica of a job (kind "script"): run as it stands, in every role that runs it.

The process gets what a person would set by hand: TF_CONFIG, the devices, the Keras, the working directory, the
arguments; from there on it is `python entry arguments`. Added from outside are a meeting of the gang before anything
starts (a peer that never comes is named instead of waited for), as many logical CPUs as the job has devices, the
metrics (`fit.py`, `events.py`, `trainyard.log`), and for parameter servers the `tf.distribute.Server` of roles that
the script has no branch for (`worker_agent/protocol/job/script/script_text.py` has the rule). Called by
`process.conduct`.
"""

import os
from pathlib import Path
from time import monotonic
from types import ModuleType

from trainyard import telling
from worker_agent.machine import tpu_address
from worker_agent.protocol.job.archive import ArchiveRefused, safe_parts
from worker_agent.protocol.job.gang_shape import keras_of
from worker_agent.protocol.job.script.script_text import ScriptInfo, inspect_script, runs_script
from worker_agent.protocol.plan import SHARED_FOLDER
from worker_agent.protocol.records import PhaseName
from worker_agent.protocol.states import DeviceKind, Keras, Strategy
from worker_agent.trainer.emit import Emitter, say
from worker_agent.trainer.failure import tpu_silent
from worker_agent.trainer.outcome import ExitCode, TrainingFailed
from worker_agent.trainer.script import main_module
from worker_agent.trainer.script.events import EventFiles
from worker_agent.trainer.script.facts import ScriptFacts
from worker_agent.trainer.script.fit import Fits
from worker_agent.trainer.script.fitpatch import correct_fit
from worker_agent.trainer.script.imports import when_imported
from worker_agent.trainer.script.lines import Lines
from worker_agent.trainer.script.script_report import ScriptReport
from worker_agent.trainer.setup import dtensor_clients, keras_alias, packages, rendezvous
from worker_agent.trainer.setup.stopping import StopSignal
from worker_agent.trainer.training_run import TrainingRun

TPU_RETRY_S = 0.5
FILES_READ_MAX = 300
FILE_BYTES_MAX = 1_000_000


def sets_environment(run: TrainingRun) -> bool:
    """Whether the program sets variables itself that count before TensorFlow is imported; never raises."""
    try:
        return inspect_script(_sources(run)).sets_environment
    except OSError:
        return False


def launch(run: TrainingRun, emitter: Emitter, stop: StopSignal) -> int:
    """Run the script to its end; the status that it leaves with. Raises what it raises."""
    folder = working_folder(run)
    packages.provide(run, emitter)
    info = inspect_script(_sources(run))
    if info.problems:
        raise TrainingFailed(f"{info.problems[0]}.")
    _meet(run, emitter, stop)
    if run.spec.tpu:
        _find_tpu(run, emitter, stop)
    report = ScriptReport(emitter, leads=run.leads)
    facts = ScriptFacts(run, report)
    if not runs_script(run.role, run.spec, info):
        _serve(emitter, stop)
    events = EventFiles(report, [folder, Path(os.environ.get("TMPDIR", folder))])
    lines = _listen(report)
    if info.dtensor_meets and run.spec.strategy is Strategy.TENSOR_PARALLEL:
        # A program that makes no mesh over them would wait in TensorFlow for the others without end.
        for name, value in dtensor_clients.environment(run).items():
            os.environ.setdefault(name, value)
    _reach_libraries(run, Fits(report), events)
    _make_shared_folder()
    emitter.phase(PhaseName.TRAINING, _command_line(run, info))
    try:
        main_module.run(run.entry, arguments=run.spec.arguments, folder=folder)
    except SystemExit as wish:
        return main_module.status_of(wish)
    finally:
        lines.close()
        events.close()
        facts.close()
        report.flush()
    return ExitCode.COMPLETED


def _make_shared_folder() -> None:
    """The job's own in the one that the cluster shares; that one is there, or its disk is not mounted."""
    if folder := os.environ.get(SHARED_FOLDER):
        try:
            Path(folder).mkdir(exist_ok=True)
        except OSError as error:
            say(f"trainyard: the folder in {SHARED_FOLDER} cannot be used: {error}")


def _reach_libraries(run: TrainingRun, fits: Fits, events: EventFiles) -> None:
    """What is done to libraries, each when the script imports it."""
    if keras_of(run.spec) is Keras.TF_KERAS:
        keras_alias.remove()  # of a warm start for recipes; for a script, `import keras` means Keras 3

    def set_up(_: ModuleType) -> None:
        """TensorFlow is set up as the job has it."""
        from worker_agent.trainer.setup import runtime
        from worker_agent.trainer.setup.answering import stay_answerable

        runtime.set_threads(run)
        if run.device_kind is DeviceKind.CPU:
            runtime.divide_cpu(run.devices)
        if run.spec.strategy is Strategy.PARAMETER_SERVER:
            stay_answerable()
        events.start()

    when_imported("tensorflow", set_up)
    when_imported("keras.src.backend.tensorflow.trainer", correct_fit)
    when_imported("keras.src.backend.tensorflow.trainer", fits.watch_keras3)
    when_imported("tf_keras.src.engine.training", fits.watch_tf_keras)


def _meet(run: TrainingRun, emitter: Emitter, stop: StopSignal) -> None:
    """The gang meets before the script runs; an evaluator stands outside of it, and who comes later finds nobody."""
    if not any(member.name == f"{run.role}:{run.index}" for member in run.gang):
        return
    emitter.phase(PhaseName.RENDEZVOUS, f"{len(run.gang)} processes")
    deadline = monotonic() + run.rendezvous_timeout_s + (packages.LIMIT_S if run.spec.requirements else 0.0)
    if run.comes_later:
        rendezvous.check_port(run.me)
    elif run.leads:
        rendezvous.Meeting(run).gather(deadline=deadline, stop=stop)
    else:
        rendezvous.check_port(run.me)
        rendezvous.hear_go(run, run.leader, deadline=deadline, stop=stop)


def _serve(emitter: Emitter, stop: StopSignal) -> None:
    """Be a ps or worker for a script that has no branch for them. Ends when the agent ends it."""
    say("trainyard: no file of the program starts a tf.distribute.Server: this role serves, the chief runs the script")
    import tensorflow as tf

    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    server = tf.distribute.Server(
        resolver.cluster_spec(), job_name=resolver.task_type, task_index=resolver.task_id, protocol="grpc"
    )
    emitter.phase(PhaseName.SERVING, server.target)
    stop.wait()


def _listen(report: ScriptReport) -> Lines:
    """`trainyard.log` reaches us: from this process at once, from others of the script through a file."""
    telling.connect(report)
    path = Path(os.environ.setdefault(telling.SERIES_FILE, f"{os.environ.get('TMPDIR', '.')}/trainyard-series.jsonl"))
    return Lines(path, report)


def _find_tpu(run: TrainingRun, emitter: Emitter, stop: StopSignal) -> None:
    """Name the TPU to the program, once something answers at its address: TensorFlow would ask there without end."""
    tpu = os.environ.setdefault("TPU_NAME", run.spec.tpu)
    emitter.phase(PhaseName.RENDEZVOUS, tpu)
    deadline = monotonic() + run.rendezvous_timeout_s
    while silent := tpu_address.why_silent(tpu):
        if monotonic() > deadline:
            raise tpu_silent(tpu, run.rendezvous_timeout_s, silent)
        stop.sleep(TPU_RETRY_S)


def _sources(run: TrainingRun) -> list[tuple[str, str]]:
    """The program's Python files, the entry first."""
    files = sorted(path for path in run.code.rglob("*.py") if path.is_file() and path != run.entry)
    found = [run.entry, *files[:FILES_READ_MAX]]
    return [
        (str(path.relative_to(run.code)), path.read_text(encoding="utf-8", errors="replace"))
        for path in found
        if path.stat().st_size <= FILE_BYTES_MAX
    ]


def working_folder(run: TrainingRun) -> Path:
    """Where the script is run; raises `TrainingFailed` where the program has no such folder."""
    try:
        folder = run.code.joinpath(*safe_parts(run.spec.working_dir)) if run.spec.working_dir else run.code
    except ArchiveRefused as error:
        raise TrainingFailed(f"The working directory: {error}") from error
    if not folder.is_dir():
        raise TrainingFailed(f"The working directory {run.spec.working_dir!r} is not a folder of the program.")
    return folder


def _command_line(run: TrainingRun, info: ScriptInfo) -> str:
    """What the log says of the start, in one line; returned as the phase's detail."""
    keras = {Keras.TF_KERAS: "tf_keras", Keras.KERAS3: "Keras 3"}[keras_of(run.spec)]
    line = " ".join(["python", run.spec.code.entry, *run.spec.arguments])
    how = "; it starts its own servers" if info.serves and run.gang else ""
    say(f"trainyard: {line} (tf.keras is {keras}, unless the program decides{how})")
    return line[:200]
