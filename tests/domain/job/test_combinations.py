"""Every rule of what cannot be asked for together: broken by one example, told at its field, with a remedy."""

import pytest

from orchestrator.domain.job.combinations import CLUSTER_LIMITS, LIMITS, refusals, refusals_in
from orchestrator.domain.placement.planning import Never, Placed, place
from tests.domain.gang.gangs import cluster, node, spec
from worker_agent.protocol.job.job_spec import FIELDS
from worker_agent.protocol.job.recipe_text import RecipeInfo
from worker_agent.protocol.job.strategies import PARTICULAR, STRATEGIES
from worker_agent.protocol.states import DeviceKind, Keras, Kind, Strategy

PLAIN: dict[str, dict[str, object]] = {
    "one_device": {},
    "mirrored": {"devices_per_worker": 2, "cross_device": "hierarchical_copy", "keras": Keras.TF_KERAS},
    "multi_worker_mirrored": {"workers": 2, "chief": True, "communication": "ring", "validation": "evaluator"},
    "parameter_server": {"workers": 2, "ps": 1, "min_shard_bytes": 1000, "keras": Keras.TF_KERAS},
    "central_storage": {"devices_per_worker": 2, "accumulation": 2},
    "tpu": {"tpu": "local", "precision": "mixed_bfloat16"},
    "tensor_parallel": {"workers": 2, "devices_per_worker": 2, "model_parallel": 2},
    "pipeline": {"workers": 2, "micro_batches": 8},
}
SCRIPT = {"kind": Kind.SCRIPT}
ONE_PROCESS = ("one_device", "mirrored", "central_storage", "tpu")
# (strategy, fields, the field that is refused, words of its sentence)
REFUSED = [
    ("one_device", {"env": {"KERAS_BACKEND": "jax"}}, "env", "run the program as a script"),
    ("mirrored", {"workers": 2}, "workers", "2 workers would train 2 separate models"),
    ("central_storage", {"workers": 2}, "workers", "choose multi_worker_mirrored"),
    ("one_device", {"workers": 2}, "workers", "One device runs in one process: set 1"),
    ("one_device", {"devices_per_worker": 2}, "devices_per_worker", "choose mirrored"),
    ("tpu", {"tpu": "t", "devices_per_worker": 8}, "devices_per_worker", "counted when the job connects to it"),
    ("parameter_server", {"workers": 2, "ps": 0}, "ps", "needs at least one parameter server"),
    ("multi_worker_mirrored", {"workers": 2, "ps": 1}, "ps", "choose parameter_server"),
    ("parameter_server", {"ps": 1, "chief": False}, "chief", "the chief of a recipe hands out the work"),
    ("mirrored", {"chief": True}, "chief", "choose multi_worker_mirrored"),
    (
        "tensor_parallel",
        {"workers": 3, "devices_per_worker": 2, "model_parallel": 4},
        "model_parallel",
        "4 does not divide the 6 devices of the gang (3 × 2): use one of 1, 2, 3, 6",
    ),
    ("mirrored", {"model_parallel": 2}, "model_parallel", "choose tensor_parallel"),
    ("pipeline", {"workers": 1}, "workers", "at least two"),
    ("tpu", {}, "tpu", "give the TPU's name"),
    ("mirrored", {"tpu": "local"}, "tpu", "choose tpu"),
    ("pipeline", {"workers": 2, "accumulation": 2}, "accumulation", "raise micro_batches"),
    ("parameter_server", {"ps": 1, "accumulation": 2}, "accumulation", "applies each update at once"),
    (
        "tensor_parallel",
        {"accumulation": 2},
        "accumulation",
        "Tensor parallel computes the whole batch of a step at once",
    ),
    ("parameter_server", {"ps": 1, "precision": "mixed_float16"}, "precision", "updated in float32"),
    ("tpu", {"tpu": "t", "precision": "mixed_float16"}, "precision", "choose mixed_bfloat16"),
    ("central_storage", {"precision": "mixed_float16"}, "precision", "choose mixed_bfloat16, or keras tf_keras"),
    ("tensor_parallel", {"precision": "mixed_float16"}, "precision", "compute in float32"),
    ("tensor_parallel", {"jit": True}, "jit", "without XLA"),
    ("tpu", {"tpu": "t", "jit": True}, "jit", "XLA always compiles what runs on a TPU"),
    ("parameter_server", {"ps": 1, "jit": True}, "jit", "XLA cannot compile"),
    ("tpu", {"tpu": "t", "learning_rate": 0.1, "lr_scaling": "sqrt"}, "lr_scaling", "give the scaled rate"),
    ("mirrored", {"lr_scaling": "sqrt"}, "learning_rate", "sqrt scaling multiplies a learning rate: give one"),
    ("mirrored", {"warmup_epochs": 1.0}, "warmup_epochs", "set lr_scaling to linear or sqrt"),
    ("mirrored", {"warmup_epochs": 6.0}, "warmup_epochs", "from 0 to 5, not 6 (the job has 5 epochs)"),
    *((name, {"validation": "evaluator"}, "validation", "set validation to gang") for name in ONE_PROCESS),
    ("tensor_parallel", {"validation": "evaluator"}, "validation", "an evaluator cannot validate it"),
    ("pipeline", {"workers": 2, "validation": "evaluator"}, "validation", "no process holds the whole model"),
    ("multi_worker_mirrored", {"validation": "evaluator", "checkpoints_kept": 0}, "validation", "none are kept"),
    ("mirrored", {"checkpoint_steps": 10, "checkpoints_kept": 0}, "checkpoint_steps", "no checkpoint would be kept"),
    ("parameter_server", {"ps": 1, "keras": Keras.KERAS3}, "keras", "Keras 3 loses updates"),
    ("tensor_parallel", {"keras": Keras.TF_KERAS}, "keras", "splits models of Keras 3"),
    ("mirrored", {"communication": "ring"}, "communication", "choose multi_worker_mirrored"),
    ("multi_worker_mirrored", {"cross_device": "nccl"}, "cross_device", "choose mirrored"),
    ("mirrored", {"min_shard_bytes": 1}, "min_shard_bytes", "choose parameter_server"),
    ("mirrored", {"micro_batches": 8}, "micro_batches", "choose pipeline"),
    ("mirrored", {"sharding": "file"}, "sharding", "choose multi_worker_mirrored"),
    ("one_device", {"arguments": ["--x"]}, "arguments", "declare it in PARAMS"),
    ("one_device", {"working_dir": "src"}, "working_dir", "set kind to script"),
    ("one_device", {"tf_config": "{}"}, "tf_config", "Trainyard writes a recipe's TF_CONFIG"),
    ("one_device", SCRIPT | {"epochs": 9}, "epochs", "a script does not get epochs"),
    ("one_device", SCRIPT | {"params": {"a": 1}}, "params", "a script does not get params"),
    ("one_device", SCRIPT | {"precision": "mixed_float16"}, "precision", "in the program's arguments"),
    ("pipeline", SCRIPT | {"workers": 2}, "strategy", "make the program a recipe"),
    *((name, SCRIPT | {"tf_config": "{}"}, "tf_config", "one process and needs no TF_CONFIG") for name in ONE_PROCESS),
    ("central_storage", {"jit": True}, "jit", "XLA cannot reach the variables of central storage"),
]


