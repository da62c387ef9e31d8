"""What the job page says of a strategy, from what its processes told; and the settings, in words."""

from html import unescape

import pytest
from django.test import Client
from hypothesis import given
from hypothesis import strategies as st

from dashboard.views.job.settings import settings_of
from dashboard.views.job.strategy import strategy_panel
from orchestrator import series
from orchestrator.models import Replica, User
from tests.domain.gang.gangs import spec
from tests.factories import make_job, make_replica
from worker_agent.protocol.states import JobStatus, Kind, Strategy

COMMON = {
    "keras": "keras 3.15.1",
    "precision": "float32",
    "devices": ["/job:worker/replica:0/task:0/device:CPU:0", "CPU:1"],
    "memory_bytes": 700_000_000,
}
TOLD = {
    "multi_worker_mirrored": (
        COMMON
        | {
            "replicas_in_sync": 4,
            "communication": "RING over gRPC",
            "accumulation": 2,
            "jit": True,
            "gang": {"worker": 2, "chief": 1},
        },
        [
            "1 chief, 2 workers<",
            "Replicas in sync",
            "4",
            "RING over gRPC",
            "2 passes per step",
            "Compiled with XLA",
            "700 MB",
            ">CPU:0, CPU:1<",
        ],
    ),
    "parameter_server": (
        COMMON
        | {"ps_load": [{"ps": 0, "variables": 3, "bytes": 4000}], "partitioned": [{"variable": "emb", "parts": 3}]}
        | {"steps_of_workers": [300, 100]},
        [
            "Updates by each worker",
            "300",
            "75 %",
            "Load of the parameter servers",
            "ps 0",
            "4.0 kB",
            "emb",
            "0.50 updates on average, 3 at most",
        ],
    ),
    "tensor_parallel": (
        {
            "mesh": {"batch": 2, "model": 2},
            "parameters_total": 1_000_000,
            "layouts": [{"variable": "dense/kernel", "shape": [64, 32], "layout": ["model", ""], "bytes_here": 4096}],
        },
        ["2 × 2 (batch × model)", "Parameters in total", "dense/kernel", "64 × 32", "64 over model", "4.1 kB"],
    ),
    "pipeline": (
        {
            "stages": [{"stage": 0, "device": "CPU:0", "worker": 0, "layers": ["a", "b"], "parameters": 1200}],
            "micro_batches": 4,
            "bubble": 0.2,
            "overlap": 0.75,
        },
        ["stage 0", "node-", "a, b", "20 % of a step", "75 %", "Idle share, measured", "50 % of a step, measured once"],
    ),
    "mirrored": (
        COMMON
        | {
            "sharding": {"policy": "OFF", "reason": "one process reads all", "files": 0},
            "resumed": {"checkpoint": "c", "step": 50},
        },
        ["Every worker reads all. One process reads all", "step 50 (checkpoint c)"],
    ),
}


def add(replica, **values: float) -> None:
    for name, value in values.items():
        series.append(
            [series.Addition(series.Owner(replica_id=replica.pk), name, series.curve_of([1], [1.0], [value]))]
        )


@pytest.mark.parametrize("strategy", TOLD)
def test_each_strategy_shows_what_is_particular_to_it(client_of, member: User, strategy: str):
    job = make_job(owner=member, status=JobStatus.RUNNING, spec={"strategy": Strategy(strategy)})
    facts, words = TOLD[strategy]
    replica = make_replica(job, facts=facts)
    add(replica, staleness=0.5, staleness_max=3.0, bubble=0.5)
    page = unescape(client_of(member).get(f"/jobs/{job.pk}/state/").content.decode())
    part = page[page.index('id="job-strategy"') : page.index('id="timeline"')]
    for word in words:
        assert word in part.replace("\u202f", " "), part


@pytest.mark.parametrize(
    ("held", "least", "said"),
    [
        ([96e6, 4e6], 0, "ps 0 holds 96 % of the bytes on 2 parameter servers"),
        ([1e6, 1e6, 8e6], 0, "Set min_shard_bytes, so that large variables are split"),
        ([1e6, 1e6, 8e6], 1_000_000, "Lower min_shard_bytes from 1 000 000, so that"),
        ([60e6, 40e6], 0, ""),  # whole variables lie so
        ([96e3, 4e3], 0, ""),  # too few bytes to wait for
        ([100e6], 0, ""),
        ([0, 0], 0, ""),
    ],
)
def test_a_server_that_holds_far_more_than_its_share_is_named(db: None, held: list[float], least: int, said: str):
    spec = {"strategy": Strategy.PARAMETER_SERVER, "ps": len(held), "min_shard_bytes": least}
    job = make_job(status=JobStatus.RUNNING, spec=spec)
    load = [{"ps": number, "variables": 1, "bytes": each} for number, each in enumerate(held)]
    found = strategy_panel(job, [make_replica(job, facts={"ps_load": load})]).finding.replace("\u202f", " ")
    assert said in found
    assert bool(said) is bool(found)


def test_one_process_on_one_device_has_no_table_of_one_row(client_of, member: User):
    job = make_job(owner=member, status=JobStatus.RUNNING, spec={"strategy": Strategy.ONE_DEVICE})
    replica = make_replica(job, facts={"keras": "keras 3.15.1"})
    assert "does here" not in client_of(member).get(f"/jobs/{job.pk}/").content.decode()
    Replica.objects.filter(pk=replica.pk).update(facts=COMMON | {"devices": ["CPU:0"], "parameters_total": 9})
    page = client_of(member).get(f"/jobs/{job.pk}/").content.decode()
    assert "Peak memory" in page
    assert "Memory per process" not in page


