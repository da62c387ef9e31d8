"""The list of strategy tests, the report of one, and what it is taken away as."""

from pathlib import Path

from django.http import HttpResponse, HttpResponseBase
from django.shortcuts import render
from django.template.loader import render_to_string
from django.urls import reverse
from django.views.decorators.http import require_safe

from dashboard.downloads import bytes_attachment
from dashboard.requests import SignedIn
from dashboard.strategy_report import csv_of
from dashboard.views.answers import page
from dashboard.views.compare import curves_of
from dashboard.views.strategy_tests.layouts import LayoutForm
from dashboard.views.strategy_tests.report import context_of, jobs_of, look_of
from orchestrator.queries import strategy_tests

# Written into the file, whose reader has no other sheet.
STYLE = Path(__file__).parents[2] / "static/dashboard/css/report_file.css"


@require_safe
@page
def tests(request: SignedIn) -> HttpResponse:
    """The list, newest first; `?before=` goes on with it."""
    asked = request.GET.get("before", "")
    before = int(asked) if asked.isascii() and asked.isdecimal() and len(asked) < 19 else None
    found, older = strategy_tests.page(request.user, before=before)
    context = {
        "tests": [(test, look_of(test.status), strategy_tests.report(test)) for test in found],
        "older": f"{reverse('strategy_tests')}?before={older}" if older else "",
        "is_first": before is None,
    }
    return render(request, "dashboard/strategy_tests/page.html", context)


@require_safe
@page
def test(request: SignedIn, test_id: int) -> HttpResponse:
    """The report."""
    found = strategy_tests.get(request.user, test_id)
    return render(
        request, "dashboard/strategy_test/page.html", context_of(found, request.user) | {"form": LayoutForm()}
    )


@require_safe
@page
def state(request: SignedIn, test_id: int) -> HttpResponse:
    """The parts of the report that change while the test runs; the page puts each in the place of the old one."""
    found = strategy_tests.get(request.user, test_id)
    return render(request, "dashboard/strategy_test/_state.html", context_of(found, request.user))


@require_safe
@page
def curves(request: SignedIn, test_id: int) -> HttpResponse:
    """The curves of each candidate's last run."""
    return curves_of(jobs_of(strategy_tests.get(request.user, test_id)))


@require_safe
@page
def whole(request: SignedIn, test_id: int) -> HttpResponseBase:
    """The report as one file that needs nothing else."""
    found = strategy_tests.get(request.user, test_id)
    context = context_of(found, request.user) | {"is_file": True, "style": STYLE.read_text()}
    text = render_to_string("dashboard/strategy_test/file.html", context)
    return bytes_attachment(request, [text.encode()], name=f"t-{found.pk}.html", kind="text/html; charset=utf-8")


@require_safe
@page
def table(request: SignedIn, test_id: int) -> HttpResponseBase:
    """Each run as a line of CSV."""
    found = strategy_tests.get(request.user, test_id)
    return bytes_attachment(request, [csv_of(found)], name=f"t-{found.pk}.csv", kind="text/csv; charset=utf-8")
