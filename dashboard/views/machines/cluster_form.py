"""The form of a cluster's settings: what was typed, and what it asks for. `machines.py` and `cluster_settings.py`
read and show it.
"""

from collections.abc import Mapping

from dashboard.forms import environment_of, sentence_of
from orchestrator.queries.rows import Cluster
from orchestrator.services.errors import FieldError

PORTS = {"port_first": "20000", "port_last": "20999"}
TEXTS = ("name", "description", "address_range", "interface", "checkpoint_place", "environment")


class ClusterForm:
    """`values` as typed, `errors` by field."""

    def __init__(self, sent: Mapping[str, str] | None = None) -> None:
        first = dict.fromkeys(TEXTS, "") | PORTS
        self.values = first if sent is None else {name: sent.get(name, "") for name in first}
        self.errors: dict[str, str] = {}

    @classmethod
    def of(cls, cluster: Cluster) -> "ClusterForm":
        """The form with what a cluster has now."""
        values = {name: str(getattr(cluster, name)) for name in (*TEXTS, *PORTS)}
        return cls(values | {"environment": "\n".join(f"{name}={value}" for name, value in cluster.variables.items())})

    def value(self, name: str) -> str:
        """What stands in the field of that name."""
        return self.values.get(name, "")

    def request(self) -> dict[str, object]:
        """What the form asks `services.nodes.create_cluster` for."""
        environment, wrong = environment_of(self.values["environment"])
        if wrong:
            self.errors["environment"] = wrong
        typed = {name: self.values[name] for name in PORTS}
        ports = {name: int(port) for name, port in typed.items() if port.isdecimal() and len(port) < 9}
        return {**self.values, **ports, "environment": environment}

    def refuse(self, errors: list[FieldError]) -> None:
        """Put each error of a service at its field; what belongs to none stands under ""."""
        for error in errors:
            self.errors.setdefault(error.field if error.field in self.values else "", sentence_of(error.message))
