"""`manage.py demo`: the demonstration job, handwritten digits on the agents of the cluster "local"."""

import json
from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from orchestrator.embedded.startup import ADMINISTRATOR, CLUSTER
from orchestrator.models import Job, Node, User
from orchestrator.services.errors import Invalid
from orchestrator.services.jobs import jobs
from worker_agent.protocol.states import JobStatus, Strategy

NAME = "demo: handwritten digits"


class Command(BaseCommand):
    """Submit it, or name the one that ran before."""

    help = "Submit the demo job on the local cluster, unless an earlier one runs or succeeded, and print its address."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Two ways to ask."""
        parser.add_argument("--again", action="store_true", help="submit a new one in any case")
        parser.add_argument("--json", action="store_true", dest="as_json", help="answer with one JSON object")

    def handle(self, *args: Any, again: bool, as_json: bool, **options: Any) -> None:
        """Print the address of the job."""
        failed = (JobStatus.FAILED.value, JobStatus.STOPPED.value)
        earlier = Job.objects.filter(name=NAME).exclude(status__in=failed).order_by("-id").first()
        job = earlier if earlier is not None and not again else _submit()
        url = f"{settings.PUBLIC_URL}/jobs/{job.pk}/"
        self.stdout.write(json.dumps({"url": url}) if as_json else url)


def _submit() -> Job:
    person = User.objects.filter(username=ADMINISTRATOR).first()
    if person is None:
        raise CommandError("There is no administrator yet: start Trainyard with `make up` first.")
    workers = min(2, Node.objects.filter(cluster__name=CLUSTER).count())
    strategy = Strategy.MULTI_WORKER_MIRRORED if workers > 1 else Strategy.ONE_DEVICE
    request = {
        "name": NAME,
        "cluster": CLUSTER,
        "recipe": "digits_cnn",
        "strategy": strategy.value,
        "workers": workers,
        "global_batch_size": 64,
        "epochs": 60,
        "seed": 1,
    }
    try:
        return jobs.submit_job(request=request, by=person)
    except Invalid as error:
        raise CommandError(f"The demo job was refused: {error}") from error