@pytest.mark.parametrize(("strategy", "fields", "field", "words"), REFUSED)
def test_refused(strategy, fields, field, words):
    found = dict(refusals(spec(Strategy(strategy), **fields)))
    assert words in found[field].replace("`", "")


@pytest.mark.parametrize("strategy", PLAIN)
def test_what_suits_a_strategy_is_not_refused(strategy):
    assert refusals(spec(Strategy(strategy), **PLAIN[strategy])) == []


@pytest.mark.parametrize("strategy", [name for name in PLAIN if name != "pipeline"])
def test_a_script_under_each_strategy(strategy):
    fields = {name: value for name, value in PLAIN[strategy].items() if name in STRATEGIES[Strategy(strategy)].reads}
    of_scripts = {"workers", "devices_per_worker", "ps", "chief", "validation", "tpu"}
    fields = {name: value for name, value in fields.items() if name in of_scripts}
    asked = spec(Strategy(strategy), **fields, **SCRIPT, arguments=["a b"], keras=Keras.TF_KERAS, requirements="x")
    assert refusals(asked) == []


@pytest.mark.parametrize("limit", LIMITS, ids=lambda limit: f"{limit.field}: {limit.sentence[:40]}")
def test_every_limit_has_an_example(limit):
    examples = [spec(Strategy(name), **fields) for name, fields, field, _ in REFUSED if field == limit.field]
    assert any(limit.broken(example) for example in examples)


