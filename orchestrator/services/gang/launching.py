"""The command that starts one process of a gang, from its row."""

from django.conf import settings

from orchestrator.domain.job import batching
from orchestrator.domain.job.batching import BatchPlan
from orchestrator.models import Checkpoint, Cluster, Replica
from orchestrator.services.checkpoints import checkpoint_registry
from worker_agent.protocol.commands import Launch
from worker_agent.protocol.job.job_spec import JobSpec
from worker_agent.protocol.states import DeviceKind, Role


def launch_of(
    command_id: int,
    *,
    row: Replica,
    spec: JobSpec,
    cluster: Cluster,
    folder: str,
    begin: Checkpoint | None,
) -> Launch:
    """The command that starts the process of `row`; `folder` is the job's in the place that its cluster shares."""
    role, batch = Role(row.role), batching.of_spec(spec)
    return Launch(
        command_id=command_id,
        replica_id=row.pk,
        job_id=row.job_id,
        attempt=row.attempt,
        role=role,
        index=row.index,
        tf_config=row.tf_config,
        host=row.host,
        port=row.port,
        devices=list(row.devices),
        device_kind=DeviceKind(row.device_kind),
        spec=spec,
        learning_rate=batch.learning_rate if isinstance(batch, BatchPlan) else spec.learning_rate,
        rendezvous_timeout_s=settings.RENDEZVOUS_TIMEOUT_S,
        lease_s=row.lease_s,
        env={**{str(name): str(value) for name, value in cluster.environment.items()}, **spec.env},
        checkpoints=folder,
        restore=checkpoint_registry.restore_for(begin, role=role, strategy=spec.strategy) if begin else None,
    )
