"""What the control plane knows of the nodes that a gang would run on, and what speaks against it.

Asked in the preview and before each launch. Pure; `services/trials/preflights.py` asks the nodes themselves.
"""

from collections.abc import Iterator, Sequence

from orchestrator.domain.placement.planning import NodeView
from worker_agent.protocol.findings import Finding
from worker_agent.protocol.job.gang_shape import keras_of
from worker_agent.protocol.job.job_spec import JobSpec
from worker_agent.protocol.states import Keras

_SAME = "Install the same one on all nodes and restart their agents, or cordon the odd ones"
_PACKAGES = {Keras.KERAS3: "keras>=3", Keras.TF_KERAS: "tf_keras"}


def findings(spec: JobSpec, nodes: Sequence[NodeView]) -> list[Finding]:
    """What is found of the nodes that a gang would be on. One whose agent has not told what it runs is passed over."""
    told = [node for node in nodes if node.software.agent]
    return [*_tensorflow(told), *_keras(keras_of(spec), told), *_agents(told)]


def _tensorflow(nodes: Sequence[NodeView]) -> Iterator[Finding]:
    without = [node.name for node in nodes if not node.software.tensorflow]
    if without:
        what = f"no TensorFlow on {', '.join(without)}"
        yield Finding(what, "its agent finds no such package", "Install it (make agent), and restart the agent")
    versions = _by_version([(node.software.tensorflow, node.name) for node in nodes])
    if len(versions) < 2:
        return
    what = f"TensorFlow differs between the nodes of the gang ({_listed(versions)})"
    if len({version.rpartition(".")[0] for version in versions}) > 1:
        yield Finding(what, "processes of different releases do not understand each other", _SAME)
    else:
        yield Finding(what, "only gangs of equal versions are tried out", _SAME, blocks=False)


def _keras(wanted: Keras, nodes: Sequence[NodeView]) -> Iterator[Finding]:
    found = [(_version_of(node, wanted), node.name) for node in nodes]
    without = [name for version, name in found if not version]
    if without:
        remedy = f"Install it there (pip install '{_PACKAGES[wanted]}'), and restart the agent"
        yield Finding(f"no {_PACKAGES[wanted]} on {', '.join(without)}", "the job's processes speak it", remedy)
    versions = _by_version(found)
    if len(versions) > 1:
        what = f"Keras differs between the nodes of the gang ({_listed(versions)})"
        yield Finding(what, "layers may be built differently, and their variables not match", _SAME, blocks=False)


def _version_of(node: NodeView, wanted: Keras) -> str:
    if wanted is Keras.TF_KERAS:
        return node.software.tf_keras
    return "" if node.software.keras.startswith("2.") else node.software.keras


def _agents(nodes: Sequence[NodeView]) -> Iterator[Finding]:
    versions = _by_version([(node.software.agent, node.name) for node in nodes])
    if len(versions) > 1:
        what = f"agents differ between the nodes of the gang ({_listed(versions)})"
        yield Finding(what, "an older one may not know what it is told", "Update and restart it", blocks=False)


def _by_version(found: list[tuple[str, str]]) -> dict[str, list[str]]:
    """The names of nodes by version; those without one are told of elsewhere."""
    versions: dict[str, list[str]] = {}
    for version, name in sorted(found):
        if version:
            versions.setdefault(version, []).append(name)
    return versions


def _listed(versions: dict[str, list[str]]) -> str:
    return "; ".join(f"{version} on {', '.join(names)}" for version, names in versions.items())
