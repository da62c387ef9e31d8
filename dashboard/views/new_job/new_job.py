"""The new-job page: the form, its live preview, and the submission. Each request is parsed, given to a service, shown.

The program arrives as a recipe's name, as text, or as an upload. A sound upload is stored as soon as it is seen and
from then on travels by its digest, so that neither an error elsewhere nor the preview asks for the file again.
"""

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from django.conf import settings
from django.http import HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.template.loader import render_to_string
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from dashboard.folds import HYPER_PARAMETERS, summaries, summary_of_params
from dashboard.forms import DEFAULTS, JobForm, Source, request_from, typed_form
from dashboard.requests import SignedIn
from dashboard.views.answers import page, wants_json
from dashboard.views.new_job.copies import Copy, copy_of
from dashboard.views.new_job.panel import panel
from orchestrator import catalogue
from orchestrator.queries import machines
from orchestrator.queries.rows import User
from orchestrator.services.errors import Conflict, FieldError, Forbidden
from orchestrator.services.jobs import jobs, submission
from orchestrator.services.jobs.submission import Checked
from orchestrator.services.nodes import expected
from orchestrator.services.programs import programs
from worker_agent.protocol.job.strategies import STRATEGIES
from worker_agent.protocol.states import Kind

FIRST_RECIPE = "digits_cnn"
NOTHING_GIVEN = {"upload": "choose a .py or .zip file.", "git": "give the address of a repository."}
VIEWER = "Your role is viewer: you may look at everything, but not start jobs. An administrator can change your role."


@dataclass(frozen=True)
class Read:
    """A form, and what the request that it makes comes to."""

    form: JobForm
    checked: Checked
    copy: Copy | None = None

    @property
    def errors(self) -> dict[str, str]:
        """Everything that is wrong with it, by field, whether the form was refused or not."""
        if self.form.errors:
            return self.form.errors
        tried = replace(self.form, errors={})
        tried.refuse(self.checked.errors)
        return tried.errors


@require_http_methods(["GET", "HEAD", "POST"])
@page
def job_new(request: SignedIn) -> HttpResponse:
    """The form; by POST the job, or the form again with an error at each wrong field."""
    _must_run_jobs(request)
    if request.method != "POST":
        first = _first(request)
        _expect(first.checked)
        return _printed(request, first)
    read = _read(request)
    if request.POST.get("do") == "edit":
        return _printed(request, _with_recipe_text(read, request.user))
    if request.POST.get("do") == "sample":
        return _printed(request, _with_sample(read, request.user))
    read.form.refuse(read.checked.errors)
    if request.POST.get("do") == "show" or read.form.errors:
        return _printed(request, read, status=422 if read.form.errors else 200)
    return redirect("job", jobs.submit_job(request=read.checked, by=request.user).pk)


@require_safe
def job_strategies(request: SignedIn) -> HttpResponse:
    """The rules of the form's style that show a field under the strategies that read it."""
    form = '#new-job:has([name="strategy"][value="{0}"]:checked) [data-for]:not([data-for~="{0}"])'
    return HttpResponse(f"{', '.join(map(form.format, STRATEGIES))} {{ display: none; }}", content_type="text/css")


@require_POST
@page
def job_preview(request: SignedIn) -> JsonResponse:
    """What the form as it stands would make: errors by field, and the changed parts of the page as HTML."""
    _must_run_jobs(request)
    read = _read(request)
    _expect(read.checked)
    read.form.refuse(read.checked.errors)
    context = _program_of(read) | {"panel": panel(read.checked, read.form), "errors": read.form.errors}
    return JsonResponse(
        {
            "errors": read.form.errors,
            "error_list": render_to_string("dashboard/new_job/_errors.html", context, request),
            "folds": summaries(read.form, context["info"].params if context["info"] else ()),
            "panel": render_to_string("dashboard/new_job/_panel.html", context, request),
            "program": render_to_string("dashboard/new_job/_program.html", context, request),
            "program_key": _program_key(read),
        }
    )


