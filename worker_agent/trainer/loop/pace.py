"""How many steps one execution takes. Pure: the first is one step long, so that it is seen at once; then executions
grow until they last about `TARGET_S`, where the cost of starting one no longer matters and a chart still moves.

The wishes also carry what no worker may decide alone: one that is asked to pause wishes for so much less than nothing
that the mean is negative, whatever the others wish, and all see it after the same step.
"""

TARGET_S = 0.15
GROWTH = 8
STEPS_MAX = 1000
PAUSE = -(10**9)
# Shared calls become shorter towards the end of an epoch, but no shorter than such a part of the usual.
SHORTEST = 8


class Pace:
    """Each worker wishes from its own clock; the gang takes the mean of the wishes, so all take the same.

    `fixed` is a number of steps that somebody has chosen; 0 leaves it to the clock. So many `takers` have calls under
    way at the same time, each its own.
    """

    def __init__(self, *, fixed: int = 0, takers: int = 1) -> None:
        self._fixed = fixed
        self._takers = takers
        self.steps = fixed or 1
        self.pauses = False
        self._step_s: float | None = None

    def of(self, left: int) -> int:
        """How many of the `left` steps up to an epoch's end the next call takes: a taker's part of them at most, so
        that all come to the end together (guided self-scheduling, Polychronopoulos and Kuck, 1987)."""
        if self._fixed:
            return min(self._fixed, left)
        return min(self.steps, max(-(-left // self._takers), self.steps // SHORTEST), left)

    def wish(self, *, pause: bool = False) -> int:
        """The steps this worker would like the execution after the next to take; with `pause`, that there is none."""
        if pause:
            return PAUSE
        if self._fixed:
            return self._fixed
        if self._step_s is None:
            return 1
        return max(1, min(round(TARGET_S / max(self._step_s, 1e-6)), self.steps * GROWTH, STEPS_MAX))

    def measured(self, *, steps: int, seconds: float, typical: bool) -> None:
        """An execution of `steps` took `seconds`; one that is not `typical` says nothing about the next."""
        if not typical:
            return
        step_s = seconds / steps
        self._step_s = step_s if self._step_s is None else 0.5 * (self._step_s + step_s)

    def agree(self, mean_wish: float) -> None:
        """Take what the gang agreed on. `pauses` is then the same in all of it."""
        self.pauses = mean_wish < 0
        self.steps = max(1, int(mean_wish))
