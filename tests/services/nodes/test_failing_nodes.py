"""A node that fails attempts again and again is cordoned with the reason, but never the last one of its cluster."""

import pytest

from orchestrator.models import Attempt, Event, Node
from orchestrator.services.nodes import nodes
from orchestrator.services.nodes.failing_nodes import cordon_failing, often_failing, to_avoid
from tests.services.gang.gangs import end, later, launch, make_gang_job, make_lab, run
from worker_agent.protocol.states import Cause


@pytest.fixture
def fail(now):
    """Attempts that failed on a node; each belongs to a job of its own."""

    def record(node: Node, times: int, *, ago_s: float = 60, cause: Cause = Cause.SIGNAL, blame: str = "machine"):
        for _ in range(times):
            job = make_gang_job(node.cluster, workers=1)
            Attempt.objects.create(
                job=job,
                number=1,
                started_at=now,
                ended_at=later(now, -ago_s),
                cause=cause.value,
                blame=blame,
                failed_on=node,
            )

    return record


@pytest.fixture
def lab(db):
    cluster = make_lab(nodes=2)
    return cluster.nodes.get(name="node-1"), cluster.nodes.get(name="node-2")


def test_five_failures_within_an_hour_cordon_a_node_and_say_why(now, fail, lab):
    bad, good = lab
    fail(bad, 4)
    cordon_failing(now=now)
    bad.refresh_from_db()
    assert bad.state == "ready"
    fail(bad, 1, cause=Cause.NODE_LOST, ago_s=1)
    cordon_failing(now=now)
    cordon_failing(now=now)
    bad.refresh_from_db()
    jobs = list(Attempt.objects.order_by("-ended_at", "pk").values_list("job_id", flat=True))
    assert bad.state == "cordoned"
    assert bad.state_reason.startswith(
        f"Attempts of 5 jobs failed here within an hour: j-{jobs[0]} (node lost, 11:59 UTC), j-"
    )
    assert bad.state_reason.endswith("(signal, 11:59 UTC) and 2 more.")
    assert Event.objects.filter(node=bad, kind="node_cordoned").count() == 1
    good.refresh_from_db()
    assert good.state == "ready"


@pytest.mark.parametrize(
    "failures",
    [
        {"ago_s": 3700},
        {"cause": Cause.AGENT_SHUTDOWN, "blame": "person"},
        {"cause": Cause.EXCEPTION, "blame": "program"},
    ],
)
def test_old_ones_and_those_of_programs_do_not_count(now, fail, lab, failures):
    bad, _ = lab
    fail(bad, 9, **failures)
    cordon_failing(now=now)
    bad.refresh_from_db()
    assert bad.state == "ready"


def test_of_a_job_that_fails_again_and_again_one_counts(now, fail, lab):
    bad, _ = lab
    fail(bad, 2)
    for job in {attempt.job for attempt in Attempt.objects.all()}:
        for number in range(2, 9):
            Attempt.objects.create(
                job=job,
                number=number,
                started_at=now,
                ended_at=later(now, -number),
                cause=Cause.SIGNAL.value,
                blame="machine",
                failed_on=bad,
            )
    cordon_failing(now=now)
    bad.refresh_from_db()
    assert bad.state == "ready"
    assert often_failing(bad.cluster, now=now) == set()
    fail(bad, 1)
    assert often_failing(bad.cluster, now=now) == {bad.pk}


def test_the_last_ready_node_stays_and_its_history_says_so_once(now, fail, lab):
    bad, other = lab
    Node.objects.filter(pk=other.pk).update(state="draining")
    fail(bad, 5)
    for _ in range(2):
        cordon_failing(now=now)
    bad.refresh_from_db()
    assert bad.state == "ready"
    (told,) = Event.objects.filter(node=bad)
    assert told.text.endswith(f"It is the last ready node of cluster {bad.cluster.name}, so it is not cordoned.")


def test_who_takes_it_into_use_again_gives_it_a_new_beginning(now, fail, lab, administrator):
    bad, _ = lab
    fail(bad, 5)
    cordon_failing(now=now)
    nodes.uncordon(node_id=bad.pk, by=administrator)
    Event.objects.filter(node=bad, kind="node_ready").update(at=now)
    cordon_failing(now=later(now, 1))
    bad.refresh_from_db()
    assert bad.state == "ready"
    assert often_failing(bad.cluster, now=later(now, 1)) == set()


def test_it_can_be_switched_off(now, fail, lab, settings):
    bad, _ = lab
    settings.NODE_FAILURES_CORDON = 0
    fail(bad, 9)
    cordon_failing(now=now)
    bad.refresh_from_db()
    assert bad.state == "ready"


@pytest.mark.parametrize("cause", [Cause.PREEMPTED, Cause.AGENT_SHUTDOWN])
def test_a_node_whose_process_was_asked_to_leave_is_avoided_for_a_while(now, cause):
    job = make_gang_job(make_lab(nodes=3), workers=1)
    (first,) = run(job, now)
    end(first, cause, now, signal=15)
    assert to_avoid(job.cluster, now=later(now, 100)) == {first.node_id}
    assert to_avoid(job.cluster, now=later(now, 200)) == set()
    assert not often_failing(job.cluster, now=now), "nobody is to blame"
    (again,) = launch(job, later(now, 1))
    assert again.node_id != first.node_id


def test_a_node_whose_process_trainyard_ended_is_not_avoided(now):
    job = make_gang_job(make_lab(nodes=2), workers=1)
    (first,) = run(job, now)
    end(first, Cause.STOPPED, now, signal=15)
    assert to_avoid(job.cluster, now=now) == set()
