"""A gang that is asked to save and leave: all processes save the same step, and whoever takes it up goes on as if never
interrupted. Real processes, forked by a zygote; they are asked as the agent asks them, by `stop.json` and SIGTERM."""

import os
import signal
import time
from pathlib import Path

import pytest

from tests.trainer.gang import Gang, Member, Zygote, gang
from tests.waiting import wait_until
from worker_agent.protocol.states import Cause, Strategy
from worker_agent.replica.checkpoint_folder import complete_in
from worker_agent.replica.folder import read_shim_state, write_stop
from worker_agent.replica.verdict import StopRequest

pytestmark = pytest.mark.tf

TINY = Path(__file__).parents[1] / "recipes" / "tiny.py"
# No checkpoint of its own before the end: what is saved, the pause has saved.
SPEC = {"epochs": 40, "seed": 5, "checkpoint_steps": 100_000, "steps_per_execution": 2}
TOLERANCE = 1e-6


def ask(member: Member, *, save: bool) -> None:
    """What the agent does: the request on disk, then SIGTERM to the shim."""
    cause = Cause.PAUSED if save else Cause.STOPPED
    request = StopRequest(at=time.time(), cause=cause, reason="Paused by ada.", grace_s=60, save=save)
    write_stop(Path(member.plan.folder), request)
    member.stop()


def paused(folder: Path, zygote: Zygote, asked: str, strategy: Strategy, **given: object) -> Gang:
    """A gang of which one process was asked amid the training, once all that save have left."""
    job = gang(folder, TINY, strategy, checkpoints=folder / "checkpoints", **given, **SPEC)  # type: ignore[arg-type]
    job.start(zygote)
    wait_until(lambda: len(job[asked].progress()) > 20, 60, "it trains")
    ask(job[asked], save=True)
    return job


def taken_up(job: Gang, folder: Path, zygote: Zygote, lead: str, strategy: Strategy, **given: object) -> Gang:
    """Another attempt, from the one checkpoint that the pause has left."""
    (name,) = complete_in(Path(job[lead].plan.checkpoints))
    place = Path(job[lead].plan.checkpoints) / name
    return gang(folder, TINY, strategy, restore=place, attempt=2, **given, **SPEC).start(zygote)  # type: ignore[arg-type]


def assert_as_if_uninterrupted(parts: list[Member], whole: Member) -> None:
    """Each step was taken once, with the loss that it has in a training without a pause."""
    steps = [sorted(part.series("loss")) for part in parts]
    assert steps[0][-1] + 1 == steps[1][0], "no step was taken twice, or left out"
    losses, expected = {**parts[0].series("loss"), **parts[1].series("loss")}, whole.series("loss")
    assert losses.keys() == expected.keys()
    assert max(abs(losses[step] - expected[step]) for step in losses) <= TOLERANCE
    assert parts[1].summaries()[-1].metrics == pytest.approx(whole.summaries()[-1].metrics, abs=TOLERANCE)


@pytest.mark.parametrize(
    ("strategy", "given"),
    [
        (Strategy.MULTI_WORKER_MIRRORED, {"global_batch_size": 48, "params": {"dropout": 0.2}}),
        (Strategy.TENSOR_PARALLEL, {"model_parallel": 2}),
    ],
)
def test_a_synchronous_gang_saves_the_same_step_though_one_was_asked(
    strategy: Strategy, given: dict[str, object], keras3: Zygote, tmp_path: Path
) -> None:
    given = {"workers": 2, **given}
    first = paused(tmp_path / "first", keras3, "worker:1", strategy, **given)
    first.wait()
    ends = {member.name: member.exit() for member in first.members}
    assert {(end.cause, end.code) for end in ends.values()} == {(Cause.PAUSED, 75)}, first["worker:0"].log()[-3000:]
    assert {member.phases()[-1] for member in first.members} == {"paused"}
    assert sorted(first["worker:1"].series("loss")) in ([], sorted(first["worker:0"].series("loss")))

    second = taken_up(first, tmp_path / "second", keras3, "worker:0", strategy, **given)
    whole = gang(tmp_path / "whole", TINY, strategy, **given, **SPEC).start(keras3)  # type: ignore[arg-type]
    for job in (second, whole):
        job.wait(120)
    assert_as_if_uninterrupted([first["worker:0"], second["worker:0"]], whole["worker:0"])


