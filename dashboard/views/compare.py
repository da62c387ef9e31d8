"""Jobs side by side: what they reached, the settings that differ, their curves and the diff of their programs."""

import difflib
import io
import math
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

import msgspec
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_safe

from dashboard.requests import SignedIn, chosen
from dashboard.templatetags.trainyard import figure, metric_name
from dashboard.views.job.settings import settings_of
from dashboard.views.job.words import JobRow
from orchestrator.domain import better
from orchestrator.queries import comparing
from orchestrator.queries import jobs as job_queries
from orchestrator.queries.rows import Job

MOST = 20
POINTS = 400
COLOURS = 8
# Of the lines that share a colour, each has its own dashes: lengths on and off.
DASHES = ((), (8, 4), (2, 3))
DIFF_LINES = 400
DIFF_BYTES = 200_000


@dataclass(frozen=True)
class Line:
    """A row of the table: a value for each job, whether they `differ`, and at which places the best ones are."""

    label: str
    values: list[str]
    differ: bool
    best: frozenset[int] = frozenset()

    @property
    def cells(self) -> list[tuple[str, bool, bool]]:
        """(value, is the best, differs from that of the first job)."""
        return [(value, place in self.best, value != self.values[0]) for place, value in enumerate(self.values)]


@dataclass(frozen=True)
class Side:
    """A job with the colour and the dashes of its lines, and the address of the comparison without it."""

    job: Job
    colour: int
    dash: tuple[int, ...]
    without: str


@require_safe
def compare(request: SignedIn) -> HttpResponse:
    """The page. Its address names the jobs, and may be given to anybody who may see them."""
    asked = list(dict.fromkeys(chosen(request.GET)))
    wanted = asked[:MOST]
    if wanted and len(request.GET.getlist("jobs")) > 1 and wanted == asked:
        return redirect(_address(wanted))
    jobs = job_queries.many(request.user, wanted)
    found = {job.pk for job in jobs}
    context = _table(jobs) | {
        "ids": ",".join(str(job.pk) for job in jobs),
        "missing": [pk for pk in wanted if pk not in found],
        "left_out": len(asked) - len(wanted),
        "most": MOST,
        "diffs": _diffs(jobs),
    }
    return render(request, "dashboard/compare/page.html", context)


@require_safe
def compare_state(request: SignedIn) -> HttpResponse:
    """The table, which changes while the jobs run; the page puts it in the place of the old one."""
    return render(request, "dashboard/compare/_state.html", _table(_asked(request)))


@require_safe
def compare_curves(request: SignedIn) -> HttpResponse:
    """The curves of the jobs, how they are drawn, and what their x axes need."""
    return curves_of([(place, job, job.name) for place, job in enumerate(_asked(request))])


