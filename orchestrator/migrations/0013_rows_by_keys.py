"""What was found by names, times and the text of commands gets keys and columns, old rows too."""

from collections import Counter
from datetime import timedelta

import django.db.models.deletion
import msgspec
from django.db import migrations, models
from django.db.models import Q

ENDED = ("exited", "lost")
STUCK_AFTER = timedelta(seconds=120)


def give_keys(apps, schema_editor):
    """The ledger's entries name processes ("worker 1"): the one that failed ended at the entry's time; each entry of an
    attempt that names a process led to its next incarnation."""
    Replica, Replacement = apps.get_model("orchestrator", "Replica"), apps.get_model("orchestrator", "Replacement")
    named = Counter()
    for entry in Replacement.objects.order_by("at", "pk"):
        gang = Replica.objects.filter(job_id=entry.job_id, attempt=entry.attempt)
        failed = _called(gang, entry.failed_name)
        failed = failed.filter(ended_at=entry.at).first() or failed.order_by("-superseded", "-incarnation").first()
        if failed is None:
            entry.delete()
            continue
        Replacement.objects.filter(pk=entry.pk).update(failed=failed)
        for name in entry.replicas:
            key = (entry.job_id, entry.attempt, name)
            _called(gang, name).filter(incarnation=named[key]).update(replacement=entry)
            named[key] += 1


def give_facts(apps, schema_editor):
    """What their commands said, of processes that may still run."""
    Replica, Command = apps.get_model("orchestrator", "Replica"), apps.get_model("orchestrator", "Command")
    for replica in Replica.objects.filter(Q(held=True) | ~Q(status__in=ENDED)):
        commands = Command.objects.filter(replica=replica).order_by("pk")
        if launch := commands.filter(kind="launch").last():
            replica.lease_s = _said(launch).get("lease_s", 0.0)
        if stop := commands.filter(kind="stop").first():
            said = _said(stop)
            saving_s = said.get("grace_s", 0.0) if said.get("save") else 0.0
            replica.give_up_at = stop.created_at + STUCK_AFTER + timedelta(seconds=saving_s)
        replica.save(update_fields=["lease_s", "give_up_at"])
    # Else PostgreSQL alters no table any more in this transaction.
    schema_editor.connection.check_constraints()


def _called(gang, name):
    role, _, index = name.partition(" ")
    return gang.filter(role=role, index=int(index))


def _said(command):
    return msgspec.msgpack.decode(bytes(command.body))


class Migration(migrations.Migration):
    dependencies = [
        ("orchestrator", "0012_nodes_that_leave"),
    ]

    operations = [
        migrations.AddField("replica", "lease_s", models.FloatField(default=0.0)),
        migrations.AddField("replica", "give_up_at", models.DateTimeField(blank=True, null=True)),
        migrations.AddField(
            "replica",
            "replacement",
            models.ForeignKey(
                blank=True,
                null=True,
                on_delete=django.db.models.deletion.SET_NULL,
                related_name="replaced",
                to="orchestrator.replacement",
            ),
        ),
        migrations.AddField(
            "event",
            "replica",
            models.ForeignKey(
                blank=True,
                null=True,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="events",
                to="orchestrator.replica",
            ),
        ),
        migrations.RenameField("replacement", "failed", "failed_name"),
        migrations.AddField(
            "replacement",
            "failed",
            models.ForeignKey(
                null=True, on_delete=django.db.models.deletion.CASCADE, related_name="+", to="orchestrator.replica"
            ),
        ),
        migrations.RunPython(give_keys, elidable=True),
        migrations.RunPython(give_facts, elidable=True),
        migrations.AlterField(
            "replacement",
            "failed",
            models.ForeignKey(
                on_delete=django.db.models.deletion.CASCADE, related_name="+", to="orchestrator.replica"
            ),
        ),
        migrations.AlterModelOptions("replacement", options={"ordering": ["failed__ended_at", "id"]}),
        *(
            migrations.RemoveField("replacement", name)
            for name in ("attempt", "replicas", "failed_name", "cause", "node", "node_name", "at")
        ),
    ]
