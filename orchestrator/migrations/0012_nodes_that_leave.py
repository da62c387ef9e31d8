"""So that placement finds the nodes that are about to go, however many replicas there are."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("orchestrator", "0011_step_times"),
    ]

    operations = [
        migrations.AddIndex(
            model_name="replica",
            index=models.Index(
                condition=models.Q(("cause__in", ["preempted", "agent_shutdown"])),
                fields=["ended_at"],
                name="replica_left_its_node",
            ),
        ),
    ]
