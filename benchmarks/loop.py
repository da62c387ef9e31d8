"""Milliseconds per optimizer step of the product's training loop, under every strategy.

Ours is a job as an agent starts it: the strategy's own room with its loop, driver, metrics and points. The peer is
Keras' `model.fit` (Keras 3 on several workers with the corrections that scripts get; tf_keras with a DatasetCreator
under parameter servers), the floor a loop written by hand (`loop_rivals`). All three train the same model on the same
rows in the same processes: an epoch of ours, then a round of each rival, and so on. A ratio is the median of those of
the rounds.

That they do the same work is checked: ours and the floor have the same loss in every step of the first rounds, and
fit the same mean loss of its first ones.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.measure import Line, quantile
from tests.environment import ROOT
from tests.trainer.gang import Member, Zygote, gang
from worker_agent.protocol.states import Cause, Keras, Role, Strategy

ROUNDS = 5
ROUNDS_QUICK = 3
# In the first ones everybody traces, and ours finds out how many steps to take per call.
WARM_ROUNDS = 2
WITHIN = 1e-5
BATCH = 64
SEED = 3
PEER = "model.fit"


@dataclass(frozen=True, kw_only=True)
class Model:
    """`steps` make a round of ours and of the floor, `fit_steps` one of fit's."""

    name: str
    steps: int
    fit_steps: int
    target: str


MLP = Model(name="mlp", steps=400, fit_steps=100, target="<= 0.5x fit")
CNN = Model(name="cnn", steps=16, fit_steps=12, target="<= 1.0x fit")
WIDE = Model(name="wide", steps=16, fit_steps=0, target="-")


@dataclass(frozen=True, kw_only=True)
class Case:
    """A strategy as it is measured. `compute` is the model that it computes with; `fit_tells` is False where fit is
    known to report a wrong loss."""

    name: str
    strategy: Strategy
    given: dict[str, Any] = field(default_factory=dict)
    compute: Model = CNN
    has_fit: bool = True
    fit_tells: bool = True


CASES = [
    Case(name="one device", strategy=Strategy.ONE_DEVICE),
    Case(name="Mirrored ×2", strategy=Strategy.MIRRORED, given={"devices": 2}),
    Case(name="MultiWorkerMirrored ×2", strategy=Strategy.MULTI_WORKER_MIRRORED, given={"workers": 2}),
    Case(name="ParameterServer 1+1", strategy=Strategy.PARAMETER_SERVER, given={"workers": 1, "ps": 1}),
    Case(name="central storage ×2", strategy=Strategy.CENTRAL_STORAGE, given={"devices": 2}, fit_tells=False),
    Case(
        name="tensor parallel ×2",
        strategy=Strategy.TENSOR_PARALLEL,
        given={"devices": 2, "model_parallel": 2},
        compute=WIDE,
        has_fit=False,
    ),
    Case(name="pipeline ×2", strategy=Strategy.PIPELINE, given={"devices": 2, "micro_batches": 4}, has_fit=False),
]


def run(*, rounds: int = ROUNDS) -> Iterator[Line]:
    """One line for each strategy and model."""
    with TemporaryDirectory(prefix="trainyard-bench-") as home, ExitStack() as stack:
        zygotes = {flavour: Zygote(Path(home), flavour.value) for flavour in Keras}
        for zygote in zygotes.values():
            stack.callback(zygote.close)
        for zygote in zygotes.values():
            zygote.wait_ready()
        for case in CASES:
            flavour = Keras.TF_KERAS if case.strategy is Strategy.PARAMETER_SERVER else Keras.KERAS3
            for model in (MLP, case.compute):
                folder = Path(home) / f"{case.strategy}-{model.name}"
                folder.mkdir()
                yield _line(case, model, _trained(folder, zygotes[flavour], case, model, WARM_ROUNDS + rounds))


def _trained(folder: Path, zygote: Zygote, case: Case, model: Model, epochs: int) -> Member:
    """The leading process of a whole training, with what it told."""
    params = {
        "model": model.name,
        "strategy": case.strategy.value,
        "steps": model.steps,
        "fit_steps": model.fit_steps if case.has_fit else 0,
        "batch": BATCH,
        "epochs": epochs,
        "seed": SEED,
        "devices": case.given.get("devices", 1),
        "parts": case.given.get("micro_batches", 1),
        "checked_rounds": WARM_ROUNDS,
    }
    given = {"global_batch_size": BATCH, "epochs": epochs, "seed": SEED, "params": params, **case.given}
    job = gang(folder, ROOT / "benchmarks/loop_recipe.py", case.strategy, **given).start(zygote)
    leads = job["chief:0" if case.strategy is Strategy.PARAMETER_SERVER else "worker:0"]
    try:
        job.wait(300, [member.name for member in job.members if _trains(member)])
    finally:
        job.stop()
    ended = leads.exit()
    assert ended is not None, leads.log()[-3000:]
    assert ended.cause is Cause.COMPLETED, leads.log()[-3000:]
    return leads


def _trains(member: Member) -> bool:
    """Under parameter servers the chief ends by itself, the others serve on."""
    launch = member.plan.launch
    return launch.spec.strategy is not Strategy.PARAMETER_SERVER or launch.role is Role.CHIEF


def _line(case: Case, model: Model, told: Member) -> Line:
    _check(case, model, told)
    times = {name: list(told.series(f"{name}_ms").values())[WARM_ROUNDS:] for name in ("ours", "bare", "fit")}
    middle = {name: quantile(values, 0.5) for name, values in times.items() if values}
    ratios = {
        name: quantile([ours / theirs for ours, theirs in zip(times["ours"], times[name], strict=True)], 0.5)
        for name in middle
        if name != "ours"
    }
    return Line(
        f"{model.name} step, {case.name}",
        "ms",
        middle["ours"],
        middle["bare"],
        model.target if case.has_fit else "-",
        {PEER: middle["fit"]} if case.has_fit else {},
        ratio=ratios["bare"],
        ratios={PEER: ratios["fit"]} if case.has_fit else {},
    )


def _check(case: Case, model: Model, told: Member) -> None:
    """The same losses, else they were not the same steps."""
    ours, bare = told.series("loss"), told.series("bare_loss")
    assert len(bare) == WARM_ROUNDS * model.steps, f"{case.name}, {model.name}: {len(bare)} losses of the floor"
    apart = max(abs(ours[step] - loss) for step, loss in bare.items())
    assert apart <= WITHIN, f"{case.name}, {model.name}: losses of ours and of the floor differ by {apart:.1e}"
    assert bare[len(bare)] < bare[1], f"{case.name}, {model.name}: nothing was learnt"
    if case.has_fit and case.fit_tells:
        mean = sum(ours[step] for step in range(1, model.fit_steps + 1)) / model.fit_steps
        fit = told.series("fit_loss")[1]
        assert abs(fit - mean) <= WITHIN, f"{case.name}, {model.name}: mean loss {mean:.6f}, of fit {fit:.6f}"
