"""Asking for a strategy test of a job or a recipe, and for one more candidate of a test."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST

from dashboard.requests import SignedIn
from dashboard.views.answers import page
from dashboard.views.strategy_tests.form import OF_TEST, Proposal, TestForm, kept
from dashboard.views.strategy_tests.layouts import LayoutForm, first_numbers, numbers_of
from dashboard.views.strategy_tests.report import context_of
from orchestrator import catalogue
from orchestrator.queries import jobs as job_queries
from orchestrator.queries import machines, strategy_tests
from orchestrator.queries.errors import NotFound
from orchestrator.queries.rows import User
from orchestrator.services.errors import Conflict, FieldError, Forbidden, Invalid
from orchestrator.services.jobs import jobs, submission
from orchestrator.services.strategy_tests import creating
from worker_agent.protocol.job.job_spec import FIELDS
from worker_agent.protocol.job.strategies import STRATEGIES
from worker_agent.protocol.states import Strategy

VIEWER = "Your role lets you look at strategy tests, not create them."
# Ticked at first, where the cluster can run them.
USUAL = (
    *(Strategy.ONE_DEVICE, Strategy.MIRRORED, Strategy.MULTI_WORKER_MIRRORED),
    *(Strategy.CENTRAL_STORAGE, Strategy.PARAMETER_SERVER),
)
# What a job says of itself alone.
OF_ITSELF = ("resume_from", "strategy")


@dataclass(frozen=True)
class Subject:
    """What is tested: a job that was run, or a recipe; `base` is its request, `says` what a person calls it."""

    says: str
    href: str
    base: dict[str, Any]
    strategy: Strategy | None


@require_http_methods(["GET", "HEAD", "POST"])
@page
def new(request: SignedIn) -> HttpResponse:
    """The form for `?job=` or `?recipe=`; by POST the test, or the form again with an error at each wrong field."""
    if not request.user.may_run_jobs:
        raise Forbidden(VIEWER)
    subject = _subject(request)
    if subject is None:
        return render(request, "dashboard/strategy_tests/choose.html", {"recipes": _recipes()})
    if request.method == "POST":
        form = TestForm.sent(subject.base, request.POST, request.POST.getlist("use"))
        if test_id := _made(form, request.user):
            return redirect("strategy_test", test_id)
        return _printed(request, subject, form, status=422)
    return _printed(request, subject, _first_form(subject, request.user))


@require_POST
@page
def extend(request: SignedIn, test_id: int) -> HttpResponse:
    """One more candidate, then back to the report; with an error at each wrong field where it cannot be."""
    form, found = LayoutForm(request.POST), strategy_tests.get(request.user, test_id)
    layout = form.layout()
    first = found.candidates.first()
    if first and layout["strategy"] in set(Strategy):
        layout = kept(first.layout, Strategy(layout["strategy"])) | layout
    try:
        creating.extend(test_id=test_id, layout=layout, by=request.user)
    except Invalid as refused:
        form.refuse(refused.errors)
    except Conflict as refused:
        form.refuse([FieldError("", str(refused))])
    if not form.errors:
        return redirect("strategy_test", test_id)
    context = context_of(found, request.user) | {"form": form}
    return render(request, "dashboard/strategy_test/page.html", context, status=422)


def _made(form: TestForm, user: User) -> int | None:
    """The test that the form asks for, or None with its errors in the form."""
    asked = form.request()
    if form.errors:
        return None
    try:
        return creating.create(asked=asked, by=user).pk
    except Invalid as refused:
        form.refuse(refused.errors)
        return None


def _subject(request: SignedIn) -> Subject | None:
    """The job or recipe that the address names; None where it names none."""
    if wanted := request.GET.get("job"):
        if not (wanted.isascii() and wanted.isdecimal()):
            raise NotFound("There is no such job.")
        job = job_queries.get(request.user, int(wanted))
        asked = {name: value for name, value in jobs.request_of(job).items() if _says_something(name, value)}
        base = {name: value for name, value in asked.items() if name not in OF_ITSELF} | {"cluster": job.cluster.name}
        return Subject(job.name, reverse("job", args=[job.pk]), base, Strategy(job.strategy))
    recipe = catalogue.entry(request.GET.get("recipe", ""))
    if recipe is None:
        return None
    clusters = sorted(machines.clusters(request.user), key=lambda each: not each.ready_nodes)
    batch = {"global_batch_size": FIELDS["global_batch_size"].default, "epochs": FIELDS["epochs"].default}
    where = {"cluster": clusters[0].name} if clusters else {}
    base = {"recipe": recipe.name, "name": recipe.name.replace("_", "-"), **batch, **where}
    return Subject(recipe.info.title or recipe.name, "", base, None)


def _says_something(name: str, value: object) -> bool:
    """Defaults differ by strategy: what was not asked for is left to each candidate."""
    row = FIELDS.get(name)
    return row is None or row.always or value != row.default


def _first_form(subject: Subject, user: User) -> TestForm:
    """All strategies with the numbers that the cluster has room for, the job's own as it was."""
    values = OF_TEST | {"name": str(subject.base["name"])}
    values |= {f"job.{name}": str(subject.base.get(name, "")) for name in ("global_batch_size", "epochs")}
    nodes = submission.check({**subject.base, "strategy": Strategy.ONE_DEVICE}, by=user).nodes
    for strategy in Strategy:
        own = subject.base if strategy is subject.strategy else {}
        first = first_numbers(strategy, nodes)
        values |= {f"{strategy}.{name}": str(own.get(name, first[name])) for name in numbers_of(strategy)}
    form = TestForm(subject.base, values, ())
    form.chosen = [
        each.strategy
        for each in _proposals(form, user)
        if not each.why_not and (each.strategy in USUAL or each.strategy is subject.strategy)
    ]
    return form


def _proposals(form: TestForm, user: User) -> list[Proposal]:
    """A row for each strategy."""
    job, program, found = form.job(), None, []
    for strategy in STRATEGIES:
        checked = submission.check({**job, **form.layout_of(strategy)}, by=user, program=program)
        program = checked.program
        why_not = checked.errors[0].message if checked.errors else ""
        found.append(Proposal(strategy, why_not, form.errors.get(strategy.value, "")))
    return found


def _recipes() -> list[Mapping[str, str]]:
    return [
        {"name": entry.name, "title": entry.info.title or entry.name, "about": entry.info.description}
        for entry in catalogue.entries()
    ]


def _printed(request: SignedIn, subject: Subject, form: TestForm, status: int = 200) -> HttpResponse:
    context = {
        "subject": subject,
        "form": form,
        "proposals": _proposals(form, request.user),
        "refused": status == 422,
        "general": form.errors.get("", ""),
    }
    return render(request, "dashboard/strategy_tests/new.html", context, status=status)
