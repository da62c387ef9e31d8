"""Gradients summed: over the parts of a step, and over the replicas. Dense ones travel packed, in one collective for
each type of number; those of a large table travel as the rows that were touched."""

from typing import Any

import tensorflow as tf

from worker_agent.protocol.job.sparse_rows import travels_as_rows

_SUM = tf.distribute.ReduceOp.SUM


def all_reduce(values: list[Any]) -> list[Any]:
    """The sums over all replicas; to be called in a replica. None stays None."""
    context = tf.distribute.get_replica_context()
    as_rows = [_travels_as_rows(value, context.num_replicas_in_sync) for value in values]
    packed = [
        tf.identity(tf.convert_to_tensor(value))
        for value, rows in zip(values, as_rows, strict=True)
        if value is not None and not rows
    ]
    dense = iter(_sums(packed))
    return [
        None if value is None else _merged(context.all_reduce(_SUM, value)) if rows else next(dense)
        for value, rows in zip(values, as_rows, strict=True)
    ]


def _sums(tensors: list[tf.Tensor]) -> list[tf.Tensor]:
    """Of dense tensors over all replicas; TensorFlow packs into one collective only what is of one type."""
    context = tf.distribute.get_replica_context()
    sums: dict[int, tf.Tensor] = {}
    for kind in dict.fromkeys(tensor.dtype for tensor in tensors):
        places = [place for place, tensor in enumerate(tensors) if tensor.dtype == kind]
        sums |= zip(places, context.all_reduce(_SUM, [tensors[place] for place in places]), strict=True)
    return [sums[place] for place in range(len(tensors))]


def added(left: Any, right: Any) -> Any:
    """The sum of the gradients of two parts of a step; None is nothing, rows stay rows."""
    if left is None or right is None:
        return right if left is None else left
    if isinstance(left, tf.IndexedSlices) and isinstance(right, tf.IndexedSlices):
        return tf.IndexedSlices(
            tf.concat([left.values, right.values], 0), tf.concat([left.indices, right.indices], 0), left.dense_shape
        )
    return tf.convert_to_tensor(left) + tf.convert_to_tensor(right)


def divided(gradient: Any, by: tf.Tensor) -> Any:
    """The gradient divided by a number; None stays None."""
    if gradient is None:
        return None
    if isinstance(gradient, tf.IndexedSlices):
        values = gradient.values / tf.cast(by, gradient.dtype)
        return tf.IndexedSlices(values, gradient.indices, gradient.dense_shape)
    return gradient / tf.cast(by, gradient.dtype)


def _travels_as_rows(value: Any, replicas: int) -> bool:
    if not isinstance(value, tf.IndexedSlices):
        return False
    table = tf.get_static_value(value.dense_shape)
    rows = value.indices.shape[0]
    if table is None or rows is None:
        return False
    size = int(table.prod()) * value.dtype.size
    gpus = bool(tf.config.list_logical_devices("GPU"))
    return travels_as_rows(table_bytes=size, table_rows=int(table[0]), rows=rows, replicas=replicas, on_gpus=gpus)


def _merged(slices: tf.IndexedSlices) -> tf.IndexedSlices:
    """Each row once: norms and squares of an optimizer would count a repeated row wrongly."""
    indices, places = tf.unique(slices.indices)
    values = tf.math.unsorted_segment_sum(slices.values, places, tf.size(indices))
    return tf.IndexedSlices(values, indices, slices.dense_shape)
