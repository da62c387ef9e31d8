"""Checkpoints of one training, consistent over its gang.

Every process of a gang calls all of it, because reading a variable may be a collective. The leader writes into the
place for checkpoints, the others into a scratch folder which they drop. What a save needs to be taken up exactly: the
variables, the step, and the input's position, which follows from (seed, step) alone (see `data.training_input`).
"""

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic, perf_counter, sleep, time
from typing import NamedTuple, NoReturn

import tensorflow as tf

from worker_agent.protocol.checkpoint import Marker, name_of, order_of
from worker_agent.protocol.job.choices import Validator
from worker_agent.protocol.records import Checkpointed
from worker_agent.replica.checkpoint_folder import (
    complete_in,
    kept_in,
    parts_of,
    prune,
    remove,
    write_marker,
)
from worker_agent.trainer.emit import Emitter, say
from worker_agent.trainer.outcome import Paused, TrainingFailed
from worker_agent.trainer.recipe.run_size import Size
from worker_agent.trainer.saving.known_checkpoints import KnownCheckpoints
from worker_agent.trainer.saving.restored import check_fit, chosen
from worker_agent.trainer.saving.state import PREFIX, Variables
from worker_agent.trainer.setup import runtime
from worker_agent.trainer.training_run import TrainingRun

POLL_S = 0.5
# How long a training that is over waits to hear that its last checkpoint is known, so that others can be dropped.
KNOWN_WAIT_S, KNOWN_POLL_S = 2.0, 0.05

# A disk that is full or away costs a checkpoint, not the training; a lost peer is another matter.
_DISK_ERRORS = (
    OSError,
    tf.errors.PermissionDeniedError,
    tf.errors.NotFoundError,
    tf.errors.ResourceExhaustedError,
    tf.errors.FailedPreconditionError,
    tf.errors.DataLossError,
)


class Start(NamedTuple):
    """Where a training begins: so many steps, and so many whole epochs, are done."""

    step: int
    epoch: int


