"""The stream itself: forged and broken entries, poison, a database away, heartbeats, acknowledgements, beats."""

import math
from collections.abc import Callable, Sequence
from datetime import timedelta

import pytest
from django.db import DataError, OperationalError, connection
from django.test.utils import CaptureQueriesContext

from orchestrator import enqueue, live, series
from orchestrator import ingest as ingest_module
from orchestrator.ingest import QUARANTINE_KEY, Ingest
from orchestrator.models import Command, Event, Job, Node, ServiceBeat
from orchestrator.services.intake import records, reports
from orchestrator.services.transitions import StaleTransition
from tests.data.conftest import NOW
from tests.data.fakes import NOW_S, FakeAgent, FakeRedis, heartbeat, log, points, put
from tests.data.test_exactly_once import loss_of
from tests.factories import make_inventory, make_node, make_replica
from worker_agent.protocol.ending import Ending
from worker_agent.protocol.envelope import seal
from worker_agent.protocol.records import Exit, Facts, Phase, Points, Progress
from worker_agent.protocol.reports import REPORTS_KEY, Ack, Goodbye, Hello, Report, RunningReplica, acks_key
from worker_agent.protocol.states import Cause, NodeState, ReplicaStatus

pytestmark = pytest.mark.django_db
Step = Callable[[], int]


def broken_entries(node: Node) -> list[dict[str, bytes]]:
    key = bytes(node.key)
    genuine = seal(b"\x93 not a report", node_id=node.pk, key=key, expires_at=NOW_S + 300)
    return [{}, {"e": b""}, {"e": b"\xff" * 50}, {"x": b"1"}, {"e": genuine}]


def test_what_cannot_be_trusted_is_counted_and_dropped(
    agent: FakeAgent, redis: FakeRedis, ingest: Ingest, step: Step
) -> None:
    for fields in broken_entries(agent.node):
        redis.xadd(REPORTS_KEY, fields)
    agent.say(points([1.0]))
    put(redis, agent.node, agent.slice(), key=b"another key")
    put(redis, agent.node, agent.slice(), expires_at=NOW_S - 86_400)
    put(redis, make_node(), agent.slice())
    redis.xadd(REPORTS_KEY, {"e": seal(b"", node_id="no-such-node", key=b"k", expires_at=NOW_S)})
    assert loss_of(agent.replica) == []
    agent.send()
    handled = step()
    assert handled == len(redis.streams[REPORTS_KEY]) + 10
    assert ingest.counts["dropped"] == 9
    assert loss_of(agent.replica) == [1.0]
    assert redis.streams[REPORTS_KEY] == []


def test_a_node_clock_two_hours_behind_is_forgiven(agent: FakeAgent, redis: FakeRedis, step: Step) -> None:
    agent.say(points([1.0]))
    put(redis, agent.node, agent.slice(), expires_at=NOW_S - 7200)
    step()
    assert loss_of(agent.replica) == [1.0]


def test_unreadable_records_are_skipped_and_said_once(agent: FakeAgent, step: Step) -> None:
    agent.say(points([1.0]), b"\xc1 garbage", Points(names=["a", "b"], steps=[1], times=[1.0], values=[[1.0]]))
    agent.say(Points(names=["a"], steps=[2**63], times=[1.0], values=[[1.0]]), points([2.0], first=1))
    agent.send()
    step()
    assert loss_of(agent.replica) == [1.0, 2.0]
    assert agent.acked == agent.size
    assert agent.replica.job.events.filter(kind="record_skipped").count() == 1


def test_poison_is_isolated_to_the_record(
    agent: FakeAgent, redis: FakeRedis, ingest: Ingest, step: Step, monkeypatch: pytest.MonkeyPatch
) -> None:
    healthy = FakeAgent(redis, make_replica(index=3))
    agent.say(points([1.0]), points([666.0], first=1), points([3.0], first=2), log("fine\n"))
    healthy.say(points([4.0]))
    store = series.store

    def choke(news: dict[series.Owner, list[series.Points]]) -> object:
        if any([666.0] in points.values for said in news.values() for points in said):
            raise DataError("it is poison")
        return store(news)

    monkeypatch.setattr(series, "store", choke)
    agent.send()
    healthy.send()
    step()
    assert loss_of(agent.replica) == [1.0, 3.0]
    assert loss_of(healthy.replica) == [4.0]
    assert (agent.acked, healthy.acked) == (agent.size, healthy.size)
    agent.replica.refresh_from_db()
    assert agent.replica.log_size == 5
    assert "it is poison" in agent.replica.job.events.get(kind="record_skipped").text
    assert ingest.counts["quarantined"] == 1
    assert redis.streams[QUARANTINE_KEY][0][1][b"why"] == b"DataError: it is poison"
    assert redis.streams[REPORTS_KEY] == []


