"""Nodes and their devices as the tables, tiles and maps of the machine pages print them."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django.urls import reverse

from orchestrator.queries.machines import Slot

GB, MB = 1_000_000_000, 1_000_000
TIMES, MISSING = "\u00d7", "\u2013"
KINDS = {"gpu": ("GPU", "GPUs"), "cpu": ("CPU slot", "CPU slots")}


@dataclass(frozen=True)
class Span:
    """How long ago something was, in words, and the moment itself for the page to count on from."""

    at: datetime | None
    text: str


@dataclass(frozen=True)
class NodeRow:
    """A node in a table. `note` explains its state, or names its address and devices."""

    node: Any
    slots: list[Slot]
    note: str
    cells_label: str
    cpu: str
    gpu: str
    memory: str
    curve: list[float]
    jobs: int
    beat: Span


def rows(
    nodes: Iterable[Any], slots: Mapping[str, list[Slot]], curves: Mapping[str, list[float]], *, now: datetime
) -> list[NodeRow]:
    """One row per node, in the given order; `curves` is the recent CPU load by node id."""
    return [_row(node, slots.get(node.pk, []), curves.get(node.pk, []), now) for node in nodes]


def counts(slots: Mapping[str, list[Slot]]) -> dict[str, int]:
    """How many devices are held, free, dirty and lost."""
    found = Counter(slot.state for own in slots.values() for slot in own)
    return {state: found[state] for state in ("held", "free", "dirty", "lost")}


def devices_in_words(devices: Iterable[Mapping[str, object]]) -> str:
    """`8 x NVIDIA A100` with the sign for times, `4 CPU slots`."""
    found = Counter((str(device["kind"]), str(device["name"])) for device in devices)
    by_kind: dict[str, Counter[str]] = {}
    for (kind, name), number in found.items():
        by_kind.setdefault(kind, Counter())[name] += number
    parts = []
    for kind, names in by_kind.items():
        if kind == "gpu":
            parts += [f"{number} {TIMES} {name}" for name, number in names.items()]
        else:
            parts.append(counted(sum(names.values()), kind))
    return ", ".join(parts) or "no devices"


def counted(number: int, kind: str) -> str:
    """`1 GPU`, `4 CPU slots`."""
    one, many = KINDS.get(kind, (kind, f"{kind}s"))
    return f"{number} {one if number == 1 else many}"


def devices_total(nodes: Iterable[Any]) -> str:
    """`64 GPUs, 8 CPU slots` over all nodes."""
    found = Counter(str(device["kind"]) for node in nodes for device in node.devices)
    return ", ".join(counted(found[kind], kind) for kind in ("gpu", "cpu") if found[kind]) or "no devices"


def ago(moment: datetime | None, now: datetime) -> Span:
    """`2 s ago`, as the page's script writes it too."""
    if moment is None:
        return Span(None, "never")
    seconds = max(0, int((now - moment).total_seconds()))
    if seconds < 100:
        return Span(moment, f"{seconds} s ago")
    minutes = seconds // 60
    if minutes < 60:
        return Span(moment, f"{minutes} min ago")
    hours = minutes // 60
    if hours < 48:
        return Span(moment, f"{hours} h {minutes % 60:02d} min ago")
    return Span(moment, f"{hours // 24} days ago")


def load_of(node: Any) -> dict[str, str]:
    """CPU, memory and mean GPU load of the latest sample as text; a dash for what is not known or no longer true."""
    sample = node.sample if node.state != "lost" else {}
    gpus = [float(gpu["utilisation"]) for gpu in sample.get("gpus", [])]
    total = sample.get("memory_total_bytes") or 0
    return {
        "cpu": f"{sample['cpu_percent']:.0f} %" if "cpu_percent" in sample else MISSING,
        "gpu": f"{sum(gpus) / len(gpus):.0f} %" if gpus else MISSING,
        "memory": f"{100 * sample['memory_used_bytes'] / total:.0f} %" if total else MISSING,
    }


def _row(node: Any, slots: list[Slot], curve: list[float], now: datetime) -> NodeRow:
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


def figures(node: Any, series: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The tiles of the node page: load now, each with its recent curve; `key` names the live number, `top` is the
    most that there can be."""
    known = {} if node.state == "lost" else node.sample
    curves = {name: view.values for name, view in series.items()} if known else {}
    used, total = known.get("memory_used_bytes"), known.get("memory_total_bytes")
    sent, received = known.get("network_sent_bps"), known.get("network_received_bps")
    return [
        {
            "key": "cpu",
            "label": "CPU",
            "figure": MISSING if not known else f"{known['cpu_percent']:.0f}",
            "unit": "%",
            "note": f"of {node.inventory.get('cores', MISSING)} cores",
            "values": curves.get("cpu_percent", []),
            "top": 100,
        },
        {
            "key": "memory",
            "label": "Memory",
            "figure": MISSING if used is None else f"{used / GB:.1f}",
            "unit": "GB",
            "note": f"of {total / GB:.1f} GB" if total else "",
            "values": curves.get("memory_used_bytes", []),
            "top": total,
        },
        {
            "key": "received",
            "label": "Network in",
            "figure": _rate(received)[0],
            "unit": _rate(received)[1],
            "note": "",
            "values": curves.get("network_received_bps", []),
        },
        {
            "key": "sent",
            "label": "Network out",
            "figure": _rate(sent)[0],
            "unit": _rate(sent)[1],
            "note": "",
            "values": curves.get("network_sent_bps", []),
        },
    ]


def device_tiles(node: Any, slots: list[Slot]) -> list[dict[str, Any]]:
    """The devices of one node with holder and, for GPUs, the latest readings."""
    readings = {int(gpu["index"]): gpu for gpu in node.sample.get("gpus", [])}
    memory = {int(device["index"]): int(device.get("memory_bytes") or 0) for device in node.devices}
    return [
        _tile(slot, readings.get(slot.index) if slot.state != "lost" else None, memory[slot.index]) for slot in slots
    ]


def _tile(slot: Slot, reading: Mapping[str, Any] | None, memory_bytes: int) -> dict[str, Any]:
    tile: dict[str, Any] = {"slot": slot, "title": f"{KINDS.get(slot.kind, (slot.kind,))[0]} {slot.index}"}
    if slot.holder is not None:
        tile["job_url"] = reverse("job", args=[slot.holder.job_id])
    if reading is not None:
        total = memory_bytes or 1
        heat = float(reading["temperature"])
        tile["reading"] = {
            "load": float(reading["utilisation"]),
            "memory_gb": float(reading["memory_bytes"]) / GB,
            "memory_total_gb": memory_bytes / GB,
            "memory_share": min(100.0, 100 * float(reading["memory_bytes"]) / total),
            "heat": heat,
            "heat_share": min(100.0, max(0.0, (heat - 20) / 70 * 100)),
            "heat_tone": "red" if heat >= 85 else "amber" if heat >= 80 else "blue",
            "power_w": float(reading["power_w"]),
        }
    return tile


def _rate(bytes_per_s: float | None) -> tuple[str, str]:
    """Bytes per second as figure and unit; the page's script does the same."""
    if bytes_per_s is None:
        return MISSING, "MB/s"
    if bytes_per_s >= GB:
        return f"{bytes_per_s / GB:.2f}", "GB/s"
    return f"{bytes_per_s / MB:.1f}", "MB/s"


def utc_now() -> datetime:
    """Now, for the spans of a page."""
    return datetime.now(UTC)
