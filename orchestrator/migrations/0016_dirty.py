"""What a node's dirty devices and ports are is told by columns of their own, not by keys such as `port:20001`."""

from django.db import migrations, models


def give_columns(apps, schema_editor):
    """A key was a device's index, or a port behind `port:`."""
    for node in apps.get_model("orchestrator", "Node").objects.exclude(dirty={}):
        kinds = {str(device["index"]): device["kind"] for device in node.inventory.get("devices", [])}
        devices = [
            {"name": f"{'GPU' if kinds.get(key) == 'gpu' else 'CPU slot'} {key}", "device": int(key), "port": None} | found
            for key, found in node.dirty.items()
            if key.isdecimal()
        ]
        ports = [int(key.rpartition(":")[2]) for key in node.dirty if not key.isdecimal()]
        node.dirty = sorted(devices, key=lambda each: each["device"]) + [
            {"name": f"port {port}", "device": None, "port": port} | node.dirty[f"port:{port}"] for port in sorted(ports)
        ]
        node.save(update_fields=["dirty"])
    apps.get_model("orchestrator", "Node").objects.filter(dirty={}).update(dirty=[])


class Migration(migrations.Migration):
    dependencies = [
        ("orchestrator", "0015_endings"),
    ]

    operations = [
        migrations.AlterField("node", "dirty", models.JSONField(blank=True, default=list)),
        migrations.RunPython(give_columns, elidable=True),
    ]
