"""When a replica's last step became known, so that the ledger of restarts counts the time lost from there."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("orchestrator", "0010_preempted"),
    ]

    operations = [
        migrations.AddField(
            model_name="replica",
            name="stepped_at",
            field=models.DateTimeField(blank=True, null=True),
        ),
    ]
