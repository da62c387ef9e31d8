"""Which of a job's numbers is its loss: programs call it `loss`, `Train/loss`, `epoch_loss` and more. Ingest, lists and
tiles ask here."""

import re
from collections.abc import Iterable
from functools import lru_cache

LOSS = "loss"
# The words of a name beside "loss", the best first. One of training comes before its like without the word, other
# words come last, and what is measured on other data is never the loss.
_BESIDE = ((), ("epoch",), ("total",), ("mean",), ("average",), ("avg",), ("running",), ("batch",), ("step",))
_OF_TRAINING = frozenset(("train", "training"))
_OF_OTHER_DATA = frozenset(("val", "valid", "validation", "test", "testing", "eval", "evaluation", "dev", "holdout"))


def loss_name(names: Iterable[str]) -> str:
    """The name of the series that is most likely the loss; "" where none is."""
    ranked = [(place, name) for name in names if (place := _place(name)) is not None]
    return min(ranked, default=(0, ""))[1]


@lru_cache(maxsize=4096)
def _place(name: str) -> tuple[int, bool, int] | None:
    words = re.findall(r"[a-z]+", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name[:200]).lower())
    if LOSS not in words or not _OF_OTHER_DATA.isdisjoint(words):
        return None
    beside = tuple(word for word in words if word != LOSS and word not in _OF_TRAINING)
    place = _BESIDE.index(beside) if beside in _BESIDE else len(_BESIDE)
    return place, name != LOSS and _OF_TRAINING.isdisjoint(words), len(words)
