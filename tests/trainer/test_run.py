"""What a run is made of: plans, gangs, threads, sizes, pace, and the laptop's command line."""

from itertools import pairwise
from pathlib import Path

import pytest

from tests.agent.plans import make_spec
from tests.trainer.gang import RECIPES, gang
from worker_agent.protocol.states import DeviceKind, Role, Strategy
from worker_agent.trainer import __main__ as trainer
from worker_agent.trainer.loop.pace import GROWTH, SHORTEST, STEPS_MAX, TARGET_S, Pace
from worker_agent.trainer.outcome import ExitCode, TrainingFailed
from worker_agent.trainer.recipe.run_size import size_of
from worker_agent.trainer.training_run import TrainingRun, from_plan, members, task_of, threads_for

CLUSTER = {"cluster": {"chief": ["a:1"], "worker": ["a:2", "b:2"], "ps": ["[::1]:3"]}}


def test_a_plan_becomes_a_run(tmp_path: Path) -> None:
    recipe = RECIPES / "digits_mlp.py"
    job = gang(tmp_path, recipe, Strategy.MULTI_WORKER_MIRRORED, workers=2, devices=2, lr_scaling="linear", seed=5)
    first, second = (from_plan(member.plan, cores=8) for member in job.members)
    assert (first.leads, second.leads) == (True, False)
    assert second.me.name == "worker:1"
    assert [other.name for other in second.others] == ["worker:0"]
    assert (first.workers, first.devices, first.threads) == (2, 2, 4)
    assert first.rendezvous_key == second.rendezvous_key
    assert first.entry == recipe


def test_only_the_chief_leads_where_there_is_one(tmp_path: Path) -> None:
    job = gang(tmp_path, RECIPES / "digits_mlp.py", Strategy.PARAMETER_SERVER, workers=1, ps=1)
    leads = {member.name: from_plan(member.plan, cores=2).leads for member in job.members}
    assert leads == {"chief:0": True, "worker:0": False, "ps:0": False}


def test_a_process_without_devices_of_its_own_computes_on_the_cpu(tmp_path: Path) -> None:
    job = gang(tmp_path, RECIPES / "digits_mlp.py", Strategy.PARAMETER_SERVER, workers=1, ps=1, kind=DeviceKind.GPU)
    kinds = {member.name: from_plan(member.plan, cores=2).device_kind for member in job.members}
    assert kinds == {"chief:0": DeviceKind.CPU, "worker:0": DeviceKind.GPU, "ps:0": DeviceKind.CPU}


def test_members_of_a_tf_config() -> None:
    assert [member.name for member in members(CLUSTER)] == ["chief:0", "worker:0", "worker:1", "ps:0"]
    assert (members(CLUSTER)[3].host, members(CLUSTER)[3].port) == ("::1", 3)
    assert members(None) == ()
    assert task_of('{"task": {"type": "ps", "index": 2}}')[1:] == (Role.PS, 2)
    assert task_of("{}") == ({}, Role.WORKER, 0)


def test_workers_on_one_machine_share_its_cores() -> None:
    mirrored = Strategy.MULTI_WORKER_MIRRORED
    both = members({"cluster": {"worker": ["a:1", "a:2"]}})
    assert threads_for(both, mirrored, host="a", cores=8) == 4
    assert threads_for(both, mirrored, host="a", cores=1) == 1
    assert threads_for(members(CLUSTER), Strategy.PARAMETER_SERVER, host="b", cores=8) == 8
    assert threads_for((), Strategy.ONE_DEVICE, host="a", cores=8) == 8


def test_a_chief_computes_where_no_coordinator_is_needed() -> None:
    gang = members({"cluster": {"chief": ["a:1"], "worker": ["a:2", "b:3"]}})
    assert threads_for(gang, Strategy.MULTI_WORKER_MIRRORED, host="a", cores=8) == 4
    assert threads_for(gang, Strategy.PARAMETER_SERVER, host="a", cores=8) == 8
    spec = make_spec(strategy=Strategy.MULTI_WORKER_MIRRORED)
    run = TrainingRun(entry=Path(), code=Path(), spec=spec, role=Role.WORKER, index=1, gang=gang)
    assert (run.leads, run.workers, run.place, run.leader.name) == (False, 3, 2, "chief:0")
    chief = TrainingRun(entry=Path(), code=Path(), spec=spec, role=Role.CHIEF, gang=gang)
    assert (chief.leads, chief.place) == (True, 0)


