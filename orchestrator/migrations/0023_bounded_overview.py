"""The overview reads what failed lately, and what is held on the nodes it shows, however long the history is."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("orchestrator", "0022_job_lists")]

    operations = [
        migrations.RemoveIndex("job", "job_by_end"),
        migrations.AddIndex("node", models.Index(fields=["cluster", "state"], name="node_by_state")),
        migrations.AddIndex("job", models.Index(fields=["status", "ended_at"], name="job_by_outcome")),
        migrations.AddIndex(
            "replica", models.Index(condition=models.Q(("held", True)), fields=["node"], name="replica_held_on_node")
        ),
    ]
