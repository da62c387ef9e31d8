"""Keras 3 variables that have a shape and no value: for models that are made here and live elsewhere."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from worker_agent.trainer.model.compiled_model import private, require

Variable = private("keras.src.backend.tensorflow.core", "Variable")
require(Variable, "_initialize_with_initializer", "_deferred_initialize", "_initialize")


@contextmanager
def deferred() -> Iterator[None]:
    """Variables created in here from an initializer have no value until somebody gives them one."""
    initialize, after_scope = Variable._initialize_with_initializer, Variable._deferred_initialize

    def wait(self: Any, initializer: Any) -> None:
        self._value, self._initializer = None, initializer

    Variable._initialize_with_initializer = wait
    Variable._deferred_initialize = lambda self: None
    try:
        yield
    finally:
        Variable._initialize_with_initializer, Variable._deferred_initialize = initialize, after_scope
