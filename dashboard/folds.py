"""The parts of the new-job form that are folded: which fields are in each, and in one line what is set in them.

`templatetags/fields.py` draws them; `views/new_job/new_job.py` tells the page their lines while the form is filled in.
"""

from collections.abc import Iterable

from dashboard.forms import DEFAULTS, ROWS, JobForm, read_by
from worker_agent.protocol.job.field import Field
from worker_agent.protocol.job.job_spec import FIELDS
from worker_agent.protocol.job.recipe_text import ParamInfo

# Parts that are folded whole; in the others a field is where its declaration says so.
WHOLE = {"learning": "Batch and learning", "run": "Priority, limits, environment"}
HYPER_PARAMETERS = "Hyper-parameters"
NOTHING_SET = "Defaults"
VALUE_CHARS = 24


def fold_of(row: Field) -> str:
    """The title of the folded part that a field is in; "" for one that is always open."""
    return row.folded or WHOLE.get(row.group, "")


def folded() -> dict[str, list[Field]]:
    """The fields of each folded part by its title, in the order of their declarations."""
    found: dict[str, list[Field]] = {}
    for row in ROWS.values():
        if title := fold_of(row):
            found.setdefault(title, []).append(row)
    return found


def summaries(form: JobForm, params: Iterable[ParamInfo]) -> dict[str, str]:
    """The line of each folded part by its title."""
    own = {title: summary_of(form, rows) for title, rows in folded().items()}
    return own | {HYPER_PARAMETERS: summary_of_params(form, params)}


def summary_of(form: JobForm, rows: Iterable[Field]) -> str:
    """`Global batch size 64 \u00b7 Epochs 5`: what differs from its default, or counts at its default, too."""
    read = read_by(form.values)
    said = [
        _said(row, form.values[row.name])
        for row in rows
        if (row.name in read or row.name not in FIELDS)
        and form.values[row.name]
        and (row.always or form.values[row.name] != DEFAULTS[row.name])
    ]
    return " \u00b7 ".join(said) or NOTHING_SET


def summary_of_params(form: JobForm, params: Iterable[ParamInfo]) -> str:
    """`filters 16 \u00b7 dropout 0.2`."""
    return " \u00b7 ".join(f"{param.name} {_short(form.params.get(param.name, ''))}" for param in params)


def _said(row: Field, value: str) -> str:
    if row.control == "check":
        return row.label
    lines = [line for line in value.splitlines() if line.strip()]
    if len(lines) > 1:
        return f"{row.label}: {len(lines)} lines"
    label = next((option.label for option in row.options if option.value == value), value)
    return f"{row.label} {_short(label)}{f' {row.unit}' if row.unit else ''}"


def _short(value: str) -> str:
    return value if len(value) <= VALUE_CHARS else f"{value[:VALUE_CHARS]}\u2026"
