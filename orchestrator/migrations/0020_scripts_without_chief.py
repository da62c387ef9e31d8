"""A job may leave the chief out. Before, every job said that it did, and a script under parameter servers had one."""

from django.db import migrations


def leave_it_to_the_strategy(apps, schema_editor):
    """Scripts under parameter servers have a chief as before, also where they are run again."""
    Job = apps.get_model("orchestrator", "Job")
    for job in Job.objects.filter(strategy="parameter_server", spec__kind="script").iterator():
        Job.objects.filter(pk=job.pk).update(spec=job.spec | {"chief": None})


class Migration(migrations.Migration):
    dependencies = [("orchestrator", "0019_bounded_sweep")]

    operations = [migrations.RunPython(leave_it_to_the_strategy, migrations.RunPython.noop, elidable=True)]
