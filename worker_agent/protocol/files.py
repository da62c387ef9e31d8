"""Files that a program leaves: which names a job asks for, what an agent offers of them, and why one is not kept.

An agent offers everything of a replica that is not delivered as it stands now, each time as a whole; the answer names
what it is to send. What is not kept stays on the node and is listed with its reason.
"""

from fnmatch import fnmatchcase

import msgspec

from worker_agent.protocol.states import Choice

FILES_MAX = 1000
"""So many files of one replica are kept."""
NAMED_MAX = 100
"""So many of those that are not kept are named; the others are counted."""
NAME_BYTES_MAX = 500
PART_BYTES_MAX = 200


class NotKept(Choice):
    """Why a file is not kept, as half a sentence."""

    LIMIT = "limit", "all files of the job together would exceed its limit"
    TOO_LARGE = "too_large", "larger than any file that this installation takes"
    MANY = "many", f"the process has left more than {FILES_MAX} files"
    LINK = "link", "it is a link"
    SPECIAL = "special", "it is a pipe, a socket or a device"
    NAME = "name", "its path is too long"
    CHANGING = "changing", "it changed each time it was read"
    UNREADABLE = "unreadable", "it could not be read"
    UNASKED = "unasked", "its name fits no pattern of the field Files kept"
    REFUSED = "refused", "the control plane refused it"


class LeftFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that is not kept."""

    name: str
    size_bytes: int
    why: NotKept


class LeftFiles(msgspec.Struct, frozen=True, kw_only=True):
    """Files of a replica that are not kept: the first `NAMED_MAX`, and how many `more` there are."""

    left: list[LeftFile] = []
    more: int = 0


class Offer(LeftFiles, frozen=True, kw_only=True):
    """What is not delivered of a replica: `files` could be sent, with their sizes, in the order in which they are to be
    taken; the others cannot."""

    files: dict[str, int]


class Wanted(msgspec.Struct, frozen=True):
    """The answer to an offer: the files to send."""

    names: list[str]


def is_asked_for(name: str, patterns: str) -> bool:
    """Whether a path below the program's folder fits one of the patterns, which stand apart by spaces. One without a
    slash is compared with the file's name, one with a slash with the path or its end."""
    last = name.rpartition("/")[2]
    return any(
        fnmatchcase(name, pattern) or fnmatchcase(name, f"*/{pattern}")
        if "/" in pattern
        else fnmatchcase(last, pattern)
        for pattern in patterns.split()
    )


def name_problem(name: str) -> str:
    """What is wrong with a file's name on the wire, "" when nothing is: a relative path of printable parts."""
    parts = name.split("/")
    if len(name.encode(errors="replace")) > NAME_BYTES_MAX:
        return f"it has more than {NAME_BYTES_MAX} bytes"
    if not name.isprintable() or "\\" in name:
        return "it has a backslash or a character that cannot be printed"
    if any(not part or part.startswith(".") or len(part.encode()) > PART_BYTES_MAX for part in parts):
        return f"a part of it is empty, hidden, or longer than {PART_BYTES_MAX} bytes"
    return ""
