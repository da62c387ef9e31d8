"""The checkpoint that a training begins with: which one it is, and whether it fits what is built."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from worker_agent.protocol.checkpoint import MARKER, Marker, Variable, order_of
from worker_agent.protocol.job.job_spec import ParamValue
from worker_agent.replica.checkpoint_folder import complete_in, digest_of, is_whole
from worker_agent.trainer.outcome import TrainingFailed
from worker_agent.trainer.recipe.run_size import Size
from worker_agent.trainer.training_run import TrainingRun


def chosen(run: TrainingRun) -> tuple[Path, Marker | None]:
    """The one that was named or, where that is torn, the newest whole one before it; none where none was named."""
    if run.restore is None:
        return Path(), None
    named, folder = run.restore.name, run.restore.parent
    for name, marker in reversed(complete_in(folder).items()):
        place = folder / name
        if order_of(name) > order_of(named):
            continue
        if name == named and run.restore_sha256 and digest_of(place / MARKER) != run.restore_sha256:
            continue
        if is_whole(place, marker):
            return place, marker
    raise TrainingFailed(f"The checkpoint {named} is not complete in {folder}, nor is any before it.")


def check_fit(marker: Marker, size: Size, variables: Sequence[Variable], params: Mapping[str, ParamValue]) -> None:
    """Raise `TrainingFailed` where the checkpoint is of another program, or of other data."""
    held = f"The checkpoint at step {marker.step}"
    if marker.global_batch_size != size.batch:
        raise TrainingFailed(
            f"{held} was written with a global batch of {marker.global_batch_size}, not {size.batch}: "
            "steps would differ. Set the global batch of the checkpoint."
        )
    if marker.steps_per_epoch != size.steps_per_epoch:
        raise TrainingFailed(
            f"{held} has {marker.steps_per_epoch} steps per epoch, this data has {size.steps_per_epoch}: "
            "it is not the training set it was trained on."
        )
    theirs, ours = [(v.shape, v.dtype) for v in marker.variables], [(v.shape, v.dtype) for v in variables]
    if theirs == ours:
        return
    sizes = f"{len(theirs)} variables, the program has {len(ours)}"
    for there, here in zip(marker.variables, variables, strict=False):
        if (there.shape, there.dtype) != (here.shape, here.dtype):
            sizes = f"{_shown(there)} where the program has {_shown(here)}"
            break
    raise TrainingFailed(f"{held} does not fit this program: it holds {sizes}. {_remedy(marker, params)}")


def _remedy(marker: Marker, params: Mapping[str, ParamValue]) -> str:
    """What the job that wrote it was given otherwise, as far as the marker tells."""
    other = {name: value for name, value in marker.params.items() if name in params and params[name] != value}
    if not other:
        return f"Run the program of j-{marker.job_id}, which wrote it."
    listed = ", ".join(f"{name} {value!r:.40}" for name, value in other.items())
    return f"j-{marker.job_id}, which wrote it, had {listed}: set those that shape the model to these values."


def _shown(variable: Variable) -> str:
    return f"{variable.name} {tuple(variable.shape)} {variable.dtype}"