@require_POST
@page
def job_check(request: SignedIn) -> HttpResponse:
    """Ask the nodes whether the job of this form could run: to the page of that check, or the form with its errors.

    A script that asks for JSON gets the address to ask for its state, or the errors by field.
    """
    _must_run_jobs(request)
    read = _read(request)
    read.form.refuse(read.checked.errors)
    row = None
    try:
        row = None if read.form.errors else jobs.check_job(request=read.checked, by=request.user, now=datetime.now(UTC))
    except Conflict as busy:
        read.form.say("", str(busy))
    if row is None:
        return JsonResponse({"errors": read.form.errors}) if wants_json(request) else _printed(request, read, 422)
    if wants_json(request):
        return JsonResponse({"url": reverse("preflight_state", args=[row.pk])})
    return redirect("preflight", row.pk)


def _printed(request: SignedIn, read: Read, status: int = 200) -> HttpResponse:
    entries = catalogue.entries()
    context = _program_of(read) | {
        "panel": panel(read.checked, read.form),
        "program_key": _program_key(read),
        "recipes": [(entry.name, entry.info.title or entry.name) for entry in entries],
        "clusters": _clusters(request.user),
        "general": read.form.errors.get("", ""),
        "refused": status == 422,
        "errors": read.errors,
        "copied": read.copy,
        "upload_max_bytes": settings.MAX_CODE_BYTES,
    }
    return render(request, "dashboard/new_job/page.html", context, status=status)


def _program_of(read: Read) -> dict[str, Any]:
    """What the part of the page that shows the program is printed from."""
    info = read.checked.info
    say = summary_of_params(read.form, info.params if info else ())
    return {"form": read.form, "info": info, "params_title": HYPER_PARAMETERS, "params_say": say}


def _clusters(user: User) -> list[tuple[str, str]]:
    """The choice of clusters, each with the devices that are free in it."""
    free = {name: fleet.usable.total() for name, fleet in machines.fleets(user).items()}
    return [(each.name, f"{each.name} ({free.get(each.name, 0)} free)") for each in machines.clusters(user)]


def _first(request: SignedIn) -> Read:
    """The form before anything was sent: empty, or filled from the job in `?clone=`, `?resume_from=` a checkpoint and
    with the package of a `?missing=` module."""
    copy = None
    if wanted := request.GET.get("clone"):
        copy = copy_of(request.user, wanted, request.GET)
        form = copy.form
    else:
        recipes = [entry.name for entry in catalogue.entries()]
        asked = request.GET.get("recipe", "")
        recipe = next((name for name in (asked, FIRST_RECIPE) if name in recipes), next(iter(recipes), ""))
        form = JobForm(DEFAULTS | {"recipe": recipe, "cluster": _first_cluster(request.user)})
    return replace(_understood(form, _code_of(form, None), request.user), copy=copy)


def _first_cluster(user: User) -> str:
    """The first cluster that could run something now, else the first."""
    found = list(machines.clusters(user))
    return next((each.name for each in found if each.ready_nodes), found[0].name if found else "")


def _read(request: SignedIn) -> Read:
    form = typed_form(request.POST)
    form.values["text"] = form.values["text"].replace("\r\n", "\n")
    return _understood(form, _code_of(form, _upload_of(request, form)), request.user)


def _upload_of(request: SignedIn, form: JobForm) -> dict[str, object] | None:
    """The file as a request carries it, or None. Only as much is read as can be a program."""
    file = request.FILES.get("upload")
    if form.source != "upload" or file is None:
        return None
    return {"filename": file.name or "", "content_base64": base64.b64encode(file.read()).decode()}


