"""What can be said of a recipe's compiled model before it is trained, in either Keras, and the names from inside Keras
that the trainer leans on: each is asked for here, so that a Keras without it is one clear sentence."""

from collections.abc import Iterable
from importlib import import_module
from types import ModuleType
from typing import Any

import keras

from worker_agent.trainer.outcome import NodeLacks, TrainingFailed
from worker_agent.trainer.setup import runtime


def has_own_step(model: Any) -> bool:
    """True for a model whose class brings a train_step."""
    return type(model).train_step is not keras.Model.train_step


def own_parts(model: Any) -> int:
    """How many steps the recipe's optimizer would accumulate by itself; those of tf_keras cannot."""
    optimizer = getattr(model.optimizer, "inner_optimizer", model.optimizer)
    return getattr(optimizer, "gradient_accumulation_steps", None) or 1


def check_model(model: Any) -> Any:
    """`model` if it can be trained; raises `TrainingFailed`."""
    if not isinstance(model, keras.Model):
        kind = f"{type(model).__module__}.{type(model).__name__}"
        raise TrainingFailed(f"build_model() returned {kind}, not a Keras model.")
    if getattr(model, "optimizer", None) is None:
        raise TrainingFailed(
            "build_model() returned a model that is not compiled", remedy="call model.compile(…) in it"
        )
    return model


def once_each(found: Iterable[Any]) -> list[Any]:
    """Without those that have come already: the very same variables, metrics, generators."""
    return list({id(each): each for each in found}.values())


def check_unscaled(model: Any) -> None:
    """Raise `TrainingFailed` where a model whose variables replicas share scales its loss, as in mixed_float16."""
    if hasattr(model.optimizer, "inner_optimizer"):
        raise TrainingFailed(
            "Keras 3 cannot scale the loss under central storage",
            remedy="choose mixed_bfloat16, or the strategy Mirrored",
        )


def require(owner: Any, *names: str) -> None:
    """Raise one clear sentence when Keras no longer has a name that the loop leans on."""
    missing = [name for name in names if not hasattr(owner, name)]
    if missing:
        raise NodeLacks(
            f"{runtime.keras_in_words()} has no "
            f"{getattr(owner, '__name__', type(owner).__name__)}.{missing[0]}, which the training loop needs",
            remedy="install a version that this release of Trainyard was tested with",
        )


def private(module: str, name: str) -> Any:
    """A name from inside Keras; raises the same sentence where there is none."""
    try:
        home = import_module(module)
    except ImportError:
        home = ModuleType(module)
    require(home, name)
    return getattr(home, name)
