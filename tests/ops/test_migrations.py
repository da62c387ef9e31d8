"""Rows that the version before wrote, as its models had them, in the columns of this one: on SQLite and PostgreSQL.

`test_old_home.py` starts a whole installation of then.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from django.db import connections
from django.db.migrations.executor import MigrationExecutor

from orchestrator.models import Attempt, Command, Job, Node, Preflight, ProbedNode, Replica
from orchestrator.queries import checkpoints, restarts
from tests.environment import ON_POSTGRES
from worker_agent.protocol.codec import decode_command
from worker_agent.protocol.commands import Launch, Stop
from worker_agent.protocol.ending import Ending
from worker_agent.protocol.job.gang_shape import has_chief
from worker_agent.protocol.states import SAVED_CODE, Cause

pytestmark = pytest.mark.django_db

BEFORE = ("orchestrator", "0012_nodes_that_leave")
SCHEMA = "version_before"
NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
SPEC = {
    "name": "digits",
    "cluster": "local",
    "code": {"sha256": "c0", "entry": "recipe.py", "archive": False, "recipe": "", "git": None},
    "strategy": "parameter_server",
    "workers": 2,
    "ps": 1,
    "keras": None,
    "version": 2,
}
LEFT = {"left": ["python (7)"], "since": "2026-03-01T12:00:00Z"}
LEFT |= {"replica_id": 7, "job": 3, "attempt": 2, "replica": "worker 1"}
LOST_PEER = "A peer went away: UnavailableError: Socket closed."
ABORTED = "It was killed by signal 6 (SIGABRT)."
FINDING = {"what": "too few rows", "why": "10 of 64", "remedy": "Use a smaller batch", "blocks": True, "certain": True}

# Cause, who was blamed then, what was told of the process, who is to blame now.
ENDS: list[tuple[str, str, dict[str, Any], str]] = [
    ("signal", "machines", {"signal": 9, "reason": "It was killed by signal 9 (SIGKILL)."}, "machine"),
    (
        "signal",
        "machines",
        {"signal": 6, "reason": f"{ABORTED} The last lines it wrote:\nCoordination service has stopped."},
        "peer",
    ),
    (
        "exception",
        "machines",
        {"exit_code": 1, "reason": f"{LOST_PEER} The last lines it wrote:\nstep 7"},
        "peer",
    ),
    ("preempted", "machines", {"exit_code": 75, "reason": "Its node is about to end."}, "person"),
    ("lease_lost", "machines", {"exit_code": 1, "reason": "Its lease was over."}, "platform"),
    ("hung", "machines", {"signal": 9, "reason": "No step for 300 s. The kernel's view: it was suspended."}, "machine"),
    ("exception", "program", {"exit_code": 1, "reason": "ValueError: no such order (in recipe.py, line 4)"}, "program"),
]


@pytest.fixture(scope="module", autouse=True)
def _migrated(
    tmp_path_factory: pytest.TempPathFactory, django_db_setup: None, django_db_blocker: Any
) -> Iterator[None]:
    """In the place of the tests' database another one: with tables and rows of then, and every migration since."""
    usual = connections["default"]
    settings = usual.settings_dict | {"NAME": str(tmp_path_factory.mktemp("before") / "trainyard.sqlite3")}
    if ON_POSTGRES:
        settings = usual.settings_dict | {"OPTIONS": {"options": f"-c search_path={SCHEMA}"}}
    with django_db_blocker.unblock():
        connections["default"] = fresh = type(usual)(settings, "default")
        try:
            if ON_POSTGRES:
                fresh.cursor().execute(f"CREATE SCHEMA {SCHEMA}")
            executor = MigrationExecutor(fresh)
            write_rows(executor.migrate([BEFORE]).apps)
            executor.loader.build_graph()
            executor.migrate(executor.loader.graph.leaf_nodes("orchestrator"))
            yield
            if ON_POSTGRES:
                fresh.cursor().execute(f"DROP SCHEMA {SCHEMA} CASCADE")
        finally:
            fresh.close()
            connections["default"] = usual


