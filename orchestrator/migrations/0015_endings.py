"""What ended a process is data. Rows of before told it in their cause, status and message, and are read once, here."""

import signal

from django.db import migrations, models

from worker_agent.protocol.codec import plain
from worker_agent.protocol.ending import of_version_before
from worker_agent.protocol.states import Cause

PEER = {"exception", "rendezvous_timeout"}
OTHERS = {"agent_shutdown": "person", "preempted": "person", "lease_lost": "platform"}


def give_endings(apps, schema_editor):
    """Each process that has ended has an ending; its message is only what is said."""
    Replica = apps.get_model("orchestrator", "Replica")
    for replica in Replica.objects.exclude(cause="").iterator():
        ending, said = of_version_before(Cause(replica.cause), replica.exit_code, replica.signal, replica.reason)
        Replica.objects.filter(pk=replica.pk).update(ending=plain(ending), reason=said)


def name_who_is_to_blame(apps, schema_editor):
    """The machines were blamed for what they did, and for all else that was not the program's doing."""
    Attempt, Replica = apps.get_model("orchestrator", "Attempt"), apps.get_model("orchestrator", "Replica")
    blamed = Attempt.objects.filter(blame="machines")
    for attempt in blamed.filter(cause="signal"):
        gang = Replica.objects.filter(job_id=attempt.job_id, attempt=attempt.number, superseded=False, cause="signal")
        if not gang.exclude(signal=signal.SIGABRT).exists():
            Attempt.objects.filter(pk=attempt.pk).update(blame="peer")
    blamed.filter(cause__in=PEER).update(blame="peer")
    for cause, blame in OTHERS.items():
        blamed.filter(cause=cause).update(blame=blame)
    blamed.update(blame="machine")


class Migration(migrations.Migration):
    dependencies = [
        ("orchestrator", "0014_probed_nodes"),
    ]

    operations = [
        migrations.AddField("replica", "ending", models.JSONField(blank=True, null=True)),
        migrations.RunPython(give_endings, elidable=True),
        migrations.RunPython(name_who_is_to_blame, elidable=True),
    ]
