"""The table of strategies says which there are, so that a new one needs no migration."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("orchestrator", "0016_dirty")]

    operations = [
        migrations.AlterField(model_name="job", name="strategy", field=models.CharField(max_length=32)),
    ]
