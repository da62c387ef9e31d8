"""Which strategy suits a model on a cluster: ranked layouts with reasons, a verdict, and what would change it.

`advise` is the entry. It is pure: whoever calls it has probed the model and knows the cluster. `docs/choosing.md`
explains every formula.
"""

from dataclasses import dataclass
from enum import StrEnum

from orchestrator.domain.advice.candidates import Candidate, Refused, Wishes, candidates
from orchestrator.domain.advice.changes import changes
from orchestrator.domain.advice.cluster import Cluster
from orchestrator.domain.advice.prediction import Prediction, Timings, predict
from orchestrator.domain.advice.ranking import Verdict, ranked, to_measure, verdict
from orchestrator.domain.advice.reasons import cautions, efficiency, reasons
from orchestrator.domain.advice.sentences import Remark
from orchestrator.domain.advice.workload import Workload
from worker_agent.protocol.states import Strategy

_LAYOUT = (
    "workers",
    "devices_per_worker",
    "ps",
    "model_parallel",
    "micro_batches",
    "accumulation",
    "global_batch_size",
)


class Level(StrEnum):
    """What the figures rest on."""

    INSTANT = "instant"  # the formula
    MEASURED = "measured"  # the mean of the formula and short runs of the first layouts


@dataclass(frozen=True)
class Advice:
    """Layouts, the best first; strategies that have none, with the reason; the verdict and what would change it."""

    level: Level
    workload: Workload
    cluster: Cluster
    wishes: Wishes
    predictions: tuple[Prediction, ...]
    refused: tuple[Refused, ...]
    verdict: Verdict
    would_change: tuple[Remark, ...]

    @property
    def single(self) -> Prediction | None:
        """One device, which the others are compared with."""
        asked = self.wishes.job.global_batch_size
        return next(
            (
                each
                for each in self.predictions
                if each.candidate.spec.strategy is Strategy.ONE_DEVICE
                and each.candidate.spec.global_batch_size == asked
            ),
            None,
        )

    @property
    def best_of_each(self) -> list[Prediction]:
        """The first layout of each strategy."""
        firsts: dict[Strategy, Prediction] = {}
        for each in self.predictions:
            firsts.setdefault(each.candidate.spec.strategy, each)
        return list(firsts.values())

    def to_measure(self) -> list[Candidate]:
        """The layouts that are worth a short run, at most three; their steps go into `advise` as `timings`."""
        return to_measure(self.wishes, self.predictions)

    def as_json(self) -> dict[str, object]:
        """As REST answers, without its status."""
        found = self.verdict
        strategy = found.best.candidate.spec.strategy.value if found.best else None
        return {
            "level": self.level.value,
            "candidates": [self._candidate(each) for each in self.predictions]
            + [_refused(each) for each in self.refused],
            "verdict": {
                "strategy": strategy,
                "key": found.best.candidate.key if found.best else None,
                "sure": found.best is not None and found.is_sure,
                "close": [each.candidate.key for each in found.close],
                **found.remark.as_json(),
            },
            "would_change": [remark.as_json() for remark in self.would_change],
            "inputs": _inputs(self.workload, self.cluster, self.wishes),
        }

    def _candidate(self, each: Prediction) -> dict[str, object]:
        spec, examples = each.candidate.spec, self.workload.examples
        epoch_s = each.epoch_s(examples) if examples else None
        return {
            "key": each.candidate.key,
            "strategy": spec.strategy.value,
            **{name: getattr(spec, name) for name in _LAYOUT},
            "devices": each.candidate.devices,
            "device_kind": each.candidate.device.value,
            "nodes": sorted({seat.node_name for seat in each.candidate.seats}),
            "fits": each.fits,
            "predicted": {
                "step_time_ms": each.step_ms,
                "low_ms": each.low_ms,
                "high_ms": each.high_ms,
                "formula_ms": each.formula_ms,
                "parts": {part.value: ms for part, ms in each.parts.items()},
                "examples_per_s": each.examples_per_s,
                "epoch_s": epoch_s,
                "device_hours_per_epoch": epoch_s * each.candidate.devices / 3600 if epoch_s else None,
                "memory_bytes": each.memory.device_bytes,
                "lost_share": 1 - each.goodput,
            },
            "efficiency": efficiency(each, self.single),
            "reasons": [remark.as_json() for remark in reasons(each, self.single)],
            "cautions": [remark.as_json() for remark in cautions(each, self.wishes)],
        }


