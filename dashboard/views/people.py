"""People and their roles, for administrators: who is there, adding somebody, and what may be changed of one person."""

from collections.abc import Callable

from django.conf import settings
from django.contrib import messages
from django.core.paginator import Paginator
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.encoding import force_bytes
from django.utils.http import urlsafe_base64_encode
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from dashboard.forms import sentence_of
from dashboard.requests import SignedIn
from dashboard.views.answers import for_administrators, page
from dashboard.views.once import forget, hand_over, received
from orchestrator.queries import people as queries
from orchestrator.queries.rows import User
from orchestrator.services import people as services
from orchestrator.services.errors import Conflict, Invalid, words_of

SHOWN = 50
LINK = "password_link"
FIRST = {"username": "", "email": "", "role": "member"}
DONE = {
    "role": "{name} is now {role}.",
    "deactivate": "{name} is deactivated and signed out everywhere. API tokens are refused; jobs go on.",
    "activate": "{name} may sign in again.",
}


class PersonForm:
    """`values` as typed, `errors` by field."""

    def __init__(self, sent: dict[str, str]) -> None:
        self.values, self.errors = sent, dict[str, str]()

    def value(self, name: str) -> str:
        """What stands in the field of that name."""
        return self.values.get(name, "")


@require_http_methods(["GET", "HEAD", "POST"])
@page
@for_administrators
def people(request: SignedIn) -> HttpResponse:
    """Everybody, or whom a search finds; by POST somebody new, whose page then shows the link to set a password."""
    form = PersonForm({name: request.POST.get(name, first) for name, first in FIRST.items()})
    if request.method == "POST":
        try:
            added = services.add_person(**form.values, by=request.user)
            return _with_link(request, added)
        except Invalid as refused:
            form.errors = {error.field: sentence_of(error.message) for error in refused.errors}
    text = request.GET.get("q", "").strip()
    shown = Paginator(queries.people(request.user, text=text), SHOWN).get_page(request.GET.get("page"))
    context = {"shown": shown, "text": text, "form": form, "roles": _cards(), "refused": bool(form.errors)}
    return render(request, "dashboard/people/page.html", context, status=422 if form.errors else 200)


@never_cache
@require_safe
@page
@for_administrators
def person(request: SignedIn, person_id: int) -> HttpResponse:
    """One person; a link that was just made is shown this once."""
    context = {
        "person": queries.person(request.user, person_id),
        "roles": _cards(),
        "link": received(request, name=LINK),
        "is_me": person_id == request.user.pk,
    }
    return forget(render(request, "dashboard/people/person.html", context), name=LINK)


@require_POST
@page
@for_administrators
def person_action(request: SignedIn, person_id: int, action: str) -> HttpResponse:
    """A new link to set a password, or one of the actions in `DONE`."""
    found = queries.person(request.user, person_id)
    acts: dict[str, Callable[[], User]] = {
        "role": lambda: services.change_role(
            person_id=person_id,
            role=request.POST.get("role", ""),
            sure=request.POST.get("confirm") == found.username,
            by=request.user,
        ),
        "deactivate": lambda: services.deactivate(person_id=person_id, by=request.user),
        "activate": lambda: services.activate(person_id=person_id, by=request.user),
    }
    try:
        if action == "password":
            return _with_link(request, found)
        if action not in acts:
            raise Http404("There is no such action.")
        changed = acts[action]()
    except (Invalid, Conflict) as refused:
        messages.error(request, words_of(refused))
        return redirect("person", person_id)
    role = changed.get_role_display().lower()
    messages.success(request, DONE[action].format(name=changed.username, role=role))
    return redirect("person", person_id) if request.user.pk != person_id else redirect("overview")


def _with_link(request: SignedIn, found: User) -> HttpResponse:
    token = services.password_token(person_id=found.pk, by=request.user)
    key = urlsafe_base64_encode(force_bytes(found.pk))
    link = settings.PUBLIC_URL + reverse("password_link", args=[key, token])
    return hand_over(request, redirect(reverse("person", args=[found.pk]) + "#link"), name=LINK, value=link)


def _cards() -> list[tuple[str, str, str, str]]:
    """(value, title, text, "") of each role, as `fields/_cards.html` shows choices."""
    return [(role.value, role.label, text, "") for role, text in services.ROLES.items()]
