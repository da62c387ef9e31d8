"""The panel beside the new-job form: what the job would make, where it would run, what each process would be told."""

import json
from dataclasses import dataclass, field

from django.template.defaultfilters import pluralize

from dashboard.forms import JobForm
from dashboard.templatetags.trainyard import group
from orchestrator.domain.job.batching import BatchPlan
from orchestrator.domain.placement.planning import LOCAL_TPU, NodeView, PlannedReplica
from orchestrator.domain.words import counted
from orchestrator.services.jobs.submission import Checked
from worker_agent.protocol.job.choices import LrScaling
from worker_agent.protocol.job.gang_shape import keras_of
from worker_agent.protocol.job.script.script_text import runs_script
from worker_agent.protocol.job.strategies import STRATEGIES
from worker_agent.protocol.job.strategy_row import Split
from worker_agent.protocol.states import NodeState, Role

NODES_SHOWN = 24
CONFIGS_SHOWN = 32
PLACE_FIELDS = ("cluster", "tpu", "workers", "devices_per_worker", "tf_config")
DOT = "\u00b7"


@dataclass(frozen=True)
class Cell:
    """One device in the map: `state` is plan, held, free or closed; `text` is the replica's index in the plan."""

    state: str
    text: str
    title: str


@dataclass(frozen=True)
class NodeMap:
    """One node in the map, `note` names its processes that hold no device, or why it takes no jobs."""

    name: str
    cells: tuple[Cell, ...]
    label: str
    note: str


@dataclass(frozen=True)
class Panel:
    """Everything the panel prints. `tone` and `say` are the verdict on the placement; "" while it is unknowable.

    `product` is the arithmetic of a step as (sign before it, number, what it counts), `rows` what follows from it.
    """

    checked: Checked
    product: list[tuple[str, int, str]]
    rows: list[tuple[str, str]]
    tone: str
    say: str
    nodes: list[NodeMap] = field(default_factory=list)
    nodes_left_out: int = 0
    configs: list[tuple[str, str]] = field(default_factory=list)
    configs_left_out: int = 0
    ports_chosen: bool = False

    @property
    def any_closed(self) -> bool:
        """Whether the map shows a node that takes no jobs now."""
        return any(cell.state == "closed" for node in self.nodes for cell in node.cells)


def panel(found: Checked, form: JobForm) -> Panel:
    """The panel for a preview of the form."""
    tone, say = _verdict(found)
    used = {replica.node_id for replica in found.placement}
    nodes = sorted(found.nodes, key=lambda node: node.node_id not in used)
    configs = [
        (replica.label, json.dumps(replica.tf_config, indent=2))
        for replica in found.placement
        if replica.tf_config is not None
    ]
    return Panel(
        checked=found,
        product=_product(found.batch, _split(found)) if found.batch else [],
        rows=_rows(found.batch, _split(found), form.values["lr_scaling"]) if found.batch else _script_rows(found, form),
        tone=tone,
        say=say,
        nodes=[_node_map(node, found.placement) for node in nodes[:NODES_SHOWN]],
        nodes_left_out=max(0, len(nodes) - NODES_SHOWN),
        configs=configs[:CONFIGS_SHOWN],
        configs_left_out=max(0, len(configs) - CONFIGS_SHOWN),
        ports_chosen=found.asked is not None and not found.asked.tf_config,
    )


def _split(found: Checked) -> Split:
    return STRATEGIES[found.asked.strategy].split if found.asked else Split.DEVICES


def _product(batch: BatchPlan, split: Split) -> list[tuple[str, int, str]]:
    whole = ("=", batch.global_batch_size, "global batch")
    passes = [("×", batch.parts, "passes")] if batch.parts > 1 else []
    first = ("", batch.per_part, "per pass of a replica" if passes else "per replica")
    if split is Split.ONE_WORKER:
        return [
            ("", batch.global_batch_size, "examples per update"),
            ("×", batch.workers, f"worker{pluralize(batch.workers)}, each on its own"),
        ]
    if split is Split.STAGES:
        return [
            ("", batch.per_part, "per micro-batch"),
            ("×", batch.parts, f"micro-batch{pluralize(batch.parts, 'es')}"),
            whole,
        ]
    if split is Split.CORES:
        return [("", batch.global_batch_size, "examples, over the cores of the TPU")]
    if split is Split.GROUPS:
        groups = batch.replicas_in_sync
        return [("", batch.per_replica, "per group"), ("×", groups, f"group{pluralize(groups)} of devices"), whole]
    devices = ("×", batch.devices_per_worker, f"device{pluralize(batch.devices_per_worker)}")
    return [first, *passes, devices, ("×", batch.workers, f"worker{pluralize(batch.workers)}"), whole]


