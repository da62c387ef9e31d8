"""A process that computes on the devices of others makes data for them meanwhile, where those come from Python (a
generator, `py_function`). What waits for another process, and keeps what that one needs to be answered, may wait for
one that waits for this one: then all stand still, for ever. Three things of TensorFlow 2.21 do, none of which has to.
Private names, because no public one leads there. Called before a program makes its data.
"""

from itertools import chain
from typing import Any

from tensorflow.python import pywrap_tfe
from tensorflow.python.distribute.coordinator import values
from tensorflow.python.eager import context, executor

# What iterators of Python's data hold on their workers.
_kept: list[Any] = []


def stay_answerable() -> None:
    """From now on nothing here waits for others where they could not be answered.

    1. Functions live as long as the process. Python collects one at any moment; then TensorFlow asks the others to
       forget it, with the interpreter held.
    2. An executor that was only looked up is let go of without waiting, with the interpreter held, for its work.
    3. An iterator on a worker lives as long as the process, if its data come from Python. Else the worker, told to
       forget it, waits for the data that it has asked for already, and takes in no answer meanwhile.
    """
    context.Context.remove_function = lambda self, name: None
    context.Context.executor = context.Context.executor.getter(_executor_of_thread)
    kind = values.PerWorkerDatasetFromDatasetFunction
    make, iterate = kind.__init__, kind.__iter__

    def made(self: Any, dataset_fn: Any, coordinator: Any) -> None:
        make(self, dataset_fn, coordinator)
        self.comes_from_python = _calls_python(self._dataset_fn.graph.as_graph_def())

    def iterator(self: Any) -> Any:
        found = iterate(self)
        for value in found._values if self.comes_from_python else ():
            value.__class__ = _OfPython
        return found

    kind.__init__, kind.__iter__ = made, iterator


class _Borrowed(executor.Executor):
    """An executor that belongs to its thread, not to whoever asks for it."""

    def __del__(self) -> None:
        pywrap_tfe.TFE_DeleteExecutor(self._handle)  # what was handed out; the executor itself stays


class _OfPython(values.RemoteValueImpl):
    """An iterator on a worker. Without this object, it is not made anew where that worker comes back."""

    def __del__(self) -> None:
        _kept.append(self._values)


def _executor_of_thread(self: context.Context) -> _Borrowed:
    self.ensure_initialized()
    return _Borrowed(pywrap_tfe.TFE_ContextGetExecutorForThread(self._handle))


def _calls_python(graph: Any) -> bool:
    nodes = chain(graph.node, *(function.node_def for function in graph.library.function))
    return any("PyFunc" in node.op for node in nodes)
