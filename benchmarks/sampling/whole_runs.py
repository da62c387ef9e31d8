"""What it costs a whole training to measure the parts of its steps: with them, and without, in turns.

Both have the product train the same model for as many steps, long enough for several measurements. CPU seconds are
those of all processes of the gang, from the end of the first epoch to that of the training: other work on the machine
touches them less than it does the time on the clock, which stands beside them.
"""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.measure import Line, quantile
from tests.environment import ROOT
from tests.trainer.gang import Zygote, gang
from worker_agent.protocol.records import StepPart
from worker_agent.protocol.states import Cause, Keras, Strategy
from worker_agent.trainer.loop.step_parts import OFF

ROUNDS = 5
ROUNDS_QUICK = 2
EPOCHS = 40
TARGET = "<= 1.01x"
CLOCK = "by the clock"
CASES: dict[str, tuple[Strategy, dict[str, Any]]] = {
    "one device": (Strategy.ONE_DEVICE, {}),
    "MultiWorkerMirrored ×2": (Strategy.MULTI_WORKER_MIRRORED, {"workers": 2}),
}
MEASURED = {"cpu_s", "clock_s"}


def run(*, rounds: int = ROUNDS) -> Iterator[Line]:
    """One line for each strategy; its ratio is the median of those of the rounds."""
    with TemporaryDirectory(prefix="trainyard-bench-") as home, closing(Zygote(Path(home), Keras.KERAS3)) as zygote:
        zygote.wait_ready()
        for name, (strategy, given) in CASES.items():
            taken: list[tuple[dict[str, float], dict[str, float]]] = []
            for number in range(rounds):
                folder = Path(home) / f"{strategy}-{number}"
                turns = (False, True) if number % 2 else (True, False)
                told = {on: _trained(folder / str(on), zygote, strategy, given, is_measured=on) for on in turns}
                taken.append((told[True], told[False]))
            yield _line(name, taken)


def _trained(
    folder: Path, zygote: Zygote, strategy: Strategy, given: dict[str, Any], *, is_measured: bool
) -> dict[str, float]:
    """The seconds of a whole training."""
    env = {} if is_measured else {OFF: "1"}
    recipe = ROOT / "benchmarks/sampling/recipe.py"
    job = gang(folder, recipe, strategy, epochs=EPOCHS, global_batch_size=64, env=env, **given).start(zygote)
    try:
        job.wait(600)
    finally:
        job.stop()
    for member in job.members:
        ended = member.exit()
        assert ended is not None, member.log()[-3000:]
        assert ended.cause is Cause.COMPLETED, member.log()[-3000:]
        samples = len(member.series(StepPart.COMPUTE.series))
        assert bool(samples) is is_measured, f"{samples} measurements"
    seconds = [{name: member.series(name)[EPOCHS] for name in MEASURED} for member in job.members]
    return {
        "cpu_s": sum(each["cpu_s"] for each in seconds),
        "clock_s": max(each["clock_s"] for each in seconds),
    }


def _line(name: str, taken: list[tuple[dict[str, float], dict[str, float]]]) -> Line:
    ratios = {of: quantile([on[of] / off[of] for on, off in taken], 0.5) for of in MEASURED}
    ours, floor = (quantile([pair[side]["cpu_s"] for pair in taken], 0.5) for side in (0, 1))
    clock = quantile([off["clock_s"] for _, off in taken], 0.5)
    return Line(
        f"whole training, steps measured, {name}",
        *("CPU s", ours, floor, TARGET),
        {CLOCK: clock},
        ratio=ratios["cpu_s"],
        ratios={CLOCK: ratios["clock_s"]},
    )
