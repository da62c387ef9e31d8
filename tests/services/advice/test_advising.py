"""Asking for an advice: what a node is asked, and what its answer comes to."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from orchestrator.models import Advice, Command, Job, ProbedNode
from orchestrator.queries.errors import NotFound
from orchestrator.services.advice import advising
from orchestrator.services.errors import Conflict, Forbidden, Invalid
from orchestrator.services.intake import reports
from orchestrator.services.jobs import submission
from tests.factories import make_user
from tests.services.gang.gangs import make_lab
from worker_agent.protocol.codec import decode_command
from worker_agent.protocol.findings import Finding
from worker_agent.protocol.job.workload import MeasuredModel, Stretch, Table, Timed
from worker_agent.protocol.reports import Probed
from worker_agent.protocol.states import Keras

NOW = datetime.now(UTC)
MODEL = MeasuredModel(
    keras=Keras.KERAS3,
    parameters=100_000,
    parameter_bytes=400_000,
    variables=6,
    largest_bytes=200_000,
    slots=2.0,
    dense_bytes=400_000,
    tables=[],
    activation_bytes=2000.0,
    boundary_bytes=500.0,
    flops=600_000.0,
    examples=10_000,
    reads_apart=False,
    timed=[Timed(cores=4, step_ms=[(32, 1.0), (64, 2.0), (128, 4.0)], apply_ms=0.2)],
)


def begin(cluster, by, *, measure=True, wishes=None, **fields) -> Advice:
    request = {"cluster": cluster.name, "recipe": "digits_mlp", "global_batch_size": 128} | fields
    return advising.begin(request=request, measure=measure, wishes=wishes or {}, by=by, now=NOW)


def answer(row: Advice, **said) -> None:
    asked = ProbedNode.objects.select_related("node").get(preflight=row.preflight)
    report = Probed(node_id=asked.node.pk, preflight_id=row.preflight_id, **({"findings": []} | said))
    reports.apply([(asked.node, report)], now=NOW)


def told(row: Advice, by, now=NOW) -> Advice:
    return advising.answer_to(advice_id=row.pk, by=by, now=now)


def test_from_the_question_to_the_verdict(member):
    row = begin(make_lab(), member, strategy="multi_worker_mirrored", workers=2)
    probe = decode_command(bytes(Command.objects.get().body))
    assert (probe.builds, probe.trains, probe.spec.strategy) == (True, False, "one_device")
    assert probe.question.stretches == [
        Stretch(cores=4, batches=[64, 128]),
        Stretch(cores=2, batches=[32, 64, 128]),
    ]
    assert told(row, member).status == "running"
    answer(row, model=MODEL, tried=True)
    row = told(row, member)
    assert (row.status, row.level, row.reason, row.ended_at) == ("done", "instant", "", NOW)
    one = next(each for each in row.result["candidates"] if each["strategy"] == "one_device")
    assert one["predicted"]["step_time_ms"] == pytest.approx(4.0, rel=0.2)
    assert row.result["verdict"]["strategy"] == "one_device"
    assert row.result["inputs"]["calibrated"] == []
    assert not Job.objects.exists()
    row.refresh_from_db()
    assert row.result["inputs"]["network"]["source"].startswith("not measured")


def test_each_layout_is_a_job_that_would_be_taken(member):
    cluster = make_lab()
    row = begin(cluster, member, wishes={"staleness": "allowed"})
    answer(row, model=MODEL)
    candidates = told(row, member).result["candidates"]
    assert {"one_device", "mirrored", "parameter_server"} <= {each["strategy"] for each in candidates if each["fits"]}
    for each in candidates:
        if each["fits"]:
            job = {"name": "t", "cluster": cluster.name, "recipe": "digits_mlp", **each["layout"]}
            checked = submission.check(job, by=member)
            assert checked.errors == [], each["layout"]
            assert (checked.spec.workers, checked.spec.ps) == (each["workers"], each["ps"])


def test_without_measuring_the_formula_goes_by_flops(member):
    row = begin(make_lab(), member, measure=False)
    assert decode_command(bytes(Command.objects.get().body)).question.stretches == []
    answer(row, model=msgspec.structs.replace(MODEL, timed=[]))
    best = told(row, member).result["candidates"][0]
    assert "flops" in {each["code"] for each in best["cautions"]}


def test_what_a_program_makes_up_is_refused_in_words(member):
    for fields, said in (
        ({"parameter_bytes": -1}, "parameter_bytes of a workload is -1"),
        ({"flops": 1e300}, "larger than 1e+15"),
        ({"tables": [Table(rows=0, row_bytes=4, touched=1.0)]}, "rows of a table is 0"),
        ({"timed": [Timed(cores=1, step_ms=[(32, 0.0)], apply_ms=0.0)]}, "step_ms of batch 32"),
        ({"tables": [Table(rows=1, row_bytes=4, touched=1.0)] * 2000}, "more than 1000 tables"),
    ):
        row = begin(make_lab(), member)
        answer(row, model=msgspec.structs.replace(MODEL, **fields))
        row = told(row, member)
        assert row.status == "failed"
        assert said in row.reason


def test_an_older_agent_a_program_that_fails_and_a_silent_node_each_have_their_reason(member):
    row = begin(make_lab(), member)
    answer(row)
    assert "too old to measure a model" in told(row, member).reason
    row = begin(make_lab(), member)
    answer(row, findings=[Finding("build_model() fails", "it raised", "Correct the program")])
    assert told(row, member).reason == "build_model() fails: it raised. Correct the program."
    row = begin(make_lab(), member)
    late = NOW + advising.BUILD_WITHIN + timedelta(seconds=1)
    assert "did not answer in time" in told(row, member, now=late).reason


def test_what_is_refused_at_once(member):
    cluster = make_lab()
    for fields, field in (
        ({"wishes": {"staleness": "much"}}, "wishes.staleness"),
        ({"wishes": {"cheap": 1}}, "wishes"),
        ({"global_batch_size": -1}, "global_batch_size"),
    ):
        with pytest.raises(Invalid) as refused:
            begin(cluster, member, **fields)
        assert [error.field for error in refused.value.errors] == [field]
    with pytest.raises(Forbidden):
        begin(cluster, make_user(role="viewer"))
    cluster.nodes.update(state="cordoned")
    with pytest.raises(Conflict, match="No node can look at the model"):
        begin(cluster, member)


def test_it_is_shown_to_its_owner_alone(member):
    row = begin(make_lab(), member)
    with pytest.raises(NotFound):
        told(row, make_user())
