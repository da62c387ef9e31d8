"""Half precision, loss scaling and dropout: what all replicas do alike, and what each does for itself."""

from pathlib import Path
from typing import Any

import pytest

from tests.trainer.gang import Gang, Member, Zygote, gang
from worker_agent.protocol.states import Cause, Keras, Strategy

pytestmark = pytest.mark.tf

EQUAL, MASKS = (Path(__file__).parents[1] / "recipes" / name for name in ("equal.py", "masks.py"))
# Its numbers are this far apart near 1; two ways of adding them up may differ by one.
FLOAT16 = 2.0**-10
TWO = ((Strategy.MIRRORED, {"devices": 2}), (Strategy.MULTI_WORKER_MIRRORED, {"workers": 2}))


def started(zygote: Zygote, folder: Path, recipe: Path, strategy: Strategy, **given: Any) -> Gang:
    folder.mkdir()
    return gang(folder, recipe, strategy, seed=3, **given).start(zygote)


def completed(job: Gang) -> Member:
    job.wait(120)
    assert [member.exit().cause for member in job.members] == [Cause.COMPLETED] * len(job.members), job.members[0].log()
    return job.members[0]


@pytest.mark.parametrize("keras", list(Keras))
def test_half_precision_learns_and_an_overflow_skips_the_step_everywhere(
    keras: Keras, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """The first scale is far too large for float16: until it has been halved often enough, no weight moves."""
    zygote = request.getfixturevalue(keras.value)
    given = {"epochs": 4, "global_batch_size": 24, "precision": "mixed_float16", "keras": keras}
    given |= {"params": {"case": "overflow"}, "steps_per_execution": 1}
    layouts = ((Strategy.ONE_DEVICE, {}), *TWO)
    jobs = [started(zygote, tmp_path / strategy, EQUAL, strategy, **given, **sizes) for strategy, sizes in layouts]
    for job in jobs:
        lead = completed(job)
        scale, applied, losses = (lead.series(name) for name in ("scale", "applied", "loss"))
        assert [scale[step] for step in (1, 2, 3)] == [2.0**23, 2.0**22, 2.0**21]
        assert scale[40] == scale[30] >= 2.0**10
        if keras is Keras.KERAS3:  # tf_keras counts a step that was skipped as well
            moved = {step: applied[step] - applied[step - 1] for step in range(2, 41)}
            assert moved == {step: scale[step] == scale[step - 1] for step in moved}
        assert losses[40] < 0.5 * losses[1]
        # In one process the recipe itself holds the replicas' weights against each other.
        assert all(member.series("scale") == scale for member in job.members)
        assert len({member.series("weights_crc")[1] for member in job.members}) == 1
    _, mirrored, workers = (job.members[0] for job in jobs)
    assert mirrored.series("scale") == workers.series("scale")
    losses, found = mirrored.series("loss"), workers.series("loss")
    assert max(abs(found[step] - losses[step]) for step in losses) <= FLOAT16


def test_replicas_draw_masks_of_their_own_and_the_same_ones_again(tmp_path: Path, keras3: Zygote) -> None:
    jobs = [
        started(keras3, tmp_path / f"{strategy}-{run}", MASKS, strategy, epochs=6, global_batch_size=2, **sizes)
        for strategy, sizes in TWO
        for run in range(2)
    ]
    told = [(lead.series("loss"), lead.series("apart"), lead.series("kept")) for lead in map(completed, jobs)]
    losses, apart, kept = told[0]
    assert list(apart) == list(range(1, 7))
    # Two masks of their own differ in half of the places; the same mask twice in none.
    assert 0.3 < sum(apart.values()) / 6 < 0.7
    assert 0.3 < sum(kept.values()) / 6 < 0.7
    assert len(set(losses.values())) == 6
    assert all(other == told[0] for other in told)
