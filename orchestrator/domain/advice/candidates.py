"""Which layouts there are to choose from: every strategy with the sizes that the cluster has room for.

A layout is the job as it would be submitted (`JobSpec`), so the rules that a request is checked by decide here, too:
`domain/job/combinations`, batch arithmetic and placement. Nothing of them is repeated.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from functools import cached_property
from math import gcd

import msgspec

from orchestrator.domain.advice.calibration import Layout, layout_of
from orchestrator.domain.advice.cluster import Cluster
from orchestrator.domain.advice.sentences import Code, Remark
from orchestrator.domain.job.batching import BatchPlan, Indivisible, of_spec
from orchestrator.domain.job.combinations import refusals, refusals_in
from orchestrator.domain.placement.planning import ClusterView, Never, NotNow, Placed, PlannedReplica, place, shape_of
from worker_agent.protocol.job.gang_shape import computing_roles, device_count, process_count
from worker_agent.protocol.job.job_spec import FIELDS, JobSpec
from worker_agent.protocol.job.recipe_text import RecipeInfo
from worker_agent.protocol.job.strategies import PARTICULAR, STRATEGIES
from worker_agent.protocol.job.strategy_row import Split
from worker_agent.protocol.states import DeviceKind, Role, Strategy

# The largest gangs that are looked at.
WORKERS_MAX = 64
DEVICES_MAX = 64
SERVERS_MAX = 16
# What a layout consists of. An advice chooses these, whatever the request says of them.
_SIZES = {"workers", "devices_per_worker", "ps", "model_parallel", "micro_batches", "accumulation", "chief", "tpu"}


class Goal(Enum):
    """What a good layout saves."""

    TIME = auto()
    COST = auto()  # device-hours


class Staleness(Enum):
    """Whether updates may come from gradients that are some updates old, as under ParameterServer."""

    REFUSED = auto()
    ALLOWED = auto()
    WELCOME = auto()


@dataclass(frozen=True, kw_only=True)
class Wishes:
    """What the advice is for. `job` is the request; its strategy and sizes are what the advice chooses.

    `recipe` is what the program declares, if it is known. `fixed_batch` False allows a global batch of the job's times
    the replicas.
    """

    job: JobSpec
    recipe: RecipeInfo | None = None
    fixed_batch: bool = True
    staleness: Staleness = Staleness.REFUSED
    goal: Goal = Goal.TIME


@dataclass(frozen=True)
class Candidate:
    """A layout: the job, its batch arithmetic, and where its processes would be on the idle cluster."""

    spec: JobSpec
    batch: BatchPlan
    seats: tuple[PlannedReplica, ...]

    @cached_property
    def key(self) -> str:
        """A name for the layout within one advice: `multi_worker_mirrored 2x1`."""
        spec = self.spec
        more = {
            "ps": spec.ps,
            "mesh": spec.model_parallel if spec.strategy is Strategy.TENSOR_PARALLEL else 0,
            "micro": spec.micro_batches if spec.strategy is Strategy.PIPELINE else 0,
            "batch": spec.global_batch_size,
        }
        named = " ".join(f"{name}{value}" for name, value in more.items() if value)
        return f"{spec.strategy} {spec.workers}x{spec.devices_per_worker} {named}"

    @cached_property
    def computing(self) -> list[PlannedReplica]:
        """The processes that compute gradients, the leader first."""
        roles = set(computing_roles(self.spec))
        return [seat for seat in self.seats if (seat.role, seat.index) in roles]

    @cached_property
    def servers(self) -> list[PlannedReplica]:
        """The parameter servers."""
        return [seat for seat in self.seats if seat.role is Role.PS]

    @cached_property
    def device(self) -> DeviceKind:
        """What it computes on."""
        return self.computing[0].device_kind

    @property
    def devices(self) -> int:
        """How many devices it holds."""
        return device_count(self.spec)

    @property
    def holds_whole_model(self) -> bool:
        """Whether each replica computes with the whole model on one device."""
        return self.split not in (Split.GROUPS, Split.STAGES)

    @property
    def layout(self) -> Layout:
        """Whose constants it has."""
        return layout_of(self.spec.strategy, self.device)

    @property
    def is_stale(self) -> bool:
        """Whether its updates come from gradients that are some updates old."""
        return self.split is Split.ONE_WORKER and self.spec.workers > 1

    @property
    def split(self) -> Split:
        """Over what it divides its batch."""
        return STRATEGIES[self.spec.strategy].split

    @property
    def simplicity(self) -> tuple[int, int, int]:
        """The fewer processes, then devices, the simpler; then as the table of strategies is ordered."""
        order = list(STRATEGIES).index(self.spec.strategy)
        return process_count(self.spec), self.devices, order


@dataclass(frozen=True)
class Refused:
    """A strategy that has no layout here, and why."""

    spec: JobSpec
    remark: Remark


def candidates(cluster: Cluster, wishes: Wishes) -> tuple[list[Candidate], list[Refused]]:
    """Every layout that could run, and for each strategy without one the first reason."""
    found: list[Candidate] = []
    refused: list[Refused] = []
    places = _Places(cluster.idle)
    for strategy in STRATEGIES:
        why: Refused | None = None
        before = len(found)
        for sizes in _sizes(strategy, places.view, wishes.job.global_batch_size):
            answer = _checked(_with(wishes, strategy, sizes), places, wishes.recipe)
            if isinstance(answer, Candidate):
                found += [answer, *_with_more_examples(answer, places, wishes)]
            else:
                why = why or answer
        if len(found) == before and why:
            refused.append(why)
    return found, refused


def layout_of_job(spec: JobSpec, cluster: Cluster, recipe: RecipeInfo | None = None) -> Candidate | Refused:
    """A job as it stands, to be predicted: where it would be on the idle cluster, or why it cannot run."""
    return _checked(spec, _Places(cluster.idle), recipe)


def waits_for_room(candidate: Candidate, cluster: Cluster) -> bool:
    """Whether it would have to wait for jobs that run now."""
    return isinstance(place(candidate.spec, cluster.view), NotNow)


def with_parts(candidate: Candidate, parts: int) -> Candidate | None:
    """The same with its batch computed in so many parts (accumulation); None where the strategy or batch does not."""
    if "accumulation" in STRATEGIES[candidate.spec.strategy].refuses:
        return None
    spec = msgspec.structs.replace(candidate.spec, accumulation=parts)
    batch = of_spec(spec)
    return None if isinstance(batch, Indivisible) else Candidate(spec, batch, candidate.seats)


class _Places:
    """Where layouts would be: those that placement treats alike are placed once."""

    def __init__(self, view: ClusterView) -> None:
        self.view = view
        self._known: dict[str, Placed | NotNow | Never] = {}

    def of(self, spec: JobSpec) -> Placed | NotNow | Never:
        shape = shape_of(spec)
        if shape not in self._known:
            self._known[shape] = place(spec, self.view)
        return self._known[shape]


def _with_more_examples(candidate: Candidate, places: _Places, wishes: Wishes) -> Iterator[Candidate]:
    """Where the batch is free: the same with the job's batch on every replica."""
    replicas = candidate.batch.replicas_in_sync
    larger = wishes.job.global_batch_size * replicas
    if wishes.fixed_batch or replicas == 1 or larger > (FIELDS["global_batch_size"].high or larger):
        return
    answer = _checked(msgspec.structs.replace(candidate.spec, global_batch_size=larger), places, wishes.recipe)
    if isinstance(answer, Candidate):
        yield answer


