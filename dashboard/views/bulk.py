"""One action on the jobs that were chosen in the list: a page that says what it would do, then doing it."""

from collections.abc import Sequence

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from dashboard.requests import SignedIn, chosen
from dashboard.views.answers import page
from orchestrator.domain.words import counted
from orchestrator.services.errors import Invalid, words_of
from orchestrator.services.jobs import bulk
from orchestrator.services.jobs.bulk import Action, Outcome

# The button, what was done, and what becomes of the jobs.
WORDS = {
    Action.STOP: ("Stop", "stopped", "Their processes are ended; the checkpoints that they saved stay."),
    Action.TAG: ("Tag", "tagged", "Lists can be filtered by tags."),
    Action.UNTAG: ("Untag", "untagged", "The tag is taken from those that have it."),
    Action.DELETE: (
        "Delete",
        "deleted",
        "Their curves, logs, files and checkpoints are deleted for good; only a line of each stays in the history.",
    ),
}
REFUSALS_SAID = 5


@require_http_methods(["GET", "HEAD", "POST"])
@page
def job_bulk(request: SignedIn) -> HttpResponse:
    """By GET the question, by POST the deed, then back to the list."""
    asked = request.POST if request.method == "POST" else request.GET
    back = asked.get("back", "")
    to_list = redirect(reverse("jobs") + (f"?{back}" if back else ""))
    wanted, action = chosen(asked), asked.get("action", "")
    if action not in set(Action) or not wanted:
        messages.warning(request, "Nothing was done: select jobs, then choose what to do with them.")
        return to_list
    action, tag, wrong = Action(action), asked.get("tag", ""), ""
    try:
        outcomes = bulk.foresee(action=action, job_ids=wanted, by=request.user)
    except Invalid as refused:
        messages.warning(request, words_of(refused))
        return to_list
    if request.method == "POST":
        try:
            _tell(request, action, bulk.carry_out(action=action, job_ids=wanted, by=request.user, tag=tag))
        except Invalid as refused:
            wrong = words_of(refused)
        else:
            return to_list
    verb, done, consequence = WORDS[action]
    context = {
        "action": action,
        "verb": verb,
        "done": done,
        "consequence": consequence,
        "will": [each for each in outcomes if not each.why_not],
        "cannot": [each for each in outcomes if each.why_not],
        "jobs": ",".join(str(each.job_id) for each in outcomes),
        "back": back,
        "tag": tag,
        "wrong": wrong,
        "asks_tag": action in (Action.TAG, Action.UNTAG),
        "danger": action in (Action.STOP, Action.DELETE),
    }
    return render(request, "dashboard/jobs/bulk.html", context, status=422 if wrong else 200)


def _tell(request: SignedIn, action: Action, outcomes: Sequence[Outcome]) -> None:
    done = sum(not each.why_not for each in outcomes)
    refused = [each for each in outcomes if each.why_not]
    if done:
        messages.success(request, f"{counted(done, 'job')} {WORDS[action][1]}.")
    for each in refused[:REFUSALS_SAID]:
        messages.warning(request, f"j-{each.job_id}: {each.why_not}")
    if len(refused) > REFUSALS_SAID:
        messages.warning(request, f"{len(refused) - REFUSALS_SAID} more were left alone for such reasons.")