def advise(
    workload: Workload,
    cluster: Cluster,
    wishes: Wishes,
    *,
    timings: Timings | None = None,
    with_changes: bool = True,
) -> Advice:
    """The advice for a model on a cluster.

    `timings` are steps in ms that short runs of the layouts of `Advice.to_measure` took, by `Candidate.key`: repeats
    apart in time. `with_changes` False leaves out what would change the verdict, which takes most of the time.
    ValueError where neither a probe nor FLOPs say how fast the model computes.
    """
    layouts, refused = candidates(cluster, wishes)
    predictions = ranked(wishes, [predict(workload, cluster, each, timings) for each in layouts])
    found = verdict(wishes, predictions, refused)

    def winner(other: Cluster, wish: Wishes) -> Strategy | None:
        is_same = other.view is cluster.view and wish is wishes
        able, none = (layouts, refused) if is_same else candidates(other, wish)
        order = ranked(wish, [predict(workload, other, each, timings) for each in able])
        best = verdict(wish, order, none).best
        return best.candidate.spec.strategy if best else None

    now = {each.candidate.spec.strategy for each in found.close}
    return Advice(
        level=Level.MEASURED if any(each.measured_ms is not None for each in predictions) else Level.INSTANT,
        workload=workload,
        cluster=cluster,
        wishes=wishes,
        predictions=tuple(predictions),
        refused=tuple(refused),
        verdict=found,
        would_change=tuple(changes(winner, cluster, wishes, now=now)) if with_changes else (),
    )


def _refused(each: Refused) -> dict[str, object]:
    return {
        "key": None,
        "strategy": each.spec.strategy.value,
        **{name: getattr(each.spec, name) for name in _LAYOUT},
        "fits": False,
        "predicted": None,
        "efficiency": None,
        "reasons": [each.remark.as_json()],
        "cautions": [],
    }


def _inputs(workload: Workload, cluster: Cluster, wishes: Wishes) -> dict[str, object]:
    """What the advice was made from."""
    return {
        "parameters": workload.parameters,
        "parameter_bytes": workload.parameter_bytes,
        "variables": workload.variables,
        "gradient_bytes": workload.gradient_bytes,
        "tables": [{"rows": table.rows, "bytes": table.size_bytes} for table in workload.tables],
        "probes": [
            {
                "keras": probe.keras.value,
                "device_kind": probe.device.value,
                "cores": probe.cores,
                "step_ms": {str(batch): ms for batch, ms in sorted(probe.step_ms.items())},
                "apply_ms": probe.apply_ms,
            }
            for probe in workload.probes
        ],
        "network": {
            "bytes_per_s": cluster.network.bytes_per_s,
            "alpha_ms": cluster.network.alpha_ms,
            "source": cluster.network.source,
        },
        "nodes": [
            {
                "name": node.name,
                "devices": len(node.devices),
                "cores": machine.cores,
                "memory_bytes": machine.memory_bytes,
                "device_memory_bytes": machine.device_memory_bytes,
                "speed": machine.speed,
                "preemptible": machine.preemptible,
            }
            for node in sorted(cluster.view.nodes, key=lambda node: node.name)
            for machine in [cluster.machine(node.node_id)]
        ],
        "calibrated": sorted(cluster.calibration.constants),
        "wishes": {
            "global_batch_size": wishes.job.global_batch_size,
            "fixed_batch": wishes.fixed_batch,
            "staleness": wishes.staleness.name.lower(),
            "goal": wishes.goal.name.lower(),
        },
    }
