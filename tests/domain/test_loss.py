"""Which series is taken as the loss of a job."""

import pytest

from orchestrator.domain.loss import loss_name


@pytest.mark.parametrize(
    ("names", "loss"),
    [
        (["acc", "loss", "Train/loss"], "loss"),
        (["Train/accuracy", "Train/loss", "Test/loss"], "Train/loss"),
        (["epoch_accuracy", "epoch_loss", "validation/epoch_loss"], "epoch_loss"),
        (["batch_loss", "loss/train", "loss/val"], "loss/train"),
        (["training_loss", "total_loss"], "training_loss"),
        (["batch_loss", "train/epoch_loss"], "train/epoch_loss"),
        (["generator_loss", "discriminator_loss", "totalLoss"], "totalLoss"),
        (["loss_1"], "loss_1"),
        (["val_loss", "eval/loss", "glossary", "lossless", "acc"], ""),
        ([], ""),
    ],
)
def test_the_loss_of_a_job(names: list[str], loss: str) -> None:
    assert loss_name(names) == loss
    assert loss_name(reversed(names)) == loss
