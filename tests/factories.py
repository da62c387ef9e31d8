"""Rows for tests, made by plain functions: a valid row from the fewest words, and what matters given by name."""

import hashlib
import itertools
import secrets
from datetime import UTC, datetime

from orchestrator.models import Attempt, Cluster, Code, Job, Node, Replica, User, UserRole
from worker_agent.protocol.codec import plain
from worker_agent.protocol.ending import Ending
from worker_agent.protocol.job.job_spec import CodeRef, JobSpec
from worker_agent.protocol.reports import Device, Inventory
from worker_agent.protocol.states import JobStatus, ReplicaStatus, Strategy

PASSWORD = "correct-horse-battery"
RECIPE = b'''"""A recipe as small as it gets."""

TITLE = "Tiny"
DESCRIPTION = "One dense layer on ones."
PARAMS = {"units": {"type": "int", "default": 1, "min": 1, "max": 8, "help": "Units of the layer."}}


def build_model(params):
    import keras

    model = keras.Sequential([keras.layers.Input((1,)), keras.layers.Dense(params["units"])])
    model.compile(optimizer="sgd", loss="mse")
    return model


def build_dataset(params, split):
    import tensorflow as tf

    return tf.data.Dataset.from_tensor_slices((tf.ones((64, 1)), tf.ones((64, 1))))
'''
_numbers = itertools.count(1)


def make_user(username: str = "", *, role: UserRole = UserRole.MEMBER, password: str = PASSWORD) -> User:
    """A person of that role; the password is `PASSWORD`."""
    return User.objects.create_user(username=username or f"person-{next(_numbers)}", password=password, role=role)


def make_cluster(name: str = "", **columns: object) -> Cluster:
    """A cluster without nodes."""
    return Cluster.objects.create(name=name or f"cluster-{next(_numbers)}", **columns)


def make_inventory(*, slots: int = 2, kind: str = "cpu", **fields: object) -> Inventory:
    """What a node has: `slots` devices of one kind."""
    devices = [Device(index=index, kind=kind, name=f"{kind.upper()} {index}") for index in range(slots)]
    facts: dict[str, object] = {
        "hostname": "node",
        "cores": 4,
        "memory_bytes": 8 << 30,
        "devices": devices,
        "python": "3.11.2",
        "tensorflow": "2.21.0",
        "keras": "3.15.1",
        "tf_keras": "2.21.0",
        "agent": "0.1.0",
        "platform": "Linux x86_64",
        "job_fields": " ".join(JobSpec.__struct_fields__),
    }
    return Inventory(**(facts | fields))


def make_node(cluster: Cluster | None = None, name: str = "", *, slots: int = 2, kind: str = "cpu", **columns) -> Node:
    """A ready node that has just been heard of, with `slots` devices and an address of its own."""
    number = next(_numbers)
    values = {
        "name": name or f"node-{number}",
        "address": f"10.0.{number // 250 % 250}.{number % 250 + 1}",
        "key": secrets.token_bytes(32),
        "inventory": plain(make_inventory(slots=slots, kind=kind, hostname=name or f"node-{number}")),
        "last_seen_at": datetime.now(UTC),
    }
    return Node.objects.create(cluster=cluster or make_cluster(), **(values | columns))


def make_dirty(name: str, *, device: int | None = None, port: int | None = None, left: list[str] | None = None) -> dict:
    """A device or port that worker 1 of j-3 did not give back, as `Node.dirty` has it."""
    place = {"name": name, "device": device, "port": port, "left": left or ["it"], "since": "2026-03-01T12:00:00Z"}
    return place | {"replica_id": 7, "job": 3, "attempt": 2, "replica": "worker 1"}


def make_code(content: bytes = RECIPE, filename: str = "tiny.py") -> Code:
    """A stored program; the same content gives the same row."""
    digest = hashlib.sha256(content).hexdigest()
    row, _ = Code.objects.get_or_create(
        sha256=digest, defaults={"filename": filename, "entry": filename, "content": content}
    )
    return row


def make_spec(code: Code, *, cluster: str, name: str = "tiny", **fields: object) -> JobSpec:
    """The description of a small job; fields as in `JobSpec`."""
    values: dict[str, object] = {"strategy": Strategy.ONE_DEVICE, "global_batch_size": 16, "epochs": 2}
    reference = CodeRef(sha256=code.sha256, entry=code.entry)
    return JobSpec(name=name, cluster=cluster, code=reference, **(values | fields))


def make_job(
    *,
    owner: User | None = None,
    cluster: Cluster | None = None,
    status: JobStatus = JobStatus.SUBMITTED,
    name: str = "tiny",
    attempt: int = 0,
    spec: dict[str, object] | None = None,
    **columns: object,
) -> Job:
    """A job in any status, with the row of its attempt when it has one. `spec` holds fields of `JobSpec`."""
    owner, cluster, code = owner or make_user(), cluster or make_cluster(), make_code()
    described = make_spec(code, cluster=cluster.name, name=name, **(spec or {}))
    if status is not JobStatus.SUBMITTED:
        attempt = max(attempt, 1)
    values = {"strategy": described.strategy.value, "spec": plain(described), "epochs": described.epochs}
    job = Job.objects.create(
        owner=owner, cluster=cluster, code=code, name=name, status=status.value, attempt=attempt, **(values | columns)
    )
    for number in range(1, attempt + 1):
        Attempt.objects.create(job=job, number=number, started_at=datetime.now(UTC))
    return job


def make_replica(
    job: Job | None = None,
    *,
    node: Node | None = None,
    role: str = "worker",
    index: int = 0,
    status: ReplicaStatus = ReplicaStatus.RUNNING,
    **columns: object,
) -> Replica:
    """A replica of the job's latest attempt; it holds its port and devices while it is live."""
    job = job or make_job(status=JobStatus.RUNNING)
    node = node or make_node(job.cluster)
    values = {
        "attempt": max(job.attempt, 1),
        "node_name": node.name,
        "host": node.address,
        "port": 20000 + next(_numbers) % 20000,
        "devices": [0],
        "device_kind": "cpu",
        "held": status not in (ReplicaStatus.EXITED, ReplicaStatus.LOST),
        "ending": columns.get("cause") and plain(Ending(cause=columns["cause"], code=columns.get("exit_code"))),
    }
    return Replica.objects.create(job=job, node=node, role=role, index=index, status=status.value, **(values | columns))
