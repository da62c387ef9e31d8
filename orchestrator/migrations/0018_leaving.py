"""A node can be leaving, and its field says where it returns to from there, too."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("orchestrator", "0017_any_strategy"),
    ]

    operations = [
        migrations.RenameField("node", "state_before_lost", "state_before_away"),
        migrations.AlterField(
            "node",
            "state",
            models.CharField(
                choices=[(state, state) for state in ("ready", "cordoned", "draining", "leaving", "lost")],
                default="ready",
                max_length=10,
            ),
        ),
    ]
