"""Parameter servers lose a worker, then a ps: what the rest makes of it, and of the processes in their place."""

import os
import shutil
import signal
from pathlib import Path

import msgspec
import pytest
import tensorflow as tf

from tests.trainer.gang import Gang, Member, Zygote, gang
from tests.waiting import wait_until
from worker_agent.protocol import codec
from worker_agent.protocol.causes import Blame
from worker_agent.protocol.records import Checkpointed, Facts
from worker_agent.protocol.states import Cause, Strategy
from worker_agent.replica.folder import read_shim_state
from worker_agent.trainer.strategies.served.worker_call import WorkerCall

pytestmark = pytest.mark.tf

TINY = Path(__file__).parents[1] / "recipes/tiny.py"
# 100 steps an epoch; the validation is a good part of it.
SPEC = {"epochs": 12, "seed": 3, "global_batch_size": 16, "params": {"rows": 1600}, "checkpoint_steps": 50}
STEPS = 1200


def kill(member: Member) -> None:
    state = read_shim_state(Path(member.plan.folder))
    assert state is not None
    os.kill(state.child_pid, signal.SIGKILL)
    wait_until(member.exit, 20, f"{member.name} has ended")


def begin_anew(job: Gang, zygote: Zygote, name: str, *, restore: str = "") -> Member:
    """Another process in the place of one that has ended, at the same address."""
    old = job[name].plan
    folder = Path(f"{old.folder}-again")
    for each in ("spool", "artifacts", "scratch"):
        (folder / each).mkdir(parents=True)
    paths = {each: str(folder / each) for each in ("spool", "artifacts", "scratch")}
    plan = msgspec.structs.replace(old, folder=str(folder), restore=restore, **paths)
    (folder / "plan.json").write_bytes(codec.encode_plan(plan))
    member = Member(plan)
    zygote.start(member)
    job.members.append(member)
    return member


def steps(member: Member) -> int:
    said = member.progress()
    return said[-1].step if said else 0


def of_workers(member: Member) -> list[int]:
    told = [record.facts for record in member.records(Facts) if "steps_of_workers" in record.facts]
    return list(told[-1]["steps_of_workers"]) if told else [0, 0]


def test_a_gang_outlives_its_worker_and_its_workers_outlive_its_servers(tf_keras: Zygote, tmp_path: Path) -> None:
    checkpoints = tmp_path / "checkpoints"
    job = gang(tmp_path / "gang", TINY, Strategy.PARAMETER_SERVER, workers=2, ps=1, checkpoints=checkpoints, **SPEC)
    job.start(tf_keras)
    chief = job["chief:0"]
    try:
        wait_until(lambda: steps(chief) > 150, 90, "it trains")
        kill(job["worker:0"])
        gone_at = steps(chief)
        wait_until(lambda: steps(chief) > gone_at + 10, 30, "the other worker goes on alone")
        before = of_workers(chief)[0]
        worker = begin_anew(job, tf_keras, "worker:0")
        wait_until(lambda: of_workers(chief)[0] > before + 20, 60, "the one that came back takes its share")
        assert chief.exit() is None
        losses = chief.series("loss")
        assert list(losses) == list(range(1, len(losses) + 1))
        assert all(record.metrics["val_accuracy"] > 0.3 for record in chief.summaries())

        kill(job["ps:0"])
        wait_until(chief.exit, 30, "a chief without its variables ends")
        assert chief.exit().cause is Cause.EXCEPTION
        assert (chief.exit().ending.lost_peer, chief.exit().ending.blame) == (True, Blame.PEER)
        saved = chief.records(Checkpointed)[-1]
        begin_anew(job, tf_keras, "ps:0")
        again = begin_anew(job, tf_keras, "chief:0", restore=str(checkpoints / saved.name))
        wait_until(again.exit, 120, "the same workers finish the training")
        assert again.exit().cause is Cause.COMPLETED, again.log()[-3000:]
        assert list(again.series("loss")) == list(range(saved.step + 1, STEPS + 1))
        assert [worker.exit(), job["worker:1"].exit()] == [None, None]
        assert min(of_workers(again)) > 0
    finally:
        job.stop()
        job.wait(20)
        shutil.rmtree(checkpoints, ignore_errors=True)


class Remote:
    """What a call left: a value, or why it cannot be had."""

    def __init__(self, outcome: object) -> None:
        self._outcome = outcome

    def fetch(self) -> object:
        if isinstance(self._outcome, Exception):
            raise self._outcome
        return self._outcome


def unavailable(whose: str) -> tf.errors.OpError:
    said = f"Socket closed\nAdditional GRPC error information from remote target /job:{whose}/replica:0/task:0"
    return tf.errors.UnavailableError(None, None, said)


def test_a_result_that_went_away_with_its_worker_is_computed_again() -> None:
    unknown = tf.errors.InvalidArgumentError(
        None, None, "/job:worker/replica:0: Unable to find the relevant tensor remote_handle"
    )
    outcomes = [Remote(unavailable("worker")), Remote(unknown), Remote(7)]
    assert WorkerCall(lambda: outcomes.pop(0)).fetch() == 7
    assert outcomes == []


@pytest.mark.parametrize(
    "error",
    [unavailable("ps"), tf.errors.InvalidArgumentError(None, None, "/job:worker/replica:0: labels out of range")],
)
def test_what_a_call_raised_or_a_server_lost_is_told(error: tf.errors.OpError) -> None:
    with pytest.raises(type(error)):
        WorkerCall(lambda: Remote(error)).fetch()
