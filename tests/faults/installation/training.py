"""A real training for the fault suite: a recipe's, which writes checkpoints, and whether it is at one just now."""

from tests.faults.installation.counting import CLUSTER
from tests.faults.installation.yard import Yard
from worker_agent.protocol.checkpoint import MARKER

TF_LIMIT_S = 600.0


def submit(yard: Yard, **settings: object) -> int:
    """A job of the smallest recipe; its number."""
    return int(yard.post("/jobs", {"name": "real", "cluster": CLUSTER, "recipe": "digits_mlp", **settings})["id"])


def is_saving(yard: Yard, job_id: int) -> bool:
    """Whether there is a whole checkpoint, and another one is being written, or dropped."""
    checkpoints = list((yard.shared / f"j-{job_id}").glob("step-*"))
    whole = sum((each / MARKER).exists() for each in checkpoints)
    return 0 < whole < len(checkpoints)
