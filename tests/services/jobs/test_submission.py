"""Check and preview: the same reading, with as much of an answer as an incomplete request allows."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.domain.job.validation import KNOWN_FIELDS
from orchestrator.models import Job
from orchestrator.services.jobs import submission
from tests.environment import ROOT
from tests.factories import make_cluster, make_job, make_replica
from tests.services.gang.gangs import make_lab
from worker_agent.protocol.states import JobStatus


def request_for(cluster, **fields):
    return {"name": "t", "cluster": cluster.name, "recipe": "digits_mlp", "strategy": "multi_worker_mirrored"} | fields


def fields_of(errors):
    return {error.field: error.message for error in errors}


def test_a_sound_request(member):
    checked = submission.check(request_for(make_lab(), global_batch_size=128), by=member)
    assert checked.errors == []
    assert (checked.spec.workers, checked.spec.global_batch_size) == (2, 128)
    assert set(checked.spec.params) == {param.name for param in checked.info.params}


def test_the_preview_shows_what_would_happen(member):
    preview = submission.check(request_for(make_lab(), learning_rate=0.1, lr_scaling="linear"), by=member)
    assert preview.errors == []
    assert (preview.batch.per_replica, preview.batch.learning_rate) == (32, 0.2)
    assert [replica.node_name for replica in preview.placement] == ["node-1", "node-2"]
    assert set(preview.tf_configs) == {"worker:0", "worker:1"}
    assert preview.tf_configs["worker:1"]["task"] == {"type": "worker", "index": 1}
    assert [node.name for node in preview.nodes] == ["node-1", "node-2"]
    assert preview.waiting_for == ""
    assert not Job.objects.exists()


def test_the_preview_says_what_would_be_waited_for(member):
    cluster = make_lab(slots=1)
    make_replica(make_job(cluster=cluster, status=JobStatus.RUNNING), node=cluster.nodes.get(name="node-2"))
    preview = submission.check(request_for(cluster), by=member)
    assert preview.errors == []
    assert preview.waiting_for == "needs 2 workers with 1 device each; 1 free on node-1, 0 on node-2"
    assert submission.check(request_for(cluster), by=member).errors == []


def test_more_workers_than_nodes_can_hold_is_an_error_at_its_field(member):
    for errors in (
        submission.check(request_for(make_lab(slots=1), workers=4, global_batch_size=64), by=member).errors,
        submission.check(request_for(make_lab(slots=1), workers=4, global_batch_size=64), by=member).errors,
    ):
        assert fields_of(errors)["workers"].startswith("more workers than the nodes can hold: 4")


def test_a_batch_that_does_not_divide(member):
    request = request_for(make_lab(slots=4), workers=3)
    assert "use 63 or 66" in fields_of(submission.check(request, by=member).errors)["global_batch_size"]
    preview = submission.check(request, by=member)
    assert preview.batch is None
    assert len(preview.placement) == 3


def test_an_incomplete_request_is_previewed_as_far_as_it_goes(member):
    cluster = make_lab()
    preview = submission.check({"cluster": cluster.name, "strategy": "one_device"}, by=member)
    assert set(fields_of(preview.errors)) == {"name", "recipe"}
    assert preview.batch.per_replica == 64
    assert len(preview.placement) == 1
    half = submission.check({"cluster": cluster.name, "strategy": "horovod"}, by=member)
    assert (half.batch, half.placement) == (None, ())
    assert len(half.nodes) == 2


@pytest.mark.parametrize("name", [None, "", "nowhere", 5, [], "a\x00b", "\ud800"])
def test_clusters_that_are_not_there(name, member):
    make_cluster("lab")
    assert "there is lab" in fields_of(submission.check({"cluster": name}, by=member).errors)["cluster"]


def test_without_any_cluster(member):
    assert "no cluster is registered" in fields_of(submission.check({}, by=member).errors)["cluster"]


def test_a_cluster_without_nodes(member):
    cluster = make_cluster("lab")
    assert "has no nodes yet" in fields_of(submission.check(request_for(cluster), by=member).errors)["cluster"]


words = st.text(alphabet="ab1 -.=\x00\n\ud800é", max_size=6)
junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=5,
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(st.sampled_from(KNOWN_FIELDS), junk, max_size=6))
def test_junk_never_raises(member, fields):
    cluster = make_cluster()
    request = request_for(cluster) | fields
    assert submission.check(request, by=member).spec is None
    assert submission.check(request, by=member).errors


def test_what_cannot_go_together_is_said_before_anything_starts(member):
    lab = make_lab()
    checked = submission.check(request_for(lab, communication="nccl"), by=member)
    assert "no node of cluster" in fields_of(checked.errors)["communication"]
    assert checked.spec is None
    found = fields_of(submission.check(request_for(lab, cross_device="nccl"), by=member).errors)
    assert "does not read `cross_device`" in found["cross_device"]


def test_a_value_that_cannot_be_read_is_told_once(member):
    errors = submission.check(request_for(make_lab(), strategy="mirrored", workers="x"), by=member).errors
    assert [error.field for error in errors] == ["workers"]


def test_the_preview_of_a_gang_with_chief_evaluator_and_accumulation(member):
    asked = request_for(make_lab(), chief=True, validation="evaluator", accumulation=4)
    preview = submission.check(asked, by=member)
    assert preview.errors == []
    assert set(preview.tf_configs) == {"chief:0", "worker:0", "evaluator:0"}
    assert (preview.batch.per_replica, preview.batch.per_part) == (32, 8)
    uneven = submission.check(asked | {"accumulation": 3}, by=member)
    assert uneven.nearest == (60, 66)


def test_a_hand_written_tf_config_is_linted_with_the_nodes_at_hand(member):
    lab = make_lab()
    hosts = [node.address for node in lab.nodes.order_by("name")]
    script = {
        "recipe": None,
        "code": {"filename": "main.py", "text": "tf.distribute.MultiWorkerMirroredStrategy()"},
        "kind": "script",
    }

    def asked(*addresses, **more):
        return request_for(lab, **script, tf_config={"cluster": {"worker": list(addresses), **more}})

    good = submission.check(asked(f"{hosts[1]}:{lab.port_first}", f"{hosts[0]}:{lab.port_first + 1}"), by=member)
    assert [replica.node_name for replica in good.placement] == ["node-2", "node-1"]
    assert good.batch is None
    outside = submission.check(asked(f"{hosts[0]}:{lab.port_first}", f"{hosts[1]}:2000"), by=member)
    assert "tf_config" not in fields_of(outside.errors)
    assert [finding.blocks for finding in outside.findings] == [False]
    wrong = submission.check(asked(f"{hosts[0]}:{lab.port_first}", evaluator=["x:2000"]), by=member)
    told = [error.message for error in wrong.errors if error.field == "tf_config"]
    assert "the evaluator is in the cluster" in told[0]
    assert "it lists 1 worker address for 2 workers" in told[1]
    assert wrong.placement


@pytest.mark.parametrize(
    ("text", "strategy", "chosen", "keras"),
    [
        ("print(1)", "one_device", None, "keras3"),
        ("import tf_keras", "one_device", None, "tf_keras"),
        ("import tf_keras", "one_device", "keras3", "keras3"),
        ("print(1)", "parameter_server", None, "tf_keras"),
    ],
)
def test_a_script_gets_the_keras_that_its_text_calls_for(member, text, strategy, chosen, keras):
    asked = request_for(make_lab(), recipe=None, code={"filename": "main.py", "text": text}, kind="script")
    checked = submission.check(asked | {"strategy": strategy, "keras": chosen}, by=member)
    assert checked.errors == []
    assert checked.spec.keras == keras


TF1 = (ROOT / "examples/scripts/parameter_server_tf1.py").read_text()
TF2 = (ROOT / "examples/scripts/parameter_server_loop.py").read_text()
WITH_CHIEF, WITHOUT = ["chief:0", "ps:0", "worker:0", "worker:1"], ["ps:0", "worker:0", "worker:1"]


@pytest.mark.parametrize(
    ("text", "given", "roles"),
    [
        (TF1, {}, WITHOUT),
        (TF1, {"chief": True}, WITH_CHIEF),
        (TF2, {}, WITH_CHIEF),
        (TF2, {"chief": False}, WITHOUT),
        (TF2, {"tf_config": ("worker", "worker", "ps")}, WITHOUT),
    ],
)
def test_a_script_whose_worker_0_leads_has_no_chief(member, text, given, roles):
    """As the request, its own TF_CONFIG, or else its text has it."""
    lab = make_lab()
    host = lab.nodes.order_by("name")[0].address
    if "tf_config" in given:
        cluster = {}
        for place, role in enumerate(given["tf_config"]):
            cluster.setdefault(role, []).append(f"{host}:{lab.port_first + place}")
        given = {"tf_config": {"cluster": cluster}}
    code = {"filename": "main.py", "text": text}
    asked = request_for(lab, recipe=None, code=code, kind="script", strategy="parameter_server", workers=2, ps=1)
    checked = submission.check(asked | given, by=member)
    assert checked.errors == []
    assert sorted(checked.tf_configs) == roles
    named = {role for each in checked.tf_configs.values() for role in each["cluster"]}
    assert named == {role.partition(":")[0] for role in roles}


def test_workers_that_would_never_meet_are_refused_before_anything_starts(member):
    """DTensor over the devices of one process, under the sizes that tensor parallelism begins with."""
    code = {"filename": "main.py", "text": (ROOT / "examples/scripts/dtensor_mlp.py").read_text()}
    asked = request_for(make_lab(), recipe=None, code=code, kind="script", strategy="tensor_parallel")
    for answer in (submission.check(asked, by=member), submission.check(asked, by=member)):
        assert "Use 1 worker" in fields_of(answer.errors)["workers"]
    assert submission.check(asked | {"workers": 1}, by=member).errors == []


def test_a_script_that_builds_another_strategy_is_a_warning(member):
    code = {"filename": "main.py", "text": "s = tf.distribute.MirroredStrategy()"}
    preview = submission.check(request_for(make_lab(), recipe=None, code=code, kind="script"), by=member)
    assert preview.errors == []
    assert [(finding.what, finding.blocks) for finding in preview.findings] == [("the program builds Mirrored", False)]
