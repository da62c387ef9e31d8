"""What a trial measures of a recipe's model, for an advice on strategies: the question, and the answer."""

import msgspec

from worker_agent.protocol.states import Keras


class Stretch(msgspec.Struct, frozen=True, kw_only=True):
    """Steps to be timed on so many cores, for each of these batches."""

    cores: int
    batches: list[int]


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes are always told; `stretches` are timed as far as they come within `seconds`."""

    stretches: list[Stretch] = []
    seconds: float = 30.0


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """A variable whose gradient is rows (IndexedSlices): one example touches `touched` of them at most."""

    rows: int
    row_bytes: int
    touched: float


class Timed(msgspec.Struct, frozen=True, kw_only=True):
    """The whole step in ms by batch, of one process on so many cores, and the optimizer's part of it."""

    cores: int
    step_ms: list[tuple[int, float]]
    apply_ms: float


class MeasuredModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model as one device trains it. `parameters` and `variables` are the trainable ones, `slots` the optimizer's
    numbers for each parameter; `dense_bytes` are the gradients but for those of `tables`. `activation_bytes` sums the
    outputs of all layers for one example, `boundary_bytes` is the largest of them. `flops` are of one example, forward
    and backward, as far as TensorFlow can count them. `examples` are the rows of the training set."""

    keras: Keras
    parameters: int
    parameter_bytes: int
    variables: int
    largest_bytes: int
    slots: float
    dense_bytes: int
    tables: list[Table]
    activation_bytes: float
    boundary_bytes: float
    flops: float
    examples: int
    reads_apart: bool
    timed: list[Timed] = []
