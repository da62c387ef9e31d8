"""The training process: `--plan PLAN.json` from an agent, or a recipe file from a person at a terminal."""

import os
import sys
from pathlib import Path

from worker_agent.protocol import codec
from worker_agent.protocol.records import Stream
from worker_agent.replica import stacks
from worker_agent.trainer.arguments import parser, run_of
from worker_agent.trainer.emit import PrintSink, SpoolSink
from worker_agent.trainer.outcome import ExitCode, TrainingFailed, leave
from worker_agent.trainer.process import conduct
from worker_agent.trainer.training_run import from_plan
from worker_agent.trainer.trial.build import build


def main(arguments: list[str]) -> int:
    """Train as `arguments` say; the exit status."""
    parse = parser()
    given = parse.parse_args(arguments)
    if given.plan is not None:
        return run_plan(given.plan)
    if given.recipe is None:
        parse.error("name a recipe file")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    if not given.gpu:
        os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
    os.environ.setdefault("GRPC_FAIL_FAST", "use_caller")  # else nothing moves when a parameter server's peer is gone
    try:
        run = run_of(given)
    except TrainingFailed as wrong:
        sys.stderr.write(f"{wrong.message}\n")
        return ExitCode.USAGE
    return conduct(run, PrintSink(sys.stdout))


def run_plan(path: Path) -> int:
    """One replica of a job, or a trial of its program, as the agent planned it. The environment is the shim's."""
    plan = codec.decode_plan(path.read_bytes())
    if plan.trial is not None:
        return build(plan, plan.trial)
    stacks.listen(Path(plan.folder))
    run = from_plan(plan, cores=os.cpu_count() or 1)
    return conduct(run, SpoolSink(Path(plan.spool) / Stream.TRAINER, notify=plan.notify))


if __name__ == "__main__":
    leave(main(sys.argv[1:]))
