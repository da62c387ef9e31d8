"""What a person typed into a form, kept word for word, and the request that it makes.

The form checks nothing that a service checks: what was typed travels on as text, and the service reads it or says what
is wrong. So the browser and REST answer alike, and a form shown again holds exactly what was typed. Used by
`views/new_job/new_job.py`.
"""

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from dashboard.labels import in_labels
from orchestrator.services.errors import FieldError
from worker_agent.protocol.job.choices import LrScaling
from worker_agent.protocol.job.field import Field
from worker_agent.protocol.job.job_spec import FIELDS
from worker_agent.protocol.job.recipe_text import ParamInfo
from worker_agent.protocol.job.strategies import PARTICULAR, defaults_of, fields_read, readers_of
from worker_agent.protocol.states import Choice, Kind, Strategy

PARAM = "param-"
ENVIRONMENT_ERRORS = 5
TIME_LIMIT_WORDS = "a number of minutes, at most 43 200 (30 days), or nothing for no limit."


class Source(Choice):
    """Where the program comes from."""

    RECIPE = "recipe", "Catalogue", "A recipe that is ready to run."
    UPLOAD = "upload", "Upload", "A .py file, or a .zip."
    TEXT = "text", "Text", "Written or changed on this page."
    GIT = "git", "Git", "Fetched from an address, at a branch, tag or commit."


def _row(name: str, label: str, control: str = "text", width: int = 3, **more: Any) -> Field:
    return Field(label, name=name, control=control, width=width, **more)


# What the form has beside a job's own fields, and the one that it asks for in other words.
OWN_ROWS = (
    _row("source", "Where the code comes from", "choices", type=Source, default=Source.RECIPE, width=6),
    _row("recipe", "Recipe", "select", only=Kind.RECIPE),
    _row(
        "git_url",
        "Repository",
        width=6,
        group="git",
        example="https://example.org/team/project.git",
        help="Fetched here, over https; the commit is recorded.",
    ),
    _row("git_ref", "Branch, tag or commit", group="git", example="the default branch"),
    _row("git_path", "Folder", group="git", example="the whole repository"),
    replace(
        FIELDS["working_dir"],
        name="entry",
        label="File to run",
        example="main.py or train.py",
        help="Inside the archive or repository.",
    ),
)
TIME_LIMIT = replace(
    FIELDS["time_limit_s"], name="time_limit", control="float", unit="minutes", example="none", default=None
)
ROWS = {row.name: row for row in (*OWN_ROWS, *(FIELDS | {"time_limit_s": TIME_LIMIT}).values())}


def _shown(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, list):
        return shlex.join(map(str, value))
    if isinstance(value, Mapping):
        return "\n".join(f"{name}={each}" for name, each in value.items())
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _first(row: Field) -> str:
    """What a field begins with: what it is under all strategies that read it, if that is the same."""
    found = {defaults_of(strategy, Kind.RECIPE, {}).get(row.name, row.default) for strategy in readers_of(row.name)}
    return _shown(found.pop() if len(found) == 1 else row.default)


DEFAULTS = {
    **dict.fromkeys(("params_of", "kept", "kept_name", "text"), ""),
    **{row.name: _first(row) for row in ROWS.values() if not row.required},
    "filename": "program.py",
    "name": "",
    "cluster": "",
    "strategy": Strategy.ONE_DEVICE.value,
}


@dataclass
class JobForm:
    """The new-job form: `values` as typed, `params` as typed, `errors` by the name of the field on the page.

    `declared` are the parameters of the program with their defaults, `undeclared` those that it does not declare now,
    while its text is being edited for instance.
    """

    values: dict[str, str]
    params: dict[str, str] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)
    undeclared: dict[str, str] = field(default_factory=dict)
    declared: dict[str, str] = field(default_factory=dict)

    @property
    def source(self) -> str:
        """Where the program comes from: recipe, upload, text or git."""
        return self.values["source"]

    @property
    def tuned(self) -> bool:
        """Whether a hyper-parameter differs from its default, or is wrong."""
        changed = any(self.params[name] != shown for name, shown in self.declared.items())
        return changed or any(name.startswith(PARAM) for name in self.errors)

    @property
    def script(self) -> bool:
        """Whether the program is to run as it stands."""
        return self.values["kind"] == Kind.SCRIPT

    def value(self, name: str) -> str:
        """What stands in the field of that name."""
        return self.params.get(name.removeprefix(PARAM), "") if name.startswith(PARAM) else self.values.get(name, "")

    def declare(self, params: Iterable[ParamInfo]) -> None:
        """Show these hyper-parameters: with what was typed for this program, else with their defaults.

        What was typed for another program is dropped: a parameter of the same name is another one there. A text stays
        the same program while it is edited.
        """
        program = self._program()
        if self.values["params_of"] not in ("", program):
            self.params.clear()
        self.values["params_of"] = program
        self.declared = {param.name: _shown(param.default) for param in params}
        self.params = self.declared | self.params
        self.undeclared = {name: value for name, value in self.params.items() if name not in self.declared}

    def refuse(self, errors: list[FieldError]) -> None:
        """Put each error of a service at the field of this page that it speaks of."""
        for error in errors:
            place = self._place(error.field)
            self.say(place, TIME_LIMIT_WORDS if place == "time_limit" else in_labels(error.message))

    def say(self, place: str, message: str) -> None:
        """Put a sentence at a field, which it names; behind what stands there already."""
        words = f"{label_of(place)}: {message.rstrip('.')}." if place else sentence_of(message)
        self.errors[place] = f"{self.errors[place]} {sentence_of(message)}" if place in self.errors else words

    def _program(self) -> str:
        """What the typed hyper-parameters belong to: a recipe by its name, an upload by its digest, the text."""
        own = {"recipe": "recipe", "upload": "kept", "git": "git_url"}.get(self.source, "")
        return f"{self.source} {self.values.get(own, '')}".strip()

    def _place(self, name: str) -> str:
        if name.startswith("params."):
            return PARAM + name.removeprefix("params.")
        if name == "code.entry" and self.script:
            return "entry"
        if name == "recipe" or name.split(".")[0] == "code":
            return "git_url" if self.source == "git" else self.source
        if name == "time_limit_s":
            return "time_limit"
        return name if name in DEFAULTS else ""


