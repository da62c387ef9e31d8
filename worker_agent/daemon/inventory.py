"""What this machine has and how busy it is: devices, versions, samples of the machine and of each replica.

GPUs are seen through NVML, which does not touch CUDA; without one, logical CPU slots stand in. Versions come from the
packages' metadata: TensorFlow is never imported here.
"""

import contextlib
import os
import platform
import socket
import time
from importlib import metadata
from pathlib import Path

import psutil
import pynvml

from worker_agent.machine.processes import boot_id
from worker_agent.protocol.job.job_spec import JobSpec
from worker_agent.protocol.reports import Device, GpuSample, Inventory, Sample
from worker_agent.protocol.states import DeviceKind

CPU_SLOTS_MIN = 2
PCI_DEVICES = Path("/sys/bus/pci/devices")
# Who shares it on one start of a machine shares every port: namespaces(7).
NETWORK_NAMESPACE = Path("/proc/self/ns/net")
# Google's vendor number and those of its TPU chips, from v2 to v7x (jax/_src/hardware_utils.py has the list).
TPU_VENDOR = "0x1ae0"
TPU_CHIPS = frozenset({"0x0027", "0x0056", "0x005e", "0x0062", "0x0063", "0x006f", "0x0076"})


class Devices:
    """The GPUs of this machine as long as the agent runs, or `cpu_slots` CPU slots where there are none (0: one per
    core, at least two)."""

    def __init__(self, *, cpu_slots: int) -> None:
        self._cpu_slots = cpu_slots or max(CPU_SLOTS_MIN, os.cpu_count() or 1)
        self._handles: list[object] = []
        with contextlib.suppress(pynvml.NVMLError):
            pynvml.nvmlInit()
            self._handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]

    def slots(self) -> list[Device]:
        """The device slots."""
        if self._handles:
            return [self._device(index, handle) for index, handle in enumerate(self._handles)]
        return [Device(index=index, kind=DeviceKind.CPU, name=f"CPU slot {index}") for index in range(self._cpu_slots)]

    def samples(self) -> list[GpuSample]:
        """How busy each GPU is; one that does not answer is left out."""
        found = []
        for index, handle in enumerate(self._handles):
            with contextlib.suppress(pynvml.NVMLError):
                found.append(
                    GpuSample(
                        index=index,
                        utilisation=float(pynvml.nvmlDeviceGetUtilizationRates(handle).gpu),
                        memory_bytes=int(pynvml.nvmlDeviceGetMemoryInfo(handle).used),
                        temperature=float(pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU)),
                        power_w=pynvml.nvmlDeviceGetPowerUsage(handle) / 1000,
                    )
                )
        return found

    def _device(self, index: int, handle: object) -> Device:
        name, memory_bytes = str(pynvml.nvmlDeviceGetName(handle)), int(pynvml.nvmlDeviceGetMemoryInfo(handle).total)
        return Device(index=index, kind=DeviceKind.GPU, name=name, memory_bytes=memory_bytes)


def take_inventory(devices: Devices) -> Inventory:
    """What this node has and runs."""
    return Inventory(
        hostname=socket.gethostname(),
        cores=os.cpu_count() or 1,
        memory_bytes=int(psutil.virtual_memory().total),
        devices=devices.slots(),
        python=platform.python_version(),
        tensorflow=_version("tensorflow", "tensorflow-cpu"),
        keras=_version("keras"),
        tf_keras=_version("tf_keras"),
        agent=_version("trainyard") or "0.1.0",
        platform=platform.platform(),
        tpus=tpu_chips(PCI_DEVICES),
        machine=_machine(),
        job_fields=" ".join(JobSpec.__struct_fields__),
    )


def _machine() -> str:
    """A name of what shares its ports with this process; "" where the kernel does not tell."""
    try:
        return f"{boot_id()} {NETWORK_NAMESPACE.readlink()}"
    except OSError:
        return ""


def tpu_chips(devices: Path) -> int:
    """How many TPU chips are on this machine's PCI bus, which lists its devices in that folder."""
    return sum(
        _text_in(device / "vendor") == TPU_VENDOR and _text_in(device / "device") in TPU_CHIPS
        for device in devices.glob("*")
    )


class Sampler:
    """The machine's load; rates are since the previous sample."""

    def __init__(self, devices: Devices) -> None:
        self._devices = devices
        self._network = psutil.net_io_counters()
        self._taken_at = time.monotonic()
        psutil.cpu_percent()

    def sample(self, *, at: float) -> Sample:
        """The load now; `at` is the wall clock."""
        network, now = psutil.net_io_counters(), time.monotonic()
        elapsed_s = max(now - self._taken_at, 1e-3)
        memory = psutil.virtual_memory()
        sample = Sample(
            at=at,
            cpu_percent=float(psutil.cpu_percent()),
            memory_used_bytes=int(memory.total - memory.available),
            memory_total_bytes=int(memory.total),
            network_sent_bps=(network.bytes_sent - self._network.bytes_sent) / elapsed_s,
            network_received_bps=(network.bytes_recv - self._network.bytes_recv) / elapsed_s,
            gpus=self._devices.samples(),
        )
        self._network, self._taken_at = network, now
        return sample


class ReplicaLoad:
    """CPU and memory of a replica: its training process and everything below it."""

    def __init__(self) -> None:
        self._known: dict[int, psutil.Process] = {}

    def measure(self, pid: int) -> tuple[float, int]:
        """CPU percent (100 is one core) since the last call, and resident bytes, of `pid` and its descendants;
        nothing where there is no such process."""
        try:
            root = psutil.Process(pid)
            members = [root, *root.children(recursive=True)]
        except psutil.Error:
            return 0.0, 0
        self._known = {member.pid: self._known.get(member.pid, member) for member in members}
        cpu_percent, memory_bytes = 0.0, 0
        for member in self._known.values():
            with contextlib.suppress(psutil.Error):
                cpu_percent += member.cpu_percent()
                memory_bytes += member.memory_info().rss
        return cpu_percent, memory_bytes


def _text_in(file: Path) -> str:
    with contextlib.suppress(OSError):
        return file.read_text().strip()
    return ""


def _version(*packages: str) -> str:
    """The version of the first of these that is installed."""
    for package in packages:
        with contextlib.suppress(metadata.PackageNotFoundError):
            return metadata.version(package)
    return ""
