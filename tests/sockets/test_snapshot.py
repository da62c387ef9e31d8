"""A stale snapshot and the events behind it come to the same as a fresh snapshot, also when they overlap."""

import math
import time
from typing import Any

import pytest
from channels.db import database_sync_to_async
from django.utils import timezone

from dashboard.sockets.consumers import JobFeed
from orchestrator import live
from orchestrator.models import Node, Replica, User
from orchestrator.queries import jobs
from orchestrator.services.intake import reports
from orchestrator.services.transitions import move_node
from tests.factories import make_job, make_node, make_replica
from tests.sockets.conftest import Opener, Page
from worker_agent.protocol.codec import encode
from worker_agent.protocol.records import Log, Points, Progress
from worker_agent.protocol.reports import Heartbeat, Records, Sample
from worker_agent.protocol.states import JobStatus, NodeState

pytestmark = pytest.mark.django_db(transaction=True)

NAN_AT = 7


class Trainer:
    """What one replica says: keeps its place in its spool and hands it to ingest's service, as ingest does."""

    def __init__(self, replica: Replica) -> None:
        self.replica = replica
        self.places = {"trainer": 0, "shim": 0}
        self.step = 0

    def says(self, *, steps: int) -> None:
        """`steps` more points, the progress, and a line of output."""
        first = self.step
        self.step += steps
        numbers = list(range(first, self.step))
        losses = [math.nan if step == NAN_AT else 1.0 / (step + 1) for step in numbers]
        at = time.time()
        points = Points(names=["loss", "<b>x</b>"], steps=numbers, times=[at] * steps, values=[losses, losses])
        progress = Progress(at=at, step=self.step, total_steps=100, epoch=1, epochs=2)
        self._send("trainer", [encode(points), encode(progress)])
        self._send("shim", [encode(Log(at=at, text=f"step {self.step} <script>alert(1)</script>\n"))])

    def _send(self, stream: str, records: list[bytes]) -> None:
        start, offsets = self.places[stream], []
        for record in records:
            self.places[stream] += len(record)
            offsets.append(self.places[stream])
        node = self.replica.node
        assert node is not None
        report = Records(
            node_id=node.pk,
            replica_id=self.replica.pk,
            attempt=self.replica.attempt,
            stream=stream,
            start=start,
            end=self.places[stream],
            offsets=offsets,
            records=records,
        )
        reports.apply([(node, report)], now=timezone.now())


class Model:
    """A page in small: a snapshot, and the rule by which events are applied to it."""

    def __init__(self, snapshot: dict[str, Any]) -> None:
        self.job = snapshot["job"]
        self.series = {
            (name, view["replica"], view["attempt"]): (view["steps"], view["values"])
            for name, views in snapshot["series"].items()
            for view in views
        }
        self.cursors = {int(key): dict(value) for key, value in snapshot["cursors"].items()}
        self.lines = [line["text"] for line in snapshot["log"]]
        self.log_ends = {int(key): value for key, value in snapshot["log_ends"].items()}

    def apply(self, event: dict[str, Any]) -> None:
        """Points and lines already held are dropped; a hole would be a new connection, which these tests rule out."""
        if event["kind"] == "job":
            if event["job"]["revision"] >= self.job["revision"]:
                self.job = event["job"]
        elif event["kind"] == "progress":
            if event["job"]["revision"] >= self.job["revision"]:
                self.job |= event["job"]
        elif event["kind"] == "points":
            cursors = self.cursors[event["replica_id"]]
            if event["end"] <= cursors.get("trainer", 0):
                return
            assert event["start"] <= cursors.get("trainer", 0)
            cursors["trainer"] = event["end"]
            for name, columns in event["series"].items():
                key = (name, event["replica"], event["attempt"])
                steps, values = self.series.setdefault(key, ([], []))
                steps.extend(columns["steps"])
                values.extend(columns["values"])
        elif event["kind"] == "log":
            if event["end"] <= self.log_ends.get(event["replica_id"], 0):
                return
            assert event["start"] == self.log_ends.get(event["replica_id"], 0)
            self.log_ends[event["replica_id"]] = event["end"]
            self.lines.extend(event["text"].splitlines())

    def shown(self) -> dict[str, Any]:
        """What the page shows."""
        job = {name: value for name, value in self.job.items() if name not in ("remaining_s", "progress")}
        return {"job": job, "series": self.series, "lines": self.lines, "log_ends": self.log_ends}


def start_job() -> Trainer:
    """A running job with one replica that has said a little."""
    job = make_job(status=JobStatus.RUNNING, started_at=timezone.now())
    trainer = Trainer(make_replica(job))
    trainer.says(steps=5)
    return trainer


async def drain(page: Page, model: Model) -> int:
    """Apply all events that are under way; how many there were."""
    count = 0
    while not await page.receive_nothing(timeout=0.3):
        frame = await page.frame()
        assert frame["type"] == "events"
        for event in frame["events"]:
            model.apply(event)
            count += 1
    return count


