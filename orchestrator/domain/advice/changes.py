"""What would change the verdict: one input is moved until another strategy wins, all others stay as they are."""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from math import inf

import msgspec

from orchestrator.domain.advice.candidates import WORKERS_MAX, Staleness, Wishes
from orchestrator.domain.advice.cluster import Cluster, Link, Machine
from orchestrator.domain.advice.sentences import Code, Figure, Remark, amount
from orchestrator.domain.placement.planning import NodeView
from worker_agent.protocol.job.strategies import label
from worker_agent.protocol.states import Strategy

# How far an input is moved, each way, in doublings, and how closely the border is found.
DOUBLINGS = 6
HALVINGS = 5

Question = tuple[Cluster, Wishes]
Winner = Callable[[Cluster, Wishes], Strategy | None]
"""The strategy that a verdict names for a cluster and wishes; None if none can run."""


@dataclass(frozen=True)
class Knob:
    """An input that can be moved: `moved` by a factor, `now` its value, `shown` a value in words.

    `is_whole` has no values between the doublings. `most` is how large it may become."""

    name: str
    what: str
    now: float
    shown: Callable[[float], str]
    moved: Callable[[float], Question]
    is_whole: bool = False
    most: float = inf


def changes(winner: Winner, cluster: Cluster, wishes: Wishes, *, now: Collection[Strategy]) -> list[Remark]:
    """For each input and direction the nearest value from which on another strategy wins, as far as one was found.

    `now` are the strategies that are best, or too close to it to tell: that one of them wins instead says nothing.
    """
    found = []
    for knob in _knobs(cluster, wishes):
        for up in (True, False):
            change = _border(knob, now, winner, up=up)
            if change is not None:
                found.append(change)
    if wishes.staleness is Staleness.REFUSED:
        other = winner(cluster, replace(wishes, staleness=Staleness.ALLOWED))
        if other is not None and other not in now:
            found.append(Remark(Code.STALE_CHANGE, {"knob": "staleness", "strategy": other, "label": label(other)}))
    return found


def _border(knob: Knob, now: Collection[Strategy], winner: Winner, *, up: bool) -> Remark | None:
    """1. In doublings until the winner changes; 2. in halves between the last two."""
    same, other, new = 1.0, None, None
    for doubling in range(1, DOUBLINGS + 1):
        factor = 2.0**doubling if up else 0.5**doubling
        new = _asked(knob, winner, factor)
        if new is not None and new not in now:
            other = factor
            break
        same = factor
    if other is None or new is None:
        return None
    for _ in range(0 if knob.is_whole else HALVINGS):
        middle = (same * other) ** 0.5
        between = _asked(knob, winner, middle)
        if between is None or between in now:
            same = middle
        else:
            other, new = middle, between
    figures: dict[str, Figure] = {
        "knob": knob.name,
        "what": knob.what,
        "direction": "of at least" if up else "of at most",
        "value": knob.shown(knob.now * other),
        "now": knob.shown(knob.now),
        "value_exact": knob.now * other,
        "strategy": new.value,
        "label": label(new),
    }
    return Remark(Code.CHANGE, figures)


def _asked(knob: Knob, winner: Winner, factor: float) -> Strategy | None:
    value = knob.now * factor
    if value > knob.most or (knob.is_whole and (value < 1 or value != int(value))):
        return None
    return winner(*knob.moved(factor))


def _knobs(cluster: Cluster, wishes: Wishes) -> Iterator[Knob]:
    places = {cluster.view.machine_at(node.address) for node in cluster.view.nodes}
    if len(places) > 1:
        rate = min(link.bytes_per_s for link in (cluster.network, *cluster.links.values()))
        yield Knob(
            "bandwidth",
            "a bandwidth between machines",
            rate,
            lambda value: f"{amount(value)}/s",
            lambda factor: (_with_network(cluster, factor), wishes),
        )
    yield Knob(
        "global_batch_size",
        "a global batch",
        wishes.job.global_batch_size,
        lambda value: f"{value:.0f}",
        lambda factor: (cluster, _with_batch(wishes, factor)),
        is_whole=True,
    )
    memories = [_memory(cluster.machine(node.node_id)) for node in cluster.view.nodes]
    if memories and min(memories) > 0:
        yield Knob(
            "memory",
            "a device memory"
            if any(machine.device_memory_bytes for machine in cluster.machines.values())
            else "a memory",
            min(memories),
            amount,
            lambda factor: (_with_memory(cluster, factor), wishes),
        )
    if cluster.view.nodes:
        yield Knob(
            "nodes",
            "a number of nodes",
            len(cluster.view.nodes),
            lambda value: f"{value:.0f}",
            lambda factor: (_with_nodes(cluster, factor), wishes),
            is_whole=True,
            most=WORKERS_MAX,
        )


def _memory(machine: Machine) -> float:
    return machine.device_memory_bytes or machine.memory_bytes


def _with_network(cluster: Cluster, factor: float) -> Cluster:
    def moved(link: Link) -> Link:
        return replace(link, bytes_per_s=link.bytes_per_s * factor)

    links: Mapping[frozenset[str], Link] = {pair: moved(link) for pair, link in cluster.links.items()}
    return replace(cluster, network=moved(cluster.network), links=links)


def _with_batch(wishes: Wishes, factor: float) -> Wishes:
    size = round(wishes.job.global_batch_size * factor)
    return replace(wishes, job=msgspec.structs.replace(wishes.job, global_batch_size=size))


def _with_memory(cluster: Cluster, factor: float) -> Cluster:
    machines = {
        node_id: replace(
            machine,
            memory_bytes=machine.memory_bytes * factor,
            device_memory_bytes=machine.device_memory_bytes * factor,
        )
        for node_id, machine in cluster.machines.items()
    }
    return replace(cluster, machines=machines)


def _with_nodes(cluster: Cluster, factor: float) -> Cluster:
    """Fewer nodes: the first by name. More: copies of them, each a machine of its own."""
    nodes = sorted(cluster.view.nodes, key=lambda node: node.name)
    wanted, machines, made = round(len(nodes) * factor), dict(cluster.machines), nodes
    if wanted > len(nodes):
        made = [_copy(nodes[number % len(nodes)], number // len(nodes)) for number in range(wanted)]
        for number, node in enumerate(made):
            machines[node.node_id] = cluster.machine(nodes[number % len(nodes)].node_id)
    return replace(cluster, view=replace(cluster.view, nodes=tuple(made[:wanted])), machines=machines)


def _copy(node: NodeView, number: int) -> NodeView:
    if number == 0:
        return node
    suffix = f"+{number}"
    return replace(node, node_id=node.node_id + suffix, name=node.name + suffix, address=node.address + suffix)
