"""What a field of a job says of itself beside its type: words for people, its place in the form, who reads it.

`job_spec.py` declares each field once; `fields_in` reads the declarations back as rows. Validation, REST's schema, the
form, the job page, the documentation and the key of a rehearsal are made from those rows.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated, Any, get_args, get_origin

import msgspec

from worker_agent.protocol.states import Choice, Kind

_CONTROLS = {bool: "check", int: "int", float: "float", str: "text"}
_NO_LIMITS = msgspec.Meta()


@dataclass(frozen=True)
class Field:
    """One row, written as `Annotated[type, msgspec.Meta(…), Field(label, …), help] = default`.

    `group` is the part of the form, `folded` the summary of the closed part inside it. `control` is how the form asks:
    int, float, check, select, text, lines, or choices (a card for each); `width` is in sixths, 0 as suits the control.
    `example` stands in an empty control. `only` is the kind of program that reads the field, None for both; `instead`
    says what the other kind does. `rebuilds`: what is built depends on it, so that another value is rehearsed anew.
    `always`: the job page shows its default, too. What follows `always` comes from the declaration itself; `type` is
    without None.
    """

    label: str
    group: str = ""
    folded: str = ""
    width: int = 0
    control: str = ""
    unit: str = ""
    example: str = ""
    only: Kind | None = None
    instead: str = ""
    rebuilds: bool = True
    always: bool = False
    name: str = ""
    help: str = ""
    type: Any = str
    default: Any = ""
    required: bool = False
    low: float | None = None
    high: float | None = None
    longest: int | None = None

    @property
    def options(self) -> tuple[Choice, ...]:
        """The values to choose from; none where any value of the type will do."""
        return tuple(self.type) if isinstance(self.type, type) and issubclass(self.type, Choice) else ()


def fields_in(struct: type[msgspec.Struct]) -> Iterator[Field]:
    """The rows of a struct, in the order of its declarations; what is not declared with a `Field` has none."""
    for each in msgspec.structs.fields(struct):
        annotated = next((part for part in (each.type, *get_args(each.type)) if get_origin(part) is Annotated), None)
        if annotated is None:
            continue
        kind, *notes = get_args(annotated)
        row = next(note for note in notes if isinstance(note, Field))
        limits = next((note for note in notes if isinstance(note, msgspec.Meta)), _NO_LIMITS)
        is_choice = isinstance(kind, type) and issubclass(kind, Choice)
        control = row.control or ("select" if is_choice else _CONTROLS[kind])
        yield replace(
            row,
            name=each.name,
            type=kind,
            help=next((note for note in notes if isinstance(note, str)), ""),
            control=control,
            width=row.width or (6 if control in ("lines", "check", "choices") else 3),
            default=each.default if each.default_factory is msgspec.NODEFAULT else each.default_factory(),
            required=each.required,
            low=limits.ge,
            high=limits.le,
            longest=limits.max_length,
        )
