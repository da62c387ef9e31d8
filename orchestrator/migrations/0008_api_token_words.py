"""What the administration calls a token; no column changes."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [
        ("orchestrator", "0007_faults"),
    ]

    operations = [
        migrations.AlterModelOptions(name="apitoken", options={"verbose_name": "API token"}),
    ]