def test_a_sigterm_from_outside_makes_the_gang_save_and_leave(keras3: Zygote, tmp_path: Path) -> None:
    """It reaches the process of one, the shim of another, and a third not at all."""
    given = {"workers": 3, "global_batch_size": 48, "checkpoints": tmp_path / "checkpoints"}
    job = gang(tmp_path, TINY, Strategy.MULTI_WORKER_MIRRORED, **given, **SPEC).start(keras3)  # type: ignore[arg-type]
    wait_until(lambda: len(job["worker:1"].progress()) > 20, 60, "it trains")
    first, second = (read_shim_state(Path(job[name].plan.folder)) for name in ("worker:1", "worker:2"))
    assert first is not None
    assert second is not None
    os.kill(first.child_pid, signal.SIGTERM)
    os.kill(second.shim.pid, signal.SIGTERM)
    job.wait()
    ends = {member.name: member.exit() for member in job.members}
    assert {(name, end and end.cause, end and end.code) for name, end in ends.items()} == {
        ("worker:0", Cause.PAUSED, 75),
        ("worker:1", Cause.PREEMPTED, 75),
        ("worker:2", Cause.PREEMPTED, 75),
    }
    assert len(complete_in(tmp_path / "checkpoints")) == 1


def test_who_only_serves_stays_until_the_chief_has_saved(tf_keras: Zygote, tmp_path: Path) -> None:
    """The servers are asked from outside, one of them by its shim; the chief then by Trainyard."""
    given = {"workers": 1, "ps": 1, "checkpoints": tmp_path / "checkpoints"}
    job = gang(tmp_path, TINY, Strategy.PARAMETER_SERVER, **given, **SPEC).start(tf_keras)  # type: ignore[arg-type]
    wait_until(lambda: len(job["chief:0"].progress()) > 20, 60, "it trains")
    states = {name: read_shim_state(Path(job[name].plan.folder)) for name in ("worker:0", "ps:0")}
    os.kill(states["worker:0"].child_pid, signal.SIGTERM)
    os.kill(states["ps:0"].shim.pid, signal.SIGTERM)
    for name in states:
        wait_until(lambda name=name: job[name].phases()[-1] == "leaving", 10, "it says that it leaves")
    ask(job["chief:0"], save=True)
    job.wait(20, names=["chief:0"])
    assert job["chief:0"].exit().cause is Cause.PAUSED, job["chief:0"].log()[-3000:]
    assert len(complete_in(tmp_path / "checkpoints")) == 1
    for name in states:
        request = StopRequest(at=time.time(), cause=Cause.PAUSED, reason="It has saved.", grace_s=5)
        write_stop(Path(job[name].plan.folder), request)
    job.stop()
    job.wait(10)
    assert {job[name].exit().cause for name in states} == {Cause.PREEMPTED}


def test_the_chief_of_parameter_servers_saves_while_the_others_serve(tf_keras: Zygote, tmp_path: Path) -> None:
    strategy, given = Strategy.PARAMETER_SERVER, {"workers": 1, "ps": 1}
    first = paused(tmp_path / "first", tf_keras, "chief:0", strategy, **given)
    first.wait(60, names=["chief:0"])
    assert first["chief:0"].exit().cause is Cause.PAUSED, first["chief:0"].log()[-3000:]
    second = taken_up(first, tmp_path / "second", tf_keras, "chief:0", strategy, **given)
    whole = gang(tmp_path / "whole", TINY, strategy, **given, **SPEC).start(tf_keras)  # type: ignore[arg-type]
    for job in (second, whole):
        job.wait(180, names=["chief:0"])
    for job in (first, second, whole):
        job.stop()
        job.wait(20)
    assert_as_if_uninterrupted([first["chief:0"], second["chief:0"]], whole["chief:0"])


def test_a_disk_that_refuses_makes_it_a_failure_in_words(keras3: Zygote, tmp_path: Path) -> None:
    job = gang(tmp_path / "gang", TINY, Strategy.ONE_DEVICE, checkpoints=tmp_path / "file" / "checkpoints", **SPEC)  # type: ignore[arg-type]
    (tmp_path / "file").write_text("in the way")
    job.start(keras3)
    lead = job["worker:0"]
    wait_until(lambda: len(lead.progress()) > 5, 60, "it trains")
    ask(lead, save=True)
    job.wait()
    end = lead.exit()
    assert end is not None
    assert end.cause is Cause.EXCEPTION
    assert "It could not save before it was to leave" in end.message
    assert "Not a directory" in end.message
