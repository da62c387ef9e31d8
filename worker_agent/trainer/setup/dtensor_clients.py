"""What DTensor reads instead of TF_CONFIG to make several processes one."""

from worker_agent.protocol.states import Role
from worker_agent.trainer.training_run import TrainingRun


def environment(run: TrainingRun) -> dict[str, str]:
    """The variables to set; empty for a process alone."""
    clients = sorted((member for member in run.gang if member.role == Role.WORKER), key=lambda member: member.index)
    if len(clients) < 2:
        return {}
    return {
        "DTENSOR_CLIENT_ID": str(run.index),
        "DTENSOR_NUM_CLIENTS": str(len(clients)),
        "DTENSOR_JOB_NAME": Role.WORKER.value,
        "DTENSOR_JOBS": ",".join(f"[{m.host}]:{m.port}" if ":" in m.host else f"{m.host}:{m.port}" for m in clients),
    }
