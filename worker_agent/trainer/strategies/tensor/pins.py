"""Layers' outputs held to their layouts, forward and backward.

DTensor works out the layouts of everything in between by itself, and may carry the split of an embedding's features
along a whole residual stream until two ways of splitting meet that it cannot reconcile. So each layer's output is
pinned: split by rows over the batch, and by features only where the layer is split by columns.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import tensorflow as tf
from tensorflow.experimental import dtensor

from worker_agent.trainer.strategies.tensor.mesh import MODEL, WHOLE, Mesh, Specs


class Pins:
    """Put on a model's layers once; they hold only inside `on`."""

    def __init__(self, mesh: Mesh, model: Any, layouts: dict[str, Specs]) -> None:
        self._mesh = mesh
        self._rows_by = ""
        self._rows = 0
        inner: set[int] = set()
        for layer in model._flatten_layers(include_self=False):
            if id(layer) in inner or (type(layer).__module__.startswith("keras.src.models")):
                continue  # an attention layer's parts are its own affair; a model's layers come one by one
            inner |= {id(part) for part in layer._flatten_layers(include_self=False)}
            kernel = layouts.get(layer.kernel.path, [WHOLE]) if hasattr(layer, "kernel") else [WHOLE]
            layer.call = self._pinned(layer.call, MODEL if kernel == [WHOLE, MODEL] else WHOLE)

    @contextmanager
    def on(self, rows_by: str, rows: int) -> Iterator[None]:
        """While a step over `rows` is traced; `rows_by` is the mesh dimension that splits them, or `WHOLE`."""
        self._rows_by, self._rows = rows_by, rows
        try:
            yield
        finally:
            self._rows_by = ""

    def _pinned(self, call: Callable[..., Any], features_by: str) -> Callable[..., Any]:
        def pinned(*args: Any, **given: Any) -> Any:
            outputs = call(*args, **given)
            return tf.nest.map_structure(lambda one: self._pin(one, features_by), outputs) if self._rows_by else outputs

        return pinned

    def _pin(self, value: Any, features_by: str) -> Any:
        if not tf.is_tensor(value) or value.shape.rank in (None, 0, 1) or value.shape[0] != self._rows:
            return value
        layout = self._mesh.layout([self._rows_by, *[WHOLE] * (value.shape.rank - 2), features_by])

        @tf.custom_gradient
        def hold(one: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
            return dtensor.relayout(one, layout), lambda gradient: dtensor.relayout(gradient, layout)

        return hold(value)
