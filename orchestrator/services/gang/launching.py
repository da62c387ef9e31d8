"""The command that starts one process of a gang, from its row."""

from datetime import datetime

from django.conf import settings

from orchestrator.domain.job import batching
from orchestrator.domain.job.batching import BatchPlan
from orchestrator.models import Attempt, Checkpoint, Replica
from orchestrator.services import outbox
from orchestrator.services.checkpoints import checkpoint_registry
from worker_agent.protocol.commands import Launch
from worker_agent.protocol.job.job_spec import JobSpec
from worker_agent.protocol.states import DeviceKind, Role


def launch(row: Replica, spec: JobSpec, *, attempt: Attempt, begin: Checkpoint | None, now: datetime) -> None:
    """Have the process of `row`, whose job asked for `spec`, started by its node; from `begin`, if that is one."""
    if row.node is None:
        return
    role = Role(row.role)
    batch = batching.of_spec(spec)
    command = Launch(
        command_id=outbox.NEW,
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
        incarnation=row.incarnation,
        env=row.job.cluster.variables,
        checkpoints=attempt.checkpoint_place,
        restore=checkpoint_registry.restore_for(begin, role=role, strategy=spec.strategy) if begin else None,
    )
    outbox.post(command, node=row.node, replica=row, now=now)