def test_one_device_has_nothing_to_sum_gradients_by(client_of, member: User):
    job = make_job(owner=member, status=JobStatus.RUNNING, spec={"strategy": Strategy.MIRRORED})
    make_replica(job, facts=COMMON | {"replicas_in_sync": 1, "communication": "none"})
    page = client_of(member).get(f"/jobs/{job.pk}/").content.decode()
    assert "Replicas in sync" in page
    assert "Gradients summed by" not in page


def test_nothing_is_printed_while_nothing_was_told(client_of, member: User):
    job = make_job(owner=member, status=JobStatus.RUNNING)
    make_replica(job)
    assert "What One device does here" not in client_of(member).get(f"/jobs/{job.pk}/").content.decode()


def test_what_a_process_tells_is_never_html(client_of, member: User):
    job = make_job(owner=member, status=JobStatus.RUNNING, spec={"strategy": Strategy.PIPELINE})
    evil = "<script>alert(1)</script>"
    make_replica(job, facts={"keras": evil, "stages": [{"stage": evil, "layers": [evil]}], "devices": [evil]})
    assert "<script>alert" not in client_of(member).get(f"/jobs/{job.pk}/").content.decode()


def test_the_memory_of_each_process_stands_by_its_name(db: None):
    job = make_job(status=JobStatus.RUNNING, spec={"strategy": Strategy.TENSOR_PARALLEL, "workers": 2})
    gang = [make_replica(job, index=number, facts={"parameters": 10 + number}) for number in (0, 1)]
    (table,) = strategy_panel(job, gang).tables
    assert table.head == ("Process", "Parameters held")
    assert table.rows == [("worker 0", "10"), ("worker 1", "11")]


def test_long_tables_say_what_they_leave_out(db: None):
    job = make_job(status=JobStatus.RUNNING, spec={"strategy": Strategy.TENSOR_PARALLEL})
    layouts = [{"variable": f"v{number}", "bytes_here": 1} for number in range(60)]
    (table,) = strategy_panel(job, [make_replica(job, facts={"layouts": layouts})]).tables
    assert (len(table.rows), table.left_out) == (40, 20)


NAMES = [name for facts, _ in TOLD.values() for name in facts]
junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["ps", "stage", "worker", "layers", "step", "batch", "policy", "bytes"]), inner, max_size=3
        )
    ),
    max_leaves=6,
)


class Told:
    """A replica that told something, without a database."""

    index = 0
    node_name = "n1"

    def __init__(self, facts: object) -> None:
        self.facts = facts

    def __str__(self) -> str:
        return "worker:0"


@given(st.dictionaries(st.sampled_from(NAMES), junk) | junk)
def test_junk_never_raises(facts: object):
    class Job:
        strategy = "one_device"
        attempt = 1
        typed_spec = spec()

    panel = strategy_panel(Job, [Told(facts)])
    assert all(isinstance(text, str) for row in panel.rows for text in row)


def test_settings_say_what_was_asked_for_and_no_more(db: None):
    spec = {"strategy": Strategy.MULTI_WORKER_MIRRORED, "workers": 2, "chief": True, "communication": "ring"}
    spec |= {"lr_scaling": "sqrt", "learning_rate": 0.1, "warmup_epochs": 2.0, "accumulation": 4, "resume_from": 7}
    rows = dict(settings_of(make_job(spec=spec)))
    assert rows["Chief"] == "yes"
    assert rows["Communication between workers"] == "Ring over gRPC"
    assert rows["Gradient accumulation steps"] == "4"
    assert (rows["Learning rate"], rows["Learning rate scaling"], rows["Warm-up"]) == ("0.1", "Square root", "2 epochs")
    assert rows["Start from checkpoint"] == "7"
    assert not {"Precision", "Validation", "TPU", "Arguments", "Micro-batches"} & set(rows)


def test_settings_of_a_script(db: None):
    spec = {"strategy": Strategy.MIRRORED, "kind": Kind.SCRIPT, "arguments": ["--a", "b c"], "keras": "tf_keras"}
    rows = dict(settings_of(make_job(spec=spec | {"requirements": "x==1\ny"})))
    assert (rows["Arguments"], rows["Keras"], rows["Packages"]) == ("--a 'b c'", "tf_keras (Keras 2)", "x==1, y")
    assert not {"Epochs", "Global batch size", "Learning rate", "Checkpoints kept"} & set(rows)


@pytest.mark.parametrize(
    ("facts", "title", "summary"),
    [
        ({"strategy": "MirroredStrategy", "replicas_in_sync": 2}, "Mirrored", "gradients are summed in each step"),
        ({"strategy": "OneDeviceStrategy", "replicas_in_sync": 1}, "the program", "It built OneDeviceStrategy."),
        ({"replicas_in_sync": 1}, "the program", ""),
        ({}, "the program", ""),
    ],
)
def test_of_a_script_only_what_it_built_is_said(db: None, facts, title, summary):
    job = make_job(spec={"strategy": Strategy.MIRRORED, "kind": Kind.SCRIPT}, attempt=1)
    panel = strategy_panel(job, [make_replica(job, facts=facts)])
    assert panel.title == title
    assert summary in panel.summary
    assert bool(panel.summary) is bool(summary)


def test_the_page_is_printed(client_of, member: User):
    client: Client = client_of(member)
    job = make_job(owner=member, status=JobStatus.RUNNING, spec={"kind": Kind.SCRIPT, "arguments": ["-v"]})
    assert "Arguments" in client.get(f"/jobs/{job.pk}/").content.decode()
