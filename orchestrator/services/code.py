"""The user's program on its way in and out: from the catalogue, edited text, an uploaded `.py` or `.zip`.

Nothing is executed or unpacked here: text is parsed, archives are read through in memory by the rule that nodes unpack
by (`worker_agent/protocol/archive.py`). Programs are
stored by their SHA-256 and handed only to nodes that run a replica of a job with that program.
"""

import base64
import binascii
import hashlib
import io
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from django.conf import settings
from django.utils import timezone

from orchestrator import catalogue
from orchestrator.domain.recipes import RecipeInfo
from orchestrator.models import Code, Node, Replica, User
from orchestrator.queries.errors import NotFound
from orchestrator.queries.jobs import visible_jobs
from orchestrator.services.errors import FieldError
from worker_agent.protocol.archive import ArchiveRefused, chunks, opened
from worker_agent.protocol.job_spec import CodeRef

ENTRY_NAME = "recipe.py"
KEPT_FOR = timedelta(days=1)
SHA256 = re.compile(r"[0-9a-f]{64}")
FILENAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._ -]{0,119}")


@dataclass(frozen=True)
class Program:
    """A program that passed inspection, not stored yet."""

    ref: CodeRef
    filename: str
    content: bytes
    info: RecipeInfo


@dataclass(frozen=True)
class Rejected:
    """Why the program cannot be used; `info` is what could still be read of it."""

    errors: list[FieldError]
    info: RecipeInfo | None = None


def resolve(request: Mapping[object, object], *, by: User) -> Program | Rejected:
    """The program that a request names by `recipe` or carries as `code`."""
    recipe, code = request.get("recipe"), request.get("code")
    if recipe in (None, "") and code in (None, "", {}):
        return _rejected("recipe", "choose a recipe from the catalogue, or give code")
    if recipe not in (None, "") and code not in (None, "", {}):
        return _rejected("code", "give a recipe or code, not both")
    if code in (None, "", {}):
        return _from_catalogue(recipe)
    if not isinstance(code, Mapping):
        return _rejected("code", 'has to be an object such as {"filename": "recipe.py", "text": "…"}')
    if "sha256" in code:
        return _stored_before(code["sha256"], by=by)
    return _from_upload(code)


def save(program: Program) -> Code:
    """Store a program (once for each content)."""
    row, _created = Code.objects.get_or_create(
        sha256=program.ref.sha256,
        defaults={
            "filename": program.filename,
            "archive": program.ref.archive,
            "entry": program.ref.entry,
            "content": program.content,
        },
    )
    return row


def keep(program: Program) -> None:
    """Store a program before a job needs it: an upload must survive an error elsewhere in its form.

    It is found again by its digest (`code: {"sha256": …}`), and dropped after a while when no job came of it.
    """
    Code.objects.filter(jobs=None, created_at__lt=timezone.now() - KEPT_FOR).delete()
    save(program)


def content_for(node: Node, sha256: str) -> bytes:
    """The bytes of a program for a node that was given a replica which runs it; `NotFound` otherwise."""
    if not Replica.objects.filter(node=node, job__code_id=sha256, held=True).exists():
        raise NotFound("no program of that digest belongs to a replica on this node")
    return bytes(Code.objects.get(sha256=sha256).content)


def _from_catalogue(name: object) -> Program | Rejected:
    known = catalogue.entries()
    found = next((entry for entry in known if entry.name == name), None)
    if found is None:
        names = ", ".join(entry.name for entry in known)
        return _rejected("recipe", f"there is no recipe of that name; the catalogue has {names}")
    return _single_file(found.text.encode(), found.filename, recipe=found.name)


def _stored_before(digest: object, *, by: User) -> Program | Rejected:
    """Clones name the program of an earlier job instead of sending it again; forms one that waits for its job."""
    known = isinstance(digest, str) and SHA256.fullmatch(digest)
    row = Code.objects.filter(sha256=digest).first() if known else None
    if row and (not row.jobs.exists() or visible_jobs(by).filter(code=row).exists()):
        if row.archive:
            return _archive(bytes(row.content), row.filename)
        return _single_file(bytes(row.content), row.filename)
    return _rejected("code", "no job that you can see has a program of that sha256: upload it")


def _from_upload(code: Mapping[object, object]) -> Program | Rejected:
    filename = code.get("filename") or ENTRY_NAME
    if not isinstance(filename, str) or not FILENAME.fullmatch(filename):
        return _rejected("code", "the file name may hold letters, digits, '.', '_', '-' and spaces, and no folders")
    text, packed = code.get("text"), code.get("content_base64")
    if isinstance(text, str):
        try:
            content = text.encode("utf-8")
        except UnicodeEncodeError:
            return _rejected("code", "the text contains half of a character (a lone surrogate)")
    elif isinstance(packed, str):
        if len(packed) > settings.MAX_CODE_BYTES * 4 // 3 + 8:
            return _too_large()
        try:
            content = base64.b64decode(packed, validate=True)
        except (binascii.Error, ValueError):
            return _rejected("code", "content_base64 is not valid base64")
    else:
        return _rejected("code", "give text, or content_base64 for an uploaded file")
    if len(content) > settings.MAX_CODE_BYTES:
        return _too_large()
    if filename.lower().endswith(".zip"):
        return _archive(content, filename)
    if filename.endswith(".py"):
        return _single_file(content, filename)
    return _rejected("code", f"{filename}: only .py and .zip files can be used")


def _single_file(content: bytes, filename: str, *, recipe: str = "") -> Program | Rejected:
    return _inspected(content, content, filename=filename, entry=filename, archive=False, recipe=recipe)


def _archive(content: bytes, filename: str) -> Program | Rejected:
    try:
        source, entry = _read_through(content)
    except ArchiveRefused as error:
        return _rejected("code", f"{filename}: {error}")
    if entry is None:
        return _rejected(
            "code", f"{filename}: put {ENTRY_NAME} (or a single .py file) at the top of the archive, not in a folder"
        )
    return _inspected(content, source, filename=filename, entry=entry, archive=True)


def _inspected(
    content: bytes, source: bytes, *, filename: str, entry: str, archive: bool, recipe: str = ""
) -> Program | Rejected:
    try:
        text = source.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        return _rejected("code", f"{entry}: byte {error.start} is not UTF-8 text")
    info = catalogue.inspect_source(text, entry)
    field = "recipe" if recipe else "code"
    if info.problems:
        return Rejected([FieldError(field, problem) for problem in info.problems], info)
    digest = hashlib.sha256(content).hexdigest()
    ref = CodeRef(sha256=digest, entry=entry, archive=archive, recipe=recipe)
    return Program(ref=ref, filename=filename, content=content, info=info)


def _read_through(content: bytes) -> tuple[bytes, str | None]:
    """The source and the name of an archive's entry, after every byte in it was looked at as a node will."""
    source = bytearray()
    with opened(io.BytesIO(content)) as archive:
        entry = _entry(archive.namelist())
        for member in archive.infolist():
            for chunk in chunks(archive, member):
                if member.filename == entry:
                    source += chunk
    return bytes(source), entry


def _entry(names: list[str]) -> str | None:
    top = [name for name in names if "/" not in name and name.endswith(".py")]
    if ENTRY_NAME in top:
        return ENTRY_NAME
    return top[0] if len(top) == 1 else None


def _too_large() -> Rejected:
    return _rejected("code", f"the program is larger than {settings.MAX_CODE_BYTES / 1_000_000:g} MB")


def _rejected(field: str, message: str) -> Rejected:
    return Rejected([FieldError(field, message)])