def _checked(spec: JobSpec, places: _Places, recipe: RecipeInfo | None) -> Candidate | Refused:
    """1. What a request is refused for; 2. the batch; 3. the place."""
    for field, sentence in [*refusals(spec, recipe), *refusals_in(spec, places.view)]:
        return Refused(spec, Remark(Code.RULE, {"field": field, "sentence": sentence}))
    if STRATEGIES[spec.strategy].split is Split.CORES:
        return Refused(spec, Remark(Code.NOT_PREDICTED))
    batch = of_spec(spec)
    if isinstance(batch, Indivisible):
        return Refused(spec, Remark(Code.RULE, {"field": "global_batch_size", "sentence": batch.message}))
    placed = places.of(spec)
    if isinstance(placed, Never):
        return Refused(spec, Remark(Code.RULE, {"field": placed.field, "sentence": placed.message}))
    if not isinstance(placed, Placed):
        return Refused(spec, Remark(Code.NO_ROOM, {"sentence": placed.message}))
    return Candidate(spec, batch, placed.replicas)


def _with(wishes: Wishes, strategy: Strategy, sizes: Mapping[str, int]) -> JobSpec:
    """The request under another strategy. What only other strategies read goes back to its default."""
    reads = STRATEGIES[strategy].reads
    unread = {
        name: FIELDS[name].default
        for name in PARTICULAR
        if name in _SIZES or (name not in reads and name not in STRATEGIES[strategy].refuses)
    }
    tpu = {"tpu": wishes.job.tpu or "local"} if "tpu" in reads else {}
    return msgspec.structs.replace(wishes.job, strategy=strategy, **{**unread, **tpu, **sizes})