@pytest.mark.parametrize("error", [OperationalError("away"), StaleTransition("moved meanwhile")])
def test_what_passes_by_itself_is_tried_again_and_nothing_is_lost(
    agent: FakeAgent, redis: FakeRedis, step: Step, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    agent.say(points([1.0]))
    agent.send()
    apply, failures = reports.apply, [error] * (ingest_module.PATIENCE - 1)

    def moody(batch: object, **named: object) -> object:
        if failures:
            raise failures.pop()
        return apply(batch, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(reports, "apply", moody)
    for _ in range(ingest_module.PATIENCE - 1):
        with pytest.raises(type(error)):
            step()
        assert len(redis.streams[REPORTS_KEY]) == 1
    assert step() == 1
    assert loss_of(agent.replica) == [1.0]


def test_a_batch_that_never_passes_does_not_block_the_others(
    agent: FakeAgent, redis: FakeRedis, step: Step, monkeypatch: pytest.MonkeyPatch
) -> None:
    healthy = FakeAgent(redis, make_replica(index=3))
    for speaker in (agent, healthy):
        speaker.say(points([1.0]))
        speaker.send()
    store = records.store

    def stuck(slices: object, **named: object) -> object:
        if any(report.replica_id == agent.replica.pk and report.records for _, report in slices):  # type: ignore[attr-defined]
            raise OperationalError("too many SQL variables")
        return store(slices, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(records, "store", stuck)
    for _ in range(ingest_module.PATIENCE - 1):
        with pytest.raises(OperationalError):
            step()
    step()
    assert (loss_of(agent.replica), loss_of(healthy.replica)) == ([], [1.0])
    assert agent.acked == agent.size
    assert redis.streams[REPORTS_KEY] == []


def test_acknowledgements_expire_and_do_not_pile_up(agent: FakeAgent, redis: FakeRedis, step: Step) -> None:
    agent.say(points([1.0]))
    agent.send()
    step()
    key = acks_key(agent.node.pk)
    assert redis.expiries[key] == ingest_module.ACKS_KEPT_S
    redis.hashes[key].update({b"%d:1:trainer" % number: b"1" for number in range(5000)})
    agent.send()
    step()
    assert key not in redis.hashes


def test_a_step_takes_a_bounded_part_of_a_long_stream(
    agent: FakeAgent, redis: FakeRedis, ingest: Ingest, step: Step
) -> None:
    agent.say(log("x" * 900_000))
    for _ in range(60):
        agent.send()
    steps = [step() for _ in range(5)]
    assert max(steps) == steps[0] == ingest_module.ENTRIES_PER_READ
    assert sum(steps) == 60
    assert step() == 0


def test_heartbeats_keep_the_latest_sample_and_every_point(
    agent: FakeAgent, redis: FakeRedis, ingest: Ingest, step: Step, told: dict[str, list[live.LiveEvent]]
) -> None:
    node = agent.node
    held = RunningReplica(replica_id=agent.replica.pk, attempt=1, status=ReplicaStatus.RUNNING, pid=7)
    for number in range(3):
        put(redis, node, heartbeat(node, at=NOW_S + number, cpu=float(number), replicas=[held]))
    step()
    node.refresh_from_db()
    assert node.last_seen_at == NOW
    assert node.sample["cpu_percent"] == 2.0
    assert node.holding[0]["replica_id"] == agent.replica.pk
    ingest.end(NOW)
    load = series.read([series.Owner(node_id=node.pk)])
    assert load[series.Owner(node_id=node.pk), "cpu_percent"].values.tolist() == [0.0, 1.0, 2.0]
    for group in (live.load_group(node.pk), live.job_group(agent.replica.job_id)):
        assert [event["kind"] for event in told[group]] == ["sample"]


def test_a_repeated_heartbeat_is_no_news(agent: FakeAgent, redis: FakeRedis, ingest: Ingest, step: Step) -> None:
    put(redis, agent.node, heartbeat(agent.node))
    (entry,) = redis.streams[REPORTS_KEY]
    redis.xadd(REPORTS_KEY, {"e": entry[1][b"e"]})
    step()
    redis.xadd(REPORTS_KEY, {"e": entry[1][b"e"]})
    step()
    ingest.end(NOW)
    owner = series.Owner(node_id=agent.node.pk)
    assert len(series.read([owner])[owner, "cpu_percent"].steps) == 1
    assert ingest.counts["repeated"] == 2


def test_a_sample_that_json_cannot_carry_is_kept(redis: FakeRedis, step: Step) -> None:
    node = make_node()
    put(redis, node, heartbeat(node, cpu=math.nan))
    step()
    node.refresh_from_db()
    assert node.sample["cpu_percent"] == "NaN"


@pytest.mark.parametrize("before", [NodeState.READY, NodeState.CORDONED, NodeState.DRAINING])
def test_a_lost_node_that_speaks_stands_where_it_stood(redis: FakeRedis, step: Step, before: NodeState) -> None:
    node = make_node(state=NodeState.LOST.value, state_before_away=before.value)
    put(redis, node, heartbeat(node))
    step()
    node.refresh_from_db()
    assert (node.state, node.state_before_away) == (before.value, "")
    assert node.events.get().text == f"{node.name} is back."


@pytest.mark.parametrize("before", [NodeState.READY, NodeState.CORDONED, NodeState.DRAINING])
def test_a_node_whose_agent_says_goodbye_is_leaving_until_an_agent_says_hello(
    redis: FakeRedis, step: Step, before: NodeState
) -> None:
    node = make_node(state=before.value)
    hello = Hello(node_id=node.pk, address=node.address, inventory=make_inventory(slots=2))

    def state_after(*reports: Report) -> tuple[str, str]:
        for report in reports:
            put(redis, node, report)
        step()
        node.refresh_from_db()
        return node.state, node.state_before_away

    assert state_after(Goodbye(node_id=node.pk)) == (NodeState.LEAVING, before)
    assert state_after(heartbeat(node), Goodbye(node_id=node.pk)) == (NodeState.LEAVING, before)
    assert state_after(hello, heartbeat(node)) == (before, "")
    assert state_after(Goodbye(node_id=node.pk), hello, heartbeat(node)) == (before, "")
    assert state_after(hello, heartbeat(node), Goodbye(node_id=node.pk)) == (NodeState.LEAVING, before)


def test_hello_brings_inventory_and_address(redis: FakeRedis, step: Step) -> None:
    node = make_node(slots=2)
    put(redis, node, Hello(node_id=node.pk, address="10.9.9.9", inventory=make_inventory(slots=5)))
    step()
    node.refresh_from_db()
    assert (len(node.devices), node.address, node.last_seen_at) == (5, "10.9.9.9", NOW)
    assert "changed from" in Event.objects.get(node=node, kind="agent_started").text


def test_what_a_node_says_is_stored_without_nul(agent: FakeAgent, redis: FakeRedis, ingest: Ingest, step: Step) -> None:
    """PostgreSQL refuses it in text and in JSON."""
    node, command = agent.node, Command.objects.create(node=agent.node, replica=agent.replica, kind="forget")
    inventory = make_inventory(hostname="no\0de", agent="0.1\0")
    put(redis, node, Hello(node_id=node.pk, address="10.9.\0009.9", inventory=inventory))
    put(redis, node, Ack(node_id=node.pk, command_id=command.pk, refused="no\0pe"))
    facts = {"a\0": ["b\0", "a path C:\\u0000"]}
    ending = Ending(cause=Cause.EXCEPTION, last_lines="x\0y")
    agent.say(Phase(at=NOW_S, name="t\0rain"), Facts(at=NOW_S, facts=facts))
    agent.say(Exit(at=NOW_S, code=1, signal=None, cause=Cause.EXCEPTION, message="o\0h", final={}, ending=ending))
    agent.send()
    step()
    replica = agent.replica
    for row in (node, command, replica):
        row.refresh_from_db()
    assert ingest.counts["quarantined"] == 0
    assert (node.inventory["hostname"], node.address, command.refused) == ("node", "10.9.9.9", "nope")
    assert (replica.phase, replica.reason, replica.ending["last_lines"]) == ("train", "oh", "xy")
    assert replica.facts == {"a": ["b", "a path C:\\u0000"]}
    assert "version 0.1)" in Event.objects.get(node=node, kind="agent_started").text


def test_the_beat_is_unbroken_until_ingest_was_away(ingest: Ingest) -> None:
    for tenths in range(0, 50, 5):
        ingest.step(NOW + timedelta(seconds=tenths / 10))
    beat = ServiceBeat.objects.get(name="ingest")
    assert (beat.alive_since, beat.beat_at) == (NOW, NOW + timedelta(seconds=4))
    ingest.step(NOW + timedelta(seconds=60))
    beat.refresh_from_db()
    assert beat.alive_since == beat.beat_at == NOW + timedelta(seconds=60)


def test_a_restarted_ingest_is_alive_since_its_start(ingest: Ingest, redis: FakeRedis) -> None:
    ingest.step(NOW)
    Ingest(redis).step(NOW + timedelta(seconds=2))  # type: ignore[arg-type]
    assert ServiceBeat.objects.get(name="ingest").alive_since == NOW + timedelta(seconds=2)


def test_old_load_is_removed(ingest: Ingest, redis: FakeRedis, step: Step) -> None:
    node = make_node()
    put(redis, node, heartbeat(node))
    step()
    ingest.end(NOW)
    assert series.read([series.Owner(node_id=node.pk)])
    ingest.step(NOW + timedelta(hours=25))
    assert series.read([series.Owner(node_id=node.pk)]) == {}


def test_a_batch_asks_the_database_as_often_for_many_jobs_as_for_few(redis: FakeRedis, step: Step) -> None:
    agents = [FakeAgent(redis, make_replica(index=index)) for index in range(12)]

    def queries(said: Sequence[FakeAgent]) -> int:
        for each in said:
            done = each.size
            each.say(points([0.5], first=done), Progress(at=1.0, step=done + 1, total_steps=10**6, epoch=1, epochs=2))
            each.send(len(each.payloads) - 2)
        with CaptureQueriesContext(connection) as captured:
            step()
        return len(captured)

    queries(agents)
    assert queries(agents[:2]) == queries(agents) < 20


def test_pages_hear_how_far_a_job_is_without_what_it_asked_for(
    agent: FakeAgent, step: Step, told: dict[str, list[live.LiveEvent]]
) -> None:
    agent.say(Progress(at=1.0, step=5, total_steps=10, epoch=1, epochs=2))
    agent.send()
    step()
    (event,) = told[live.JOBS]
    job = Job.objects.get(pk=agent.replica.job_id)
    assert event["kind"] == "progress"
    assert event["job"] == {
        **{"id": job.pk, "revision": job.revision, "step": 5, "total_steps": 10, "epoch": 1, "epochs": 2},
        **{"progress": 0.5, "remaining_s": None},
    }


def test_a_batch_that_was_rolled_back_keeps_nothing(
    redis: FakeRedis, ingest: Ingest, step: Step, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = make_node()
    put(redis, node, heartbeat(node, cpu=3.0))
    with monkeypatch.context() as broken:
        broken.setattr("orchestrator.services.intake.reports.update_rows", lambda *_rows, **_named: 1 / 0)
        step()
    put(redis, node, heartbeat(node, cpu=4.0))
    step()
    ingest.end(NOW)
    owner = series.Owner(node_id=node.pk)
    assert series.read([owner])[owner, "cpu_percent"].values.tolist() == [4.0]


def test_numbers_that_json_lacks_are_kept(redis: FakeRedis, ingest: Ingest, step: Step) -> None:
    node = make_node()
    put(redis, node, heartbeat(node, cpu=math.nan))
    step()
    ingest.end(NOW)
    owner = series.Owner(node_id=node.pk)
    node.refresh_from_db()
    assert node.sample["cpu_percent"] == "NaN"
    assert math.isnan(series.read([owner])[owner, "cpu_percent"].values[0])


def test_only_parts_of_steps_have_a_job_looked_at(
    agent: FakeAgent, ingest: Ingest, step: Step, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    monkeypatch.setattr(enqueue, "_look_once", asked.append)
    for name in ("loss", "step_part/input", "step_part/wait"):
        agent.say(points([1.0], name=name))
        agent.send()
        step()
        assert bool(asked) is (name != "loss")
    assert asked == [agent.replica.job_id] * 2
