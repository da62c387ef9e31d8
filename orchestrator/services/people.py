"""People: who may come in and what each may do. Called by the pages of people and passwords, and by the administration.

Every change leaves an event with its actor; no password stands in one. Somebody always remains who may administer.
"""

from django.contrib.auth.password_validation import validate_password
from django.contrib.auth.tokens import default_token_generator
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction

from orchestrator.domain.words import storable
from orchestrator.models import User, UserRole
from orchestrator.queries.errors import NotFound
from orchestrator.services import transitions
from orchestrator.services.errors import Conflict, FieldError, Forbidden, Invalid

LAST = "{name} is the last active administrator: make somebody else one first."
# What each role is for, in the order of what it may do.
ROLES = {
    UserRole.VIEWER: "Sees every job and machine, and changes nothing.",
    UserRole.MEMBER: "Starts jobs, and decides about their own.",
    UserRole.ADMINISTRATOR: "Decides about every job, and about machines and people.",
}


def add_person(*, username: str, email: str, role: str, by: User) -> User:
    """Somebody new, who cannot sign in before they have set a password (`password_token`)."""
    _require_administrator(by)
    person = User(username=username.strip(), email=email.strip(), role=role)
    person.set_unusable_password()
    try:
        person.full_clean(exclude=["password"])
    except ValidationError as error:
        raise Invalid([FieldError(field, words[-1]) for field, words in error.message_dict.items()]) from error
    try:
        with transaction.atomic():
            person.save()
            _record("person_added", f"{person} was added as {_role(role)}.", by)
    except IntegrityError as error:
        raise Invalid([FieldError("username", "There is a person of that name already.")]) from error
    return person


def change_role(*, person_id: int, role: str, by: User, sure: bool = False) -> User:
    """Give a person another role; one's own only if `sure`."""
    _require_administrator(by)
    if role not in ROLES:
        raise Invalid([FieldError("role", f"Choose one of {', '.join(ROLES)}.")])
    with transaction.atomic():
        person = _locked(person_id)
        if person.role == role:
            return person
        if person.pk == by.pk and not sure:
            raise Conflict("This is your own role: confirm that you want to give it up.")
        _keep_an_administrator(person)
        before, person.role = person.role, role
        person.save()
        _record("person_role", f"{person} was made {_role(role)}, before {_role(before)}.", by)
    return person


def deactivate(*, person_id: int, by: User) -> User:
    """Close the door: sessions and API tokens count no more from now on, open pages end within seconds. Jobs go on."""
    _require_administrator(by)
    with transaction.atomic():
        person = _locked(person_id)
        if person.is_active:
            _keep_an_administrator(person)
            _switch(person, active=False, by=by)
    return person


def activate(*, person_id: int, by: User) -> User:
    """Let a person in again, with the password and the API tokens of before."""
    _require_administrator(by)
    with transaction.atomic():
        person = _locked(person_id)
        if not person.is_active:
            _switch(person, active=True, by=by)
    return person


def delete_person(*, person_id: int, by: User) -> None:
    """Forget a person who has no jobs, with their API tokens."""
    _require_administrator(by)
    with transaction.atomic():
        person = _locked(person_id)
        if person.pk == by.pk:
            raise Conflict("Nobody deletes themselves.")
        if person.jobs.exists():
            raise Conflict(f"{person} has jobs, whose history keeps the name: deactivate the person instead.")
        _keep_an_administrator(person)
        _record("person_deleted", f"{person} was deleted.", by)
        person.delete()


def password_token(*, person_id: int, by: User) -> str:
    """A token with which this person may set a password, once, until `PASSWORD_RESET_TIMEOUT` has passed."""
    _require_administrator(by)
    person = _found(person_id)
    if not person.is_active:
        raise Conflict(f"{person} is deactivated: activate the person first.")
    _record("person_password_link", f"{person} was given a link to set a password.", by)
    return str(default_token_generator.make_token(person))


def set_password(*, person: User, new: str, again: str) -> None:
    """A person's own new password. All their sessions end, but one that the caller renews."""
    if new != again:
        raise Invalid([FieldError("again", "The two passwords differ.")])
    try:
        validate_password(new, person)
    except ValidationError as error:
        raise Invalid([FieldError("new", " ".join(error.messages))]) from error
    with transaction.atomic():
        person.set_password(new)
        person.save(update_fields=["password"])
        _record("person_password", f"{person} set a new password.", person)


def _switch(person: User, *, active: bool, by: User) -> None:
    person.is_active = active
    person.save(update_fields=["is_active"])
    word = "activated" if active else "deactivated"
    _record(f"person_{word}", f"{person} was {word}.", by)


def _keep_an_administrator(person: User) -> None:
    """Raises `Conflict` where nobody could administer without this person."""
    able = User.objects.filter(role=UserRole.ADMINISTRATOR, is_active=True)
    if list(able.values_list("pk", flat=True)[:2]) == [person.pk]:
        raise Conflict(LAST.format(name=person))


def _locked(person_id: int) -> User:
    """The person, once whoever changes another administrator has done so: of two who demote each other one is late."""
    list(User.objects.select_for_update().filter(role=UserRole.ADMINISTRATOR).order_by("pk").values_list("pk"))
    return _found(person_id)


def _found(person_id: int) -> User:
    found = User.objects.filter(pk=person_id).first()
    if found is None:
        raise NotFound("There is no such person.")
    return found


def _record(kind: str, text: str, by: User) -> None:
    transitions.record(kind=kind, text=storable(text), actor=by)


def _role(role: str) -> str:
    return f"{'an' if role == UserRole.ADMINISTRATOR else 'a'} {UserRole(role).label.lower()}"


def _require_administrator(by: User) -> None:
    if not by.may_administer:
        raise Forbidden("Only administrators may change people.")
