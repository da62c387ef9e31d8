"""Two processes at once, with a connection each, as Celery, sweep and ingest are: nothing is done twice."""

from concurrent.futures import ThreadPoolExecutor
from threading import Event
from time import sleep

import pytest
from django.db import connection, transaction

from orchestrator.models import Command, Job, JoinToken, Node, Replica
from orchestrator.services import outbox
from orchestrator.services.errors import Forbidden
from orchestrator.services.gang import gang
from orchestrator.services.intake import reports
from orchestrator.services.jobs import dispatch, jobs
from orchestrator.services.nodes import joining
from tests.factories import make_cluster, make_inventory
from tests.services.gang.gangs import end, launch, make_gang_job, make_lab, run
from worker_agent.protocol.codec import encode
from worker_agent.protocol.joining import JoinRequest
from worker_agent.protocol.records import Log, Progress
from worker_agent.protocol.reports import Records
from worker_agent.protocol.states import Cause, JobStatus

pytestmark = pytest.mark.django_db(transaction=True)


def at_once(*calls):
    """Run the calls in threads of their own; what each returned or raised."""

    def outcome(call):
        try:
            return call()
        except Exception as error:
            return error
        finally:
            connection.close()

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(outcome, calls))


def test_a_job_is_launched_once(now):
    job = make_gang_job(make_lab())
    outcomes = at_once(*[lambda: dispatch.dispatch_job(job_id=job.pk, now=now)] * 4)
    assert sorted(outcomes) == [False, False, False, True]
    assert (Replica.objects.count(), Command.objects.count()) == (2, 2)


def test_two_gangs_never_get_the_same_device_or_port(now):
    cluster = make_lab(nodes=2, slots=3)
    waiting = [make_gang_job(cluster).pk for _ in range(4)]
    outcomes = at_once(*[lambda pk=pk: dispatch.dispatch_job(job_id=pk, now=now) for pk in waiting])
    assert sorted(outcomes) == [False, True, True, True]
    held = [(row.node_id, device) for row in Replica.objects.filter(held=True) for device in row.devices]
    assert len(set(held)) == len(held) == 6


def test_stop_against_success_has_one_outcome(now, member):
    job = make_gang_job(make_lab(), workers=1)
    Job.objects.filter(pk=job.pk).update(owner=member)
    (only,) = run(job, now)
    at_once(
        lambda: jobs.stop_job(job_id=job.pk, by=member, now=now),
        lambda: end(only, Cause.COMPLETED, now, code=0),
        lambda: gang.advance(job_id=job.pk, now=now),
    )
    job.refresh_from_db()
    assert job.status == JobStatus.SUCCEEDED
    terminal = job.events.filter(kind__in=["job_succeeded", "job_stopped", "job_failed"])
    assert terminal.count() == 1


def test_stop_against_launch_leaves_nothing_behind(now, member):
    job = make_gang_job(make_lab())
    Job.objects.filter(pk=job.pk).update(owner=member)
    at_once(
        lambda: jobs.stop_job(job_id=job.pk, by=member, now=now),
        lambda: dispatch.dispatch_job(job_id=job.pk, now=now),
    )
    job.refresh_from_db()
    launched = Replica.objects.filter(job=job)
    if job.status == JobStatus.STOPPED:
        assert not launched.exists()
    else:
        assert job.status == JobStatus.STOPPING
        assert Command.objects.filter(kind="stop").count() == launched.count() == 2


def test_a_token_lets_one_machine_in(administrator):
    token = joining.create_join_token(cluster=make_cluster(), by=administrator)

    def join(name):
        return joining.join(JoinRequest(token=token, name=name, address="10.0.0.1", inventory=make_inventory()))

    outcomes = at_once(*[lambda name=name: join(name) for name in ("a", "b", "c")])
    assert sum(isinstance(outcome, Forbidden) for outcome in outcomes) == 2
    assert (Node.objects.count(), JoinToken.objects.exclude(used_at=None).count()) == (1, 1)


def test_a_stop_and_what_a_replica_writes_do_not_wait_for_each_other(now):
    job = make_gang_job(make_lab(), workers=1)
    (only,) = run(job, now)
    said = [
        encode(Log(at=now.timestamp(), text="loss 0.5\n")),
        encode(Progress(at=now.timestamp(), step=1, total_steps=2, epoch=1, epochs=1)),
    ]
    slice_ = Records(
        node_id=only.node_id,
        replica_id=only.pk,
        attempt=only.attempt,
        stream="shim",
        start=0,
        end=2,
        offsets=[1, 2],
        records=said,
    )
    stopping = Event()

    def stop():
        with transaction.atomic():
            Job.objects.select_for_update().get(pk=job.pk)
            stopping.set()
            sleep(0.3)
            outbox.post_stop(replica=only, reason="Enough.", now=now)

    def write():
        assert stopping.wait(5)
        reports.apply([(only.node, slice_)], now=now)

    assert at_once(stop, write) == [None, None]
    only.refresh_from_db()
    assert (only.stop_sent_at, only.log_size) == (now, len("loss 0.5\n"))


def test_all_replicas_ending_at_once_end_the_job_once(now):
    job = make_gang_job(make_lab(slots=4), workers=4)
    replicas = launch(job, now)
    outcomes = at_once(*[lambda row=row: end(row, Cause.EXCEPTION, now, code=1, message="bad") for row in replicas])
    assert outcomes == [None] * 4
    job.refresh_from_db()
    assert job.status == JobStatus.FAILED
    assert job.events.filter(kind="job_failed").count() == 1
