"""The life of one training process: from the program's text to an exit status. Shared by plan and laptop mode."""

import sys

import msgspec

import trainyard.telling
from worker_agent.protocol.ending import Ending
from worker_agent.protocol.job.gang_shape import keras_of
from worker_agent.protocol.job.strategies import broken_limits
from worker_agent.protocol.records import PhaseName
from worker_agent.protocol.states import Cause, Keras, Kind, Role, Strategy
from worker_agent.trainer.emit import Emitter, RecipeLog, Sink
from worker_agent.trainer.failure import failure_of, is_of_tpu, record_of, tpu_refusal
from worker_agent.trainer.outcome import ExitCode, Paused, Stopped, TrainingFailed, code_of
from worker_agent.trainer.recipe import recipe_file
from worker_agent.trainer.script import launcher, main_module
from worker_agent.trainer.script.stopping import ScriptStop
from worker_agent.trainer.setup import keras_alias, packages, rendezvous
from worker_agent.trainer.setup.stopping import StopSignal, take_sigterm
from worker_agent.trainer.strategies.interface import Process, train_of
from worker_agent.trainer.training_run import TrainingRun


def conduct(run: TrainingRun, sink: Sink) -> int:
    """Run it to its end, say how it ended, and return the status to leave with. Call it in the main thread."""
    is_script = run.spec.kind is Kind.SCRIPT
    if not is_script:
        take_sigterm()
    emitter = Emitter(sink)
    stop = ScriptStop(emitter.close, run.folder) if is_script else StopSignal(emitter.close, run.folder)
    code: int = ExitCode.COMPLETED
    try:
        if is_script:
            code = launcher.launch(run, emitter, stop)
        else:
            _train(run, emitter, stop)
        if code == ExitCode.COMPLETED and not (is_script and stop.ends_at_once):  # it may have left because of that
            emitter.phase(PhaseName.DONE)
    except Paused:
        emitter.phase(PhaseName.PREEMPTED if stop.is_preempted else PhaseName.PAUSED)
        code = ExitCode.PAUSED
    except (Stopped, KeyboardInterrupt):
        code = ExitCode.STOPPED
    except SystemExit as wish:
        code = _left(wish, emitter)
    except BaseException as error:
        code = _explained(error, run, emitter, stop)
    stop.finished()
    emitter.close()
    return code


def _train(run: TrainingRun, emitter: Emitter, stop: StopSignal) -> None:
    trainyard.telling.connect(RecipeLog(emitter))
    for field, sentence in broken_limits(run.spec):
        raise TrainingFailed(f"{field}: {sentence}.")
    packages.provide(run, emitter)
    recipe_file.declared(run.entry)
    meeting = None
    # Processes that train together meet at the leader's door before TensorFlow makes a gang of them.
    if run.gang and run.leads and run.strategy.is_gang and not run.strategy.leader_drives:
        meeting = rendezvous.Meeting(run)
    elif run.gang and run.role is not Role.EVALUATOR:  # that one stands outside and serves nobody
        rendezvous.check_port(run.me)
    emitter.phase(PhaseName.IMPORTING)
    if keras_of(run.spec) is Keras.TF_KERAS:
        keras_alias.install()
    from worker_agent.trainer.setup import runtime

    devices = runtime.configure(run)
    train_of(run)(Process(run=run, devices=devices, emitter=emitter, stop=stop, meeting=meeting))


def _left(wish: SystemExit, emitter: Emitter) -> int:
    """The user's program called `sys.exit`: its own status, unless that would look like a finished training."""
    code = wish.code if isinstance(wish.code, int) and wish.code else ExitCode.EXCEPTION
    message = f"The program called sys.exit({wish.code!r}) before the training was over."
    emitter.record(record_of(Ending(cause=Cause.EXCEPTION), message))
    sys.stderr.write(f"{message}\n")
    return code


def _explained(error: BaseException, run: TrainingRun, emitter: Emitter, stop: StopSignal) -> ExitCode:
    if stop.ends_at_once:  # peers that stop at the same moment make each other's collectives fail
        return ExitCode.STOPPED
    failure = failure_of(error, code=run.code, gang_size=len(run.gang))
    if run.spec.strategy is Strategy.TPU and is_of_tpu(error):
        failure = msgspec.structs.replace(failure, message=tpu_refusal(error, run.spec.tpu).message)
    emitter.record(failure)
    if failure.traceback and run.spec.kind is Kind.SCRIPT:
        main_module.show(error, run.entry)
        return code_of(failure.cause)
    if failure.traceback:
        sys.stderr.write(failure.traceback)
    sys.stderr.write(f"{failure.message}\n")
    return code_of(failure.cause)
