"""The state of a training on a mesh, written and read without any process holding all of it.

One group of variables after the other is brought together, by all processes, and the leader alone writes it; every
process reads each variable whole and keeps its part. On disk it is what `tf.train.Checkpoint` would have written, so
another strategy takes it up, and the other way round.
"""

from collections.abc import Iterator
from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf import trackable_object_graph_pb2

from worker_agent.trainer.saving.state import Variables, name_of_place

# How much of the state is in the leader's memory at a time; a larger variable comes alone.
GROUP_BYTES = 256 * 1024**2
_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
_ATTRIBUTE = "VARIABLE_VALUE"


class MeshState(Variables):
    """`listed` are Keras variables' values on the mesh, and plain ones; see `Variables` for their order."""

    def __init__(self, listed: list[Any], *, leads: bool) -> None:
        super().__init__(listed)
        self._leads = leads

    def write(self, prefix: str) -> None:
        """All values; a collective, which every process goes through to its end whatever the leader's disk says."""
        parts: list[str] = []
        refusal: tf.errors.OpError | None = None
        for group in self._groups():
            values = {_key(place): tf.constant(self.listed[place].numpy()) for place in group}
            if self._leads and refusal is None:
                if not parts:
                    values[_GRAPH] = self._graph()
                parts.append(f"{prefix}_temp/part-{len(parts)}")
                names, tensors = list(values), list(values.values())
                try:
                    tf.raw_ops.SaveV2(
                        prefix=parts[-1], tensor_names=names, shape_and_slices=[""] * len(names), tensors=tensors
                    )
                except tf.errors.OpError as error:
                    refusal = error
        if refusal is not None:
            raise refusal
        if parts:
            tf.raw_ops.MergeV2Checkpoints(checkpoint_prefixes=parts, destination_prefix=prefix, delete_old_dirs=True)

    def read(self, prefix: str) -> None:
        """All values; raises when one is missing."""
        for place, each in enumerate(self.listed):
            (whole,) = tf.raw_ops.RestoreV2(
                prefix=prefix, tensor_names=[_key(place)], shape_and_slices=[""], dtypes=[each.dtype]
            )
            each.assign(whole)

    def _groups(self) -> Iterator[list[int]]:
        """The places of variables that are brought together at a time."""
        group: list[int] = []
        held = 0
        for place, each in enumerate(self.listed):
            size = each.shape.num_elements() * each.dtype.size
            if group and held + size > GROUP_BYTES:
                yield group
                group, held = [], 0
            group.append(place)
            held += size
        yield group

    def _graph(self) -> tf.Tensor:
        """What `tf.train.Checkpoint` finds its variables by."""
        graph = trackable_object_graph_pb2.TrackableObjectGraph()
        root = graph.nodes.add()
        for place in range(len(self.listed)):
            root.children.add(node_id=place + 1, local_name=name_of_place(place))
            graph.nodes.add().attributes.add(
                name=_ATTRIBUTE, full_name=name_of_place(place), checkpoint_key=_key(place)
            )
        return tf.constant(graph.SerializeToString())


def _key(place: int) -> str:
    return f"{name_of_place(place)}/.ATTRIBUTES/{_ATTRIBUTE}"
