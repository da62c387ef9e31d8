"""What a checkpoint asks of the job that begins with it."""

import msgspec
import pytest

from orchestrator.domain.job import resumption
from tests.domain.gang.gangs import spec
from worker_agent.protocol.job.job_spec import CodeRef
from worker_agent.protocol.states import Keras, Strategy

PARAMS = {"units": 8, "rate": 0.1}
WRITTEN = spec(Strategy.MIRRORED, devices_per_worker=2, params=PARAMS, epochs=2)


def of_recipe(name: str, sha256: str = "1" * 64) -> CodeRef:
    return CodeRef(sha256, "r.py", recipe=name)


def refused(theirs=WRITTEN, epoch=1, **changes):
    return dict(resumption.refusals(msgspec.structs.replace(theirs, **changes), theirs, epoch=epoch))


@pytest.mark.parametrize(
    ("changes", "field", "words"),
    [
        ({"epochs": 1}, "epochs", "already has epoch 1: set 2 epochs or more"),
        ({"keras": Keras.TF_KERAS}, "keras", "written in Keras 3, which keeps other variables: choose `keras3`"),
        ({"global_batch_size": 8}, "resume_from", "set it to 64"),
        ({"strategy": Strategy.PIPELINE}, "resume_from", "Pipeline cannot read: choose One device or Mirrored"),
    ],
)
def test_what_cannot_go_on_is_refused_at_its_field(changes, field, words):
    assert words in refused(**changes)[field]


def test_more_of_the_same_goes_on():
    assert refused() == {}
    assert refused(strategy=Strategy.TENSOR_PARALLEL, model_parallel=2, epochs=9) == {}


def test_what_tf_keras_wrote_no_tensor_parallel_reads():
    written = msgspec.structs.replace(WRITTEN, keras=Keras.TF_KERAS)
    assert "choose `tf_keras`" in refused(written, keras=None)["keras"]
    told = refused(written, keras=None, strategy=Strategy.TENSOR_PARALLEL)
    assert (
        "written under Mirrored in tf_keras (Keras 2), whose checkpoints Tensor parallel cannot read"
        in told["resume_from"]
    )
    assert "or Tensor parallel" not in told["resume_from"]
    assert "keras" not in told


def test_another_recipe_is_refused_and_a_version_of_it_is_not():
    written = msgspec.structs.replace(WRITTEN, code=of_recipe("digits_mlp"))
    told = refused(written, code=of_recipe("digits_cnn"))["resume_from"]
    assert told.startswith("it was written by the recipe digits_mlp")
    assert refused(written, code=of_recipe("digits_mlp", "2" * 64)) == {}
    assert refused(written, code=of_recipe("")) == {}


def test_other_hyper_parameters_are_warned_of():
    asked = msgspec.structs.replace(WRITTEN, params={"units": 16, "rate": 0.1, "new": 1})
    (warning,) = resumption.warnings(asked, WRITTEN)
    assert not warning.blocks
    assert warning.what == "the checkpoint was written with units 8"
    assert list(resumption.warnings(WRITTEN, WRITTEN)) == []
