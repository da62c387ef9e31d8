"""The equality matrix: the same recipe, seed and global batch take the same steps under every synchronous strategy.

A strategy is a row of `ROWS`, compared with one device: the loss of every step, the metrics of every epoch, and the
weights, which have to be equal bit for bit in all processes that hold them whole. The asynchronous strategy takes other
steps: how well it learns is held against one device in `test_parameter_server.py`.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.trainer.gang import Gang, Member, Zygote, free_ports, gang
from worker_agent.protocol.states import Cause, Keras, Strategy

pytestmark = pytest.mark.tf

EQUAL = Path(__file__).parents[1] / "recipes/equal.py"
STEPS_PER_EPOCH = 10
EPOCHS = {"double": 6}  # float64, rows that divide by nothing, and time for a difference to grow
# A train_step of its own tells a running mean: the loss of one step is a difference of totals. All losses are told in
# float32, so of a training in float64 only the weights show how equal it is.
WITHIN = {"own_step": 5e-6, "double": 3e-7}
WEIGHTS_WITHIN = {"double": 1e-12}
# As a plan says it: to twice the rate, over the first epoch.
WARMED_UP = {
    "sgd": {"learning_rate": 0.05, "scaled_rate": 0.1, "warmup_epochs": 1},
    "double": {"learning_rate": 0.005, "scaled_rate": 0.01, "warmup_epochs": 1},
}
LOOP_CASES = ("structures", "synchronized", "own_step", "table", "double")


@dataclass(frozen=True)
class Row:
    """A strategy in the matrix: what its gang is given, in which Keras it works, and which cases it is tried with.

    `within` bounds the difference of every loss.
    """

    name: str
    strategy: Strategy
    given: dict[str, Any] = field(default_factory=dict)
    flavours: tuple[Keras, ...] = (Keras.KERAS3, Keras.TF_KERAS)
    cases: tuple[str, ...] = ("sgd", "adam")
    within: float = 1e-6


ROWS = [
    Row("accumulation 4", Strategy.ONE_DEVICE, {"accumulation": 4}),
    Row("mirrored 2", Strategy.MIRRORED, {"devices": 2}, cases=("sgd", "adam", *LOOP_CASES)),
    Row("central 2", Strategy.CENTRAL_STORAGE, {"devices": 2}, cases=("sgd", "adam", "structures", "own_step")),
    Row(
        "workers 2",
        Strategy.MULTI_WORKER_MIRRORED,
        {"workers": 2, "communication": "ring"},
        cases=("sgd", "adam", *LOOP_CASES),
    ),
    Row("chief and worker", Strategy.MULTI_WORKER_MIRRORED, {"workers": 2, "chief": True}, cases=("sgd",)),
    Row("workers 3", Strategy.MULTI_WORKER_MIRRORED, {"workers": 3, "accumulation": 2}),
    Row("split layers", Strategy.TENSOR_PARALLEL, {"workers": 2, "model_parallel": 2}, flavours=(Keras.KERAS3,)),
    Row("split batch", Strategy.TENSOR_PARALLEL, {"devices": 2}, flavours=(Keras.KERAS3,)),
    Row(
        "hybrid", Strategy.TENSOR_PARALLEL, {"workers": 2, "devices": 2, "model_parallel": 2}, flavours=(Keras.KERAS3,)
    ),
    Row("stages", Strategy.PIPELINE, {"devices": 2}, flavours=(Keras.KERAS3,)),
    Row("stages apart", Strategy.PIPELINE, {"workers": 2, "micro_batches": 4}, flavours=(Keras.KERAS3,)),
]


@pytest.mark.parametrize("case", ["sgd", "adam"])
@pytest.mark.parametrize("flavour", list(Keras))
def test_every_strategy_takes_the_same_steps(
    flavour: Keras, case: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    compare(case, flavour, tmp_path, request.getfixturevalue(flavour.value))


@pytest.mark.parametrize("case", LOOP_CASES)
def test_so_does_everything_the_loop_can_do(case: str, tmp_path: Path, keras3: Zygote) -> None:
    compare(case, Keras.KERAS3, tmp_path, keras3)


def compare(case: str, flavour: Keras, folder: Path, zygote: Zygote) -> None:
    """Train `case` on one device and in every row, all at once, and hold each against the one."""
    epochs = EPOCHS.get(case, 2)

    def started(row: Row) -> Gang:
        place = folder / row.name.replace(" ", "-")
        place.mkdir()
        given = {"epochs": epochs, "global_batch_size": 24, "seed": 3, "keras": flavour, "params": {"case": case}}
        given |= WARMED_UP.get(case, {})
        exports = case == "sgd"  # once under every strategy
        return gang(place, EQUAL, row.strategy, exports=exports, **given, **row.given).start(zygote)

    rows = [row for row in ROWS if case in row.cases and flavour in row.flavours]
    one = started(Row("one", Strategy.ONE_DEVICE))
    others = [(row, started(row)) for row in rows]
    truth = finished(one)
    losses = truth.series("loss")
    steps = epochs * STEPS_PER_EPOCH
    assert list(losses) == list(range(1, steps + 1))
    assert losses[steps] < 0.9 * losses[1]
    for row, job in others:
        within = WITHIN.get(case, row.within)
        lead = finished(job)
        found = lead.series("loss")
        assert found.keys() == losses.keys(), row.name
        assert max(abs(found[step] - losses[step]) for step in losses) <= within, row.name
        for mine, theirs in zip(lead.summaries(), truth.summaries(), strict=True):
            assert mine.metrics == pytest.approx(theirs.metrics, abs=5 * within), row.name
        assert lead.series("learning_rate") == pytest.approx(truth.series("learning_rate")), row.name
        assert len({crc for member in job.members for crc in member.series("weights_crc").values()}) == 1, row.name
        norm = pytest.approx(truth.series("weights_norm")[1], rel=0, abs=WEIGHTS_WITHIN.get(case, 1e-5))
        assert lead.series("weights_norm")[1] == norm, row.name


def finished(job: Gang) -> Member:
    """Its leading process, once all have ended well: those of a pipeline that only serve are stopped, as agents do."""
    lead, *others = job.members
    serving = others if lead.plan.launch.spec.strategy is Strategy.PIPELINE else []
    job.wait(180, names=[member.name for member in job.members if member not in serving])
    job.stop()
    job.wait(20)
    causes = {member.name: member.exit().cause for member in job.members}
    assert causes == {m.name: Cause.STOPPED if m in serving else Cause.COMPLETED for m in job.members}, lead.log()
    (lead,) = [member for member in job.members if member.series("loss")]
    return lead


def test_a_replica_tells_how_it_trains_and_refusals_are_sentences(tmp_path: Path, keras3: Zygote) -> None:
    def started(name: str, strategy: Strategy, **given: Any) -> Gang:
        (tmp_path / name).mkdir()
        given = {"epochs": 1, "global_batch_size": 24, "params": {"case": "sgd"}} | given
        return gang(tmp_path / name, EQUAL, strategy, **given).start(keras3)

    compiled = started(
        "compiled",
        Strategy.MIRRORED,
        devices=2,
        cross_device="hierarchical_copy",
        jit=True,
        precision="mixed_bfloat16",
        accumulation=2,
        steps_per_execution=4,
        lr_scaling="sqrt",
    )
    nccl = started("nccl", Strategy.MIRRORED, devices=2, cross_device="nccl")
    own = started("own", Strategy.ONE_DEVICE, accumulation=2, params={"case": "own_step"})
    tpu = started("tpu", Strategy.TPU)
    silent = started("silent", Strategy.TPU, tpu=f"grpc://127.0.0.1:{free_ports(1)[0]}", rendezvous_timeout_s=1.0)
    lead = finished(compiled)
    told = lead.facts()
    assert told.pop("memory_bytes") > 0
    assert told == told | {
        "replicas_in_sync": 2,
        "devices": ["CPU:0", "CPU:1"],
        "communication": "HierarchicalCopyAllReduce",
        "precision": "mixed_bfloat16",
        "accumulation": 2,
        "jit": True,
        "parameters": 195,
    }
    assert list(lead.series("step_time_ms")) == [8, 10]  # executions of 4, 4 and the rest; the first one traces
    assert lead.series("learning_rate")[10] == pytest.approx(0.1 * 2**0.5)
    late = "did not answer within 1 s (connection refused)"
    for job, words in ((nccl, "NCCL"), (own, "train_step"), (tpu, "no TPU"), (silent, late)):
        job.wait(120)
        failure = job.members[0].failure()
        assert failure is not None
        assert words in failure.message
        assert failure.traceback == ""
    assert silent.members[0].exit().cause is Cause.LAUNCH_REFUSED, "nothing is launched again for it"
