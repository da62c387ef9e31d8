"""The laptop's command line: a recipe, its parameters, and as much of a job's description as one machine needs."""

import argparse
import os
from pathlib import Path

from worker_agent.protocol.job.job_spec import FIELDS, CodeRef, JobSpec
from worker_agent.protocol.job.strategies import STRATEGIES
from worker_agent.protocol.states import DeviceKind, Kind, Role, Strategy
from worker_agent.trainer.outcome import TrainingFailed
from worker_agent.trainer.recipe import recipe_file
from worker_agent.trainer.recipe.params import effective_params, from_text
from worker_agent.trainer.training_run import TrainingRun, members, task_of

# What a recipe reads of a job on one machine; the shape of a gang comes from TF_CONFIG.
_FIELDS = [
    row
    for row in FIELDS.values()
    if row.name in ("devices_per_worker", "keras", "tpu") or (row.only is Kind.RECIPE and row.folded != "Checkpoints")
]
_SHORT = {"devices_per_worker": "--devices", "global_batch_size": "--batch"}


def parser() -> argparse.ArgumentParser:
    """`python -m worker_agent.trainer`."""
    parse = argparse.ArgumentParser(
        prog="python -m worker_agent.trainer", description="Train a recipe on this machine, without a control plane."
    )
    parse.add_argument("recipe", nargs="?", type=Path, help="a recipe file")
    parse.add_argument("--plan", type=Path, help="run one replica from an agent's plan file instead")
    parse.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a parameter of the recipe")
    parse.add_argument("--strategy", type=Strategy, choices=list(Strategy), default=Strategy.ONE_DEVICE)
    for row in _FIELDS:
        flags = [name for name in (_SHORT.get(row.name), f"--{row.name.replace('_', '-')}") if name]
        how = {"action": "store_true"} if row.type is bool else {"type": row.type, "choices": list(row.options) or None}
        parse.add_argument(*flags, dest=row.name, default=row.default, help=f"{row.label}. {row.help}", **how)
    parse.add_argument("--gpu", action="store_true", help="use GPUs")
    parse.add_argument("--out", type=Path, help="folder for model.keras and metrics.json")
    parse.add_argument("--rendezvous-timeout", type=float, default=120.0, metavar="SECONDS")
    return parse


def run_of(given: argparse.Namespace) -> TrainingRun:
    """The run the arguments describe; TF_CONFIG of the environment makes this process one of a gang.

    Raises `TrainingFailed` for what the recipe does not know.
    """
    recipe: Path = given.recipe.resolve()
    declared = recipe_file.declared(recipe).params
    for text in given.set:
        if "=" not in text:
            raise TrainingFailed(f"--set {text}", remedy="write it as NAME=VALUE")
    params = from_text(declared, dict(text.split("=", 1) for text in given.set))
    effective_params(declared, params)
    strategy: Strategy = given.strategy
    row = STRATEGIES[strategy]
    tf_config, role, index = task_of(os.environ.get("TF_CONFIG", "{}"))
    gang = members(tf_config)
    if strategy in (Strategy.MULTI_WORKER_MIRRORED, Strategy.PARAMETER_SERVER) and not gang:
        raise TrainingFailed(f"{strategy} needs a TF_CONFIG in the environment of each process.")
    spec = JobSpec(
        name=recipe.stem,
        cluster="",
        code=CodeRef(sha256="", entry=recipe.name),
        strategy=strategy,
        params=params,
        workers=max(1, sum(member.role in row.computing for member in gang)),
        chief=Role.CHIEF in row.computing and any(member.role == Role.CHIEF for member in gang),
        ps=sum(member.role == Role.PS for member in gang),
        **{field.name: getattr(given, field.name) for field in _FIELDS},
    )
    return TrainingRun(
        entry=recipe,
        code=recipe.parent,
        spec=spec,
        role=role,
        index=index,
        gang=gang,
        devices=spec.devices_per_worker,
        device_kind=DeviceKind.GPU if given.gpu else DeviceKind.CPU,
        artifacts=given.out,
        rendezvous_timeout_s=given.rendezvous_timeout,
    )
