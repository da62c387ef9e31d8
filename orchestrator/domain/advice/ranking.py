"""Which layout is best, and whether that can be said at all."""

from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.domain.advice.batch import worth
from orchestrator.domain.advice.candidates import Candidate, Goal, Refused, Staleness, Wishes
from orchestrator.domain.advice.prediction import Prediction, preemptible
from orchestrator.domain.advice.sentences import Code, Remark
from orchestrator.domain.words import counted
from worker_agent.protocol.job.strategies import STRATEGIES, label

# Layouts that differ by less are not told apart.
TOO_CLOSE = 0.10
# What the formula alone always had in the right order: pairs that differ by more.
TOLD_APART = 1.5
# What a short measurement is worth: those this much behind the best are left out, and at most so many are measured.
PRUNED = 1.5
MEASURED_MAX = 3


@dataclass(frozen=True)
class Verdict:
    """The layout to take, None if none can run. `close` are those that are too close to tell from it, itself included;
    `is_sure`: no other strategy is so near that the error of its figures could put it first."""

    best: Prediction | None
    close: tuple[Prediction, ...]
    is_sure: bool
    remark: Remark


def ranked(wishes: Wishes, predictions: Sequence[Prediction]) -> list[Prediction]:
    """The best first; what does not fit comes last."""

    def order(each: Prediction) -> tuple[bool, float, tuple[int, int, int], str]:
        return not each.fits, -value(wishes, each), each.candidate.simplicity, each.candidate.key

    return sorted(predictions, key=order)


def value(wishes: Wishes, each: Prediction) -> float:
    """What the wishes ask for: useful examples a second, or those of each device."""
    useful = worth(each.found.workload, each.candidate, asked=wishes.job.global_batch_size)
    rate = each.examples_per_s * each.goodput * useful
    return rate if wishes.goal is Goal.TIME else rate / each.candidate.devices


def verdict(wishes: Wishes, order: Sequence[Prediction], refused: Sequence[Refused] = ()) -> Verdict:
    """The first of the ranked that is wished for, or what is preferred of those that are too close to it.

    A model is divided over devices only where it must be. Preferred are, in this order: asynchronous updates where they
    are welcome, a strategy that goes on when a preemptible machine is lost, and the simplest.
    """
    able = _worthy(wishes, _able(wishes, order))
    if not able:
        return Verdict(None, (), is_sure=False, remark=_none(order, refused))
    best = value(wishes, able[0])
    close = [each for each in able if value(wishes, each) * (1 + TOO_CLOSE) >= best]
    chosen = min(close, key=lambda each: (*_preference(wishes, each), *each.candidate.simplicity))
    close.sort(key=lambda each: (each is not chosen, each.candidate.simplicity))
    others = [each for each in able if each.candidate.spec.strategy is not chosen.candidate.spec.strategy]
    # In the worst case of its interval it is still better than any other in the best case of its own.
    worst = value(wishes, chosen) * chosen.step_ms / chosen.high_ms
    is_sure = all(value(wishes, each) * each.step_ms / each.low_ms < worst for each in others)
    return Verdict(chosen, tuple(close), is_sure=is_sure, remark=_told(wishes, close, others, is_sure=is_sure))


def to_measure(wishes: Wishes, order: Sequence[Prediction]) -> list[Candidate]:
    """What a short measurement should run, one after the other and then again: the best of each strategy, unless the
    formula puts it far behind."""
    able = _able(wishes, order)
    firsts = {each.candidate.spec.strategy: each for each in reversed(able)}
    near = [each for each in firsts.values() if value(wishes, each) * PRUNED >= value(wishes, able[0])]
    return [each.candidate for each in ranked(wishes, near)[:MEASURED_MAX]]


def _able(wishes: Wishes, order: Sequence[Prediction]) -> list[Prediction]:
    """What fits and is wished for."""
    is_excluded = wishes.staleness is Staleness.REFUSED
    return [each for each in order if each.fits and not (is_excluded and each.candidate.is_stale)]


def _worthy(wishes: Wishes, able: list[Prediction]) -> list[Prediction]:
    """Without those that divide the model, unless nothing else can run, or they are far ahead or measured: no training
    has confirmed their formulas."""
    whole = [each for each in able if each.candidate.holds_whole_model or each.measured_ms is not None]
    if not whole or value(wishes, whole[0]) * TOLD_APART < value(wishes, able[0]):
        return able
    return whole


def _preference(wishes: Wishes, each: Prediction) -> tuple[bool, bool]:
    is_apart = STRATEGIES[each.candidate.spec.strategy].coordinated
    is_welcome = wishes.staleness is Staleness.WELCOME
    return is_welcome and not is_apart, not is_apart and preemptible(each.found.cluster, each.candidate) > 0


def _told(wishes: Wishes, close: Sequence[Prediction], others: Sequence[Prediction], *, is_sure: bool) -> Remark:
    """`close` begins with the chosen one, `others` are those of other strategies, the best first."""
    chosen = close[0]
    strategy = chosen.candidate.spec.strategy
    figures: dict[str, float | str] = {
        "strategy": strategy.value,
        "label": label(strategy),
        "rate": chosen.examples_per_s,
        "devices": counted(chosen.candidate.devices, "device"),
    }
    names = list(dict.fromkeys(label(each.candidate.spec.strategy) for each in close))
    if len(names) > 1:
        figures |= {"close": ", ".join(names[:-1]) + f" and {names[-1]}", "limit_share": TOO_CLOSE}
        if STRATEGIES[strategy].coordinated and wishes.staleness is Staleness.WELCOME:
            return Remark(Code.STALE_WELCOME, figures)
        survives = STRATEGIES[strategy].coordinated and any(
            preemptible(each.found.cluster, each.candidate) for each in close
        )
        return Remark(Code.SURVIVES if survives else Code.TOO_CLOSE, figures)
    if not others:
        return Remark(Code.ONLY_ONE, figures)
    times = value(wishes, chosen) / value(wishes, others[0])
    figures |= {"next": label(others[0].candidate.spec.strategy), "times": times}
    if wishes.goal is Goal.COST:
        return Remark(Code.CHEAPEST, figures)
    return Remark(Code.BEST if is_sure else Code.LIKELY, figures)


def _none(order: Sequence[Prediction], refused: Sequence[Refused]) -> Remark:
    """The layout that lacks the least memory, or else the first that was refused."""
    if order:
        nearest = min(order, key=lambda each: each.memory.share)
        remark, spec = nearest.memory.refusal or Remark(Code.STALE_REFUSED), nearest.candidate.spec
    else:
        remark, spec = refused[0].remark, refused[0].spec
    figures = {"strategy": spec.strategy.value, "label": label(spec.strategy), "sentence": remark.sentence}
    return Remark(Code.NONE_FITS, figures)
