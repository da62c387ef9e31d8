"""A cause of its own for a SIGTERM that Trainyard did not send; no column changes."""

from django.db import migrations, models

CAUSES = [
    *("completed", "stopped", "paused", "preempted", "exception", "exit_code", "signal", "out_of_memory"),
    *("loss_not_finite", "rendezvous_timeout", "port_taken", "launch_refused", "time_limit", "agent_shutdown"),
    *("node_lost", "lease_lost", "hung"),
]


class Migration(migrations.Migration):
    dependencies = [
        ("orchestrator", "0009_rehearsals"),
    ]

    operations = [
        migrations.AlterField(
            model_name="job",
            name="cause",
            field=models.CharField(blank=True, choices=[(cause, cause) for cause in CAUSES], max_length=24),
        ),
    ]
