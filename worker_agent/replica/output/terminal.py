"""What a terminal would show of a line that a program wrote for one: progress bars draw over themselves.

Carriage return, backspace, "erase in line" and "cursor to column" act on the line; every other escape sequence
(colours, above all) is dropped. Sequences: ECMA-48, chapters 5.4 and 8.3.
"""

import re

_ACTS = re.compile(r"[\r\b\x1b\x9b]")
_PARTS = re.compile(
    r"(?P<move>\r|\x08+)"
    r"|(?:\x1b\[|\x9b)(?P<given>[0-?]*)[ -/]*(?P<act>[@-~])"
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)"
    r"|\x1b[ -/]*[0-Z\\^-~]"
    r"|(?P<text>[^\r\x08\x1b\x9b]+)"
    r"|[\x1b\x9b]"
)
_UNFINISHED = re.compile(r"(?:(?:\x1b\[|\x9b)[0-?]*[ -/]*|\x1b\][^\x07\x1b]*\x1b?|\x1b[ -/]*)\Z")


def shown(text: str) -> str:
    """The text as a terminal of endless width leaves it, line by line; each keeps its line end."""
    if not _ACTS.search(text):
        return text
    return "\n".join(_shown_line(line) for line in text.split("\n"))


def is_redrawn(line: str) -> bool:
    """Whether the line, still without its end, goes back to what it wrote before."""
    return "\r" in line or "\b" in line


def compact(line: str) -> str:
    """The same picture in fewer characters: what stood before the last return to the line's beginning is drawn."""
    before, back, rest = line.rpartition("\r")
    return _shown_line(before) + back + rest


def unfinished_from(text: str) -> int:
    """Where an escape sequence begins that the end of the text cuts; the length of the text if none does."""
    found = _UNFINISHED.search(text, max(0, len(text) - 64))
    return found.start() if found else len(text)


def _shown_line(line: str) -> str:
    if not _ACTS.search(line):
        return line
    cells: list[str] = []
    at = 0
    for part in _PARTS.finditer(line):
        if text := part["text"]:
            cells[at : at + len(text)] = text
            at += len(text)
        elif move := part["move"]:
            at = 0 if move == "\r" else max(0, at - len(move))
        elif part["act"] == "K":
            _erase(cells, at, part["given"])
        elif part["act"] == "G" and (part["given"] or "1").isdigit():
            at = min(len(cells), max(0, int(part["given"] or 1) - 1))
    return "".join(cells).rstrip(" ")


def _erase(cells: list[str], at: int, given: str) -> None:
    if given in ("", "0"):
        del cells[at:]
    else:
        until = len(cells) if given == "2" else min(at + 1, len(cells))
        cells[:until] = " " * until
