"""What the measured parts of a job's steps say: where the time goes, and who holds the others up. Pure.

A sample is what all replicas of a gang measured in the same call of steps. One sample is noise: something is said once
`SETTLED` of them in a row agree, and no longer said once as many in a row do not.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from statistics import median

from worker_agent.protocol.records import StepPart

SETTLED = 3
# What is worth saying begins at the first share of a step, and is taken back below the second.
NAMED, TAKEN_BACK = 0.30, 0.20
# A replica holds the others up where it takes so many times their time by itself, and they wait for such a share.
SLOWER, AS_FAST = 1.25, 1.10
WAITED = 0.10

Parts = Mapping[StepPart, float]  # ms a step
Sample = Mapping[str, Parts]  # by replica


class Holding(StrEnum):
    """What holds a training up."""

    INPUT = "input"
    COMMUNICATION = "communication"
    STRAGGLER = "straggler"
    APPLY = "apply"
    HOST = "host"


OF_A_PART = {
    Holding.INPUT: StepPart.INPUT,
    Holding.COMMUNICATION: StepPart.COMMUNICATION,
    Holding.APPLY: StepPart.APPLY,
    Holding.HOST: StepPart.HOST,
}


@dataclass(frozen=True)
class Finding:
    """What takes `share` of a step (0 to 1). A straggler's `replica` takes `times` what the others take."""

    holding: Holding
    share: float
    replica: str = ""
    times: float = 0.0


def recent(samples: Sequence[Sample]) -> dict[str, dict[StepPart, float]]:
    """The median of each part over the last samples, by replica."""
    last = samples[-SETTLED:]
    names = dict.fromkeys(name for sample in last for name in sample)
    return {
        name: {part: median(sample[name].get(part, 0.0) for sample in last if name in sample) for part in StepPart}
        for name in names
    }


def own_ms(parts: Parts) -> float:
    """What a replica takes by itself."""
    return sum(ms for part, ms in parts.items() if part not in (StepPart.WAIT, StepPart.COMMUNICATION))


def findings(samples: Sequence[Sample]) -> list[Finding]:
    """What holds the training up, most of it first. What a replica waits for is told of the slow one, not of it."""
    found = [
        Finding(holding, share_of(part, samples))
        for holding, part in OF_A_PART.items()
        if _settled(samples, partial(_is_much, part))
    ]
    slow = _straggler(samples)
    return sorted([*found, *([slow] if slow else [])], key=lambda each: -each.share)


def share_of(part: StepPart, samples: Sequence[Sample]) -> float:
    """The share of a step that goes into `part`, lately, over all replicas."""
    return median(_share(part, sample) for sample in samples[-SETTLED:])


def _straggler(samples: Sequence[Sample]) -> Finding | None:
    for name in recent(samples):
        if _settled(samples, partial(_lags, name)):
            last = [sample for sample in samples[-SETTLED:] if len(sample) > 1 and name in sample]
            times = median(_times(sample, name) for sample in last)
            return Finding(Holding.STRAGGLER, median(_waited(sample, name) for sample in last), name, times)
    return None


def _is_much(part: StepPart, sample: Sample) -> bool | None:
    return _side(_share(part, sample), NAMED, TAKEN_BACK)


def _lags(name: str, sample: Sample) -> bool | None:
    if len(sample) < 2 or name not in sample:
        return None
    if _waited(sample, name) < WAITED:
        return False
    return _side(_times(sample, name), SLOWER, AS_FAST)


def _times(sample: Sample, name: str) -> float:
    others = median(own_ms(parts) for other, parts in sample.items() if other != name)
    return own_ms(sample[name]) / others if others else 0.0


def _waited(sample: Sample, name: str) -> float:
    """The share of their step that the others wait."""
    return median(_share_here(StepPart.WAIT, parts) for other, parts in sample.items() if other != name)


def _share(part: StepPart, sample: Sample) -> float:
    return median(_share_here(part, parts) for parts in sample.values())


def _share_here(part: StepPart, parts: Parts) -> float:
    whole = sum(parts.values())
    return parts.get(part, 0.0) / whole if whole else 0.0


def _side(value: float, above: float, below: float) -> bool | None:
    """True from `above` on, False below `below`, None in between, where neither is said."""
    return True if value >= above else False if value < below else None


def _settled(samples: Sequence[Sample], judge: Callable[[Sample], bool | None]) -> bool:
    """What `judge` said last `SETTLED` times in a row; at first False."""
    said, run, settled = None, 0, False
    for sample in samples:
        now = judge(sample)
        said, run = now, run + 1 if now is said else 1
        if now is not None and run >= SETTLED:
            settled = now
    return settled
