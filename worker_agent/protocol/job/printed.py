"""Numbers in what a program prints: `step 20 loss: 0.25` is a point of `loss` at step 20. Pure.

A job names what is looked for (its field `printed`). The node reads the output as it comes, and the control plane reads
stored logs by the same rule. The patterns are ours and bounded, so that no output takes long to read.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

NAMES_MAX = 20
LINE_CHARS = 2_000

_NAME = r"[^\W\d][\w ./%()-]{0,59}"
_NUMBER = r"(?P<number>[-+]?(?:\d{1,40}\.?\d{0,40}|\.\d{1,40})(?:[eE][-+]?\d{1,3})?|[-+]?(?:nan|inf))(?!\.?\w)"
_NAME_ALONE = re.compile(_NAME)
_SIGN = r"(?:(?P<sign>[ \t]{0,4}[:=][ \t]{0,4})|[ \t]{1,4}(?:is[ \t]{1,4})?)"
_ANY = re.compile(rf"(?<![\w.:/-])(?P<name>[a-z]\w{{0,40}}){_SIGN}{_NUMBER}", re.IGNORECASE)
_CLOCK = re.compile(
    r"(?<![\w.])(?:(?P<step>(?:global[ _])?step|iteration|iter)|epoch)"
    r"[ \t]{0,4}[:=#]?[ \t]{0,4}[\[(]?(?P<number>\d{1,15})(?!\.?\w)",
    re.IGNORECASE,
)
_COUNTS = ("step", "global_step", "epoch", "epochs", "iter", "iteration", "batch", "eta", "pid", "port")
_OF_SENTENCES = (
    "after",
    "at",
    "by",
    "for",
    "from",
    "in",
    "is",
    "of",
    "than",
    "to",
    "took",
    "under",
    "version",
    "within",
)
_NO_METRICS = frozenset((*_COUNTS, *_OF_SENTENCES))

Point = tuple[int, dict[str, float]]


def names_in(text: str) -> list[str]:
    """The names that a job asks for: `loss, accuracy`."""
    parts = (part.strip() for part in re.split(r"[,\n]", text))
    return list(dict.fromkeys(part for part in parts if part))


def problem_of(text: str) -> str:
    """What is wrong with them, in a sentence; "" when nothing is."""
    names = names_in(text)
    if len(names) > NAMES_MAX:
        return f"at most {NAMES_MAX} names; there are {len(names)}"
    wrong = next((name for name in names if not _NAME_ALONE.fullmatch(name)), None)
    if wrong is None:
        return ""
    return f"{wrong[:60]!r} is not a name that a program prints before a number: write names such as loss, accuracy"


class PrintedNumbers:
    """Reads the lines of one process in their order.

    The step is what the line says (`step`, `iteration`), or else its epoch; a line that says neither comes one step
    after the one before it. Numbers that begin again (batches of an epoch) are counted on.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._names = {name.lower(): name for name in names}
        known = "|".join(re.escape(name) for name in sorted(self._names, key=len, reverse=True))
        pattern = rf"(?<![\w.:/-])(?P<name>{known})[ \t]{{0,4}}(?:[:=]|is\b)?[ \t]{{0,4}}{_NUMBER}"
        self._pattern = re.compile(pattern, re.IGNORECASE) if self._names else None
        self._now = self._before = self._offset = 0
        self._has_steps = False
        self._last: dict[str, int] = {}
        self._rest = ""

    def feed(self, text: str, *, final: bool = False) -> list[Point]:
        """The points in a piece of output; the beginning of a line waits for its end, or for `final`."""
        if self._pattern is None:
            return []
        *lines, rest = (self._rest + text).split("\n")
        self._rest = "" if final else rest[:LINE_CHARS]
        points = map(self.read, [*lines, rest] if final else lines)
        return [point for point in points if point is not None]

    def read(self, line: str) -> Point | None:
        """The point in a line, if there is one."""
        if self._pattern is None:
            return None
        line = line[:LINE_CHARS]
        is_timed = self._tell_time(line)
        found = {self._names[each["name"].lower()]: float(each["number"]) for each in self._pattern.finditer(line)}
        if not found:
            return None
        after = max((self._last.get(name, 0) for name in found), default=0)
        step = self._now if is_timed else max(self._now, after + 1)
        self._last.update(dict.fromkeys(found, step))
        return step, found

    def _tell_time(self, line: str) -> bool:
        """Whether the line says which step it is of; the clock is set."""
        told = {bool(each["step"]): int(each["number"]) for each in _CLOCK.finditer(line)}
        if not told:
            return False
        if True in told and not self._has_steps:
            self._has_steps, self._before, self._offset = True, 0, 0
        if self._has_steps in told:
            number = told[self._has_steps]
            self._offset += self._before if number < self._before else 0
            self._before, self._now = number, self._offset + number
        return True


@dataclass(frozen=True)
class Found:
    """A name that stands before numbers in printed lines: in how many, and its first and last."""

    name: str
    lines: int
    first: float
    last: float


def candidates(text: str, *, most: int = 6) -> list[Found]:
    """Names with which several lines of a log say numbers, the most frequent first."""
    values: dict[str, list[float]] = {}
    shown: dict[str, str] = {}
    for name, number in _pairs(text):
        shown.setdefault(name.lower(), name)
        values.setdefault(name.lower(), []).append(number)
    found = [
        Found(shown[key], len(numbers), numbers[0], numbers[-1])
        for key, numbers in values.items()
        if len(numbers) > 1 and key not in _NO_METRICS
    ]
    return sorted(found, key=lambda each: -each.lines)[:most]


def _pairs(text: str) -> Iterator[tuple[str, float]]:
    """Without `:` or `=` only broken numbers count, in lines that say their step or epoch: most other lines in which a
    number follows a word are sentences."""
    for line in text.split("\n"):
        line = line[:LINE_CHARS]
        is_timed = _CLOCK.search(line) is not None
        for each in _ANY.finditer(line):
            if each["sign"] is not None or (is_timed and not each["number"].lstrip("+-").isdigit()):
                yield each["name"], float(each["number"])
