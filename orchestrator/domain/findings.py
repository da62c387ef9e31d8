"""What was found before a job starts: the shape that linters and checks answer in, and that the form shows."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """One thing found: what, why it matters, what to do. `blocks` False is a warning."""

    what: str
    why: str
    remedy: str
    blocks: bool = True

    @property
    def sentence(self) -> str:
        """All of it."""
        return f"{self.what}: {self.why}. {self.remedy}"
