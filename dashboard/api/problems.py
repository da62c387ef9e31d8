"""One shape for every error of REST and of the agents' routes: `{"detail": …, "errors": [{"field", "message"}]}`."""

import math
from collections.abc import Iterable
from typing import Any

from django.core.exceptions import RequestDataTooBig, TooManyFilesSent
from django.db import DatabaseError
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.views.defaults import page_not_found
from ninja import NinjaAPI, Schema
from ninja.errors import AuthenticationError, HttpError, Throttled, ValidationError
from pydantic import Field

from orchestrator.queries.errors import NotFound
from orchestrator.services.artifacts import NoSpace
from orchestrator.services.errors import Conflict, FieldError, Forbidden, Invalid
from orchestrator.services.transitions import StaleTransition

# Where pydantic puts the part of the request in front of a field's name.
REQUEST_PARTS = frozenset({"body", "query", "path", "form", "file", "header", "cookie", "response"})


# Folders whose callers are programs.
FOR_PROGRAMS = ("/api/v1/", "/agent/v1/")


class FieldProblem(Schema):
    """What is wrong with one field."""

    field: str = Field(description="Name of the field; empty when the request as a whole is meant.")
    message: str = Field(description="What is wrong and what to do.")


class Problem(Schema):
    """Why a request was not carried out."""

    detail: str = Field(description="The reason in one sentence.")
    errors: list[FieldProblem] = Field(default=[], description="Reasons field by field, for 422.")


# What each operation may answer besides its result; the OpenAPI document lists them.
PROBLEMS: dict[int, type[Problem]] = dict.fromkeys((400, 401, 403, 404, 409, 413, 422, 429, 503), Problem)


# What else is refused: the status, and the words where the exception has none for people.
REFUSALS: dict[type[Exception], tuple[int, str]] = {
    NotFound: (404, "There is no such thing."),
    Http404: (404, "There is no such thing."),
    Forbidden: (403, "Your role does not allow this."),
    Conflict: (409, "It has changed meanwhile."),
    StaleTransition: (409, "It has changed meanwhile."),
    NoSpace: (507, "The disk of the control plane is full."),
    RequestDataTooBig: (413, "The request is too large."),
    TooManyFilesSent: (413, "The request has too many files."),
    DatabaseError: (503, "The database does not answer. Try again soon."),
}


def problem(
    status: int, detail: str, errors: Iterable[FieldError] = (), headers: dict[str, str] | None = None
) -> JsonResponse:
    """An answer of that shape."""
    found = [{"field": error.field, "message": error.message} for error in errors]
    return JsonResponse({"detail": detail, "errors": found}, status=status, headers=headers)


def install(api: NinjaAPI) -> None:
    """Make `api` answer every refusal in that shape."""
    kinds: list[type[Exception]] = [AuthenticationError, Throttled, ValidationError, HttpError, Invalid, *REFUSALS]
    for kind in kinds:
        api.add_exception_handler(kind, lambda request, error: _answer(error))


def answer_to(error: Exception) -> HttpResponse | None:
    """The answer to an exception of services and queries, outside of ninja; None for a fault of ours."""
    return _answer(error) if isinstance(error, (Invalid, *REFUSALS)) else None


def no_route(request: HttpRequest, exception: Exception) -> HttpResponse:
    """What stands at no address: the 404 page, in this shape for programs. Django's `handler404`."""
    if request.path.startswith(FOR_PROGRAMS):
        return problem(404, "There is nothing at this address. The addresses of REST are listed at /api/v1/docs.")
    return page_not_found(request, exception)


def _answer(error: object) -> HttpResponse:
    match error:
        case AuthenticationError():
            words = "Send 'Authorization: Bearer <token>' with a token of yours, or sign in."
            return problem(401, words, headers={"WWW-Authenticate": 'Bearer realm="Trainyard"'})
        case Throttled():
            after = {"Retry-After": str(math.ceil(error.wait))} if error.wait is not None else None
            return problem(429, "Too many requests. Wait a little.", headers=after)
        case ValidationError():
            found = [
                FieldError(_field_of(item.get("loc", ())), str(item.get("msg", "is not valid")))
                for item in error.errors
            ]
            return problem(422, _sentence(found), found)
        case HttpError():
            return problem(error.status_code, str(error))
        case Invalid():
            return problem(422, _sentence(error.errors), error.errors)
    status, words = next(REFUSALS[kind] for kind in type(error).__mro__ if kind in REFUSALS)
    own_words = isinstance(error, NotFound | Forbidden | Conflict)
    return problem(status, (str(error) if own_words else "") or words)


def _field_of(place: tuple[Any, ...]) -> str:
    parts = [str(part) for part in place]
    if parts and parts[0] in REQUEST_PARTS:
        # ("body", "<name of the parameter>", "field", …)
        parts = parts[2:] if parts[0] == "body" else parts[1:]
    return ".".join(parts)


def _sentence(errors: list[FieldError]) -> str:
    if not errors:
        return "The request is not valid."
    first = f"{errors[0].field}: {errors[0].message}" if errors[0].field else errors[0].message
    return first if len(errors) == 1 else f"{first} (and {len(errors) - 1} more)"