@pytest.mark.parametrize("strategy", list(Strategy))
def test_every_limit_of_a_strategy_has_an_example(strategy):
    examples = [(field, spec(strategy, **fields)) for name, fields, field, _ in REFUSED if name == strategy]
    row = STRATEGIES[strategy]
    for limit in row.limits:
        assert any(field == limit.field and limit.broken(example) for field, example in examples), limit.sentence
    assert set(row.refuses) <= {field for field, _example in examples}


def test_a_pipeline_needs_a_recipe_that_says_where_it_is_cut():
    asked = spec(Strategy.PIPELINE, workers=2)
    whole, cut = RecipeInfo("", "", ()), RecipeInfo("", "", (), stages=True)
    assert dict(refusals(asked, whole))["strategy"].startswith("the recipe does not define its stages")
    assert refusals(asked, cut) == refusals(asked) == refusals(spec(workers=2), whole) == []


def test_one_sentence_for_a_field():
    found = refusals(spec(Strategy.PARAMETER_SERVER, chief=True, jit=True, precision="mixed_float16"))
    assert len({field for field, _ in found}) == len(found)


def test_nccl_needs_a_gpu():
    cpus, gpus = cluster(node("n1")), cluster(node("n1"), node("n2", kind=DeviceKind.GPU))
    asked = spec(workers=2, communication="nccl")
    assert refusals_in(asked, cpus) == [
        ("communication", "NCCL needs GPUs, and no node of cluster lab has one: choose `auto` or `ring`")
    ]
    mirrored = spec(Strategy.MIRRORED, cross_device="nccl")
    assert [field for field, _ in refusals_in(mirrored, cpus)] == ["cross_device"]
    assert refusals_in(asked, gpus) == refusals_in(mirrored, gpus) == refusals_in(asked, cluster()) == []
    assert len(CLUSTER_LIMITS) == 2


def test_a_tpu_of_the_nodes_own_has_to_be_there():
    none, has, silent = (node(name, tpus=count) for name, count in (("n1", 0), ("n2", 4), ("n3", None)))
    asked = spec(Strategy.TPU, tpu="local")
    for without in (asked, spec(Strategy.TPU, tpu="")):
        refused = place(without, cluster(none))
        assert isinstance(refused, Never)
        assert refused.field == "tpu"
        assert refused.message.startswith(
            "no node of cluster lab has a TPU of its own: give the name or address of one"
        )
    assert isinstance(place(asked, cluster(silent)), Placed)
    assert isinstance(place(spec(Strategy.TPU, tpu="my-tpu"), cluster(none)), Placed)
    placed = place(asked, cluster(none, has))
    assert [replica.node_name for replica in placed.replicas] == ["n2"]


def test_what_a_script_never_sees_is_refused_though_it_is_the_default():
    asked = spec(Strategy.ONE_DEVICE, kind=Kind.SCRIPT)
    assert refusals(asked, given=("name", "strategy", "kind", "workers")) == []
    assert [field for field, _ in refusals(asked, given=("epochs", "kind"))] == ["epochs"]
    assert refusals(spec(Strategy.ONE_DEVICE), given=("epochs",)) == []


def test_every_particular_field_is_read_by_some_strategy():
    assert set(FIELDS) > PARTICULAR
    assert set(STRATEGIES) == set(Strategy)
