"""`manage.py prepare`: tables, administrator, API token, the cluster "local" and join tokens for its agents.

Run by `manage.py up` at every start; whatever exists is left as it is. Answers with one JSON object.
"""

import json
from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand

from orchestrator.embedded import folder, ports, processes
from orchestrator.embedded.startup import ADMINISTRATOR, CLUSTER
from orchestrator.models import ApiToken, Cluster, Node, User, digest_of
from orchestrator.services import accounts
from orchestrator.services.nodes import joining, nodes


class Command(BaseCommand):
    """First steps of an embedded installation."""

    help = "Make the tables, the administrator and the local cluster of an embedded installation."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Which agents there will be."""
        parser.add_argument("--agent", action="append", default=[], dest="agents", metavar="NAME", help="a local agent")

    def handle(self, *args: Any, agents: list[str], **options: Any) -> None:
        """Bring the database up to date and print what `up` needs to know."""
        call_command("migrate", interactive=False, verbosity=0)
        call_command("static_files")
        kept = folder.read_secrets(settings.DATA_DIR)
        person, _ = accounts.ensure_administrator(username=ADMINISTRATOR, password=kept.admin_password)
        ApiToken.objects.get_or_create(
            digest=digest_of(kept.api_token), defaults={"user": person, "name": "up (kept in secrets.json)"}
        )
        cluster = Cluster.objects.filter(name=CLUSTER).first() or _create_cluster(person)
        answer = {
            "password_is_ours": person.check_password(kept.admin_password),
            "tokens": {name: _join_token(name, cluster, person) for name in agents},
        }
        self.stdout.write(json.dumps(answer))


def _create_cluster(person: User) -> Cluster:
    first, last = ports.training_range()
    return nodes.create_cluster(
        name=CLUSTER, description="The agents on this machine.", port_first=first, port_last=last, by=person
    )


def _join_token(name: str, cluster: Cluster, person: User) -> str:
    """A token for an agent that has to join; empty when its node is known.

    What a removed node or a removed agent folder left on the other side is cleared away, so that it joins afresh.
    """
    data = processes.agent_folder(settings.DATA_DIR, name)
    known = processes.node_id(data)
    if known and Node.objects.filter(pk=known).exists():
        return ""
    (data / "agent.json").unlink(missing_ok=True)
    orphan = Node.objects.filter(cluster=cluster, name=name).first()
    if orphan is not None:
        nodes.remove(node_id=orphan.pk, by=person, reason="Its agent's folder is gone; it joins again.")
    return joining.create_join_token(cluster=cluster, by=person)