class Then:
    """Writes rows by the models of then."""

    def __init__(self, apps: Any) -> None:
        self.apps = apps
        self.person = self.add("User", username="mel", role="member")
        self.cluster = self.add("Cluster", name="local")
        self.code = self.add("Code", sha256="c0", filename="recipe.py", entry="recipe.py", content=b"")
        devices = [{"index": 0, "kind": "cpu", "name": "CPU slot 0"}, {"index": 1, "kind": "gpu", "name": "A GPU"}]
        self.node = self.add(
            "Node",
            cluster=self.cluster,
            name="a",
            address="a.lan",
            key=b"k" * 32,
            inventory={"devices": devices},
            dirty={"port:20001": LEFT, "1": LEFT, "0": LEFT},
        )
        self.ports = iter(range(20000, 21000))

    def add(self, model: str, **columns: Any) -> Any:
        return self.apps.get_model("orchestrator", model).objects.create(**columns)

    def job(self, name: str, status: str, *, attempt: int = 1, **columns: Any) -> Any:
        spec = SPEC | {"name": name}
        owned = {"owner": self.person, "cluster": self.cluster, "code": self.code, "strategy": spec["strategy"]}
        return self.add("Job", name=name, spec=spec, status=status, attempt=attempt, **owned, **columns)

    def replica(self, job: Any, index: int, *, cause: str = "", attempt: int = 1, **columns: Any) -> Any:
        usual = {"role": "worker", "node": self.node, "node_name": "a", "host": "a.lan", "device_kind": "cpu"}
        stands = {"status": "exited", "held": False, "ended_at": NOW} if cause else {"status": "running"}
        values = usual | stands | {"index": index, "cause": cause, "attempt": attempt, "port": next(self.ports)}
        return self.add("Replica", job=job, **(values | columns))

    def command(self, kind: str, *, replica: Any = None, **fields: Any) -> Any:
        body = {"type": kind, "command_id": 1, "attempt": 1, "replica_id": replica.pk if replica else 0} | fields
        encoded = msgspec.msgpack.encode(body)
        return self.add("Command", node=self.node, replica=replica, kind=kind, body=encoded, created_at=NOW)


def write_rows(apps: Any) -> None:
    then = Then(apps)
    write_running(then)
    write_paused(then)
    write_restarted(then)
    write_replaced(then)
    write_preflights(then)
    script = then.job("script", "succeeded")
    script.spec |= {"kind": "script", "chief": False}
    script.save()


def write_running(then: Then) -> None:
    """Worker 0 trains, worker 1 is asked to save and leave."""
    job = then.job("running", "running", step=9, started_at=NOW)
    then.add("Attempt", job=job, number=1, started_at=NOW, running_at=NOW)
    gang = [then.replica(job, 0), then.replica(job, 1, stop_sent_at=NOW)]
    for each in gang:
        then.command("launch", replica=each, job_id=job.pk, spec=job.spec, lease_s=30.0)
    then.command("stop", replica=gang[1], cause="paused", save=True, grace_s=45.0)


def write_paused(then: Then) -> None:
    job = then.job("paused", "paused", cause="paused", step=14)
    saved = {"step": 14, "epoch": 1, "size_bytes": 5, "sha256": "5a", "usable": True, "metrics": {"loss": 0.5}}
    then.add("Checkpoint", job=job, attempt=1, name="step-0000000014-a1", **saved)
    then.add("Attempt", job=job, number=1, started_at=NOW, cause="paused", ended_at=NOW, step_reached=14)
    left = then.replica(job, 0, cause="paused", exit_code=75, reason="It saved a checkpoint and left.")
    then.command("forget", replica=left)


