"""Every case of these tests is decided twice: as it is, and with "x" for each sentence. Sentences decide nothing."""

from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from functools import partial
from types import ModuleType
from typing import Any

import msgspec
import pytest

from orchestrator.domain.gang import decisions, pauses
from orchestrator.domain.gang.decisions import GangFacts
from orchestrator.domain.gang.reasons import ReplicaFacts

WORDS = ("reason", "why", "message", "last_lines", "kernel_saw", "remedy")


@pytest.fixture(scope="module", autouse=True)
def sentences_decide_nothing(request: pytest.FixtureRequest) -> Iterator[None]:
    """Each of the module's calls of `decide` is made a second time, with "x" for every sentence."""
    with pytest.MonkeyPatch.context() as patch:
        for room in (decisions, pauses):
            twice = partial(_decided_twice, room.decide)
            module: ModuleType = request.module
            if getattr(module, "decide", None) is room.decide:
                patch.setattr(module, "decide", twice)
            patch.setattr(room, "decide", twice)
        yield


def _decided_twice(decide: Any, gang: GangFacts, *rest: Any, now: Any) -> Any:
    found, mute = decide(gang, *rest, now=now), decide(_mute(gang), *rest, now=now)
    assert _without_words(found) == _without_words(mute)
    return found


def _mute(gang: GangFacts) -> GangFacts:
    return replace(gang, reason="x", replicas=tuple(map(_mute_replica, gang.replicas)))


def _mute_replica(replica: ReplicaFacts) -> ReplicaFacts:
    ending = replica.ending
    if ending is not None:
        ending = msgspec.structs.replace(ending, **{name: "x" for name in WORDS if getattr(ending, name, "")})
    return replace(replica, message="x", ending=ending)


def _without_words(decision: Any) -> Any:
    """The decision as plain values, but for what is only said."""
    if isinstance(decision, msgspec.Struct):
        names = decision.__struct_fields__
    elif is_dataclass(decision):
        names = tuple(field.name for field in fields(decision))
    elif isinstance(decision, tuple):
        return tuple(map(_without_words, decision))
    else:
        return decision
    return type(decision), {name: _without_words(getattr(decision, name)) for name in names if name not in WORDS}
