"""An installation with a long history: what an idle sweep and a page cost there, in ms of CPU, beside an empty one.

Started by `history.py`; prints the figures as JSON. With `TRAINYARD_TEST_DATABASE=postgres` it is PostgreSQL's. The CPU
of the database itself counts under SQLite, which runs in this process.
"""

import json
import random
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import numpy as np

from tests.environment import prepare

prepare()

from django.core.management import call_command  # noqa: E402 - Django reads its settings first
from django.db import connection  # noqa: E402
from django.db.models import Model  # noqa: E402
from django.test import Client  # noqa: E402

from benchmarks.measure import quantile  # noqa: E402
from orchestrator import series  # noqa: E402
from orchestrator.models import (  # noqa: E402
    Attempt,
    Command,
    Cursor,
    Event,
    Job,
    JobMetric,
    JobTag,
    Node,
    Replica,
    ServiceBeat,
    User,
    UserRole,
)
from orchestrator.services.sweep import reconcile  # noqa: E402
from tests.factories import make_cluster, make_code, make_inventory, make_spec  # noqa: E402
from worker_agent.protocol.codec import plain  # noqa: E402
from worker_agent.protocol.states import Strategy  # noqa: E402

NODES, CLUSTERS, OWNERS = 500, 5, 20
ORIGINALS = 1000
SEEDED = (Job, JobMetric, JobTag, Attempt, Replica, Cursor, Command, Event)
ROUNDS = 9
# The first of them, with so many points in each of so many curves.
COMPARED = ",".join(map(str, range(1, 21)))
CURVE_POINTS, CURVES = 20_000, ("loss", "accuracy", "val_loss", "val_accuracy", "learning_rate")
APART = timedelta(seconds=30)
PAGES = {
    "overview": "/",
    "jobs": "/jobs/",
    "jobs by a metric": "/jobs/?sort=-metric&metric=accuracy",
    "jobs by owner": "/jobs/?sort=owner",
    "jobs with a tag": "/jobs/?tag=resnet",
    "nodes": "/nodes/",
    "20 compared": f"/compare/?jobs={COMPARED}",
    "their curves": f"/compare/curves/?jobs={COMPARED}",
}
GPU = {"utilisation": 50.0, "memory_bytes": 10**9, "temperature": 60.0, "power_w": 200.0}
SAMPLE = {
    "cpu_percent": 30.0,
    "memory_used_bytes": 10**9,
    "memory_total_bytes": 8 * 10**9,
    "network_sent_bps": 1.0,
    "network_received_bps": 2.0,
    "gpus": [{"index": index, **GPU} for index in range(8)],
}


def main(jobs: int) -> None:
    """The figures of an empty installation, then those of one with so many ended jobs."""
    call_command("migrate", verbosity=0)
    client = Client(headers={"host": "localhost"})
    client.force_login(
        User.objects.create_user("admin", role=UserRole.ADMINISTRATOR),
        backend="django.contrib.auth.backends.ModelBackend",
    )
    empty = _figures(client)
    nodes = _nodes()
    _seed(jobs, nodes)
    print(json.dumps({"floor": empty, "ours": _figures(client)}))


def _figures(client: Client) -> dict[str, float]:
    """Median CPU in ms, rounds of all of them alternating."""
    asked: dict[str, Callable[[], object]] = {name: lambda at=at: client.get(at) for name, at in PAGES.items()}
    asked["sweep"] = _sweep
    took: dict[str, list[float]] = {name: [] for name in asked}
    for number in range(ROUNDS):
        for name, ask in asked.items():
            Node.objects.update(last_seen_at=datetime.now(UTC))  # or a sweep gives them up
            begin = time.process_time()
            ask()
            if number:  # the first one fills caches
                took[name].append((time.process_time() - begin) * 1e3)
    return {name: quantile(found, 0.5) for name, found in took.items()}


def _sweep() -> None:
    now = datetime.now(UTC)
    reconcile.beat(name=ServiceBeat.INGEST, now=now)
    reconcile.sweep(now=now)


def _nodes() -> list[Node]:
    now = datetime.now(UTC)
    clusters = [make_cluster(f"c{number}") for number in range(CLUSTERS)]
    inventory = plain(make_inventory(slots=8, kind="gpu"))
    nodes = Node.objects.bulk_create(
        Node(
            cluster=clusters[number % CLUSTERS],
            name=f"n{number:03d}",
            address=f"10.{number // 250}.{number % 250}.1",
            key=b"k" * 32,
            inventory=inventory,
            sample={"at": now.timestamp(), **SAMPLE},
        )
        for number in range(NODES)
    )
    times = now.timestamp() - np.arange(900)[::-1]
    curve = series.Curve(np.zeros(900, "<i8"), times, np.random.default_rng(1).random(900))
    series.append(series.Addition(series.Owner(node_id=node.pk), "cpu_percent", curve) for node in nodes)
    return nodes


