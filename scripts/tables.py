"""Write the tables of docs/ that are made from tables in the code: `.venv/bin/python scripts/tables.py`.

A table stands between `<!-- NAME: made by scripts/tables.py -->` and `<!-- end of NAME -->`. A test compares.
"""

import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from worker_agent.protocol.causes import CAUSES, Retry  # noqa: E402


def causes() -> str:
    """What ends a process, and what follows from it."""
    lines = [
        "| cause | what happened | to blame | launched again | counts against `max_restarts` |",
        "|---|---|---|---|---|",
    ]
    for row in CAUSES:
        counts = "yes" if row.retry is Retry.COUNTED else "" if row.retry is Retry.NEVER else "no"
        again = row.again or row.retry.value
        lines.append(f"| `{row.cause}` | {row.meaning} | {row.blame or 'nobody'} | {again} | {counts} |")
    return "\n".join(lines)


TABLES: dict[str, tuple[Path, Callable[[], str]]] = {"causes": (ROOT / "docs" / "reliability.md", causes)}


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
