"""Reads about people, for administrators alone."""

from django.db.models import Count, Q, QuerySet

from orchestrator.models import User
from orchestrator.queries.errors import NotFound


def people(user: User, *, text: str = "") -> QuerySet[User]:
    """Everybody by name, or whose name or e-mail has `text`; with `tokens`, how many API tokens each has."""
    found = User.objects.order_by("username").annotate(tokens=Count("api_tokens"))
    if not user.may_administer:
        return found.none()
    # PostgreSQL takes no NUL.
    return found.filter(Q(username__icontains=text) | Q(email__icontains=text)) if "\0" not in text else found.none()


def person(user: User, person_id: int) -> User:
    """One person; raises `NotFound`."""
    found = people(user).filter(pk=person_id).first()
    if found is None:
        raise NotFound("There is no such person.")
    return found
