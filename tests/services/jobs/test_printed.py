"""Curves out of stored logs, for who may change the job; the offer on its page, and the same by REST."""

import pytest

from orchestrator import series
from orchestrator.models import LogChunk
from orchestrator.queries import printed as queries
from orchestrator.queries import telemetry
from orchestrator.services.errors import Conflict, Forbidden, Invalid
from orchestrator.services.jobs import printed
from tests.factories import make_job, make_replica
from worker_agent.protocol.states import JobStatus, Kind

LINES = "starting\nstep 10 loss: 0.5 acc=0.25\nstep 20 loss: 0.25 acc=0.75\n"


def job_that_printed(owner, text=LINES, status=JobStatus.SUCCEEDED, **spec):
    job = make_job(owner=owner, status=status, attempt=1, spec={"kind": Kind.SCRIPT, "workers": 2} | spec)
    for index in (0, 1):
        replica = make_replica(job, index=index)
        middle = len(text) // 2
        for start, piece in ((0, text[:middle]), (middle, text[middle:])):
            LogChunk.objects.create(replica=replica, start=start, end=start + len(piece), at=100.0 + start, text=piece)
        replica.log_size = len(text)
        replica.save()
    return job


def test_the_names_that_were_printed_are_drawn(member):
    job = job_that_printed(member)
    printed.draw(job_id=job.pk, names="loss, acc", by=member)
    job.refresh_from_db()
    assert (job.metrics, job.step) == ({"loss": 0.25, "acc": 0.75}, 20)
    assert job.sketch == [[10, 0.5], [20, 0.25]]
    found = telemetry.series(job)
    assert [(each.replica, each.steps, each.values) for each in found["loss"]] == [
        ("worker:0", [10, 20], [0.5, 0.25]),
        ("worker:1", [10, 20], [0.5, 0.25]),
    ]
    assert found["acc"][0].values == [0.25, 0.75]
    with pytest.raises(Conflict, match="No printed line of this job gives new numbers for loss"):
        printed.draw(job_id=job.pk, names="loss", by=member)


def test_what_is_told_already_stays_as_it_is(member):
    job = job_that_printed(member)
    for replica in job.replicas.all():
        run = series.curve_of([1], [1.0], [9.0])
        series.append([series.Addition(series.Owner(replica_id=replica.pk), "loss", run)])
    printed.draw(job_id=job.pk, names="loss, acc", by=member)
    assert telemetry.series(job)["loss"][0].values == [9.0]


def test_refusals(member, teammate):
    job = job_that_printed(member)
    for names, words in (("", "at least one name"), ("(a+)+", "is not a name")):
        with pytest.raises(Invalid, match=words):
            printed.draw(job_id=job.pk, names=names, by=member)
    with pytest.raises(Conflict, match="gives new numbers for error"):
        printed.draw(job_id=job.pk, names="error", by=member)
    with pytest.raises(Forbidden):
        printed.draw(job_id=job.pk, names="loss", by=teammate)
    with pytest.raises(Conflict, match="has not ended"):
        printed.draw(job_id=job_that_printed(member, status=JobStatus.RUNNING).pk, names="loss", by=member)


def test_the_offer_is_for_scripts_that_told_no_numbers(member):
    job = job_that_printed(member)
    assert [(each.name, each.lines, each.last) for each in queries.offered(job)] == [
        ("loss", 2, 0.25),
        ("acc", 2, 0.75),
    ]
    assert queries.offered(job_that_printed(member, text="hello\n")) == []
    assert queries.offered(job_that_printed(member, kind=Kind.RECIPE)) == []
    printed.draw(job_id=job.pk, names="loss", by=member)
    assert queries.offered(job) == []


def test_the_page_offers_them_and_draws_the_chosen(member, client):
    job = job_that_printed(member)
    client.force_login(member)
    text = client.get(f"/jobs/{job.pk}/").content.decode()
    assert "It reported no numbers, but its log has some" in text
    assert '<th scope="row">' in text
    assert 'name="names"' in text
    assert f"?clone={job.pk}&amp;printed=loss%2C%20acc" in text
    form = client.get(f"/jobs/new/?clone={job.pk}&printed=loss%2C%20acc").content.decode()
    assert 'value="loss, acc"' in form
    client.post(f"/jobs/{job.pk}/printed/", {"names": ["loss"]})
    assert list(telemetry.series(job)) == ["loss"]
    assert 'id="h-printed"' not in client.get(f"/jobs/{job.pk}/").content.decode()


def test_a_job_that_runs_is_only_offered_another_start(member, client):
    client.force_login(member)
    text = client.get(f"/jobs/{job_that_printed(member, status=JobStatus.RUNNING).pk}/").content.decode()
    assert "Edit and start with these curves" in text
    assert "It reported no numbers so far, but its log has some: they can be drawn" in text
    assert "is-ahead" not in text
    silent = job_that_printed(member, text="hello\n", status=JobStatus.RUNNING)
    nothing = client.get(f"/jobs/{silent.pk}/").content.decode()
    assert "If it only prints them, an offer to draw them appears." in nothing
    assert "is-ahead" in nothing
    assert "Draw them" not in text
