"""Which jobs are built alike (the same program with the same settings, as far as building it reads them), and what
building one came to."""

import hashlib
from collections.abc import Mapping
from enum import StrEnum

import msgspec

from worker_agent.protocol.codec import plain
from worker_agent.protocol.job.job_spec import FIELDS, JobSpec


class Verdict(StrEnum):
    """What came of building a program once, in a rehearsal or in a check that somebody asked for."""

    BUILT = "built"  # or failed of its own doing: the training will show it
    REFUSED = "refused"  # the training itself would refuse it
    UNTRIED = "untried"  # the node was too busy


def fingerprint(spec: JobSpec, environment: Mapping[str, object]) -> str:
    """64 hexadecimal digits; `environment` is what the cluster sets beside the job. The learning rate counts only as
    asked for or not, and the program by its content."""
    read = dict(plain(spec))
    for row in FIELDS.values():
        if not row.rebuilds:
            del read[row.name]
    read["learning_rate"] = spec.learning_rate is not None
    read["code"] = [spec.code.sha256, spec.code.entry]
    return hashlib.sha256(msgspec.json.encode([read, dict(environment)], order="deterministic")).hexdigest()
