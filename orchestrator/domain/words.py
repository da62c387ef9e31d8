"""Numbers with their nouns, for the sentences of the domain and of pages; and text as a database takes it."""


def counted(number: int, noun: str, plural: str = "s") -> str:
    """`1 worker`, `2 workers`, `3 micro-batches` (with "es")."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}{plural}"


def storable(text: str) -> str:
    """The same without what PostgreSQL refuses in text and JSON: NUL, and halves of characters."""
    return text.replace("\0", "").encode(errors="replace").decode()