def write_restarted(then: Then) -> None:
    """A launch for each row of `ENDS`."""
    job = then.job("restarted", "running", attempt=len(ENDS) + 1)
    for number, (cause, blame, columns, _) in enumerate(ENDS, start=1):
        told = {"cause": cause, "blame": blame, "reason": "told", "ended_at": NOW, "step_reached": number}
        then.add("Attempt", job=job, number=number, started_at=NOW, **told)
        then.replica(job, 0, attempt=number, cause=cause, **columns)


def write_replaced(then: Then) -> None:
    """Worker 1 was launched anew, later the parameter server, for which worker 0 waited. There is no worker 9."""
    job, later = then.job("replaced", "running"), NOW + timedelta(seconds=60)
    then.add("Attempt", job=job, number=1, started_at=NOW, running_at=NOW)
    killed = {"cause": "signal", "signal": 9, "superseded": True, "reason": "It was killed by signal 9 (SIGKILL)."}
    then.replica(job, 1, **killed)
    then.replica(job, 0, role="ps", **killed, ended_at=later)
    then.replica(job, 0, cause="exception", exit_code=1, reason=LOST_PEER, superseded=True, ended_at=later)
    for role, index in (("worker", 0), ("worker", 1), ("ps", 0)):
        then.replica(job, index, role=role, incarnation=1)
    usual = {"job": job, "attempt": 1, "cause": "signal", "node": then.node, "node_name": "a", "step_reached": 10}
    for failed, replicas, at, resumed in (
        ("worker 1", ["worker 1"], NOW, None),
        ("ps 0", ["worker 0", "ps 0"], later, 5),
        ("worker 9", ["worker 9"], later, None),
    ):
        entry = usual | {"failed": failed, "replicas": replicas, "at": at, "step_resumed": resumed}
        then.add("Replacement", reason=f"{failed} was killed.", back_at=at + timedelta(seconds=2), **entry)


def write_preflights(then: Then) -> None:
    """A check of two nodes, of which one is gone since and did not answer, and a rehearsal that was refused."""
    answer = {"findings": [FINDING], "taken": ["worker:0"], "unreached": {}, "facts": {"Rows": "320"}, "tried": True}
    asked = {"name": "a", "command": then.command("probe").pk, "builds": True, "report": answer}
    gone = {"name": "gone", "command": 10_000, "builds": False, "report": None}
    job = then.job("refused", "failed", attempt=0)
    for waits, nodes in ((None, {then.node.pk: asked, "0123456789ab": gone}), (job, {then.node.pk: asked})):
        usual = {"owner": then.person, "cluster": then.cluster, "code": then.code, "spec": SPEC, "fingerprint": "f0"}
        times = {"created_at": NOW, "ports_until": NOW, "ended_at": NOW if waits else None}
        then.add("Preflight", **usual, **times, job=waits, nodes=nodes, verdict="refused" if waits else "")


def replicas_of(name: str) -> list[Replica]:
    return list(Replica.objects.filter(job__name=name).order_by("attempt", "role", "index", "incarnation"))


def test_a_running_gang_keeps_its_lease_and_the_time_until_it_is_given_up() -> None:
    trains, stopped = replicas_of("running")
    assert (trains.lease_s, stopped.lease_s) == (30.0, 30.0)
    assert (trains.give_up_at, stopped.give_up_at) == (None, NOW + timedelta(seconds=120 + 45))
    assert (trains.held, trains.ending, trains.replacement) == (True, None, None)


def test_a_folder_that_an_agent_was_told_to_remove_is_not_asked_about_again() -> None:
    assert [each.forget_sent_at for each in replicas_of("paused")] == [NOW]
    assert [each.forget_sent_at for each in replicas_of("running")] == [None, None]


def test_the_outbox_is_read_as_it_was_written() -> None:
    launch, stop = (
        decode_command(bytes(Command.objects.filter(replica__job__name="running", kind=kind).latest("pk").body))
        for kind in ("launch", "stop")
    )
    assert isinstance(launch, Launch)
    assert isinstance(stop, Stop)
    assert (launch.spec, launch.lease_s) == (Job.objects.get(name="running").typed_spec, 30.0)
    assert (stop.cause, stop.save, stop.grace_s) == (Cause.PAUSED, True, 45.0)


