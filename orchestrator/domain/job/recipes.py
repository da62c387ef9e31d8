"""What a recipe declares about itself, as plain values.

`orchestrator/catalogue.py` reads it from a program's text; `validation.py` checks hyper-parameters against it; the
new-job form draws a field for each parameter.
"""

from dataclasses import dataclass

ParamValue = bool | int | float | str

PARAM_TYPES = ("int", "float", "bool", "str", "choice")


@dataclass(frozen=True)
class ParamInfo:
    """One declared hyper-parameter. `min` and `max` are inclusive; `choices` is used by type "choice" alone."""

    name: str
    type: str
    default: ParamValue
    min: float | None = None
    max: float | None = None
    choices: tuple[ParamValue, ...] = ()
    help: str = ""


@dataclass(frozen=True)
class RecipeInfo:
    """A recipe as its text declares it. `problems` are sentences that name the line; empty means it can be run.

    `stages` is True when it says where it can be cut (`build_stages`), or may, by an import of everything.
    """

    title: str
    description: str
    params: tuple[ParamInfo, ...]
    problems: tuple[str, ...] = ()
    stages: bool = False

    def param(self, name: str) -> ParamInfo | None:
        """The declared parameter of that name."""
        return next((param for param in self.params if param.name == name), None)
