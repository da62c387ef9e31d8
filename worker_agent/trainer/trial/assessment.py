"""What was found of a program while it was tried, and how certain that is.

A finding is certain where a rule of the trainer refuses, and nothing that the rule saw may be otherwise in training: a
program may have asked for the network, for devices, or who it is in its gang. That it asks for the network is heard
from Python. The others are read in the text of what it imported: to name them counts as to ask for them, which costs no
more than that the training refuses what could have been refused before it.
"""

import errno
import linecache
import re
import socket
import sys
import urllib.error
from pathlib import Path

from worker_agent.protocol.findings import Finding
from worker_agent.trainer.failure import failure_of
from worker_agent.trainer.outcome import NodeLacks, TrainingFailed
from worker_agent.trainer.training_run import TrainingRun

# Python's own names (docs.python.org/3/library/audit_events.html). What a program starts may ask for the network, too.
_OUTSIDE = frozenset({"socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "subprocess.Popen", "os.system"})
_UNREACHABLE = frozenset({errno.ENETUNREACH, errno.EHOSTUNREACH})

_DEVICES = r"list_(?:physical|logical)_devices|get_visible_devices|list_devices"
_PLACE = re.compile(
    r"TF_CONFIG|TRAINYARD_|ClusterResolver|get_strategy|get_replica_context|replicas_in_sync|DataParallel|ModelParallel|"
    rf"list_local_devices|is_gpu_available|gpu_device_name|(?:{_DEVICES})(?!\(\s*(?:device_type\s*=\s*)?[\"'](?i:gpu))"
)
# On a node with GPUs, which are hidden from the program while it is tried.
_GPUS = re.compile(rf"{_DEVICES}|CUDA_VISIBLE_DEVICES")
# All of the environment, and not one name of it.
_ENVIRONMENT = re.compile(r"(?<![\"'] in os\.)environb?\b(?!\s*(?:\[|\.(?:get|pop|setdefault|update)\b))")
# These name all that, are imported bit by bit, and decide nothing for the program.
_LIBRARIES = frozenset({"tensorflow", "keras", "tf_keras", "worker_agent", "trainyard"})


class Assessment:
    """One look at a program: `findings` and `facts` grow as far as it comes; `stage` says what fails if something does.

    `offline`: this process has no network; `gpus`: the node has GPUs.
    """

    def __init__(self, run: TrainingRun, *, offline: bool, gpus: bool) -> None:
        self.findings: list[Finding] = []
        self.facts: dict[str, str] = {}
        self.stage = f"the file {run.entry.name} cannot be loaded"
        self.run = run
        self._offline = offline
        self._gpus = gpus
        self._known = dict(sys.modules)
        self._asked_outside = False

    def watch(self) -> None:
        """What is asked for and imported from now on is the program's doing."""
        self._known = dict(sys.modules)
        sys.addaudithook(self._on_audit)

    def fail(self, error: BaseException) -> None:
        """The program came no further than to this error."""
        what, blocks, certain = self.stage, True, False
        message = failure_of(error, code=self.run.code, gang_size=1).message.rstrip(".")
        why, remedy = message, "Correct the program: it raised this exception itself"
        if isinstance(error, SystemExit):
            why = f"it called sys.exit({error.code!r})"
        elif self._offline and _is_of_network(error):
            what, blocks = what.replace("fails", "was not tested to its end"), False
            why = f"it used the network, which this check does not have ({message})"
            remedy = "Nothing to do if the nodes have network access"
        elif isinstance(error, TrainingFailed):
            what = what.replace("fails", "does not suit the job")
            why = error.what.rstrip(".")
            remedy = error.remedy[:1].upper() + error.remedy[1:] or "Correct the program, or the settings of the job"
            of_node = isinstance(error, NodeLacks) or isinstance(error.__cause__, OSError)
            certain = not of_node and not self.may_differ
        self.findings.append(Finding(what, why, remedy, blocks=blocks, certain=certain))

    @property
    def may_differ(self) -> bool:
        """Whether the program may have asked for something that is otherwise in training."""
        brought = [name for name, module in sys.modules.items() if self._known.get(name) is not module]
        files = [getattr(sys.modules[name], "__file__", "") for name in brought if name.split(".")[0] not in _LIBRARIES]
        return (self._offline and self._asked_outside) or any(self._asks(file) for file in files if file)

    def _asks(self, file: str) -> bool:
        text = "".join(linecache.getlines(file))  # none of what is not Python
        is_own = Path(file).is_relative_to(self.run.code)
        wanted = [_PLACE, *([_GPUS] if self._gpus else []), *([_ENVIRONMENT] if is_own else [])]
        return any(words.search(text) for words in wanted)

    def _on_audit(self, event: str, _: object) -> None:
        self._asked_outside |= event in _OUTSIDE


def _is_of_network(error: BaseException | None) -> bool:
    """Whether it, or one that was being handled when it was raised, says that there is no network."""
    if error is None:
        return False
    is_unreachable = isinstance(error, OSError) and error.errno in _UNREACHABLE
    told = is_unreachable or isinstance(error, urllib.error.URLError | socket.gaierror)
    return told or _is_of_network(error.__cause__ or error.__context__)