class Checkpoints:
    """The checkpoints of this process's training; it knows at once where that begins. `are_kept`: any are written."""

    def __init__(self, run: TrainingRun, emitter: Emitter) -> None:
        self._run = run
        self._emitter = emitter
        self._every = run.spec.checkpoint_steps
        self.are_kept = run.spec.checkpoints_kept > 0 and run.checkpoints is not None
        self._folder, self._marker = chosen(run)
        self._known = KnownCheckpoints(self._marker.name if self._marker else "")
        self._last_step = self.start.step if self._marker else -1
        self._refusal = ""
        self._state: Variables
        self._size: Size
        self._rate: float | None = None

    @property
    def start(self) -> Start:
        """Where this training begins, known before anything is built."""
        return Start(self._marker.step, self._marker.epoch) if self._marker else Start(0, 0)

    @property
    def metrics(self) -> dict[str, float]:
        """The metrics that the restored checkpoint was written with."""
        return dict(self._marker.metrics) if self._marker else {}

    def take_up(self, state: Variables, *, size: Size, rate: float | None) -> None:
        """Restore the checkpoint that this run begins with, if any; raises `TrainingFailed` where it does not fit.

        `state`, all variables there are, is saved from now on. `rate` is the learning rate aimed at.
        """
        self._state, self._size, self._rate = state, size, rate
        marker = self._marker
        if marker is None:
            return
        check_fit(marker, size, state.variables, self._run.spec.params)
        if marker.job_id != self._run.job_id and marker.step >= size.total_steps:
            raise TrainingFailed(
                f"Nothing is left to train: the checkpoint at step {marker.step} already has epoch {marker.epoch}. "
                f"Set {marker.epoch + 1} epochs or more."
            )
        state.read(str(self._folder / PREFIX))
        self._emitter.facts(resumed={"checkpoint": marker.name, "step": marker.step, "job": marker.job_id})
        if self._run.leads:
            whose = f" of j-{marker.job_id}" if marker.job_id else ""
            say(f"goes on from the checkpoint at step {marker.step} (epoch {marker.epoch}){whose}")

    @property
    def has_other_rate(self) -> bool:
        """True when this run aims at another learning rate than the one that wrote the checkpoint: then ours holds."""
        if self._marker is None:
            return False
        theirs, ours = self._marker.rate, self._rate
        if theirs is None or ours is None:
            return theirs is not ours
        return not math.isclose(theirs, ours, rel_tol=1e-6)

    def steps_left(self, done: int, most: int) -> int:
        """How many of `most` steps may be taken before one has to ask `is_due` again."""
        return min(most, self._every - done % self._every) if self.are_kept and self._every else most

    def is_due(self, step: int, *, epoch_over: bool, last: bool = False) -> bool:
        """Whether to save after this step. The last step is always worth one."""
        if not self.are_kept or step == self._last_step:
            return False
        return last or (step % self._every == 0 if self._every else epoch_over)

    def save(self, *, step: int, epoch: int, metrics: Mapping[str, float]) -> None:
        """Write one. A disk that refuses is told in the log, and the training goes on with those there are."""
        self._last_step, self._refusal = step, ""
        if not self._run.leads:
            self._take_part()
            return
        began = perf_counter()
        name = name_of(step=step, attempt=self._run.attempt)
        place = (self._run.checkpoints or Path()) / name
        try:
            _make_folder(place, shared=self._run.checkpoints_shared)
        except OSError as error:
            self._take_part()
            self._refused(place, error)
            return
        try:
            self._state.write(str(place / PREFIX))
            marker = self._marker_of(name, place, step=step, epoch=epoch, metrics=metrics)
            sha256 = write_marker(place, marker)
            kept = kept_in(place.parent, keep=self._run.spec.checkpoints_kept)
        except _DISK_ERRORS as error:
            remove(place)
            self._refused(place, error)
            return
        self._emitter.record(
            Checkpointed(
                at=time(),
                name=name,
                step=step,
                epoch=epoch,
                metrics=marker.metrics,
                size_bytes=marker.size_bytes,
                sha256=sha256,
                shared=self._run.checkpoints_shared,
                kept=sorted(kept),
                seconds=perf_counter() - began,
            )
        )
        self._known.announce(kept, position=self._emitter.position(), at=monotonic())
        self._prune()

    def pause(self, *, step: int, epoch: int, metrics: Mapping[str, float]) -> NoReturn:
        """Write the last one before the gang leaves, and raise `Paused`; `TrainingFailed` where it is not on disk."""
        if not self.are_kept:
            raise TrainingFailed("It was asked to save and leave, but it keeps no checkpoints.")
        if step != self._last_step:
            self.save(step=step, epoch=epoch, metrics=metrics)
        if self._refusal:
            raise TrainingFailed(f"It could not save before it was to leave: {self._refusal}")
        if self._run.leads:
            say(f"paused after step {step}")
        raise Paused

    def finish(self) -> None:
        """The training is over, however many steps it took: an evaluator waits for no more. After the last `save`."""
        if 0 < self._emitter.acknowledged < self._known.position:
            until = monotonic() + KNOWN_WAIT_S
            while self._emitter.acknowledged < self._known.position and monotonic() < until:
                sleep(KNOWN_POLL_S)
            self._prune()
        if self._run.leads and self._run.checkpoints is not None and self._run.spec.validation == Validator.EVALUATOR:
            with contextlib.suppress(OSError):
                (self._run.checkpoints / _over(self._run.attempt)).touch()

    def _marker_of(self, name: str, place: Path, *, step: int, epoch: int, metrics: Mapping[str, float]) -> Marker:
        return Marker(
            name=name,
            job_id=self._run.job_id,
            attempt=self._run.attempt,
            at=time(),
            step=step,
            epoch=epoch,
            total_steps=self._size.total_steps,
            steps_per_epoch=self._size.steps_per_epoch,
            global_batch_size=self._size.batch,
            seed=self._run.spec.seed,
            rate=self._rate,
            params=self._run.spec.params,
            metrics={key: float(value) for key, value in metrics.items() if math.isfinite(value)},
            files=parts_of(place),
            variables=self._state.variables,
            versions={"tensorflow": tf.__version__, "keras": runtime.keras_in_words()},
        )

    def _prune(self) -> None:
        """Drop those that do not count any more, once no launch can be told to begin with them."""
        if self._run.checkpoints is not None:
            spare = self._known.names(acknowledged=self._emitter.acknowledged)
            prune(self._run.checkpoints, spare=spare, attempt=self._run.attempt)

    def _take_part(self) -> None:
        """Read what the leader reads at this moment; what is written meanwhile nobody needs."""
        with TemporaryDirectory(prefix="checkpoint-", ignore_cleanup_errors=True) as scratch:
            try:
                self._state.write(f"{scratch}/{PREFIX}")
            except _DISK_ERRORS as error:
                say(f"the scratch folder took no checkpoint: {error}")

    def _refused(self, place: Path, error: Exception) -> None:
        why = f"{place} could not be written: {getattr(error, 'strerror', None) or error}"
        self._refusal = f"{why}."
        say(f"No checkpoint: {why}")
        self._emitter.facts(checkpoint_failed=why[:500])


def written_by(attempt: int, folder: Path, *, sleep: Callable[[float], None]) -> Iterator[tuple[Path, Marker]]:
    """For an evaluator: each complete checkpoint that the attempt writes below `folder`, until its training is over.

    Waits for them; `sleep(s)` raises when nobody wants to wait any more. Read each with `state.load`, which
    says whether it was still there.
    """
    seen = (attempt, -1)
    while True:
        is_over = (folder / _over(attempt)).exists()
        found = next((each for each in complete_in(folder).values() if order_of(each.name) > seen), None)
        if found is not None:
            seen = order_of(found.name)
            yield folder / found.name, found
        elif is_over:
            return
        else:
            sleep(POLL_S)


def _over(attempt: int) -> str:
    """The name of the file that says that an attempt's training is over."""
    return f"over-a{attempt}"


def _make_folder(place: Path, *, shared: bool) -> None:
    """A shared place that is not there is not made: it is not mounted, and what is written would lie on this disk."""
    if shared:
        place.parent.mkdir(exist_ok=True)
    remove(place)
    place.mkdir(parents=not shared)
