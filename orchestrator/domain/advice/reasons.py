"""Why a layout is as quick as it is, and what to know before it is taken: remarks from a prediction's own figures."""

from collections import Counter
from collections.abc import Iterator
from statistics import fmean

from orchestrator.domain.advice import batch
from orchestrator.domain.advice.candidates import Staleness, Wishes, waits_for_room
from orchestrator.domain.advice.costs import examples_read, link_of, travels
from orchestrator.domain.advice.memory import NEAR
from orchestrator.domain.advice.prediction import Prediction, preemptible
from orchestrator.domain.advice.sentences import Code, Remark
from orchestrator.domain.advice.workload import Basis
from orchestrator.domain.words import counted
from worker_agent.protocol.job.gang_shape import replicas_in_sync
from worker_agent.protocol.job.strategies import STRATEGIES, label
from worker_agent.protocol.job.strategy_row import Split
from worker_agent.protocol.records import StepPart
from worker_agent.protocol.states import DeviceKind, Strategy

# A part of the step from which on it is a reason, and a difference between workers from which on they are uneven.
WORTH_SAYING = 0.10
MOSTLY = 0.75
UNEVEN = 1.15

_TRAVEL = {
    Split.DEVICES: Code.GRADIENTS_TRAVEL,
    Split.ONE_WORKER: Code.VARIABLES_TRAVEL,
    Split.GROUPS: Code.PIECES_TRAVEL,
    Split.STAGES: Code.PIECES_TRAVEL,
}
_BASIS = {Basis.OTHER_CORES: Code.OTHER_CORES, Basis.OTHER_KERAS: Code.OTHER_KERAS, Basis.FLOPS: Code.FLOPS}


def efficiency(each: Prediction, single: Prediction | None) -> float | None:
    """Its examples/s beside as many times those of one device; None where one device is not predicted."""
    return each.examples_per_s / (single.examples_per_s * each.candidate.devices) if single else None


def reasons(each: Prediction, single: Prediction | None) -> Iterator[Remark]:
    """What its step consists of, the largest causes only; `single` is the prediction of one device."""
    if each.memory.refusal:
        yield each.memory.refusal
        return
    yield from _speed(each, single)
    share = each.share
    if share(StepPart.COMPUTE) >= MOSTLY:
        yield Remark(Code.MOSTLY_COMPUTE, {"part_share": share(StepPart.COMPUTE)})
    if share(StepPart.COMMUNICATION) >= WORTH_SAYING:
        yield _communication(each)
    yield from _waiting(each)
    if share(StepPart.APPLY) >= 2 * WORTH_SAYING:
        yield Remark(Code.APPLIES, {"part_share": share(StepPart.APPLY)})
    if share(StepPart.INPUT) >= WORTH_SAYING:
        figures = {"part_share": share(StepPart.INPUT), "examples": examples_read(each.found)}
        yield Remark(Code.INPUT_BOUND, figures)
    yield from _small_batch(each, single)
    if single and single.memory.refusal and not each.candidate.holds_whole_model:
        yield Remark(Code.DIVIDED, single.memory.refusal.figures)
    if each.candidate.spec.accumulation > 1:
        yield Remark(Code.ACCUMULATED, {"parts": each.candidate.spec.accumulation})
    if each.correction:
        found = each.correction
        yield Remark(
            Code.HELD if found.held else Code.CORRECTED,
            {"factor": found.factor, "runs": found.runs, "ratio": found.ratio},
        )
    if each.measured_ms is not None:
        yield Remark(Code.MEASURED, {"formula_ms": each.formula_ms, "measured_ms": each.measured_ms})