async def test_events_behind_a_snapshot_make_it_fresh(viewer: User, open_page: Opener) -> None:
    trainer = await database_sync_to_async(start_job)()
    path = f"/ws/jobs/{trainer.replica.job_id}/"
    page = await open_page(path, viewer)
    model = Model(await page.frame())
    for _ in range(4):
        await database_sync_to_async(trainer.says)(steps=3)
    assert await drain(page, model) > 0
    fresh = Model(await (await open_page(path, viewer)).frame())
    assert model.shown() == fresh.shown()
    assert model.series["loss", "worker:0", 1][0] == list(range(17))
    assert model.series["loss", "worker:0", 1][1][NAN_AT] == "NaN"


async def test_what_happens_while_the_snapshot_is_read_is_neither_lost_nor_doubled(
    viewer: User, open_page: Opener, monkeypatch
) -> None:
    trainer = await database_sync_to_async(start_job)()
    read = JobFeed.snapshot

    def with_news_on_both_sides(self: JobFeed, user: User) -> dict[str, Any]:
        trainer.says(steps=2)
        snapshot = read(self, user)
        trainer.says(steps=2)
        return snapshot

    monkeypatch.setattr(JobFeed, "snapshot", with_news_on_both_sides)
    path = f"/ws/jobs/{trainer.replica.job_id}/"
    page = await open_page(path, viewer)
    model = Model(await page.frame())
    assert await drain(page, model) > 0
    monkeypatch.undo()
    fresh = Model(await (await open_page(path, viewer)).frame())
    assert model.shown() == fresh.shown()
    assert model.series["loss", "worker:0", 1][0] == list(range(9))


async def test_events_go_to_their_group_only(viewer: User, open_page: Opener) -> None:
    trainer = await database_sync_to_async(start_job)()
    other = await database_sync_to_async(make_job)()
    page = await open_page(f"/ws/jobs/{other.pk}/", viewer)
    await page.frame()
    await database_sync_to_async(trainer.says)(steps=1)
    assert await page.receive_nothing(timeout=0.3)


async def test_the_list_follows_jobs(viewer: User, open_page: Opener) -> None:
    job = await database_sync_to_async(make_job)(name="<script>alert(1)</script>")
    page = await open_page("/ws/jobs/", viewer)
    snapshot = await page.frame()
    assert [row["id"] for row in snapshot["jobs"]] == [job.pk]
    assert snapshot["jobs"][0]["name"] == "<script>alert(1)</script>"
    assert snapshot["counts"]["submitted"] == 1

    def announce() -> None:
        live.announce(live.JOBS, [live.job_changed(jobs.summary(jobs.get(viewer, job.pk)))])

    await database_sync_to_async(announce)()
    frame = await page.frame()
    assert [(event["kind"], event["job"]["id"]) for event in frame["events"]] == [("job", job.pk)]


async def test_node_and_machines_follow_heartbeats(viewer: User, open_page: Opener) -> None:
    node = await database_sync_to_async(make_node)()
    pages = [
        await open_page(f"/ws/nodes/{node.pk}/", viewer),
        await open_page(f"/ws/machines/?nodes={node.pk}", viewer),
    ]
    snapshots = [await page.frame() for page in pages]
    assert snapshots[0]["node"]["node_id"] == node.pk
    assert snapshots[0]["samples"] == {node.pk: {}}
    assert snapshots[1]["nodes"] == [{"node_id": node.pk, "state": "ready"}]
    await database_sync_to_async(_beat)(node)
    for page in pages:
        (event,) = [event for event in (await page.frame())["events"] if event["kind"] == "sample"]
        assert (event["node_id"], event["sample"]["cpu_percent"]) == (node.pk, 42.0)


async def test_only_the_load_of_nodes_on_the_page_is_sent(viewer: User, open_page: Opener) -> None:
    shown, other = await database_sync_to_async(make_node)(name="shown"), await database_sync_to_async(make_node)()
    strange = f"{shown.pk},,x*,{'0' * 12},{shown.pk}&nodes={other.pk}"
    page, bare = await open_page(f"/ws/machines/?nodes={strange}", viewer), await open_page("/ws/machines/", viewer)
    assert (await page.frame())["nodes"] == [{"node_id": shown.pk, "state": "ready"}]
    assert (await bare.frame())["nodes"] == []
    await database_sync_to_async(_beat)(other)
    await database_sync_to_async(_beat)(shown)
    (event,) = (await page.frame())["events"]
    assert (event["kind"], event["node_id"]) == ("sample", shown.pk)
    await database_sync_to_async(_leave)(other)
    assert [each["node_id"] for each in (await bare.frame())["events"]] == [other.pk]
    assert [each["state"] for each in (await page.frame())["events"]] == ["cordoned"]


def _leave(node: Node) -> None:
    move_node(node=node, to=NodeState.CORDONED, now=timezone.now(), reason="", text="Cordoned.")


def _beat(node: Node) -> None:
    sample = Sample(
        at=time.time(),
        cpu_percent=42.0,
        memory_used_bytes=1,
        memory_total_bytes=2,
        network_sent_bps=0.0,
        network_received_bps=0.0,
        gpus=[],
    )
    reports.apply([(node, Heartbeat(node_id=node.pk, sample=sample, replicas=[]))], now=timezone.now())
