"""What a script's text lets one expect under the strategy chosen for it: warnings for the form, REST and the record.

A text names what it may never use, and a program may know better: so hardly anything is refused.
"""

from collections.abc import Collection, Iterator

from worker_agent.protocol.findings import Finding
from worker_agent.protocol.job.gang_shape import computing_roles, deviceless_roles, keras_of
from worker_agent.protocol.job.job_spec import JobSpec
from worker_agent.protocol.job.script.script_text import ScriptInfo, runs_script
from worker_agent.protocol.job.strategies import STRATEGIES
from worker_agent.protocol.states import Keras, Strategy


def findings_of(script: ScriptInfo, spec: JobSpec, *, given: Collection[str] = ()) -> list[Finding]:
    """Warnings, the weightiest first. `given` are the fields that the request names."""
    return [*_strategy(script, spec), *_keras(script, spec), *_devices(script, spec, given)]


def refusals(script: ScriptInfo, spec: JobSpec) -> list[tuple[str, str]]:
    """What cannot work, as (field, sentence): DTensor in several processes, of which the program makes no one mesh."""
    alone = script.dtensor and not script.dtensor_meets
    if not alone or spec.strategy is not Strategy.TENSOR_PARALLEL or spec.workers == 1:
        return []
    what = "the program names neither `initialize_accelerator_system` nor `create_distributed_mesh`"
    why = f"each of the {spec.workers} workers would build a mesh of its own devices only"
    return [("workers", f"{what}: {why}. Use 1 worker")]


def _strategy(script: ScriptInfo, spec: JobSpec) -> Iterator[Finding]:
    row = STRATEGIES[spec.strategy]
    if script.one_process and row.is_gang:
        what = "the program starts servers and does not read TF_CONFIG"
        why = "each process would make a cluster of its own, or all of them would take the same place in one"
        yield Finding(what, why, "Read TF_CONFIG in it, or choose `one_device`", blocks=False)
    served = script.serves and (row.coordinated or script.one_process)
    if script.dtensor or spec.strategy in script.strategies or (served and not row.is_gang):
        return
    if served and not script.strategies:
        return
    labels = " and ".join(STRATEGIES[strategy].label for strategy in script.strategies)
    roles = [role for role, _index in (*computing_roles(spec), *deviceless_roles(spec))]
    runs = sum(runs_script(role, spec, script) for role in roles)
    alone = not any(STRATEGIES[strategy].is_gang for strategy in script.strategies)
    what = f"the program builds {labels}" if script.strategies else "the program names no strategy"
    first = script.strategies[0] if script.strategies else Strategy.ONE_DEVICE
    if row.is_gang and alone and len(roles) > 1:
        remedy = f"Choose `{first}`, or use {row.label} in the program"
        why = (
            f"each of the {runs} processes that run it would train a separate model"
            if runs > 1
            else "only the chief runs it, and would train alone while workers and parameter servers are idle"
        )
    elif not row.is_gang and script.strategies and not alone:
        wanted = next(strategy for strategy in script.strategies if STRATEGIES[strategy].is_gang)
        why, remedy = f"under {row.label} it is one process without TF_CONFIG, so it trains alone", f"Choose `{wanted}`"
    elif script.strategies:
        why, remedy = f"it gets the processes of {row.label}", f"Choose `{first}`, or check that this is intended"
    else:
        return
    yield Finding(what, why, remedy, blocks=False)


def _keras(script: ScriptInfo, spec: JobSpec) -> Iterator[Finding]:
    if keras_of(spec) is not Keras.KERAS3:
        return
    row = STRATEGIES[spec.strategy]
    if Keras.KERAS3 not in row.keras:
        what, why = f"Keras 3 under {row.label}", "its fit fails there, and a training loop of your own loses updates"
    elif script.old_keras:
        what = "the program uses what Keras 3 no longer has"
        why = "it was written for Keras 2 and would fail at the first such name"
    else:
        return
    remedy = "Set the field `keras` to `tf_keras`"
    if script.keras is Keras.KERAS3:  # whatever the field says
        remedy = "Write `import tf_keras as keras` in the program"
    yield Finding(what, why, remedy, blocks=False)


def _devices(script: ScriptInfo, spec: JobSpec, given: Collection[str]) -> Iterator[Finding]:
    """A strategy of one process takes all devices that it sees."""
    row = STRATEGIES[spec.strategy]
    if "devices_per_worker" in given or "devices_per_worker" not in row.defaults or row.is_gang:
        return
    if spec.strategy in script.strategies:
        what = f"the number of devices was not given, so the job gets {spec.devices_per_worker}"
        why = f"{row.class_name} makes a replica on each device that it sees, unless the program names them"
        yield Finding(what, why, "Set the field `devices_per_worker`", blocks=False)
