"""Form fields as the pages print them: label, control, help, and the error that replaces the help.

A form is anything with `value(name)` and `errors` (`dashboard/forms.py`). The control says which text describes it; the
page's script keeps that true when it shows an error. The fields of a job are drawn from their declarations.
"""

from collections.abc import Iterable
from typing import Any, Protocol

from django import template

from dashboard.folds import fold_of, folded, summary_of
from dashboard.forms import DEFAULTS, PARAM, ROWS, JobForm, Source
from dashboard.labels import in_labels
from worker_agent.protocol.job.field import Field
from worker_agent.protocol.job.recipe_text import ParamInfo
from worker_agent.protocol.job.strategies import PARTICULAR, STRATEGIES, readers_of
from worker_agent.protocol.states import Kind

register = template.Library()
register.filter("labelled", in_labels)

INPUT_MODES = {"int": "numeric", "float": "decimal"}
WIDTHS = {2: "", 3: "w3", 4: "w4", 6: "w6"}
# The value of a field that is not set.
UNSET = ("", "Automatic")
# What programs call the hyper-parameter that the job's own learning rate replaces.
RATE, RATE_NAMES = ROWS["learning_rate"], ("lr", "learning_rate")
YES_OR_NO = [("on", "Yes"), ("off", "No")]


class Form(Protocol):
    """What a field is drawn from."""

    errors: dict[str, str]

    def value(self, name: str) -> str:
        """What stands in the field."""


@register.inclusion_tag("dashboard/fields/_field.html")
def field(
    form: Form,
    name: str,
    label: str,
    *,
    kind: str = "text",
    options: Iterable[tuple[str, str]] = (),
    **more: Any,
) -> dict[str, object]:
    """One field. `kind` is text, int, float, lines, select, choices or check; `options` are (value, text) pairs; `more`
    is what else the templates of `fields/` print: hint, css, unit, placeholder, required, mono."""
    return {
        "id": f"f-{name}",
        "name": name,
        "label": label,
        "kind": kind,
        "value": form.value(name),
        "error": form.errors.get(name, ""),
        "options": [(str(value), text) for value, text in options],
        "inputmode": INPUT_MODES.get(kind, ""),
        **more,
    }


@register.inclusion_tag("dashboard/fields/_field.html")
def job_field(
    form: JobForm, name: str, options: Iterable[tuple[str, str]] = (), *, is_legend: bool = False
) -> dict[str, object]:
    """One field of a job, from its declaration. With `is_legend` its label is said by the legend above it."""
    return _drawn(form, ROWS[name], options) | {"is_legend": is_legend}


@register.inclusion_tag("dashboard/fields/_fields.html")
def job_fields(form: JobForm, group: str, **options: Iterable[tuple[str, str]]) -> dict[str, object]:
    """The fields of a part of the form that is always open; `options` are choices by the field's name."""
    rows = [row for row in ROWS.values() if row.group == group and not fold_of(row)]
    return {"fields": [_drawn(form, row, options.get(row.name, ())) for row in rows]}


@register.inclusion_tag("dashboard/fields/_folds.html")
def job_folds(form: JobForm) -> dict[str, object]:
    """Every part of the form that is folded, in the order of the fields' declarations."""
    return {"folds": [_fold(form, title, rows) for title, rows in folded().items()]}


@register.inclusion_tag("dashboard/fields/_field.html")
def drawn(context: dict[str, object]) -> dict[str, object]:
    """A field that was put together before."""
    return context


def _fold(form: JobForm, title: str, rows: list[Field]) -> dict[str, object]:
    """A closed part of the form, open where one of its fields is used; `of` and `readers` say when it is shown."""
    readers = {strategy for row in rows for strategy in _readers(row)} if all(_readers(row) for row in rows) else ()
    kinds = {row.only for row in rows}
    used = any(row.name in form.errors or form.values[row.name] != DEFAULTS[row.name] for row in rows)
    return {
        "title": title,
        "summary": summary_of(form, rows),
        "open": used,
        "of": kinds.pop() if len(kinds) == 1 else None,
        "readers": " ".join(readers),
        "fields": [_drawn(form, row) for row in rows],
    }


def _drawn(form: JobForm, row: Field, options: Iterable[tuple[str, str]] = ()) -> dict[str, object]:
    """A field that only some strategies, or one kind of program, read says so, and is shown with those alone."""
    chosen = YES_OR_NO if row.type is bool else [(option.value, option.label) for option in row.options]
    return field(
        form,
        row.name,
        row.label,
        kind=row.control,
        hint=row.help,
        css=WIDTHS[row.width],
        options=options or ([UNSET] if row.default is None else []) + chosen,
        unit=row.unit,
        placeholder=row.example,
        required=row.required and row.control == "text",
        readers=" ".join(_readers(row)),
        of=row.only or "",
        mono=row.control == "text" and bool(row.example),
        cards=_cards(row) if row.control == "choices" else [],
    )


def _readers(row: Field) -> tuple[str, ...]:
    return readers_of(row.name) if row.name in PARTICULAR else ()


def _cards(row: Field) -> list[tuple[str, str, str, str]]:
    """(value, title, text, the kind of program that has it if one alone has) of each choice."""
    if row.name == "strategy":
        return [
            (strategy, each.label, each.summary, Kind.RECIPE if each.no_scripts else "")
            for strategy, each in STRATEGIES.items()
        ]
    return [(each, each.label, each.help, Kind.RECIPE if each is Source.RECIPE else "") for each in row.options]


@register.inclusion_tag("dashboard/fields/_field.html")
def param_field(form: Form, param: ParamInfo) -> dict[str, object]:
    """The field of a hyper-parameter that a program declares."""
    kinds = {"int": "int", "float": "float", "bool": "check", "choice": "select", "str": "text"}
    words = param.help.strip()
    replaced = f" {RATE.label}, if given, replaces it." if param.name in RATE_NAMES else ""
    return field(
        form,
        PARAM + param.name,
        param.name,
        kind=kinds[param.type],
        hint=f"{words}{'.' if words and not words.endswith('.') else ''} {_range(param)}{replaced}".strip(),
        options=[(str(option), str(option)) for option in param.choices],
        placeholder=str(param.default),
    )


def _range(param: ParamInfo) -> str:
    if param.min is None:
        return "" if param.max is None else f"At most {param.max:g}."
    return f"At least {param.min:g}." if param.max is None else f"{param.min:g} to {param.max:g}."