def _seed(number: int, nodes: list[Node]) -> None:
    """Jobs of two workers each that ended in the course of `number` times `APART`, with all that they leave: some by
    the models, the others copied from them."""
    rnd, now, code = random.Random(1), datetime.now(UTC), make_code()
    owners = User.objects.bulk_create(User(username=f"u{place}", password="!") for place in range(OWNERS))
    clusters = list({node.cluster_id: node.cluster for node in nodes}.values())
    specs = [
        plain(make_spec(code, cluster=each.name, strategy=Strategy.MULTI_WORKER_MIRRORED, workers=2))
        for each in clusters
    ]
    jobs = []
    for place in range(ORIGINALS):
        ended = now - APART * (number - place * (number // ORIGINALS))
        status, cause = rnd.choices([("succeeded", "completed"), ("failed", "exception")], [85, 15])[0]
        job = Job(
            owner=owners[place % OWNERS],
            cluster=clusters[place % CLUSTERS],
            code=code,
            name=f"train-{place} resnet",
            strategy="multi_worker_mirrored",
            spec=specs[place % CLUSTERS],
            status=status,
            cause=cause,
            reason="" if status == "succeeded" else "ValueError: shapes do not match",
            attempt=1,
            step=1000,
            total_steps=1000,
            metrics={"loss": 0.1, "accuracy": 0.9},
            tags=["resnet"] if place % 10 == 0 else [],
            sketch=[[step, 1 / step] for step in range(1, 49)],
            started_at=ended - APART,
            ended_at=ended,
        )
        jobs.append(job)
    _leave(Job.objects.bulk_create(jobs), nodes)
    _draw(jobs[:20])
    with connection.cursor() as cursor:
        sizes = {model: model.objects.count() for model in SEEDED}
        for model in SEEDED:
            for copy in range(1, number // ORIGINALS):
                cursor.execute(*_copying(model, sizes, copy))
        if connection.vendor == "postgresql":  # its server does so by itself, sooner or later
            cursor.execute("ANALYZE")


def _copying(model: type[Model], sizes: dict[type[Model], int], copy: int) -> tuple[str, list[int]]:
    """The statement that copies the originals of a table, with keys of their own."""
    fields = model._meta.concrete_fields
    names = ", ".join(f'"{field.column}"' for field in fields)
    moved = [sizes.get(model if field.primary_key else field.related_model, 0) * copy for field in fields]
    values = ", ".join(
        f'"{field.column}"' + (f" + {by}" if by else "") for field, by in zip(fields, moved, strict=True)
    )
    table = model._meta.db_table
    return f'INSERT INTO "{table}" ({names}) SELECT {values} FROM "{table}" WHERE id <= %s', [sizes[model]]


def _leave(jobs: list[Job], nodes: list[Node]) -> None:
    JobMetric.objects.bulk_create(
        JobMetric(job=job, name=name, value=value + job.pk / 1e6) for job in jobs for name, value in job.metrics.items()
    )
    JobTag.objects.bulk_create(JobTag(job=job, word=tag) for job in jobs for tag in job.tags)
    Attempt.objects.bulk_create(
        Attempt(
            job=job,
            number=1,
            started_at=job.started_at,
            running_at=job.started_at,
            ended_at=job.ended_at,
            cause=job.cause,
        )
        for job in jobs
    )
    replicas = Replica.objects.bulk_create(
        _replica(job, index, nodes[(job.pk + index) % NODES]) for job in jobs for index in range(2)
    )
    Cursor.objects.bulk_create(Cursor(replica=each, stream="data", offset=900, final=900) for each in replicas)
    Command.objects.bulk_create(
        Command(
            node_id=each.node_id,
            replica=each,
            kind=kind,
            body=b"x" * 200,
            created_at=each.ended_at,
            sent_at=each.ended_at,
            acked_at=each.ended_at,
        )
        for each in replicas
        for kind in ("launch", "forget")
    )
    Event.objects.bulk_create(
        Event(job=job, kind=kind, text="Launch 1: 2 processes on n1, n2.", attempt=1)
        for job in jobs
        for kind in ("job_submitted", "job_launching", "job_running", f"job_{job.status}")
    )


def _draw(jobs: list[Job]) -> None:
    rnd, steps = np.random.default_rng(2), np.arange(CURVE_POINTS, dtype="<i8")
    for job in jobs:
        owner = series.Owner(replica_id=job.replicas.get(index=0).pk)
        times = job.started_at.timestamp() + steps * 0.001
        series.append(
            series.Addition(owner, name, series.Curve(steps, times, rnd.random(len(steps)))) for name in CURVES
        )


def _replica(job: Job, index: int, node: Node) -> Replica:
    return Replica(
        job=job,
        attempt=1,
        role="worker",
        index=index,
        node=node,
        node_name=node.name,
        host=node.address,
        port=20000 + index,
        devices=[0],
        device_kind="gpu",
        held=False,
        status="exited",
        started_at=job.started_at,
        ended_at=job.ended_at,
        forget_sent_at=job.ended_at,
    )


if __name__ == "__main__":
    main(int(sys.argv[1]))
