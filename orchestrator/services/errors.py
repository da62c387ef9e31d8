"""What services refuse with. Views and REST turn each into its answer (422, 404, 403, 409)."""

from dataclasses import dataclass


@dataclass(frozen=True)
class FieldError:
    """One thing wrong with one field of a request: what, and what to do. `field` "" means the whole request."""

    field: str
    message: str


class Invalid(Exception):
    """A request that cannot be carried out as written."""

    def __init__(self, errors: list[FieldError]) -> None:
        super().__init__(
            "; ".join(f"{error.field}: {error.message}" if error.field else error.message for error in errors)
        )
        self.errors = errors


def words_of(refused: "Invalid | Conflict | Forbidden") -> str:
    """A refusal as sentences, without the names of fields: for a page that has no field to put them at."""
    return " ".join(error.message for error in refused.errors) if isinstance(refused, Invalid) else str(refused)


class Forbidden(Exception):
    """The person's role does not allow this."""


class Conflict(Exception):
    """The thing is no longer in the state that this needs."""
