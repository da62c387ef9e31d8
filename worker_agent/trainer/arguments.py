"""The laptop's command line: a recipe, its parameters, and as much of a job's description as one machine needs."""

import argparse
import os
from pathlib import Path

from worker_agent.protocol.job.job_spec import CodeRef, JobSpec
from worker_agent.protocol.states import DeviceKind, Keras, Role, Strategy
from worker_agent.trainer.outcome import TrainingFailed
from worker_agent.trainer.recipe import recipe_file
from worker_agent.trainer.recipe.params import effective_params, from_text
from worker_agent.trainer.training_run import CHIEF_COMPUTES, TrainingRun, computing_roles, members, task_of

CROSS_DEVICE = ["auto", "nccl", "hierarchical_copy", "reduction_to_one_device"]
COMMUNICATION = ["auto", "ring", "nccl"]


def parser() -> argparse.ArgumentParser:
    """`python -m worker_agent.trainer`."""
    parse = argparse.ArgumentParser(
        prog="python -m worker_agent.trainer", description="Train a recipe on this machine, without a control plane."
    )
    parse.add_argument("recipe", nargs="?", type=Path, help="a recipe file")
    parse.add_argument("--plan", type=Path, help="run one replica from an agent's plan file instead")
    parse.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a parameter of the recipe")
    parse.add_argument("--epochs", type=int, default=5)
    parse.add_argument("--batch", type=int, default=64, help="global batch size")
    parse.add_argument("--learning-rate", type=float, help="instead of the recipe's own")
    parse.add_argument("--lr-scaling", choices=["none", "linear", "sqrt"], default="none")
    parse.add_argument("--warmup-epochs", type=float, default=0.0)
    parse.add_argument("--seed", type=int, default=0)
    parse.add_argument("--accumulation", type=int, default=1, help="parts of a step that are computed one by one")
    parse.add_argument("--precision", choices=["float32", "mixed_float16", "mixed_bfloat16"], default="float32")
    parse.add_argument("--jit", action="store_true", help="compile with XLA")
    parse.add_argument("--steps-per-execution", type=int, default=0, help="0 leaves it to the loop")
    parse.add_argument("--keras", choices=[keras.value for keras in Keras], help="instead of what suits the strategy")
    parse.add_argument("--strategy", choices=[s.value for s in Strategy], default=Strategy.ONE_DEVICE.value)
    parse.add_argument("--devices", type=int, default=1, help="devices to train on (logical CPUs without --gpu)")
    parse.add_argument("--cross-device", choices=CROSS_DEVICE, default="auto", help="how mirrored reduces")
    parse.add_argument("--communication", choices=COMMUNICATION, default="auto", help="how workers reduce")
    parse.add_argument("--tpu", default="", help="name or address of a TPU")
    parse.add_argument("--gpu", action="store_true", help="use GPUs")
    parse.add_argument("--out", type=Path, help="folder for model.keras and metrics.json")
    parse.add_argument("--rendezvous-timeout", type=float, default=120.0, metavar="SECONDS")
    return parse


def run_of(given: argparse.Namespace) -> TrainingRun:
    """The run the arguments describe; TF_CONFIG of the environment makes this process one of a gang.

    Raises `TrainingFailed` for what the recipe does not know.
    """
    recipe: Path = given.recipe.resolve()
    recipe_file.check(recipe)
    for text in given.set:
        if "=" not in text:
            raise TrainingFailed(f"--set {text}: write it as NAME=VALUE.")
    declared = recipe_file.declared_params(recipe)
    params = from_text(declared, dict(text.split("=", 1) for text in given.set))
    effective_params(declared, params)
    strategy = Strategy(given.strategy)
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
        workers=max(1, sum(member.role in computing_roles(strategy) for member in gang)),
        chief=strategy in CHIEF_COMPUTES and any(member.role == Role.CHIEF for member in gang),
        ps=sum(member.role == Role.PS for member in gang),
        devices_per_worker=given.devices,
        global_batch_size=given.batch,
        epochs=given.epochs,
        learning_rate=given.learning_rate,
        lr_scaling=given.lr_scaling,
        warmup_epochs=given.warmup_epochs,
        seed=given.seed,
        accumulation=given.accumulation,
        precision=given.precision,
        jit=given.jit,
        steps_per_execution=given.steps_per_execution,
        keras=Keras(given.keras) if given.keras else None,
        cross_device=given.cross_device,
        communication=given.communication,
        tpu=given.tpu,
    )
    return TrainingRun(
        entry=recipe,
        code=recipe.parent,
        spec=spec,
        role=role,
        index=index,
        gang=gang,
        devices=given.devices,
        device_kind=DeviceKind.GPU if given.gpu else DeviceKind.CPU,
        artifacts=given.out,
        rendezvous_timeout_s=given.rendezvous_timeout,
    )
