"""Numbers with their nouns, for the sentences of the domain and of pages."""


def counted(number: int, noun: str, plural: str = "s") -> str:
    """`1 worker`, `2 workers`, `3 micro-batches` (with "es")."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}{plural}"