def _sizes(strategy: Strategy, view: ClusterView, batch: int) -> Iterator[dict[str, int]]:
    """The sizes that a strategy has on these machines, the smallest first. `view` is of the idle cluster."""
    row = STRATEGIES[strategy]
    counts = [len(node.free(kind)) for node in view.nodes for kind in DeviceKind]
    if "devices_per_worker" not in row.reads:
        yield {}
        return
    if not row.is_gang:
        most = max(2, min(max(counts, default=2), DEVICES_MAX))
        yield from ({"devices_per_worker": width} for width in _steps(2, most, batch))
        return
    for width in _widths(counts):
        room = max(sum(len(node.free(kind)) // width for node in view.nodes) for kind in DeviceKind)
        least = 1 if row.split in (Split.GROUPS, Split.STAGES) and width > 1 else 2
        for workers in _steps(least, max(least, min(room, WORKERS_MAX)), batch // width):
            yield from _inner(strategy, {"workers": workers, "devices_per_worker": width})


def _widths(counts: Collection[int]) -> list[int]:
    """How many devices a worker of a gang may have: one, all of a node, or what divides all nodes."""
    return sorted(width for width in {1, gcd(*counts), *counts} if 1 <= width <= DEVICES_MAX)


def _inner(strategy: Strategy, sizes: dict[str, int]) -> Iterator[dict[str, int]]:
    """What a strategy chooses beside workers and devices."""
    workers, devices = sizes["workers"], sizes["workers"] * sizes["devices_per_worker"]
    row = STRATEGIES[strategy]
    if "ps" in row.reads:
        servers = {1, (workers + 1) // 2, workers}
        yield from ({**sizes, "ps": ps} for ps in sorted(servers) if ps <= SERVERS_MAX)
    elif row.split is Split.GROUPS:
        yield from ({**sizes, "model_parallel": size} for size in _powers(devices) if size > 1 and devices % size == 0)
    elif row.split is Split.STAGES:
        # GPipe: from four times as many micro-batches as stages on, the bubble hardly matters.
        least = max(4, 1 << (devices - 1).bit_length())
        yield from ({**sizes, "micro_batches": parts} for parts in (least, 2 * least, 4 * least))
    else:
        yield sizes


def _steps(least: int, most: int, batch: int) -> list[int]:
    """Powers of two, 3, the largest, and the largest that divides a batch."""
    dividing = max(number for number in range(1, most + 1) if batch % number == 0)
    numbers = {3, *_powers(most), most, dividing}
    return sorted(number for number in numbers if least <= number <= most)


def _powers(most: int) -> list[int]:
    return [1 << power for power in range(most.bit_length()) if 1 << power <= most]
