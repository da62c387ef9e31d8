"""Write the tables of docs/ that are made from tables in the code: `.venv/bin/python scripts/tables.py`.

A table stands between `<!-- NAME: made by scripts/tables.py -->` and `<!-- end of NAME -->`. A test compares.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from textwrap import fill

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from worker_agent.protocol.causes import CAUSES, Retry  # noqa: E402
from worker_agent.protocol.job.field import Field  # noqa: E402
from worker_agent.protocol.job.job_spec import FIELDS  # noqa: E402
from worker_agent.protocol.job.strategies import PARTICULAR, STRATEGIES, default_in_words, readers_of  # noqa: E402
from worker_agent.protocol.job.strategy_row import Split, StrategyRow  # noqa: E402


def causes() -> str:
    """What ends a process, and what follows from it."""
    lines = [
        "| cause | what happened | to blame | launched again | counts against `max_restarts` |",
        "|---|---|---|---|---|",
    ]
    for row in CAUSES:
        counts = "yes" if row.retry is Retry.COUNTED else "" if row.retry is Retry.NEVER else "no"
        lines.append(f"| `{row.cause}` | {row.title} | {row.blame or 'nobody'} | {row.retry} | {counts} |")
    return "\n".join(lines)


def strategies() -> str:
    """What each strategy has, and when to take it."""
    lines = ["| name | processes | devices | Keras of a recipe, the default first |", "|---|---|---|---|"]
    for strategy, row in STRATEGIES.items():
        flavours = ", ".join(keras.label for keras in row.keras)
        lines.append(f"| `{strategy}` | {_processes(row)} | {_devices(row)} | {flavours} |")
    guides = [f"**{row.label}** (`{strategy}`). {row.summary} {row.guide}" for strategy, row in STRATEGIES.items()]
    return "\n\n".join(["\n".join(lines), *(fill(guide, 120, break_on_hyphens=False) for guide in guides)])


def _processes(row: StrategyRow) -> str:
    leads = ["chief (a script may leave it out)"] if row.coordinated else []
    workers = "`workers` (one of them called chief on request)" if "chief" in row.reads and not leads else "`workers`"
    parts = [*leads, workers if row.is_gang else "1"] + ["`ps`"] * ("ps" in row.reads)
    return ", ".join(parts + ["an evaluator on request"] * ("validation" in row.reads))


def _devices(row: StrategyRow) -> str:
    if row.split is Split.CORES:
        return "the cores of the TPU"
    if not row.is_gang:
        return "`devices_per_worker` of one node" if "devices_per_worker" in row.reads else "1"
    return "`workers` × `devices_per_worker`" + (", one stage each" if row.split is Split.STAGES else "")


def fields() -> str:
    """Every field of a job."""
    lines = ["| field | what it is | values | default | read by |", "|---|---|---|---|---|"]
    for name, row in FIELDS.items():
        default = "required" if row.required else default_in_words(row)
        readers = [f"{row.only}s"] if row.only else []
        readers += ["under " + ", ".join(f"`{each}`" for each in readers_of(name))] if name in PARTICULAR else []
        words = f"{row.label}. {row.help}".strip()
        lines.append(f"| `{name}` | {words} | {_values(row)} | {default} | {' '.join(readers)} |")
    return "\n".join(lines)


def _values(row: Field) -> str:
    if row.options:
        return ", ".join(f"`{option}`" for option in row.options)
    if row.low is not None:
        return f"{row.low:,} to {row.high:,}".replace(",", "\u202f") + (f" {row.unit}" if row.unit else "")
    return {bool: "true, false", str: "text"}.get(row.type, "")


TABLES: dict[str, tuple[Path, Callable[[], str]]] = {
    "causes": (ROOT / "docs" / "reliability.md", causes),
    "strategies": (ROOT / "docs" / "strategies.md", strategies),
    "fields": (ROOT / "docs" / "fields.md", fields),
}


def page_with(name: str) -> tuple[Path, str]:
    """The page that holds a table, and its text with the table as it should be."""
    path, table = TABLES[name]
    begin, end = f"<!-- {name}: made by scripts/tables.py -->\n", f"\n<!-- end of {name} -->"
    before, _, rest = path.read_text().partition(begin)
    return path, f"{before}{begin}{table()}{end}{rest.partition(end)[2]}"


if __name__ == "__main__":
    for each in TABLES:
        page, text = page_with(each)
        page.write_text(text)
