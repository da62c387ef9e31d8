"""What a preflight asked of each node, and its answer: a row for each of them, where a JSON column held all."""

from datetime import timedelta

import django.db.models.deletion
from django.db import migrations, models
from django.db.models import F
from django.utils import timezone

VERDICTS = ["built", "refused", "untried"]
ANSWERS = ("findings", "taken", "unreached", "facts")


def carry_over(apps, _):
    preflight, probed_node = apps.get_model("orchestrator", "Preflight"), apps.get_model("orchestrator", "ProbedNode")
    nodes = set(apps.get_model("orchestrator", "Node").objects.values_list("pk", flat=True))
    commands = set(apps.get_model("orchestrator", "Command").objects.values_list("pk", flat=True))
    for rehearsed, answer_s, build_s in ((False, 40, 180), (True, 10, 90)):
        preflight.objects.filter(job__isnull=not rehearsed).update(
            answer_by=F("created_at") + timedelta(seconds=answer_s),
            build_by=F("created_at") + timedelta(seconds=build_s),
        )
    for row in preflight.objects.iterator():
        for node_id, asked in row.nodes.items():
            report = asked.get("report")
            probed_node.objects.create(
                preflight=row,
                node_id=node_id if node_id in nodes else None,
                name=asked["name"],
                command_id=asked["command"] if asked["command"] in commands else None,
                builds=asked["builds"],
                answered_at=(row.ended_at or row.created_at) if report else None,
                verdict=row.verdict if report and asked["builds"] and row.verdict in VERDICTS else "",
                **({name: report[name] for name in ANSWERS} if report else {}),
            )


class Migration(migrations.Migration):
    dependencies = [
        ("orchestrator", "0013_rows_by_keys"),
    ]

    operations = [
        migrations.RenameField(model_name="preflight", old_name="ports_until", new_name="answer_by"),
        migrations.AddField(
            model_name="preflight",
            name="build_by",
            field=models.DateTimeField(default=timezone.now),
            preserve_default=False,
        ),
        migrations.CreateModel(
            name="ProbedNode",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=100)),
                ("builds", models.BooleanField()),
                ("answered_at", models.DateTimeField(blank=True, null=True)),
                ("verdict", models.CharField(blank=True, choices=[(word, word) for word in VERDICTS], max_length=8)),
                ("findings", models.JSONField(default=list)),
                ("taken", models.JSONField(default=list)),
                ("unreached", models.JSONField(default=dict)),
                ("facts", models.JSONField(default=dict)),
                (
                    "command",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to="orchestrator.command",
                    ),
                ),
                (
                    "node",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="probes",
                        to="orchestrator.node",
                    ),
                ),
                (
                    "preflight",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="asked", to="orchestrator.preflight"
                    ),
                ),
            ],
        ),
        migrations.AddConstraint(
            model_name="probednode",
            constraint=models.UniqueConstraint(fields=("preflight", "node"), name="probed_node_unique"),
        ),
        migrations.RunPython(carry_over, migrations.RunPython.noop),
        migrations.RemoveField(model_name="preflight", name="nodes"),
        migrations.RemoveField(model_name="preflight", name="verdict"),
    ]
