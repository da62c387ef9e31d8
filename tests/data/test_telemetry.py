"""Reads of series, logs and load, and snapshots of one moment."""

import threading
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from django.db import connection, transaction

from orchestrator import series as storage
from orchestrator.models import LogChunk, Replica
from orchestrator.queries import telemetry
from orchestrator.queries.errors import NotFound
from orchestrator.services.intake import log_text
from tests.data.fakes import log
from tests.factories import make_cluster, make_job, make_node, make_replica
from worker_agent.protocol.states import JobStatus, ReplicaStatus

pytestmark = pytest.mark.django_db


def write(replica: Replica, *texts: str, at: float = 1.0) -> None:
    for number, text in enumerate(texts):
        log_text.store({replica: [log(text, at=at + 10 * number)]})


def store(replica: Replica, count: int, *, name: str = "loss") -> None:
    run = storage.curve_of(range(count), [float(step) for step in range(count)], [0.5] * count)
    storage.append([storage.Addition(storage.Owner(replica_id=replica.pk), name, run)])


def test_series_by_name_replica_and_attempt(django_assert_num_queries: Callable[..., object]) -> None:
    job = make_job(status=JobStatus.RUNNING, attempt=2)
    rows = [
        make_replica(job, attempt=1, status=ReplicaStatus.EXITED),
        make_replica(job, index=1),
        make_replica(job, index=0),
    ]
    for row in rows:
        store(row, 5000)
        store(row, 3, name="step_time_ms")
    with django_assert_num_queries(2):
        found = telemetry.series(job, points=100)
    assert [(view.replica, view.attempt) for view in found["loss"]] == [
        ("worker:0", 1),
        ("worker:0", 2),
        ("worker:1", 2),
    ]
    assert all(len(view.steps) == len(view.times) == len(view.values) <= 100 for view in found["loss"])
    assert found["step_time_ms"][0].steps == [0, 1, 2]
    assert set(telemetry.series(job, names=["loss"])) == {"loss"}
    assert telemetry.series(make_job()) == {}


def test_log_slices_end_between_characters(replica: Replica) -> None:
    text = "aä€😀\n" * 5
    write(replica, text[:9], text[9:])
    data = text.encode()
    for limit in range(4, 20):
        offset, read = 0, ""
        while (part := telemetry.log(replica.job, replica="worker:0", offset=offset, limit=limit)).text:
            assert part.next - offset == len(part.text.encode()) <= limit
            read, offset = read + part.text, part.next
        assert (read, offset) == (text, len(data))
    for offset in range(len(data)):
        part = telemetry.log(replica.job, replica="worker:0", offset=offset)
        assert data[offset:].endswith(part.text.encode())
        assert part.next == len(data)


def test_log_slices_of_many_chunks_look_at_few(replica: Replica) -> None:
    write(replica, *[f"{number:04d} {'x' * 995}\n" for number in range(300)])
    part = telemetry.log(replica.job, replica="worker:0", offset=200 * 1001, limit=1001)
    assert part.text.startswith("0200 ")
    assert telemetry.log(replica.job, replica="worker:0", offset=10**9).text == ""
    assert telemetry.log(replica.job, replica="worker:0", offset=-5, limit=4).text == "0000"
    with pytest.raises(NotFound):
        telemetry.log(replica.job, replica="worker:7")


def test_the_tail_is_in_the_order_of_saying() -> None:
    job = make_job(status=JobStatus.RUNNING)
    first, second = make_replica(job), make_replica(job, index=1)
    write(first, "one\nhalf ", "a line\nlast", at=1.0)
    write(second, "two\n", at=5.0)
    tail = telemetry.log_tail(job)
    assert [(line.replica, line.text) for line in tail] == [
        ("worker:0", "one"),
        ("worker:0", "half a line"),
        ("worker:1", "two"),
        ("worker:0", "last"),
    ]
    assert [line.text for line in telemetry.log_tail(job, lines=2)] == ["two", "last"]
    assert telemetry.log_ends(job) == {first.pk: first.log_size, second.pk: second.log_size}


def test_the_tail_goes_back_over_attempts_as_far_as_it_has_to() -> None:
    job = make_job(status=JobStatus.RUNNING, attempt=3)
    for attempt in (1, 2, 3):  # the clock of a node may be behind
        write(make_replica(job, attempt=attempt), f"a{attempt}\nb{attempt}\n", at=float(-attempt))
    assert [line.text for line in telemetry.log_tail(job)] == ["a1", "b1", "a2", "b2", "a3", "b3"]
    assert [(line.attempt, line.text) for line in telemetry.log_tail(job, lines=3)] == [(2, "b2"), (3, "a3"), (3, "b3")]
    assert [line.text for line in telemetry.log_tail(job, attempt=1)] == ["a1", "b1"]
    assert telemetry.log_tail(job, lines=0) == []


def test_the_tail_does_not_read_the_whole_log(
    replica: Replica, django_assert_num_queries: Callable[..., object]
) -> None:
    write(replica, *["0123456789\n" * 5000 for _ in range(30)])
    with django_assert_num_queries(2):
        tail = telemetry.log_tail(replica.job, lines=500)
    assert {line.text for line in tail} == {"0123456789"}
    assert len(tail) == 500
    assert LogChunk.objects.count() == 30


def test_load_of_several_nodes_in_one_read(django_assert_num_queries: Callable[..., object]) -> None:
    cluster = make_cluster()
    nodes = [make_node(cluster) for _ in range(3)]
    now_s = datetime.now(UTC).timestamp()
    for node in nodes[:2]:
        run = storage.curve_of([0, 0, 0], [now_s - 2000, now_s - 10, now_s], [1.0, 2.0, 3.0])
        storage.append([storage.Addition(storage.Owner(node_id=node.pk), "cpu_percent", run)])
    with django_assert_num_queries(1):
        found = telemetry.load(nodes)
    assert found[nodes[0].pk]["cpu_percent"].values == [2.0, 3.0]
    assert found[nodes[2].pk] == {}
    assert telemetry.load([nodes[1]], seconds=5000)[nodes[1].pk]["cpu_percent"].values == [1.0, 2.0, 3.0]
    assert telemetry.load([]) == {}


@pytest.mark.django_db(transaction=True)
def test_one_moment_sees_no_later_writes() -> None:
    replica = make_replica()
    storage.appends.forget()
    store(replica, 3)

    def add() -> None:
        try:
            with transaction.atomic():
                store(replica, 2)
        finally:
            connection.close()

    with telemetry.one_moment():
        assert len(telemetry.series(replica.job)["loss"][0].steps) == 3
        writer = threading.Thread(target=add)
        writer.start()
        writer.join()
        assert len(telemetry.series(replica.job)["loss"][0].steps) == 3
    assert len(telemetry.series(replica.job)["loss"][0].steps) == 5
