"""Who holds memory of which GPU, as the driver tells it (NVML): nobody, where there is none. Called by `cleanup.py`."""

import contextlib
from collections.abc import Iterable, Iterator

import pynvml


def holders(devices: Iterable[int]) -> dict[tuple[int, int], int]:
    """Bytes held, by (device index, pid). Pids are the host's, also when this process lives in a container."""
    found: dict[tuple[int, int], int] = {}
    wanted = list(devices)
    with contextlib.suppress(pynvml.NVMLError), _driver() if wanted else contextlib.nullcontext():
        for index in wanted:
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            for ask in (pynvml.nvmlDeviceGetComputeRunningProcesses, pynvml.nvmlDeviceGetGraphicsRunningProcesses):
                with contextlib.suppress(pynvml.NVMLError):
                    found |= {(index, process.pid): process.usedGpuMemory or 0 for process in ask(handle)}
    return found


@contextlib.contextmanager
def _driver() -> Iterator[None]:
    """Not kept open: a training process is forked from here, and shall open the driver itself."""
    pynvml.nvmlInit()
    try:
        yield
    finally:
        pynvml.nvmlShutdown()
