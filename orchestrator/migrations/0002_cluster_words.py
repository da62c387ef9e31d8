from django.db import migrations, models


class Migration(migrations.Migration):
    """What a cluster's fields say of themselves; no column changes."""

    dependencies = [("orchestrator", "0001_initial")]

    operations = [
        migrations.AlterField(
            model_name="cluster",
            name="address_range",
            field=models.CharField(
                blank=True,
                help_text="IPv4 range that the nodes' addresses must lie in, such as 10.0.4.0/24. Empty: any.",
                max_length=64,
            ),
        ),
        migrations.AlterField(
            model_name="cluster",
            name="checkpoint_place",
            field=models.CharField(
                blank=True,
                help_text="Absolute path of a folder that all nodes share. Empty: Trainyard's own store.",
                max_length=400,
            ),
        ),
        migrations.AlterField(
            model_name="cluster",
            name="interface",
            field=models.CharField(
                blank=True,
                help_text="Network interface whose address a node takes, such as eth1. Empty: the default route's.",
                max_length=32,
            ),
        ),
    ]
