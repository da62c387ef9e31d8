"""What a person does with a strategy test: pause, resume, stop, run again, delete."""

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_POST

from dashboard.requests import SignedIn
from dashboard.views.answers import action, page
from orchestrator.services.errors import Conflict, Invalid, words_of
from orchestrator.services.strategy_tests import creating, running

pause, resume, stop = (action(act, back="strategy_test") for act in (running.pause, running.resume, running.stop))


@require_POST
@page
def again(request: SignedIn, test_id: int) -> HttpResponse:
    """A new test that asks for the same, and on to its page."""
    try:
        test = creating.again(test_id=test_id, by=request.user)
    except (Conflict, Invalid) as refused:
        messages.warning(request, words_of(refused))
        return redirect("strategy_test", test_id)
    return redirect("strategy_test", test.pk)


@require_POST
@page
def delete(request: SignedIn, test_id: int) -> HttpResponse:
    """Forget it, and on to the list."""
    try:
        running.delete(test_id=test_id, by=request.user)
    except Conflict as refused:
        messages.warning(request, str(refused))
        return redirect("strategy_test", test_id)
    messages.success(request, f"t-{test_id} is deleted. Its jobs stay.")
    return redirect("strategy_tests")