def curves_of(jobs: Sequence[tuple[int, Job, str]]) -> HttpResponse:
    """The answer that `js/compare.js` draws: of each (place, job, name). The place chooses colour and dashes."""
    found = comparing.curves([job for _place, job, _name in jobs], points=POINTS)
    told = {
        "jobs": [
            {
                "id": job.pk,
                "name": name,
                "colour": colour_of(place),
                "dash": DASHES[place // COLOURS],
                "total_steps": job.total_steps,
                "epochs": job.epochs,
                "spec": {"global_batch_size": job.spec.get("global_batch_size")},
                "series": found[job.pk],
            }
            for place, job, name in jobs
        ]
    }
    return HttpResponse(msgspec.json.encode(told), content_type="application/json")


def colour_of(place: int) -> int:
    """The number of the colour of the line at a place."""
    return place % COLOURS + 1


def _asked(request: SignedIn) -> list[Job]:
    return job_queries.many(request.user, chosen(request.GET)[:MOST])


def _address(ids: Iterable[int]) -> str:
    return f"{reverse('compare')}?{urlencode({'jobs': ','.join(map(str, ids))}, safe=',')}"


def _sides(jobs: Sequence[Job]) -> list[Side]:
    return [
        Side(
            job=job,
            colour=colour_of(place),
            dash=DASHES[place // COLOURS],
            without=_address(other.pk for other in jobs if other is not job),
        )
        for place, job in enumerate(jobs)
    ]


def _table(jobs: Sequence[Job]) -> dict[str, object]:
    settings = settings_beside([settings_of(job) for job in jobs])
    return {
        "sides": _sides(jobs),
        "results": _results(jobs),
        "differing": [line for line in settings if line.differ],
        "equal": [line for line in settings if not line.differ],
    }


def _results(jobs: Sequence[Job]) -> list[Line]:
    rows = [JobRow.of(job) for job in jobs]
    lines = [
        _line("Steps", [str(figure(job.step)) if job.step >= 1000 else str(job.step) for job in jobs]),
        _line("Time", [row.lasted for row in rows]),
    ]
    names = dict.fromkeys(name for job in jobs for name in job.metrics)
    for name in names:
        values = [job.metrics.get(name) for job in jobs]
        lines.append(_line(metric_name(name), [str(figure(value)) for value in values], _best(name, values)))
    return lines


def _best(name: str, values: Sequence[object]) -> frozenset[int]:
    """Where the best of a metric stands, none where nobody can tell which way is better, or where all are equal."""
    falls = better.falls(name)
    finite = {place: float(v) for place, v in enumerate(values) if isinstance(v, int | float) and math.isfinite(v)}
    if falls is None or len(set(finite.values())) < 2:
        return frozenset()
    best = (min if falls else max)(finite.values())
    return frozenset(place for place, value in finite.items() if value == best)


def settings_beside(told: Iterable[Iterable[tuple[str, str]]]) -> list[Line]:
    """By the declarations of the fields, a value for each job; where it says nothing, the default holds."""
    asked = [dict(each) for each in told]
    labels = dict.fromkeys(label for each in asked for label in each)
    return [_line(label, [each.get(label, "default") for each in asked]) for label in labels]


def _line(label: str, values: list[str], best: frozenset[int] = frozenset()) -> Line:
    return Line(label, values, len(set(values)) > 1, best)


def _diffs(jobs: Sequence[Job]) -> list[dict[str, object]]:
    """How each other program differs from that of the first job; jobs with the same program share one."""
    if not jobs:
        return []
    first, others = jobs[0], dict[str, list[Job]]()
    for job in jobs[1:]:
        if job.code_id != first.code_id:
            others.setdefault(job.code_id, []).append(job)
    base = _files(first) if others else {}
    return [{"jobs": each, "lines": _diff(base, _files(each[0]))} for each in others.values()]


def _files(job: Job) -> dict[str, bytes]:
    """The files of a program by name; of large ones the check sum stands for the content."""
    content = bytes(job.code.content)
    if not job.code.archive:
        return {"": content}
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            return {info.filename: f"check sum {info.CRC:08x}".encode() for info in archive.infolist()}
    except zipfile.BadZipFile:
        return {}


def _diff(a: Mapping[str, bytes], b: Mapping[str, bytes]) -> list[tuple[str, str]]:
    """Lines with their kind: `add`, `del`, `at` or nothing. Of archives: which files came, went or changed."""
    if a.keys() == b.keys() == {""}:
        if max(len(a[""]), len(b[""])) > DIFF_BYTES:
            return [("at", "These programs are too large to be compared line by line.")]
        before, after = (each[""].decode("utf-8", "replace").splitlines() for each in (a, b))
        return _bounded(difflib.unified_diff(before, after, lineterm="", n=2))
    changed = [f"~ {name}" for name in sorted(a.keys() & b.keys()) if a[name] != b[name]]
    gone = [f"- {name or 'one file'}" for name in sorted(a.keys() - b.keys())]
    return _bounded([*changed, *gone, *(f"+ {name or 'one file'}" for name in sorted(b.keys() - a.keys()))])


def _bounded(lines: Iterable[str]) -> list[tuple[str, str]]:
    kinds = {"+": "add", "-": "del", "@": "at"}
    shown: list[tuple[str, str]] = []
    for line in lines:
        if line.startswith(("---", "+++")):
            continue
        if len(shown) == DIFF_LINES:
            return [*shown, ("at", f"The rest is left out after {DIFF_LINES} lines.")]
        shown.append((kinds.get(line[:1], ""), line))
    return shown
