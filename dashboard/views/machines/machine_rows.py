"""Nodes and their devices as the tables, tiles and maps of the machine pages print them."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from dashboard.templatetags.trainyard import MISSING, duration
from dashboard.tones import HEAT_TONES, tone_of_heat
from dashboard.views.tiles import Tile
from orchestrator.domain.words import counted
from orchestrator.queries.machines import Slot
from orchestrator.queries.rows import Node
from orchestrator.queries.telemetry import LoadView
from worker_agent.protocol.reports import Device, GpuSample

GB, MB = 1_000_000_000, 1_000_000
TIMES = "\u00d7"
NOUNS = {"gpu": "GPU", "cpu": "CPU slot"}


@dataclass(frozen=True)
class NodeRow:
    """A node in a table. `note` explains its state, or names its address and devices."""

    node: Node
    slots: list[Slot]
    note: str
    cells_label: str
    cpu: str
    gpu: str
    memory: str
    curve: list[float]
    jobs: int
    beat: str


def counts(slots: Mapping[str, list[Slot]]) -> dict[str, int]:
    """How many devices are held, free, dirty and lost."""
    found = Counter(slot.state for own in slots.values() for slot in own)
    return {state: found[state] for state in ("held", "free", "dirty", "lost")}


def devices_in_words(devices: Iterable[Device]) -> str:
    """`8 x NVIDIA A100` with the sign for times, `4 CPU slots`."""
    found = Counter((device.kind, device.name if device.kind == "gpu" else "") for device in devices)
    parts = [
        f"{number} {TIMES} {name}" if name else counted(number, NOUNS.get(kind, kind))
        for (kind, name), number in found.items()
    ]
    return ", ".join(parts) or "no devices"


def devices_total(found: Counter[str]) -> str:
    """`64 GPUs, 8 CPU slots`, from their kinds."""
    return ", ".join(counted(found[kind], NOUNS[kind]) for kind in NOUNS if found[kind]) or "no devices"


def ago(moment: datetime | None, now: datetime) -> str:
    """`2 s ago`, as the page's script counts it on."""
    return f"{duration((now - moment).total_seconds())} ago" if moment else "never"


def load_of(node: Node) -> dict[str, str]:
    """CPU, memory and mean GPU load of the latest sample as text; a dash for what is not known or no longer true."""
    load = node.load
    if load is None:
        return dict.fromkeys(("cpu", "gpu", "memory"), MISSING)
    gpus, total = [gpu.utilisation for gpu in load.gpus], load.memory_total_bytes
    return {
        "cpu": f"{load.cpu_percent:.0f} %",
        "gpu": f"{sum(gpus) / len(gpus):.0f} %" if gpus else MISSING,
        "memory": f"{100 * load.memory_used_bytes / total:.0f} %" if total else MISSING,
    }


def row(node: Node, slots: list[Slot], curve: list[float], *, now: datetime) -> NodeRow:
    """A node with its devices and its recent CPU load."""
    free = sum(slot.state == "free" for slot in slots)
    holders = {slot.holder.job_id for slot in slots if slot.holder is not None}
    explained = node.state != "ready" and node.state_reason
    return NodeRow(
        node=node,
        slots=slots,
        note=node.state_reason if explained else f"{node.address}, {devices_in_words(node.devices)}",
        cells_label=f"{node.name}: {free} of {len(slots)} free",
        curve=curve if node.state != "lost" else [],
        jobs=len(holders),
        beat=ago(node.last_seen_at, now),
        **load_of(node),
    )


def figures(node: Node, series: Mapping[str, LoadView]) -> list[Tile]:
    """The tiles of the node page: load now, each with its recent curve."""
    load = node.load
    curves = {name: view.values for name, view in series.items()} if load else {}
    total = load.memory_total_bytes if load else 0
    received = _rate(load.network_received_bps if load else None)
    sent = _rate(load.network_sent_bps if load else None)
    return [
        Tile(
            "CPU",
            f"{load.cpu_percent:.0f}" if load else MISSING,
            "%",
            f"of {node.inventory.get('cores', MISSING)} cores",
            key="cpu",
            values=curves.get("cpu_percent", []),
            top=100,
        ),
        Tile(
            "Memory",
            f"{load.memory_used_bytes / GB:.1f}" if load else MISSING,
            "GB",
            f"of {total / GB:.1f} GB" if total else "",
            key="memory",
            values=curves.get("memory_used_bytes", []),
            top=total,
        ),
        Tile("Network in", *received, key="received", values=curves.get("network_received_bps", [])),
        Tile("Network out", *sent, key="sent", values=curves.get("network_sent_bps", [])),
    ]


@dataclass(frozen=True)
class DeviceTile:
    """One device of a node with what holds it; of a GPU, its latest `reading`."""

    slot: Slot
    title: str
    reading: dict[str, float | str] | None


def device_tiles(node: Node, slots: Iterable[Slot]) -> list[DeviceTile]:
    """The devices of one node, in order."""
    readings = {gpu.index: gpu for gpu in node.load.gpus} if node.load else {}
    memory = {device.index: device.memory_bytes for device in node.devices}
    return [
        DeviceTile(
            slot,
            f"{NOUNS.get(slot.kind, slot.kind)} {slot.index}",
            _reading(readings[slot.index], memory[slot.index]) if slot.index in readings else None,
        )
        for slot in slots
    ]


def _reading(gpu: GpuSample, memory_bytes: int) -> dict[str, float | str]:
    heat = gpu.temperature
    return {
        "load": gpu.utilisation,
        "memory_gb": gpu.memory_bytes / GB,
        "memory_total_gb": memory_bytes / GB,
        "memory_share": min(100.0, 100 * gpu.memory_bytes / (memory_bytes or 1)),
        "heat": heat,
        "heat_share": min(100.0, max(0.0, (heat - 20) / 70 * 100)),
        "heat_tone": tone_of_heat(heat),
        "heat_tones": " ".join(f"{from_c}:{tone}" for from_c, tone in HEAT_TONES),
        "power_w": gpu.power_w,
    }


def _rate(bytes_per_s: float | None) -> tuple[str, str]:
    """Bytes per second as figure and unit; the page's script does the same."""
    if bytes_per_s is None:
        return MISSING, "MB/s"
    if bytes_per_s >= GB:
        return f"{bytes_per_s / GB:.2f}", "GB/s"
    return f"{bytes_per_s / MB:.1f}", "MB/s"
