"""Which jobs are built alike: the same program with the same settings, as far as building it reads them."""

import hashlib

import msgspec

from worker_agent.protocol.codec import plain
from worker_agent.protocol.job_spec import JobSpec

# What no model, data set or rule about them depends on.
_UNREAD = (
    "name",
    "epochs",
    "seed",
    "checkpoint_steps",
    "checkpoints_kept",
    "resume_from",
    "priority",
    "time_limit_s",
    "max_restarts",
)


def fingerprint(spec: JobSpec) -> str:
    """64 hexadecimal digits. The learning rate counts only as asked for or not, and the program by its content."""
    read = dict(plain(spec))  # type: ignore[call-overload]
    for name in _UNREAD:
        del read[name]
    read["learning_rate"] = spec.learning_rate is not None
    read["code"] = [spec.code.sha256, spec.code.entry]
    return hashlib.sha256(msgspec.json.encode(read, order="deterministic")).hexdigest()