def test_sizes() -> None:
    spec = make_spec(global_batch_size=64, epochs=8)
    size = size_of(spec, rows=1437, replicas=2)
    assert (size.steps_per_epoch, size.total_steps, size.epochs) == (22, 176, 8)
    short = size_of(make_spec(global_batch_size=64, epochs=8, max_steps=45), rows=1437, replicas=2)
    assert (short.steps_per_epoch, short.total_steps, short.epochs) == (22, 45, 3)
    assert size_of(make_spec(global_batch_size=64, epochs=1, max_steps=45), rows=1437, replicas=2).total_steps == 22
    with pytest.raises(TrainingFailed, match="batch of 65 does not divide by the 2 replicas"):
        size_of(make_spec(global_batch_size=65), rows=1437, replicas=2)
    with pytest.raises(TrainingFailed, match="by 1 replica × 3 accumulated parts: choose a multiple of 3"):
        size_of(spec, rows=1437, replicas=1, parts=3)
    with pytest.raises(TrainingFailed, match="has 63 rows, fewer than the global batch of 64"):
        size_of(spec, rows=63, replicas=1)


def test_the_pace_starts_with_one_step_and_grows_to_its_target() -> None:
    pace = Pace()
    taken = []
    for execution in range(8):
        taken.append(pace.steps)
        wish = pace.wish()
        pace.measured(steps=pace.steps, seconds=3.0 if execution == 0 else pace.steps * 0.001, typical=execution > 0)
        pace.agree(wish)
    assert taken[:2] == [1, 1]
    assert all(later <= GROWTH * earlier for earlier, later in pairwise(taken))
    assert taken[-1] == round(TARGET_S / 0.001)


def test_the_pace_is_bounded_and_never_below_one_step() -> None:
    pace = Pace()
    pace.agree(STEPS_MAX)
    pace.measured(steps=1, seconds=1e-9, typical=True)
    assert pace.wish() == STEPS_MAX
    slow = Pace()
    slow.measured(steps=1, seconds=20.0, typical=True)
    assert slow.wish() == 1
    slow.agree(0.4)
    assert slow.steps == 1


@pytest.mark.parametrize("left", [1, 2, 31, 32, 1000])
@pytest.mark.parametrize("takers", [1, 2, 3, 16])
def test_calls_that_several_take_end_together_at_the_end_of_an_epoch(left: int, takers: int) -> None:
    pace = Pace(takers=takers)
    pace.agree(40.0)
    calls = []
    while sum(calls) < left:
        calls.append(pace.of(left - sum(calls)))
    assert sum(calls) == left
    assert max(calls) <= 40
    if takers == 1:
        assert calls == [40] * (left // 40) + [left % 40] * (left % 40 > 0)
        return
    assert len(calls) >= min(takers, left / (40 // SHORTEST)), "there is one for each, or they are short"
    assert len(calls) <= left / 40 + takers * SHORTEST + 1
    load = [0] * takers  # whoever is free takes the next
    for call in calls:
        load[load.index(min(load))] += call
    assert max(load) - min(load) <= max(40 // SHORTEST, -(-left // takers))
    if left == 1000:
        assert max(load) - min(load) <= 2 * (40 // SHORTEST), "nobody waits long for the last one"


def test_a_number_of_steps_that_was_chosen_stays() -> None:
    pace = Pace(fixed=20, takers=4)
    assert [pace.of(left) for left in (50, 30, 10)] == [20, 20, 10]


def test_one_of_many_that_is_asked_to_pause_makes_the_whole_gang_do_so() -> None:
    asked, others = Pace(), [Pace(fixed=STEPS_MAX) for _ in range(1023)]
    mean = (asked.wish(pause=True) + sum(other.wish() for other in others)) / 1024
    for pace in (asked, *others):
        assert not pace.pauses
        pace.agree(mean)
        assert pace.pauses


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--set", "foo=1"], "Unknown parameter foo. The recipe's parameters are: activation, dropout, lr, units."),
        (["--set", "units"], "--set units: write it as NAME=VALUE."),
        (["--set", "units=x"], "Parameter units: 'x' is not a whole number."),
        (["--strategy", "multi_worker_mirrored"], "needs a TF_CONFIG"),
    ],
)
def test_a_wrong_command_line_is_answered_at_once(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("TF_CPP_MIN_LOG_LEVEL", "CUDA_VISIBLE_DEVICES", "GRPC_FAIL_FAST"):
        monkeypatch.setenv(name, "")
    monkeypatch.delenv("TF_CONFIG", raising=False)
    assert trainer.main([str(RECIPES / "digits_mlp.py"), *arguments]) == ExitCode.USAGE
    assert message in capsys.readouterr().err
