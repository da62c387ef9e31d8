"""What ended long ago is not looked at again: a column and indexes tell it from what a sweep or a page asks for."""

from django.db import migrations, models
from django.db.models import OuterRef, Subquery


def mark_the_forgotten(apps, schema_editor):
    """Replicas whose folders an agent was told to remove."""
    Replica, Command = apps.get_model("orchestrator", "Replica"), apps.get_model("orchestrator", "Command")
    told = Command.objects.filter(kind="forget")
    first = told.filter(replica=OuterRef("pk")).order_by("pk").values("created_at")[:1]
    named = told.exclude(replica=None).values("replica")
    Replica.objects.filter(pk__in=named).update(forget_sent_at=Subquery(first))


class Migration(migrations.Migration):
    dependencies = [("orchestrator", "0018_leaving")]

    operations = [
        migrations.AddField("replica", "forget_sent_at", models.DateTimeField(blank=True, null=True)),
        migrations.RunPython(mark_the_forgotten, migrations.RunPython.noop, elidable=True),
        migrations.AddIndex(
            "replica",
            models.Index(
                condition=models.Q(("ended_at__isnull", False), ("forget_sent_at", None), ("node__isnull", False)),
                fields=["id"],
                name="replica_has_a_folder",
            ),
        ),
        migrations.RemoveIndex("command", "command_open"),
        migrations.AddIndex(
            "command", models.Index(condition=models.Q(("acked_at", None)), fields=["id"], name="command_open")
        ),
        migrations.AddIndex("job", models.Index(fields=["ended_at", "status"], name="job_by_end")),
        migrations.AddIndex(
            "attempt",
            models.Index(
                condition=models.Q(("failed_on__isnull", False)), fields=["ended_at"], name="attempt_failed_on_a_node"
            ),
        ),
        migrations.AddIndex(
            "seriesblock",
            models.Index(
                condition=models.Q(("node__isnull", False)), fields=["last_time"], name="block_of_load_by_age"
            ),
        ),
    ]