def typed_form(post: Mapping[str, str]) -> JobForm:
    """The form as it was sent; what a browser leaves out (disabled fields) has its default."""
    values = {name: post.get(name, default) for name, default in DEFAULTS.items()}
    if values["source"] not in set(Source):
        values["source"] = Source.RECIPE
    if values["kind"] == Kind.SCRIPT and values["source"] == Source.RECIPE:
        values["source"] = Source.UPLOAD  # the catalogue holds recipes alone
    params = {name.removeprefix(PARAM): value for name, value in post.items() if name.startswith(PARAM)}
    return JobForm(values, params)


def cloned_form(request: Mapping[str, object]) -> JobForm:
    """The form that would make the given request again (see `services.jobs.request_of`)."""
    values = DEFAULTS | {name: _shown(request[name]) for name in DEFAULTS if name in request}
    params = {name: _shown(value) for name, value in mapping_of(request.get("params")).items()}
    limit_s = float(str(request.get("time_limit_s") or 0))
    values["time_limit"] = f"{limit_s / 60:g}" if limit_s else ""
    return JobForm(values | _source_of(mapping_of(request.get("code"))), params)


def request_from(
    form: JobForm, *, code: Mapping[str, object] | None, declared: Iterable[ParamInfo]
) -> dict[str, object]:
    """The request that the form makes: the keys of REST's `POST /jobs`. `code` is the upload, the text or the address.

    Fields that the chosen strategy or kind does not read are kept on the page and not sent.
    """
    values = form.values
    request: dict[str, object] = {name: values[name] for name in read_by(values) if name in values}
    request["time_limit_s"] = _seconds(values["time_limit"])
    request["env"] = _environment(form)
    if form.script:
        request["arguments"] = _arguments(form)
    else:
        request["warmup_epochs"] = values["warmup_epochs"] if values["lr_scaling"] != LrScaling.NONE else 0
        # Only what the program declares: fields of a recipe chosen before are kept on the page, not sent.
        request["params"] = {param.name: form.params[param.name] for param in declared if param.name in form.params}
    if form.source == "recipe":
        request["recipe"] = values["recipe"]
    elif code is not None:
        request["code"] = dict(code)
    return request


def read_by(values: Mapping[str, str]) -> list[str]:
    """The fields that the chosen strategy and kind read; of an unknown strategy those that all of them read."""
    kind = Kind.SCRIPT if values["kind"] == Kind.SCRIPT else Kind.RECIPE
    if values["strategy"] in set(Strategy):
        return [row.name for row in fields_read(Strategy(values["strategy"]), kind)]
    return [name for name, row in FIELDS.items() if name not in PARTICULAR and row.only in (None, kind)]


def _source_of(code: Mapping[str, object]) -> dict[str, str]:
    """The values that bring a request's code back; {} for a recipe of the catalogue."""
    entry = {"entry": str(code["entry"])} if code.get("entry") else {}
    if "text" in code:
        return {"source": "text", "text": str(code["text"]), "filename": str(code["filename"])}
    if code:
        return {"source": "upload", "kept": str(code["sha256"]), "kept_name": str(code["filename"]), **entry}
    return {}


def environment_of(text: str) -> tuple[dict[str, str], str]:
    """Lines `NAME=value` as a mapping, and what is wrong with those that are none ("" when all are)."""
    found: dict[str, str] = {}
    wrong: list[str] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, equals, value = line.partition("=")
        if not equals or not name.strip():
            wrong.append(f"Line {number} is not of the form NAME=value.")
        elif name.strip() in found:
            wrong.append(f"Line {number} sets {name.strip()} a second time.")
        else:
            found[name.strip()] = value.strip()
    return found, " ".join(wrong[:ENVIRONMENT_ERRORS])


def _environment(form: JobForm) -> dict[str, str]:
    found, wrong = environment_of(form.values["env"])
    if wrong:
        form.say("env", wrong)
    return found


def _arguments(form: JobForm) -> list[str]:
    """The words of a command line, quoted as in a shell."""
    try:
        return shlex.split(form.values["arguments"])
    except ValueError as error:
        form.say("arguments", f"a quotation mark or a backslash is left open ({error})")
        return []


def mapping_of(value: object) -> Mapping[str, object]:
    """The value where it is a mapping, else an empty one."""
    return value if isinstance(value, Mapping) else {}


def label_of(place: str) -> str:
    """What the page calls a field."""
    own = {"upload": "File", "text": "Program text"}
    return own.get(place) or (ROWS[place].label if place in ROWS else place.removeprefix(PARAM))


def _seconds(minutes: str) -> int | str:
    try:
        return round(float(minutes.strip() or 0) * 60)
    except (ValueError, OverflowError):
        return minutes


def sentence_of(message: str) -> str:
    """A service's words as they stand below a field. A name at the beginning stays as it is written."""
    first = message.split(" ", 1)[0]
    begun = message[:1].upper() + message[1:] if first.isalpha() else message
    return begun.rstrip(".") + "."
