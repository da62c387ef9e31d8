"""The parts of a step from moments inside the graph: the arithmetic, and when to measure. Pure.

A replica's wait for the others needs no common clock: each puts its own time, from the end of one reduction to its
coming to the next, into that next reduction. Whoever took longest waited for nobody, the others waited for the rest.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic

import numpy as np
from numpy.typing import NDArray

from worker_agent.protocol.records import STEP_PARTS_AFTER_S, STEP_PARTS_EVERY_S, StepPart

# Moments in the graph hold back what else would overlap, by up to 14 % of a step (an LSTM on one device). So they are
# in a second trace, which takes one call now and then. It costs about half a second, once: a short run is spared.
# With this variable in the environment of a whole gang there is none: `benchmarks/sampling` compares the two.
OFF = "TRAINYARD_NO_STEP_PARTS"

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Moments:
    """Of the k steps of one call, in seconds of this process's clock, for its r replicas out of n in the gang.

    `began` (k): the step; `batched`, `computed`, `reduced` (k, r): the batch was there, the gradients were, their sum
    was. `ended`: the last step. `own` (k, n): what each replica of the gang took by itself. `here`: which are ours.
    """

    began: Floats
    batched: Floats
    computed: Floats
    reduced: Floats
    ended: float
    own: Floats
    here: list[int]

    @classmethod
    def of(cls, rows: Floats, ended: Floats, *, replicas: int) -> "Moments":
        """From the graph: a row for each step, `[began, (place, batched, computed, reduced) of ours, own of all]`."""
        ours = rows[:, 1:-replicas].reshape(len(rows), -1, 4)
        return cls(
            began=rows[:, 0],
            batched=ours[:, :, 1],
            computed=ours[:, :, 2],
            reduced=ours[:, :, 3],
            ended=float(ended),
            own=rows[:, -replicas:],
            here=[int(place) for place in ours[0, :, 0]],
        )


def parts_of(moments: Moments, *, seconds: float) -> dict[StepPart, float]:
    """The mean of each part in ms a step; `seconds` is the time of the whole call as its caller saw it.

    The first of several steps is left out: its replicas did not come from a reduction together.
    """
    steps = len(moments.began)
    ends = np.append(moments.began[1:], moments.ended)
    counted = slice(1 if steps > 1 else 0, None)
    wait = (moments.own.max(axis=1, keepdims=True) - moments.own[:, moments.here])[counted]
    reduction = (moments.reduced - moments.computed)[counted]
    wait = np.minimum(wait, np.maximum(reduction, 0.0))
    each = {
        StepPart.INPUT: (moments.batched - moments.began[:, None])[counted],
        StepPart.COMPUTE: (moments.computed - moments.batched)[counted],
        StepPart.WAIT: wait,
        StepPart.COMMUNICATION: reduction - wait,
        StepPart.APPLY: (ends - moments.reduced.max(axis=1))[counted],
        StepPart.HOST: (seconds - (moments.ended - moments.began[:1])) / steps,
    }
    return {part: max(0.0, 1000 * float(np.mean(times))) for part, times in each.items()}


class Due:
    """Says when the next measurement is due: first after `STEP_PARTS_AFTER_S` of training, then every
    `STEP_PARTS_EVERY_S`."""

    def __init__(self, *, never: bool = False, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._at = math.inf if never else None

    def __bool__(self) -> bool:
        if self._at is None:
            self._at = self._clock() + STEP_PARTS_AFTER_S
        return self._clock() >= self._at

    def taken(self) -> None:
        """It was measured."""
        self._at = self._clock() + STEP_PARTS_EVERY_S
