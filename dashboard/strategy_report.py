"""The table of a strategy test as CSV, for views and REST."""

import csv
import io

from orchestrator.queries import strategy_tests
from orchestrator.queries.rows import StrategyTest
from worker_agent.protocol.records import StepPart

COLUMNS = (
    *("candidate", "run", "job", "status", "reason", "examples_per_s", "step_time_ms", "epoch_s", "target_s"),
    *("devices", "device_hours", "memory_bytes", "staleness", "restarts"),
)
# Spreadsheets take a cell that begins so for a formula.
FORMULA = ("=", "+", "-", "@", "\t", "\r")


def csv_of(test: StrategyTest) -> bytes:
    """A line for each run; the metrics at its end and its parts of a step (ms) in columns of their own."""
    views = strategy_tests.report(test).candidates
    metrics = sorted({name for view in views for run in view.result.runs for name in run.final})
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow([*COLUMNS, *(part.series for part in StepPart), *(f"final/{name}" for name in metrics)])
    for view in views:
        for number, row in enumerate(view.row.runs.all(), start=1):
            run = strategy_tests.measured_of(row)
            state = "running" if not row.is_over else "measured" if run else "failed"
            told = [view.row.label, number, row.job_id, state, row.reason]
            if run:
                told += [run.examples_per_s, run.step_time_ms, run.epoch_s, run.target_s, run.devices]
                told += [run.device_hours, run.memory_bytes, run.staleness, run.restarts]
                told += [run.parts.get(part.value) for part in StepPart]
                told += [run.final.get(name) for name in metrics]
            writer.writerow(["" if cell is None else _safe(cell) for cell in told])
    return text.getvalue().encode()


def _safe(cell: object) -> object:
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(FORMULA) else cell
