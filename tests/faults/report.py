"""The report of the fault suite: a table of faults and states, what was skipped and why, and what was counted."""

from collections import defaultdict
from collections.abc import Iterable, Iterator

from tests.faults.checker import Counts, Verdict
from tests.faults.suite import Row


def line_of(row: Row) -> str:
    """One strike, as it is over."""
    if row.skipped:
        return f"skip  {row.fault.name}: {row.skipped}"
    word = "WRONG" if row.verdict.wrong else "ok"
    told = [*row.verdict.figures, *row.verdict.wrong]
    return "\n      ".join([f"{word:5} {row.fault.name}, {row.state} ({row.seconds:.0f} s)", *told])


def table_of(rows: Iterable[Row]) -> str:
    """Strikes by fault and state; violations are marked; below, the counts."""
    cells: dict[str, dict[str, list[Row]]] = defaultdict(lambda: defaultdict(list))
    states: list[str] = []
    total = Verdict()
    for row in rows:
        cells[row.fault.name][row.state].append(row)
        states += [row.state] if row.state not in states else []
        total.add(row.verdict)
    return "\n".join([*_table(cells, states), "", *_counts(total)])


def _table(cells: dict[str, dict[str, list[Row]]], states: list[str]) -> Iterator[str]:
    width = max(map(len, cells), default=5)
    yield "  ".join([f"{'fault':{width}}", *(f"{state:>13}" for state in states)])
    for name, by_state in cells.items():
        yield "  ".join([f"{name:{width}}", *(f"{_cell(by_state.get(state, [])):>13}" for state in states)])


def _cell(rows: list[Row]) -> str:
    if not rows:
        return "·"
    if all(row.skipped for row in rows):
        return "skipped"
    wrong = sum(bool(row.verdict.wrong) for row in rows)
    return f"{len(rows)}, {wrong} bad" if wrong else str(len(rows))


def _counts(total: Verdict) -> Iterator[str]:
    for what, counts in (("points", total.points), ("lines", total.lines)):
        yield f"{what}: {_words(counts)}"
    yield from total.figures
    yield f"violations: {len(total.wrong)}"
    yield from (f"  {words}" for words in total.wrong)


def _words(counts: Counts) -> str:
    return ", ".join(f"{value:,} {name}" for name, value in vars(counts).items())
