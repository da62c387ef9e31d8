"""Every case of these tests is decided three times: as it is, with "x" for each sentence, and with a sentence full of
words that name faults. Sentences decide nothing."""

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
from tests.sentences import MUTE

WORDS = ("reason", "why", "message", "last_lines", "kernel_saw", "remedy")


@pytest.fixture(scope="module", autouse=True)
def sentences_decide_nothing(request: pytest.FixtureRequest) -> Iterator[None]:
    """Each of the module's calls of `decide` is made again with other sentences."""
    with pytest.MonkeyPatch.context() as patch:
        for room in (decisions, pauses):
            again = partial(_decided_again, room.decide)
            module: ModuleType = request.module
            if getattr(module, "decide", None) is room.decide:
                patch.setattr(module, "decide", again)
            patch.setattr(room, "decide", again)
        yield


def _decided_again(decide: Any, gang: GangFacts, *rest: Any, now: Any) -> Any:
    found = decide(gang, *rest, now=now)
    for sentence in MUTE:
        assert _without_words(found) == _without_words(decide(_saying(gang, sentence), *rest, now=now))
    return found


def _saying(gang: GangFacts, sentence: str) -> GangFacts:
    return replace(gang, reason=sentence, replicas=tuple(_of_replica(each, sentence) for each in gang.replicas))


def _of_replica(replica: ReplicaFacts, sentence: str) -> ReplicaFacts:
    ending = replica.ending
    if ending is not None:
        said = {name: sentence for name in WORDS if name in ending.__struct_fields__}
        ending = msgspec.structs.replace(ending, **said)
    return replace(replica, message=sentence, ending=ending)


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
