"""Who holds memory of which GPU, as the driver tells it (NVML): nobody, where there is none. Called by `cleanup.py`."""

import contextlib
from collections.abc import Collection

import pynvml


def holders(devices: Collection[int]) -> dict[tuple[int, int], int]:
    """Bytes held, by (device index, pid). Pids are the host's, also when this process lives in a container."""
    found: dict[tuple[int, int], int] = {}
    if not devices:
        return found
    with contextlib.suppress(pynvml.NVMLError):
        pynvml.nvmlInit()
        try:
            for index in devices:
                handle = pynvml.nvmlDeviceGetHandleByIndex(index)
                for ask in (pynvml.nvmlDeviceGetComputeRunningProcesses, pynvml.nvmlDeviceGetGraphicsRunningProcesses):
                    with contextlib.suppress(pynvml.NVMLError):
                        found |= {(index, process.pid): process.usedGpuMemory or 0 for process in ask(handle)}
        finally:  # a training process is forked from here, and shall open the driver itself
            pynvml.nvmlShutdown()
    return found
