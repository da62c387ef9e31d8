"""What was found before a job starts: how linters, checks and nodes answer, and what form and REST show."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """One thing found: what, why it matters, what to do; clauses without a full stop. `blocks` False is a warning.

    `certain`: the training itself would refuse it, wherever it runs; other errors are the user's program's own.
    """

    what: str
    why: str
    remedy: str
    blocks: bool = True
    certain: bool = False

    @property
    def sentence(self) -> str:
        """All of it."""
        return f"{self.what}: {self.why}. {self.remedy}"
