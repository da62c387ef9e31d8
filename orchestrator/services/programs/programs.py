"""The user's program on its way in and out: from the catalogue, edited text, an upload (`.py`, `.zip`), a git address.

Nothing is executed or unpacked here: text is parsed, archives are read through in memory by the rule that nodes unpack
by (`worker_agent/protocol/job/archive.py`). Programs are stored by their SHA-256 and handed only to nodes that run a
replica of a job with that program.

A request says `kind` ("recipe", the default, or "script") and one of
`recipe: NAME` · `code: {filename, text}` · `code: {filename, content_base64, entry?}` · `code: {sha256, entry?}` ·
`code: {git: {url, ref?, path?}, entry?}`. `entry` is the file to run, with its folders, inside an archive; without it
a recipe is `recipe.py` or the only `.py` at the top, a script `main.py`, `train.py` or the only one. A script needs no
functions of given names: its syntax is checked, and `Program.script` says what its text shows (strategies, Keras,
whether it starts its own servers), with `proposed_keras(strategy)` and `proposed_strategy` for the form.
A commit fetched from git is kept for a while, so that a preview and the submission after it run the same.
"""

import base64
import binascii
import hashlib
import io
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta

from django.conf import settings
from django.core.cache import cache
from django.utils import timezone

from orchestrator import catalogue
from orchestrator.models import Code, Node, ProbedNode, Replica, User
from orchestrator.queries.errors import NotFound
from orchestrator.queries.jobs import visible_jobs
from orchestrator.services.errors import FieldError
from orchestrator.services.programs import git
from worker_agent.protocol.job.archive import ArchiveRefused, chunks, opened
from worker_agent.protocol.job.job_spec import CodeRef, GitRef
from worker_agent.protocol.job.recipe_text import RecipeInfo, inspect_recipe
from worker_agent.protocol.job.script.script_text import PREFERRED_ENTRIES, ScriptInfo, entry_of, inspect_script
from worker_agent.protocol.states import Kind

ENTRY_NAME = "recipe.py"
KEPT_FOR = timedelta(days=1)
SHA256 = re.compile(r"[0-9a-f]{64}")
COMMIT_KEPT_S = 600
PATH_CHARS = 500
FILES_READ_MAX = 300
FILE_BYTES_MAX = 1_000_000
FILENAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._ -]{0,119}")


@dataclass(frozen=True)
class Program:
    """A program that passed inspection, not stored yet."""

    ref: CodeRef
    filename: str
    content: bytes
    info: RecipeInfo
    script: ScriptInfo | None = None


@dataclass(frozen=True)
class Rejected:
    """Why the program cannot be used; `info` is what could still be read of it."""

    errors: list[FieldError]
    info: RecipeInfo | None = None


@dataclass(frozen=True)
class _Wanted:
    """What a program shall be: of which kind, which file of it is run, and where it came from."""

    kind: Kind
    entry: str = ""
    git: GitRef | None = None
    recipe: str = ""


def resolve(request: Mapping[str, object], *, by: User) -> Program | Rejected:
    """The program that a request names by `recipe` or carries as `code`."""
    recipe, code = request.get("recipe"), request.get("code")
    kind = Kind.SCRIPT if request.get("kind") == Kind.SCRIPT else Kind.RECIPE
    if recipe in (None, "") and code in (None, "", {}):
        return _rejected("recipe", "choose a recipe from the catalogue, or give code")
    if recipe not in (None, "") and code not in (None, "", {}):
        return _rejected("code", "give a recipe or code, not both")
    if code in (None, "", {}):
        if kind is Kind.SCRIPT:
            return _rejected("recipe", "a recipe of the catalogue is not a script: give code, or choose kind recipe")
        return _from_catalogue(recipe)
    if not isinstance(code, Mapping):
        return _rejected("code", 'has to be an object such as {"filename": "recipe.py", "text": "…"}')
    entry = code.get("entry") or ""
    if not isinstance(entry, str) or len(entry) > PATH_CHARS:
        return _rejected("code", "entry has to be the name of a file inside the archive")
    wanted = _Wanted(kind, entry)
    if "git" in code:
        return _from_git(code["git"], wanted)
    if "sha256" in code:
        return _stored_before(code["sha256"], wanted, by=by)
    return _from_upload(code, wanted)