def _code_of(form: JobForm, upload: Mapping[str, object] | None) -> dict[str, object] | None:
    """The program as a request carries it; None for a recipe of the catalogue, and while there is none."""
    name = str((upload or {}).get("filename") or form.values["kept_name"])
    # The field is shown for scripts alone; a recipe has had its entry from the job that it was cloned from.
    reads_entry = form.script or form.source == "git" or name.lower().endswith(".zip")
    entry = {"entry": form.values["entry"].strip()} if reads_entry and form.values["entry"].strip() else {}
    if form.source == "text":
        return {"filename": form.values["filename"], "text": form.values["text"]}
    if form.source == "git" and form.values["git_url"].strip():
        return {"git": {name: form.values[f"git_{name}"].strip() for name in ("url", "ref", "path")}, **entry}
    if form.source == "upload" and upload is not None:
        return {**upload, **entry}
    if form.source == "upload" and form.values["kept"]:
        return {"sha256": form.values["kept"], **entry}
    return None


def _understood(form: JobForm, carried: dict[str, object] | None, user: User) -> Read:
    """Inspect the program, keep a sound upload, put the request together, and look what it comes to."""
    wanted: dict[str, object] = {"recipe": form.values["recipe"]} if form.source == "recipe" else {"code": carried}
    program = programs.resolve({"kind": form.values["kind"], **wanted}, by=user)
    if isinstance(program, programs.Program) and form.source == "upload":
        programs.keep(program)
        sent_name = str((carried or {}).get("filename") or form.values["kept_name"] or program.filename)
        form.values |= {"kept": program.ref.sha256, "kept_name": sent_name}
        carried = _code_of(form, None)
    elif form.source == "upload":
        form.values |= {"kept": "", "kept_name": ""}
    if carried is None and form.source in NOTHING_GIVEN:
        form.refuse([FieldError("code", NOTHING_GIVEN[form.source])])
    declared = program.info.params if program.info else ()
    form.declare(declared)
    request = request_from(form, code=carried, declared=declared)
    return Read(form, submission.check(request, by=user, program=program))


def _with_recipe_text(read: Read, user: User) -> Read:
    """The same form with the chosen recipe's text open for editing."""
    entry = catalogue.entry(read.form.values["recipe"])
    if entry is None:
        return read
    read.form.values |= {"source": "text", "text": entry.text, "filename": entry.filename}
    read.form.errors.clear()
    # The text is the recipe's own, word for word, so what was typed for the recipe was typed for it.
    read.form.values["params_of"] = "text"
    return _understood(read.form, _code_of(read.form, None), user)


def _with_sample(read: Read, user: User) -> Read:
    """The same form with a short script for the chosen strategy as its program."""
    form, sample = read.form, catalogue.sample_for(read.form.values["strategy"])
    form.values |= {"kind": Kind.SCRIPT, "source": Source.TEXT, "text": sample.text, "filename": sample.filename}
    form.values |= {"strategy": sample.strategy, "name": form.values["name"] or sample.name}
    form.errors.clear()
    return _understood(form, _code_of(form, None), user)


def _program_key(read: Read) -> str:
    """Changes when the program's part of the page has to be drawn anew, and not while its fields are filled in."""
    params = [repr(param) for param in read.checked.info.params] if read.checked.info else []
    described = [read.checked.info.title, read.checked.info.description] if read.checked.info else []
    problem = [text for name, text in read.form.errors.items() if name in ("recipe", "upload", "text", "git_url")]
    kept = read.form.values["kept_name"] if read.form.source == "upload" else ""
    return json.dumps([read.form.values["params_of"], described, params, problem, kept])


def _expect(found: Checked) -> None:
    """Somebody may soon ask for this job: where it would start at once, let it start quickly."""
    if found.asked and found.cluster and not found.waiting_for:
        node_ids = {replica.node_id for replica in found.placement}
        expected.expect(spec=found.asked, cluster=found.cluster, node_ids=node_ids, now=datetime.now(UTC))


def _must_run_jobs(request: SignedIn) -> None:
    if not request.user.may_run_jobs:
        raise Forbidden(VIEWER)
