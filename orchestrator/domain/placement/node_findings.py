"""What the control plane knows of the nodes that a gang would run on, and what speaks against it.

Asked in the preview and before each launch. Pure; `services/trials/preflights.py` asks the nodes themselves.
"""

from collections.abc import Iterator, Mapping, Sequence

from orchestrator.domain.placement.planning import NodeView
from worker_agent.protocol.commands import NEWER_FIELDS, fields_set
from worker_agent.protocol.findings import Finding
from worker_agent.protocol.job.gang_shape import keras_of
from worker_agent.protocol.job.job_spec import FIELDS, JobSpec
from worker_agent.protocol.states import Keras

_SAME = "Install the same one on all nodes and restart their agents, or cordon the nodes that differ"


def findings(spec: JobSpec, nodes: Sequence[NodeView]) -> Iterator[Finding]:
    """What is found of the nodes that a gang would be on. One whose agent has not told what it runs is passed over."""
    software = {node.name: node.software for node in nodes if node.software.agent}
    tensorflow = {name: each.tensorflow for name, each in software.items()}
    yield from _missing("TensorFlow", tensorflow, "its agent finds no such package", "Install it (make agent)")
    releases = {version.rpartition(".")[0] for version in tensorflow.values() if version}
    why = "only equal versions are tested together"
    if len(releases) > 1:
        why = "processes of different releases do not understand each other"
    yield from _differing("TensorFlow differs", tensorflow, why, _SAME, blocks=len(releases) > 1)
    if keras_of(spec) is Keras.TF_KERAS:
        package, keras = "tf_keras", {name: each.tf_keras for name, each in software.items()}
    else:
        package = "keras>=3"
        keras = {name: "" if each.keras.startswith("2.") else each.keras for name, each in software.items()}
    yield from _missing(package, keras, "the job's processes need it", f"Install it there (pip install '{package}')")
    why = "layers may be built differently, and their variables may not match"
    yield from _differing("Keras differs", keras, why, _SAME)
    asked = fields_set(spec)
    yield from _older({name: asked - _known(each.job_fields) for name, each in software.items()})
    agents = {name: each.agent for name, each in software.items()}
    why = "an older agent may not understand its commands"
    yield from _differing("agents differ", agents, why, "Update and restart the older ones")


def _known(job_fields: str) -> set[str]:
    return set(job_fields.split()) or set(JobSpec.__struct_fields__) - NEWER_FIELDS


def _older(unknown: Mapping[str, set[str]]) -> Iterator[Finding]:
    """`unknown` are the fields that the job sets and a node's agent does not know, by the node's name."""
    if names := [name for name in sorted(unknown) if unknown[name]]:
        labels = sorted({FIELDS[field].label for name in names for field in unknown[name] & FIELDS.keys()})
        yield Finding(
            f"an older Trainyard runs on {', '.join(names)}",
            f"its agent does not know what the job sets: {', '.join(labels)}",
            "Update and restart the agent there, leave that as it is by default, or cordon the node",
        )


def _missing(package: str, versions: Mapping[str, str], why: str, remedy: str) -> Iterator[Finding]:
    """`versions` by the node's name; "" where there is none."""
    if without := [name for name, version in versions.items() if not version]:
        yield Finding(f"no {package} on {', '.join(without)}", why, f"{remedy}, and restart the agent")


def _differing(
    what: str, versions: Mapping[str, str], why: str, remedy: str, *, blocks: bool = False
) -> Iterator[Finding]:
    names = {version: [name for name in sorted(versions) if versions[name] == version] for version in versions.values()}
    if len(names.keys() - {""}) > 1:
        listed = "; ".join(f"{version} on {', '.join(names[version])}" for version in sorted(names) if version)
        yield Finding(f"{what} between the nodes of the gang ({listed})", why, remedy, blocks=blocks)