def save(program: Program) -> Code:
    """Store a program (once for each content)."""
    ref = program.ref
    columns = {"filename": program.filename, "archive": ref.archive, "entry": ref.entry, "content": program.content}
    return Code.objects.get_or_create(sha256=ref.sha256, defaults=columns)[0]


def keep(program: Program) -> None:
    """Store a program before a job needs it: an upload must survive an error elsewhere in its form.

    It is found again by its digest (`code: {"sha256": …}`), and dropped after a while when no job came of it.
    """
    Code.objects.filter(jobs=None, strategy_tests=None, created_at__lt=timezone.now() - KEPT_FOR).delete()
    save(program)


def content_for(node: Node, sha256: str) -> bytes:
    """The bytes of a program for a node that was given a replica which runs it, or is to check it; else `NotFound`."""
    runs = Replica.objects.filter(node=node, job__code_id=sha256, held=True)
    tries = ProbedNode.objects.filter(node=node, preflight__code_id=sha256, preflight__ended_at=None)
    if not runs.exists() and not tries.exists():
        raise NotFound("no program of that digest belongs to a replica on this node")
    return bytes(Code.objects.get(sha256=sha256).content)


def _from_catalogue(name: object) -> Program | Rejected:
    known = catalogue.entries()
    found = next((entry for entry in known if entry.name == name), None)
    if found is None:
        names = ", ".join(entry.name for entry in known)
        return _rejected("recipe", f"there is no recipe of that name; the catalogue has {names}")
    return _from_file(found.text.encode(), found.filename, _Wanted(Kind.RECIPE, recipe=found.name))


def _from_git(given: object, wanted: _Wanted) -> Program | Rejected:
    """A commit of a git address; one that was fetched a moment ago is not fetched again."""
    fields = [given.get(name) or "" for name in ("url", "ref", "path")] if isinstance(given, Mapping) else []
    if not fields or not all(isinstance(value, str) and len(value) <= PATH_CHARS for value in fields):
        return _rejected("code", 'git has to be an object such as {"url": "https://…", "ref": "main"}')
    url, ref, path = (str(value).strip() for value in fields)
    place = "git-" + hashlib.sha256("\n".join((url, ref, path)).encode()).hexdigest()
    commit, digest = cache.get(place) or ("", "")
    row = Code.objects.filter(sha256=digest).first() if digest else None
    if row is not None:
        fetched = git.Fetched(GitRef(url=url, ref=ref, commit=commit, path=path), bytes(row.content))
    else:
        try:
            fetched = git.fetch(url, ref, path)
        except git.GitRefused as error:
            return _rejected("code", f"git: {error}")
    repository = url.rstrip("/").rpartition("/")[2].removesuffix(".git")
    name = re.sub(r"[^A-Za-z0-9._-]", "-", repository)[:100] or "repository"
    program = _from_file(fetched.content, f"{name}.zip", replace(wanted, git=fetched.ref))
    if isinstance(program, Program):
        keep(program)
        cache.set(place, (fetched.ref.commit, program.ref.sha256), COMMIT_KEPT_S)
    return program


def _stored_before(digest: object, wanted: _Wanted, *, by: User) -> Program | Rejected:
    """Clones name the program of an earlier job instead of sending it again; forms one that waits for its job."""
    known = isinstance(digest, str) and SHA256.fullmatch(digest)
    row = Code.objects.filter(sha256=digest).first() if known else None
    job = visible_jobs(by).filter(code=row).order_by("-pk").first() if row else None
    if row and (job or not row.jobs.exists()):
        if job:
            before = job.typed_spec.code
            wanted = replace(wanted, git=before.git, entry=wanted.entry or (before.entry if row.archive else ""))
        return _from_file(bytes(row.content), row.filename, wanted)
    return _rejected("code", "no job that you can see has a program of that sha256: upload it")