def _rows(batch: BatchPlan, split: Split, scaling: str) -> list[tuple[str, str]]:
    base, rate, replicas = batch.base_learning_rate, batch.learning_rate, batch.replicas_in_sync
    rows = [("Each worker computes", f"{group(batch.per_worker)} per step"), ("Replicas in sync", group(replicas))]
    if split is Split.STAGES:
        stages = batch.workers * batch.devices_per_worker
        idle = (stages - 1) / (batch.parts + stages - 1)
        rows = [("Stages", group(stages)), ("Idle share, at best", f"{idle:.0%} of a step".replace("%", " %"))]
    if split is Split.CORES:
        rows = []
    if base is None or rate is None:
        rows.append(("Learning rate", "the recipe's own"))
    elif rate == base:
        rows.append(("Learning rate", f"{base:g}"))
    else:
        factor = f"√{replicas}" if scaling == LrScaling.SQRT else str(replicas)
        rows.append(("Learning rate", f"{base:g} × {factor} = {rate:g}"))
    if batch.warmup_epochs:
        rows.append(("Reached over", f"the first {batch.warmup_epochs:g} epoch{pluralize(batch.warmup_epochs)}"))
    return rows


def _script_rows(found: Checked, form: JobForm) -> list[tuple[str, str]]:
    """Which Keras a script gets, and which of its processes run it."""
    if found.script is None or found.asked is None:
        return []
    keras = keras_of(found.asked).label
    rows = [("Keras", keras if form.values["keras"] else f"Automatic: {keras}")]
    if found.asked.strategy in found.script.strategies and not STRATEGIES[found.asked.strategy].is_gang:
        rows.append(("Replicas", f"{found.asked.devices_per_worker}, one on each device that the program sees"))
    if STRATEGIES[found.asked.strategy].coordinated:
        own = runs_script(Role.PS, found.asked, found.script)
        rows.append(("Runs it", "every process" if own else "the chief; the others are its servers"))
    return rows


def _verdict(found: Checked) -> tuple[str, str]:
    if any(each.field in PLACE_FIELDS for each in found.errors):
        return "red", "Cannot be placed with these settings."
    if found.waiting_for:
        return "amber", f"Has to wait: {found.waiting_for}"
    if not found.placement:
        return "", ""
    devices = sum(len(replica.devices) for replica in found.placement)
    nodes = len({replica.node_id for replica in found.placement})
    place = f"{counted(devices, 'device')} on {counted(nodes, 'node')}"
    if found.errors:
        return "grey", f"{place}, once the errors are corrected."
    place = f"{place}, starts at once."
    if found.asked and found.asked.tpu not in ("", LOCAL_TPU):
        return "amber", f"{place} Whether the TPU {found.asked.tpu} answers is known only then."
    return "green", place


def _node_map(node: NodeView, placement: tuple[PlannedReplica, ...]) -> NodeMap:
    here = [replica for replica in placement if replica.node_id == node.node_id]
    takers = {index: replica for replica in here for index in replica.devices}
    cells = tuple(_cell(node, index, takers.get(index)) for index, _kind in node.devices)
    return NodeMap(
        name=node.name,
        cells=cells,
        label=f"{node.name}: {len(takers)} of {len(cells)} devices for this job, {len(node.free())} free now",
        note=f" {DOT} ".join(replica.label.replace(":", " ") for replica in here if not replica.devices)
        or ("" if node.state is NodeState.READY else node.state.value),
    )


def _cell(node: NodeView, index: int, taker: PlannedReplica | None) -> Cell:
    if taker is not None:
        return Cell("plan", str(taker.index), f"Device {index}: {taker.label.replace(':', ' ')} of this job")
    if index in node.held:
        return Cell("held", "", f"Device {index} is in use")
    if index in node.dirty:
        return Cell("closed", "", f"Device {index} was not released by a job that has ended")
    if node.state is NodeState.READY:
        return Cell("free", "", f"Device {index} is free")
    return Cell("closed", "", f"Device {index}: the node is {node.state.value}")