def test_a_paused_job_has_its_checkpoint_and_what_ended_it() -> None:
    (replica,) = replicas_of("paused")
    (saved,) = checkpoints.of_job(replica.job)
    assert (saved.step, saved.where, saved.is_best) == (14, "store", True)
    assert replica.typed_ending is not None
    assert (replica.typed_ending.saved, replica.typed_ending.code, replica.outcome) == (True, SAVED_CODE, "paused")
    assert replica.reason_in_full == "It saved a checkpoint and left."


def test_each_end_is_data_and_says_who_is_to_blame() -> None:
    told = [each.typed_ending for each in replicas_of("restarted")]
    for ending, (cause, _, columns, _) in zip(told, ENDS, strict=True):
        assert ending is not None
        assert (ending.cause, ending.code, ending.signal) == (cause, columns.get("exit_code"), columns.get("signal"))
    attempts = Attempt.objects.filter(job__name="restarted").order_by("number")
    assert [each.blame for each in attempts] == [blame for *_, blame in ENDS]


def test_what_a_message_held_beside_its_words_has_fields() -> None:
    by_reason = {each.reason: each.typed_ending or Ending(cause=Cause.COMPLETED) for each in replicas_of("restarted")}
    assert by_reason[ABORTED].last_lines == "Coordination service has stopped."
    assert by_reason[LOST_PEER].last_lines == "step 7"
    assert by_reason["No step for 300 s."].kernel_saw == "it was suspended."
    assert [each.lost_peer for each in by_reason.values()] == [False, True, True, False, False, False, False]


def test_the_ledger_joins_processes_by_keys() -> None:
    job = Job.objects.get(name="replaced")
    went_on, waited = restarts.of_job(job)
    assert (went_on.replicas, went_on.went_on, went_on.counted) == (["worker 1"], True, False)
    assert (waited.replicas, waited.step_resumed, waited.steps_lost) == (["ps 0", "worker 0"], 5, 5)
    assert (waited.cause, waited.node, waited.away_s) == ("signal", "a", 2.0)
    joined = {(each.words, each.incarnation): each.replacement for each in replicas_of("replaced")}
    assert {key for key, entry in joined.items() if entry is None} == {("worker 0", 1), ("worker 1", 1), ("ps 0", 1)}
    assert joined["worker 0", 0] == joined["ps 0", 0] != joined["worker 1", 0]


def test_a_check_has_a_row_for_each_node() -> None:
    asked, gone = ProbedNode.objects.filter(preflight__job=None).order_by("name")
    assert (asked.node_id, asked.builds, asked.answered_at) == (Node.objects.get().pk, True, NOW)
    assert asked.command is not None
    assert (asked.findings, asked.taken, asked.facts) == ([FINDING], ["worker:0"], {"Rows": "320"})
    assert (gone.name, gone.node, gone.command, gone.answered_at) == ("gone", None, None, None)
    rehearsed = ProbedNode.objects.get(preflight__job__name="refused")
    assert (asked.verdict, rehearsed.verdict) == ("", "refused")
    waits = {each.job_id is None: (each.answer_by - NOW, each.build_by - NOW) for each in Preflight.objects.all()}
    assert waits[True] == (timedelta(seconds=40), timedelta(seconds=180))
    assert waits[False] == (timedelta(seconds=10), timedelta(seconds=90))


def test_what_a_node_did_not_get_back_has_columns() -> None:
    node = Node.objects.get()
    assert [each.name for each in node.not_used] == ["CPU slot 0", "GPU 1", "port 20001"]
    assert (node.dirty_devices, node.dirty_ports) == ({0, 1}, {20001})
    assert node.not_used[0].replica == "worker 1"


def test_a_script_under_parameter_servers_has_a_chief_as_before() -> None:
    job = Job.objects.get(name="script")
    assert job.typed_spec.chief is None
    assert has_chief(job.typed_spec)
