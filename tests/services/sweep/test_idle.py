"""What a sweep asks: little where nothing runs, and nothing of the history."""

import re

import pytest
from django.db import connection

from orchestrator import series
from orchestrator.models import Replica
from orchestrator.services.sweep import reconcile
from tests.environment import ON_POSTGRES
from tests.factories import make_job, make_replica
from tests.services.gang.gangs import later, make_gang_job, make_lab, run
from tests.services.sweep.test_reconcile import listening
from worker_agent.protocol.states import JobStatus, ReplicaStatus

# A plan's step that reads all rows of such a table, with its rows or with an index that holds them all.
HISTORY = re.compile(
    r"SCAN (orchestrator_(job|attempt|replica|command|cursor|event|seriesblock)|U\d)\b(?!.*(held|folder|open))"
)


def test_an_idle_sweep_asks_little(now, django_assert_max_num_queries):
    """Where nothing runs, nothing is asked about what runs."""
    job = make_job(status=JobStatus.SUCCEEDED, ended_at=now)
    make_replica(job, status=ReplicaStatus.EXITED, ended_at=now, held=False)
    listening(now)
    reconcile.sweep(now=now)
    with django_assert_max_num_queries(18):
        reconcile.sweep(now=later(now, 2))


@pytest.mark.parametrize("runs", [True, False])
def test_what_runs_is_looked_at_where_a_job_or_a_process_of_an_ended_one_does(now, monkeypatch, runs):
    seen = []

    def look(*, now):
        seen.append(now)

    monkeypatch.setattr(reconcile, "STEPS", (look,))
    monkeypatch.setattr(reconcile, "OF_WHAT_RUNS", frozenset({look}))
    job = make_job(status=JobStatus.SUCCEEDED, ended_at=now)
    replica = make_replica(job, status=ReplicaStatus.RUNNING if runs else ReplicaStatus.EXITED, held=runs)
    reconcile.sweep(now=now)
    assert bool(seen) is runs
    Replica.objects.filter(pk=replica.pk).delete()
    make_job(status=JobStatus.RUNNING)
    reconcile.sweep(now=now)
    assert len(seen) == 1 + runs


@pytest.mark.skipif(ON_POSTGRES, reason="reads the plans of SQLite")
def test_a_sweep_reads_no_history(now):
    """No query of it goes through a table that grows with every job; nor does what ingest removes now and then."""
    job = make_gang_job(make_lab())
    run(job, now)
    job = make_job(cluster=job.cluster, status=JobStatus.SUCCEEDED, ended_at=now)
    make_replica(job, status=ReplicaStatus.EXITED, ended_at=now)
    listening(now)
    asked = []

    def note(execute, sql, params, many, context):
        asked.append((sql, params))
        return execute(sql, params, many, context)

    with connection.execute_wrapper(note):
        reconcile.sweep(now=later(now, 61))
        series.drop_node_points(before=later(now, 61).timestamp())
    assert len(asked) > len(reconcile.STEPS)
    through = []
    with connection.cursor() as cursor:
        for sql, params in asked:
            if sql.startswith(("SELECT", "UPDATE", "DELETE")):
                cursor.execute(f"EXPLAIN QUERY PLAN {sql}", params)
                through += [f"{row[-1]}: {sql}" for row in cursor.fetchall() if HISTORY.match(row[-1])]
    assert not through
