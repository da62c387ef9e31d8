"""One job: its page, the parts that change with its state, stop, pause and retry, its log and files to take away."""

from django.contrib import messages
from django.http import HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST, require_safe

from dashboard.downloads import attachment, bytes_attachment
from dashboard.requests import SignedIn
from dashboard.views.answers import action, page
from dashboard.views.job.contents import state_of
from dashboard.views.job.log_lines import ERROR_LINE, TRACEBACK_LINE, WARNING_LINE, printed_lines
from dashboard.views.job.settings import settings_of
from orchestrator.queries import jobs as job_queries
from orchestrator.queries import telemetry
from orchestrator.queries.rows import Job
from orchestrator.services import artifacts
from orchestrator.services.checkpoints import checkpoint_store
from orchestrator.services.errors import Conflict, Invalid, words_of
from orchestrator.services.jobs import deleting, labels, printed
from orchestrator.services.jobs import jobs as job_services

LINES_PRINTED = 100


@require_safe
@page
def job(request: SignedIn, job_id: int) -> HttpResponse:
    """The page. What lives on it comes over the socket; this prints the state of now."""
    found = job_queries.get(request.user, job_id)
    attempt = _asked_attempt(request, found)
    context = state_of(found, request.user) | {
        "settings": settings_of(found),
        "asked_attempt": attempt,
        "lines": printed_lines(found, limit=LINES_PRINTED, attempt=attempt),
        "error_line": ERROR_LINE.pattern,
        "warning_line": WARNING_LINE.pattern,
        "traceback_line": TRACEBACK_LINE.pattern,
    }
    return render(request, "dashboard/job/page.html", context)


@require_safe
@page
def job_state(request: SignedIn, job_id: int) -> HttpResponse:
    """The parts of the page that change with the job's state; the page puts each in the place of the old one."""
    found = job_queries.get(request.user, job_id)
    return render(request, "dashboard/job/_state.html", state_of(found, request.user))


def _asked_attempt(request: SignedIn, job: Job) -> int | None:
    """The attempt that the address names, if the job has one of that number; None means all."""
    asked = request.GET.get("attempt", "")
    is_one = asked.isascii() and asked.isdecimal() and len(asked) < 10 and 1 <= int(asked) <= job.attempt
    return int(asked) if is_one else None


job_stop, job_pause, job_resume = (
    action(act, back="job") for act in (job_services.stop_job, job_services.pause_job, job_services.resume_job)
)


@require_POST
@page
def job_printed(request: SignedIn, job_id: int) -> HttpResponse:
    """The chosen names are drawn from the printed lines, then back to the page."""
    try:
        printed.draw(job_id=job_id, names=", ".join(request.POST.getlist("names")), by=request.user)
    except (Conflict, Invalid) as refused:
        messages.warning(request, words_of(refused))
    return redirect("job", job_id)


@require_POST
@page
def job_retry(request: SignedIn, job_id: int) -> HttpResponse:
    """A new job like this one, and on to its page."""
    try:
        again = job_services.retry_job(job_id=job_id, by=request.user)
    except Conflict as refused:
        messages.warning(request, str(refused))
        return redirect("job", job_id)
    return redirect("job", again.pk)


@require_POST
@page
def job_words(request: SignedIn, job_id: int) -> HttpResponse:
    """Tags and notes: both as they were written, or neither."""
    tags = request.POST.get("tags", "").replace(",", " ").split()
    try:
        labels.set_words(job_id=job_id, tags=tags, notes=request.POST.get("notes", ""), by=request.user)
    except Invalid as refused:
        messages.warning(request, words_of(refused))
    return redirect("job", job_id)


@require_POST
@page
def job_delete(request: SignedIn, job_id: int) -> HttpResponse:
    """Delete it if its name was typed, and on to the list."""
    found = job_services.changeable(job_id, request.user)
    if request.POST.get("confirm", "").strip() != found.name:
        messages.warning(request, "Nothing was deleted: the typed text is not the name of the job.")
        return redirect("job", job_id)
    try:
        deleting.delete_job(job_id=job_id, by=request.user)
    except Conflict as refused:
        messages.warning(request, str(refused))
        return redirect("job", job_id)
    messages.success(request, f"{found.name} (j-{job_id}) is deleted.")
    return redirect("jobs")


@require_safe
@page
def job_log(request: SignedIn, job_id: int) -> HttpResponseBase:
    """The whole log of one replica as a file: of one attempt, or of all one after the other."""
    found, name = job_queries.get(request.user, job_id), request.GET.get("replica", "")
    attempt = _asked_attempt(request, found)
    replica = job_queries.replica_named(found, name, attempt)
    pieces = (text.encode() for text in telemetry.whole_log(found, replica=name, attempt=attempt))
    of_attempt = f"-attempt-{attempt}" if attempt else ""
    name_of_file = f"j-{found.pk}-{replica.role}-{replica.index}{of_attempt}.log"
    return bytes_attachment(request, pieces, name=name_of_file, kind="text/plain; charset=utf-8")


@require_safe
@page
def job_checkpoint(request: SignedIn, job_id: int, checkpoint_id: int) -> HttpResponseBase:
    """A checkpoint, as a tar file."""
    try:
        row, pieces = checkpoint_store.archive(user=request.user, job_id=job_id, checkpoint_id=checkpoint_id)
    except Conflict as refused:
        messages.warning(request, str(refused))
        return redirect("job", job_id)
    return bytes_attachment(request, pieces, name=f"j-{job_id}-{row.name}.tar", kind="application/x-tar")


@require_safe
@page
def job_artifact(request: SignedIn, job_id: int, artifact_id: int) -> HttpResponseBase:
    """A file that the job left, always as a download."""
    row, content = artifacts.open_file(user=request.user, job_id=job_id, artifact_id=artifact_id)
    return attachment(request, content, name=artifacts.download_name(row), size_bytes=row.size_bytes)


@require_safe
@page
def job_files(request: SignedIn, job_id: int, attempt: int) -> HttpResponseBase:
    """The files of an attempt, or those below a folder of it, as a zip file."""
    folder = request.GET.get("folder", "")
    pieces = artifacts.archive(user=request.user, job_id=job_id, attempt=attempt, folder=folder)
    name = "-".join(filter(None, [f"j-{job_id}-{attempt}", folder.replace("/", "-")]))
    return bytes_attachment(request, pieces, name=f"{name}.zip", kind="application/zip")
