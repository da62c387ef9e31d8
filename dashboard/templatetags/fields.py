"""Form fields as the pages print them: label, control, help, and the error that replaces the help.

A form is anything with `value(name)` and `errors` (`dashboard/forms.py`). The control says which text describes it; the
page's script keeps that true when it shows an error.
"""

from collections.abc import Iterable
from typing import Protocol

from django import template

from dashboard.forms import PARAM
from dashboard.labels import in_labels
from orchestrator.domain.job.recipes import ParamInfo
from orchestrator.domain.job.strategies import OF_SCRIPTS, PARTICULAR, readers_of

register = template.Library()

INPUT_MODES = {"int": "numeric", "float": "decimal"}


class Form(Protocol):
    """What a field is drawn from."""

    errors: dict[str, str]

    def value(self, name: str) -> str:
        """What stands in the field."""


@register.inclusion_tag("dashboard/parts/_field.html")
def field(
    form: Form,
    name: str,
    label: str,
    *,
    kind: str = "text",
    hint: str = "",
    css: str = "",
    options: Iterable[tuple[str, str]] = (),
    unit: str = "",
    placeholder: str = "",
    rows: int = 3,
    required: bool = False,
    **more: str,
) -> dict[str, object]:
    """One field. `kind` is text, int, float, lines, select, check or password; `options` are (value, text) pairs.

    A field of a job that only some strategies read, or only recipes, says so, and is shown with those alone.
    """
    return {
        "readers": " ".join(readers_of(name)) if name in PARTICULAR else "",
        "of": "recipe" if name in PARTICULAR and name not in OF_SCRIPTS else "",
        "id": f"f-{name}",
        "name": name,
        "label": label,
        "kind": kind,
        "value": form.value(name),
        "error": form.errors.get(name, ""),
        "hint": hint,
        "css": css,
        "options": [(str(value), text) for value, text in options],
        "unit": unit,
        "placeholder": placeholder,
        "rows": rows,
        "required": required,
        "inputmode": INPUT_MODES.get(kind, ""),
        "autocomplete": more.get("autocomplete", "off"),
        "mono": "mono" in more,
    }


@register.filter
def error_of(form: Form, name: str) -> str:
    """The error of one field, or nothing."""
    return form.errors.get(name, "")


@register.filter
def labelled(sentence: str) -> str:
    """A finding's words with the form's own names."""
    return in_labels(sentence)


@register.filter
def value_of(form: Form, name: str) -> str:
    """What stands in one field."""
    return form.value(name)


@register.inclusion_tag("dashboard/parts/_field.html")
def param_field(form: Form, param: ParamInfo) -> dict[str, object]:
    """The field of a hyper-parameter that a program declares."""
    kinds = {"int": "int", "float": "float", "bool": "check", "choice": "select", "str": "text"}
    words = param.help.strip()
    hints = [words if not words or words.endswith(".") else f"{words}.", _range(param)]
    return field(
        form,
        PARAM + param.name,
        param.name,
        kind=kinds[param.type],
        hint=" ".join(hint for hint in hints if hint),
        options=[(str(option), str(option)) for option in param.choices],
        placeholder=str(param.default),
    )


def _range(param: ParamInfo) -> str:
    if param.min is None and param.max is None:
        return ""
    if param.max is None:
        return f"At least {param.min:g}."
    if param.min is None:
        return f"At most {param.max:g}."
    return f"{param.min:g} to {param.max:g}."
