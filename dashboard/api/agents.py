"""HTTP for agents, under `/agent/v1/`: join once with a token; then, signed with the node's key, ask for the
cluster's network, fetch programs and hand in files. No session is read here and none is made, so CSRF has nothing to
protect.
"""

import json
from collections.abc import Callable, Iterator
from functools import partial, wraps
from typing import Any

import msgspec
from django.core.exceptions import RequestDataTooBig
from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_http_methods

from dashboard.api.limits import JOINS
from dashboard.api.problems import answer_to, problem
from dashboard.api.signature import NotSigned, node_of_request
from orchestrator.queries.rows import Node
from orchestrator.services import artifacts
from orchestrator.services.errors import FieldError, Invalid
from orchestrator.services.nodes import joining
from orchestrator.services.programs import programs
from worker_agent.protocol.codec import plain
from worker_agent.protocol.joining import JoinRequest

METRICS_CHARS = 65_536
PIECE_BYTES = 1 << 20

View = Callable[..., HttpResponseBase]


def agents_only(method: str) -> Callable[[View], View]:
    """For one HTTP method, with every refusal in the shape that REST has."""

    def decorate(view: View) -> View:
        @csrf_exempt
        @never_cache
        @require_http_methods([method])
        @wraps(view)
        def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
            try:
                return view(request, *args, **kwargs)
            except NotSigned as error:
                return problem(401, str(error))
            except Exception as error:
                answer = answer_to(error)
                if answer is None:
                    raise
                return answer

        return guarded

    return decorate


@agents_only("POST")
def join(request: HttpRequest) -> HttpResponse:
    """A machine shows its one-time token and becomes a node: 201 with its key, told this once."""
    if not JOINS.allow_request(request):
        return problem(429, "Too many machines try to join from this address. Wait a minute.")
    try:
        asked = msgspec.json.decode(request.body, type=JoinRequest)
    except (msgspec.DecodeError, RecursionError) as error:
        raise Invalid([FieldError("", f"This is not a request to join: {error}")]) from error
    return JsonResponse(plain(joining.join(asked)), status=201)


@agents_only("GET")
def network(request: HttpRequest) -> HttpResponse:
    """What the node's cluster asks of its address; the agent looks at every start."""
    return JsonResponse(plain(joining.network_of(node_of(request).cluster)))


@agents_only("GET")
def program(request: HttpRequest, sha256: str) -> HttpResponse:
    """The program of a replica that this node was given."""
    content = programs.content_for(node_of(request), sha256)
    return HttpResponse(content, content_type="application/octet-stream")


@agents_only("PUT")
def artifact(request: HttpRequest, replica_id: int, name: str) -> HttpResponse:
    """A file that a replica of this node left; the same file again changes nothing."""
    node = node_of(request)
    stored = artifacts.store(
        node=node,
        replica_id=replica_id,
        attempt=attempt_of(request),
        name=name,
        chunks=pieces_of(request),
        sha256=request.headers.get("X-Trainyard-Sha256", ""),
        metrics=_metrics(request.headers.get("X-Trainyard-Metrics", "")),
    )
    return JsonResponse({"id": stored.pk, "size_bytes": stored.size_bytes}, status=201)


@agents_only("PUT")
def files(request: HttpRequest, replica_id: int) -> HttpResponse:
    """What a replica of this node has left, and which of it is to be sent."""
    node = node_of(request)
    wanted = artifacts.offer(node=node, replica_id=replica_id, attempt=attempt_of(request), offer=request.body)
    return JsonResponse({"names": wanted})


def node_of(request: HttpRequest) -> Node:
    """The node that signed the request; raises `NotSigned`."""
    return node_of_request(
        method=request.method or "", path=request.path, authorization=request.headers.get("Authorization", "")
    )


def pieces_of(request: HttpRequest) -> Iterator[bytes]:
    """The body, piece by piece."""
    return iter(partial(request.read, PIECE_BYTES), b"")


def attempt_of(request: HttpRequest) -> int:
    """The attempt that the request speaks of; raises `Invalid`."""
    attempt = request.GET.get("attempt", "")
    if not (attempt.isascii() and attempt.isdecimal() and len(attempt) < 10):
        raise Invalid([FieldError("attempt", "Give the number of the attempt.")])
    return int(attempt)


def _metrics(text: str) -> dict[str, Any]:
    if not text:
        return {}
    if len(text) > METRICS_CHARS:
        raise RequestDataTooBig("The metrics are too large.")
    try:
        found = json.loads(text)
    except RecursionError as error:
        raise Invalid([FieldError("metrics", "X-Trainyard-Metrics is nested too deeply.")]) from error
    except ValueError as error:
        raise Invalid([FieldError("metrics", f"X-Trainyard-Metrics is not JSON: {error}")]) from error
    if not isinstance(found, dict):
        raise Invalid([FieldError("metrics", "X-Trainyard-Metrics has to be an object.")])
    return found