def _from_upload(code: Mapping[str, object], wanted: _Wanted) -> Program | Rejected:
    filename = code.get("filename") or ENTRY_NAME
    if not isinstance(filename, str) or not FILENAME.fullmatch(filename):
        return _rejected("code", "the file name may contain letters, digits, '.', '_', '-' and spaces, and no folders")
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
    if not filename.endswith(".py") and not _is_archive(filename):
        return _rejected("code", f"{filename}: only .py and .zip files can be used")
    return _from_file(content, filename, wanted)


def _is_archive(filename: str) -> bool:
    return filename.lower().endswith(".zip")


def _from_file(content: bytes, filename: str, wanted: _Wanted) -> Program | Rejected:
    """The program that one file is, or an archive holds; of a recipe the file that is run alone counts."""
    if not _is_archive(filename) and wanted.entry not in ("", filename):
        return _rejected("code.entry", f"the program is one file, {filename}: leave this out, or name that file")
    try:
        sources = _read_through(content, wanted) if _is_archive(filename) else [(filename, content)]
    except ArchiveRefused as error:
        return _rejected("code", f"{filename}: {error}")
    entry, source = sources[0]
    try:
        text = source.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        return _rejected("code", f"{entry}: byte {error.start} is not UTF-8 text")
    script = None
    if wanted.kind is Kind.SCRIPT:
        others = [(name, other.decode("utf-8-sig", errors="replace")) for name, other in sources[1:]]
        script = inspect_script([(entry, text), *others])
        info = RecipeInfo("", "", (), script.problems)
    else:
        info = inspect_recipe(text, entry)
    field = "recipe" if wanted.recipe else "code"
    if info.problems:
        return Rejected([FieldError(field, problem) for problem in info.problems], info)
    digest = hashlib.sha256(content).hexdigest()
    ref = CodeRef(sha256=digest, entry=entry, archive=_is_archive(filename), recipe=wanted.recipe, git=wanted.git)
    return Program(ref=ref, filename=filename, content=content, info=info, script=script)


def _read_through(content: bytes, wanted: _Wanted) -> list[tuple[str, bytes]]:
    """An archive's Python files, the entry first, after every byte in it was looked at as a node will."""
    found: dict[str, bytes] = {}
    with opened(io.BytesIO(content)) as archive:
        names = archive.namelist()
        preferred = (ENTRY_NAME,) if wanted.kind is Kind.RECIPE else PREFERRED_ENTRIES
        entry = entry_of(names, asked=wanted.entry, preferred=preferred)
        read = {entry, *[name for name in names if name.endswith(".py")][:FILES_READ_MAX]}
        for member in archive.infolist():
            source = bytearray()
            for chunk in chunks(archive, member):
                if member.filename == entry or (member.filename in read and member.file_size <= FILE_BYTES_MAX):
                    source += chunk
            if member.filename in read and not member.is_dir():
                found[member.filename] = bytes(source)
    if entry is None:
        raise ArchiveRefused(_no_entry(names, wanted))
    return [(entry, found.pop(entry)), *found.items()]


def _no_entry(names: list[str], wanted: _Wanted) -> str:
    if wanted.entry:
        return f"the archive has no file {wanted.entry!r}"
    if wanted.kind is Kind.RECIPE:
        return f"put {ENTRY_NAME} (or a single .py file) at the top of the archive, not in a folder"
    programs = [name for name in names if name.endswith(".py")]
    if not programs:
        return "the archive has no .py file"
    return f"name the file to run as entry; there is {', '.join(programs[:10])}{' …' if len(programs) > 10 else ''}"


def _too_large() -> Rejected:
    return _rejected("code", f"the program is larger than {settings.MAX_CODE_BYTES / 1_000_000:g} MB")


def _rejected(field: str, message: str) -> Rejected:
    return Rejected([FieldError(field, message)])