def cautions(each: Prediction, wishes: Wishes) -> Iterator[Remark]:
    """What to know before it is taken."""
    candidate, found = each.candidate, each.found
    if candidate.is_stale and wishes.staleness is Staleness.REFUSED:
        yield Remark(Code.STALE_REFUSED)
    if not each.is_calibrated and each.measured_ms is None:
        yield Remark(Code.USUAL_CONSTANTS, {"label": label(candidate.spec.strategy)})
    if found.basis is Basis.OUTSIDE and (probed := found.passes[0].probed):
        yield Remark(Code.OUTSIDE, {"batch": candidate.batch.per_part, "low": probed[0], "high": probed[1]})
    elif found.basis in _BASIS:
        yield Remark(_BASIS[found.basis])
    if each.memory.share == 0:
        yield Remark(Code.MEMORY_UNKNOWN)
    elif NEAR <= each.memory.share <= 1:
        yield Remark(Code.NEAR_MEMORY, {"memory_share": each.memory.share})
    yield from batch.cautions(found.workload, candidate, asked=wishes.job.global_batch_size)
    if candidate.is_stale:
        yield Remark(Code.STALE, {"updates": candidate.spec.workers - 1})
    if machines := preemptible(found.cluster, candidate):
        code = Code.LOSSES_STOP_ONE if STRATEGIES[candidate.spec.strategy].coordinated else Code.LOSSES_STOP_ALL
        named = counted(machines, "preemptible machine")
        yield Remark(code, {"machines": machines, "preemptible": named, "lost_share": 1 - each.goodput})
    yield from _shared_cores(each)
    if waits_for_room(candidate, found.cluster):
        yield Remark(Code.BUSY)


def _speed(each: Prediction, single: Prediction | None) -> Iterator[Remark]:
    efficient = efficiency(each, single)
    if each.candidate.spec.strategy is Strategy.ONE_DEVICE:
        yield Remark(Code.BASELINE)
    elif efficient is not None:
        devices = each.candidate.devices
        figures = {"times": efficient * devices, "devices": devices, "efficiency_share": efficient}
        yield Remark(Code.SPEEDUP if efficient * devices >= 1 else Code.SLOWDOWN, figures)


def _communication(each: Prediction) -> Remark:
    found, split = each.found, each.candidate.split
    if split is Split.ONE_WORKER:
        rows = sum(table.touched_bytes(each.candidate.spec.global_batch_size) for table in found.workload.tables)
        moved = 2 * (found.workload.dense_bytes + rows)
    else:
        moved = sum(travels(found.workload, each.candidate))
    figures = {
        "part_share": each.share(StepPart.COMMUNICATION),
        "part_ms": each.parts[StepPart.COMMUNICATION],
        "moved_bytes": moved,
        "link_bytes_per_s": link_of(found).bytes_per_s,
    }
    return Remark(_TRAVEL[split], figures)


def _waiting(each: Prediction) -> Iterator[Remark]:
    candidate, ranks = each.candidate, each.found.ranks_ms
    share, spec = each.share(StepPart.WAIT), candidate.spec
    uneven = max(ranks) / min(ranks) if min(ranks) else 1.0
    if candidate.split is Split.ONE_WORKER and uneven >= UNEVEN:
        yield Remark(Code.OWN_PACE, {"times": uneven})
    if share < WORTH_SAYING:
        return
    if candidate.split is Split.ONE_WORKER:
        yield Remark(Code.SERVERS_BUSY, {"part_share": share, "servers": spec.ps})
    elif candidate.split is Split.STAGES:
        yield Remark(Code.BUBBLE, {"part_share": share, "stages": candidate.devices, "parts": candidate.batch.parts})
    else:
        slowest = candidate.computing[ranks.index(max(ranks))].node_name
        times = max(ranks) / fmean(ranks)
        yield Remark(Code.SLOWEST_WAITED_FOR, {"part_share": share, "node": slowest, "times": times})


def _small_batch(each: Prediction, single: Prediction | None) -> Iterator[Remark]:
    """Where a replica's part of the batch is so small that each example costs more than in the whole."""
    if single is None or each.candidate.split is not Split.DEVICES or replicas_in_sync(each.candidate.spec) == 1:
        return
    here = min(each.found.ranks_ms) / each.candidate.batch.per_replica
    whole = min(single.found.ranks_ms) / single.candidate.batch.per_replica
    if whole and here / whole >= 1.25:
        yield Remark(Code.SMALL_BATCH, {"batch": each.candidate.batch.per_part, "times": here / whole})


def _shared_cores(each: Prediction) -> Iterator[Remark]:
    candidate, cluster = each.candidate, each.found.cluster
    if candidate.device is not DeviceKind.CPU:
        return
    if candidate.spec.devices_per_worker > 1:
        yield Remark(Code.LOGICAL_DEVICES)
    places = Counter(cluster.place_of(seat) for seat in candidate.computing)
    place, processes = max(places.items(), key=lambda item: (item[1], item[0]))
    if processes > 1:
        seat = next(seat for seat in candidate.computing if cluster.place_of(seat) == place)
        yield Remark(Code.ONE_MACHINE, {"processes": processes, "cores": cluster.machine(seat.node_id).cores})
