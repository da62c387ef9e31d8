"""What another global batch does to training: updates, learning rate, and how much an example is still worth.

Linear scaling with warm-up: Goyal et al. 2017 (arXiv:1706.02677). Noise scale: McCandlish et al. 2018
(arXiv:1812.06162): to reach the same loss, a batch of B examples needs (1 + B / noise scale) times the examples that
tiny batches need.
"""

from collections.abc import Iterator

from orchestrator.domain.advice.candidates import Candidate
from orchestrator.domain.advice.sentences import Code, Remark
from orchestrator.domain.advice.workload import Workload
from worker_agent.protocol.job.strategy_row import Split


def worth(workload: Workload, candidate: Candidate, *, asked: int) -> float:
    """What an example is worth, beside one in a batch of the size that was asked for: 1 where nothing is known."""
    noise = workload.noise_scale
    return (1 + asked / noise) / (1 + _from_same_weights(candidate) / noise) if noise else 1.0


def noise_scale(*, small: int, small_square: float, large: int, large_square: float) -> float | None:
    """The gradient noise scale in examples, from the mean square norms of gradients of `small` and `large` batches.

    In a step of several replicas both are there for nothing: before the gradients are summed, and after. Means over
    many steps: single ones are noise. None where they are so noisy that no scale follows.
    """
    signal = (large * large_square - small * small_square) / (large - small)
    noise = (small_square - large_square) / (1 / small - 1 / large)
    return noise / signal if signal > 0 and noise > 0 else None


def cautions(workload: Workload, candidate: Candidate, *, asked: int) -> Iterator[Remark]:
    """What to know of a layout that computes more examples from the same weights than were asked for."""
    batch, together = candidate.spec.global_batch_size, _from_same_weights(candidate)
    if batch != asked:
        yield Remark(Code.LARGER_BATCH, {"batch": batch, "asked": asked, "rate": batch / asked})
    if together > asked and workload.noise_scale:
        more = 1 / worth(workload, candidate, asked=asked)
        yield Remark(Code.BATCH_PAYS_LESS, {"noise": workload.noise_scale, "batch": together, "more": more})
    elif together > asked:
        yield Remark(Code.NOISE_UNKNOWN, {"batch": together})


def _from_same_weights(candidate: Candidate) -> int:
    """The examples of a step. Workers of parameter servers compute a batch each before they see one another's."""
    workers = candidate.spec.workers if candidate.split is Split.ONE_WORKER else 1
    return candidate.spec.global_batch_size * workers
