"""A pass over waiting jobs beside reading what they asked for, in ms of CPU. Started by `queue.py`; prints JSON."""

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime

from tests.environment import prepare

prepare()

from django.core.management import call_command  # noqa: E402 - Django reads its settings first

from benchmarks.measure import quantile  # noqa: E402
from orchestrator import live  # noqa: E402
from orchestrator.models import Job  # noqa: E402
from orchestrator.services.jobs import dispatch  # noqa: E402
from tests.factories import make_cluster, make_code, make_job, make_node, make_replica, make_spec, make_user  # noqa: E402
from worker_agent.protocol.codec import plain  # noqa: E402
from worker_agent.protocol.states import JobStatus  # noqa: E402

WAITING, DEVICES, ROUNDS = 1000, 8, 7


def main() -> None:
    """A cluster whose devices are all held, and the jobs that wait for them; those of one round know their reason."""
    call_command("migrate", verbosity=0)
    cluster, owner, code = make_cluster("local"), make_user(), make_code()
    running = make_job(owner=owner, cluster=cluster, status=JobStatus.RUNNING)
    for index in range(2):
        node = make_node(cluster, slots=DEVICES)
        make_replica(running, node=node, index=index, devices=list(range(DEVICES)))
    spec = plain(make_spec(code, cluster=cluster.name, kind="script"))
    why = "needs 1 free device on one node"
    common = {"owner": owner, "cluster": cluster, "code": code, "strategy": "one_device", "waiting_for": why}
    Job.objects.bulk_create(Job(name=f"waits-{number}", spec=spec, **common) for number in range(WAITING))
    live._send = lambda messages: None  # no Redis here
    dispatch.dispatch_waiting(now=datetime.now(UTC))
    waiting = Job.objects.filter(status=JobStatus.SUBMITTED.value)
    ours, floor = [], []
    for _ in range(ROUNDS):
        ours.append(_cpu_ms(lambda: dispatch.dispatch_waiting(now=datetime.now(UTC))))
        floor.append(_cpu_ms(lambda: list(waiting.values_list("pk", "spec"))))
    print(json.dumps({"ours": quantile(ours, 0.5), "floor": quantile(floor, 0.5)}))


def _cpu_ms(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return (time.process_time() - began) * 1e3


if __name__ == "__main__":
    main()
