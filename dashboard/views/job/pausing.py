"""What pausing a job means, and what a paused one waits for, in words. For `contents.py`."""

from django.conf import settings

from dashboard.templatetags.trainyard import group
from dashboard.views.job.checkpoints import CheckpointList
from orchestrator.queries.rows import Job
from worker_agent.protocol.job.job_spec import keeps_checkpoints
from worker_agent.protocol.states import JobStatus, Kind


def pausing_of(job: Job, checkpoints: CheckpointList, *, first_step: int | None, changeable: bool) -> dict[str, object]:
    """What the page offers and says; the service decides. `first_step` is the step that the attempt began with."""
    return {
        "can_pause": changeable and job.status == JobStatus.RUNNING,
        "can_resume": changeable and job.status == JobStatus.PAUSED,
        "pause_words": _before(job, first_step) if job.status == JobStatus.RUNNING else "",
        "paused_words": _after(job, checkpoints) if job.status == JobStatus.PAUSED else "",
    }


def _before(job: Job, first_step: int | None) -> str:
    """What pausing it now comes to, before somebody does it."""
    spec, grace_s = job.typed_spec, f"{settings.PAUSE_GRACE_S:g}"
    if keeps_checkpoints(spec):
        return (
            "It saves a checkpoint, its processes end, and its devices become free: usually within seconds, at most "
            f"within {grace_s} s. When you resume it, it continues with the next step, on any nodes that have room."
        )
    if spec.kind is Kind.SCRIPT:
        return (
            f"Its processes get a SIGTERM and have {grace_s} s if they handle it. Trainyard saves nothing of a script. "
            "When you resume it, it starts again, with what it has saved by itself."
        )
    since = f"the training since step {group(first_step)}" if first_step else f"all {group(job.step)} steps"
    return f"This job writes no checkpoints. Its processes end, and you lose {since}: resumed, it starts again."


def _after(job: Job, checkpoints: CheckpointList) -> str:
    """With what it goes on when it is resumed."""
    newest = checkpoints.rows[0] if checkpoints.rows else None
    if newest is None:
        begins = "from the checkpoint that it was created with" if job.typed_spec.resume_from else "from the beginning"
        return f"Its devices are free. When you resume it, it starts {begins}."
    where = "" if newest.usable else ". That checkpoint is still on its way to Trainyard's store"
    return f"Its devices are free. When you resume it, it continues from step {group(newest.step)}{where}."
