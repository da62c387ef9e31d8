"""What a checkpoint asks of a job that begins with it: what is refused, at which field, and what is only a warning.

`services/checkpoints/checkpoint_registry.py` finds the checkpoint and calls these with the description of the job that
wrote it. Whether the program has the same variables is seen on the node, where it runs.
"""

from collections.abc import Iterator

from orchestrator.domain.words import counted
from worker_agent.protocol.findings import Finding
from worker_agent.protocol.job.gang_shape import keras_of
from worker_agent.protocol.job.job_spec import JobSpec
from worker_agent.protocol.job.strategies import STRATEGIES, label
from worker_agent.protocol.states import Strategy


def refusals(asked: JobSpec, theirs: JobSpec, *, epoch: int) -> Iterator[tuple[str, str]]:
    """Why a job cannot begin with a checkpoint of `epoch` whole epochs, as (field, sentence)."""
    if theirs.global_batch_size != asked.global_batch_size:
        batch = theirs.global_batch_size
        sentence = f"it was written with a global batch of {batch}, which must stay the same: set it to {batch}"
        yield "resume_from", sentence
    if _other_recipe(asked, theirs):
        yield (
            "resume_from",
            f"it was written by the recipe {theirs.code.recipe}, and {asked.code.recipe} has other variables: choose "
            f"{theirs.code.recipe}, or start without it",
        )
    keras, readers = keras_of(theirs), _readers(theirs)
    if asked.strategy not in readers:
        written, takers = label(theirs.strategy), [label(each) for each in readers]
        both_share = STRATEGIES[asked.strategy].shares_checkpoints and STRATEGIES[theirs.strategy].shares_checkpoints
        of = f" in {keras.label}" if both_share else ""
        yield (
            "resume_from",
            f"it was written under {written}{of}, whose checkpoints {label(asked.strategy)} cannot read: choose "
            f"{' or '.join(takers)}, with any number of processes and devices",
        )
    elif keras_of(asked) is not keras:
        yield "keras", f"the checkpoint was written in {keras.label}, which keeps other variables: choose `{keras}`"
    if epoch >= asked.epochs:
        yield "epochs", f"the checkpoint already has epoch {epoch}: set {counted(epoch + 1, 'epoch')} or more"


def warnings(asked: JobSpec, theirs: JobSpec) -> Iterator[Finding]:
    """Hyper-parameters that both programs have, with other values: some shape the model, and no text says which."""
    theirs_by_name = {
        name: value for name, value in theirs.params.items() if name in asked.params and asked.params[name] != value
    }
    if theirs_by_name and not _other_recipe(asked, theirs):
        listed = ", ".join(f"{name} {value!r:.40}" for name, value in theirs_by_name.items())
        yield Finding(
            f"the checkpoint was written with {listed}",
            "the checkpoint does not fit if they shape the model",
            "Set those that shape the model to these values; others may differ",
            blocks=False,
        )


def _other_recipe(asked: JobSpec, theirs: JobSpec) -> bool:
    """Two recipes of the catalogue by name; uploaded and edited code has none, and may be a version of either."""
    named = {asked.code.recipe, theirs.code.recipe}
    return len(named) == 2 and "" not in named


def _readers(written: JobSpec) -> list[Strategy]:
    """The strategies that can read its checkpoints: of those that store the whole model all that know its Keras."""
    if not STRATEGIES[written.strategy].shares_checkpoints:
        return [written.strategy]
    keras = keras_of(written)
    return [each for each, row in STRATEGIES.items() if row.shares_checkpoints and keras in row.keras]
