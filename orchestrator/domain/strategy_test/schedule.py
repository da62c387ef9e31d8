"""Which candidate of a strategy test runs next. Pure.

Runs are interleaved (A B C, A B C), so that what changes on the machines meanwhile meets all alike. A candidate that
failed, or that cannot win any more, is run no more. Where the rounds asked for leave the winner open, those that may
still win get further ones.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.domain.strategy_test.measured import Measured, Spread

# After one round, who is so many times behind is not run again; after more, who is beyond `BEHIND` and its spread.
FAR_BEHIND, BEHIND = 2.0, 1.3
ROUNDS_MORE = 2


@dataclass(frozen=True)
class Contender:
    """A candidate with its runs: what each ended one measured, None where it failed. One that `is_out` is withdrawn."""

    place: int
    runs: Sequence[Measured | None] = ()
    is_out: bool = False

    @property
    def rate(self) -> Spread | None:
        """Examples a second, over the runs that were measured."""
        return Spread.of([run.examples_per_s for run in self.runs if run])

    @property
    def has_failed(self) -> bool:
        """Whether a run of it failed."""
        return any(run is None for run in self.runs)


def next_run(contenders: Sequence[Contender], *, rounds: int, until_target: bool) -> int | None:
    """The place of the candidate that runs next; None when the test is over. `until_target`: not the fastest wins, so
    nobody is left out for being slow."""
    going_on = [each for each in contenders if not each.is_out and not each.has_failed]
    if not until_target:
        behind = beaten(contenders)
        going_on = [each for each in going_on if each.place not in behind]
    if all(len(each.runs) >= rounds for each in going_on):
        open_still = [] if until_target else _undecided(going_on)
        going_on = [each for each in open_still if len(each.runs) < rounds + ROUNDS_MORE]
    waiting = [each for each in going_on if len(each.runs) == min(len(other.runs) for other in going_on)]
    return waiting[0].place if waiting else None


def beaten(contenders: Sequence[Contender]) -> dict[int, float]:
    """Who cannot win any more, with how many times the best is as fast."""
    rates = {each.place: each.rate for each in contenders if not each.has_failed}
    known = {place: rate for place, rate in rates.items() if rate}
    if not known or len(known) < len([each for each in contenders if not each.has_failed and not each.is_out]):
        return {}
    best = max(known.values(), key=lambda rate: rate.median)
    times = {place: best.median / rate.median for place, rate in known.items() if rate.median > 0}
    return {
        each.place: times[each.place]
        for each in contenders
        if each.place in times
        and (
            times[each.place] >= FAR_BEHIND
            or (len(each.runs) > 1 and times[each.place] >= BEHIND and not best.overlaps(known[each.place]))
        )
    }


def _undecided(contenders: Sequence[Contender]) -> list[Contender]:
    """Those whose rate overlaps with the best one's; none where that one is alone."""
    rates = [(each, each.rate) for each in contenders]
    known = [(each, rate) for each, rate in rates if rate]
    if not known:
        return []
    best = max((rate for _, rate in known), key=lambda rate: rate.median)
    open_still = [each for each, rate in known if rate.overlaps(best)]
    return open_still if len(open_still) > 1 else []
