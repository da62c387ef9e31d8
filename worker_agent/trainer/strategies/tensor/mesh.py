"""The mesh of a gang: all devices of all its processes as a grid of batch × model, and who is where in it.

Neighbouring devices share one part of the batch and split the layers between them, so with as many devices in a
process as layers are split over, what is said within a layer stays in one machine.
"""

import os
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.experimental import dtensor

from worker_agent.protocol.states import DeviceKind
from worker_agent.trainer.recipe.data import Share
from worker_agent.trainer.setup import dtensor_clients
from worker_agent.trainer.training_run import TrainingRun

BATCH = "batch"
MODEL = "model"
WHOLE = dtensor.UNSHARDED

Specs = list[str]


def create(run: TrainingRun) -> "Mesh":
    """Initialise DTensor in this process and lay out the mesh; the gang has met before."""
    kind = run.device_kind.value.upper()
    os.environ.update(dtensor_clients.environment(run))
    if run.device_kind is DeviceKind.GPU:
        os.environ["DTENSOR_GPU_USE_NCCL_COMMUNICATION"] = "1"
    dtensor.initialize_accelerator_system(kind)
    model = run.spec.model_parallel
    batch = run.workers * run.devices // model
    grid = dtensor.create_distributed_mesh([(BATCH, batch), (MODEL, model)], device_type=kind)
    return Mesh(grid)


class Mesh:
    """A DTensor mesh, and values on their way into it and out of it."""

    def __init__(self, grid: Any) -> None:
        self.grid = grid
        self.batch: int = grid.dim_size(BATCH)
        self.model: int = grid.dim_size(MODEL)
        self._places: list[dict[str, int]] = grid.local_device_locations()

    @property
    def share(self) -> Share:
        """The rows that the devices of this process train on."""
        rows = sorted({place[BATCH] for place in self._places})
        return Share(parts=self.batch // len(rows), part=rows[0] // len(rows))

    def layout(self, specs: Specs) -> Any:
        """A DTensor layout: for each axis the mesh dimension that splits it, or `WHOLE`."""
        return dtensor.Layout(specs, self.grid)

    def local_slices(self, specs: Specs, shape: tuple[int, ...]) -> list[tuple[slice, ...]]:
        """What each device of this process holds of a value of `shape`."""
        return [
            tuple(
                slice(None)
                if by == WHOLE
                else slice(*(length * (place[by] + i) // self.grid.dim_size(by) for i in (0, 1)))
                for by, length in zip(specs, shape, strict=True)
            )
            for place in self._places
        ]

    def scatter(self, value: Any, specs: Specs) -> Any:
        """A DTensor of `value`, which every process knows whole; each device takes its part."""
        array = np.asarray(value)
        parts = [array[part] for part in self.local_slices(specs, array.shape)]
        return dtensor.pack(parts, self.layout(specs))

    def pack_rows(self, rows: Any) -> Any:
        """A DTensor of a batch of which this process holds its `share`."""
        first = min(place[BATCH] for place in self._places)
        here = len({place[BATCH] for place in self._places})
        parts = [tf.split(rows, here)[place[BATCH] - first] for place in self._places]
        return dtensor.pack(parts, self.layout([BATCH] + [WHOLE] * (rows.shape.rank - 1)))

    def pack_whole(self, value: Any) -> Any:
        """A DTensor of a value that every device gets whole."""
        return dtensor.pack([value] * len(self._places), self.layout([WHOLE] * value.shape.rank))

    def gather(self, value: Any) -> np.ndarray:
        """The whole of a DTensor. A collective where it is split: every process calls it, and gets it."""
        whole = self.layout([WHOLE] * value.shape.rank)
        if dtensor.fetch_layout(value).sharding_specs != whole.sharding_specs:
            with dtensor.default_mesh(self.grid):
                value = dtensor.relayout(value, whole)
        return np.asarray(dtensor.unpack(value)[0].numpy())

    def mean(self, number: float) -> float:
        """The mean over the devices of what each process says."""
        mine = dtensor.pack([tf.constant([[number]], tf.float64)] * len(self._places), self.layout([BATCH, MODEL]))
        with dtensor.default_mesh(self.grid):
            return float(dtensor.unpack(tf.reduce_mean(mine))[0].numpy())
