"""A job is being filled in: the nodes where it would run hear of it, and have TensorFlow imported by the time it comes.

Called by the new-job page when it opens and with each preview. A node hears it at most once in `EVERY_S`, whoever fills
in how many forms, and nothing waits for it: a word that is lost makes one start longer.
"""

import logging
from collections.abc import Set
from datetime import datetime
from functools import partial

from django.db import transaction

from orchestrator import agents
from orchestrator.models import Cluster, Node
from worker_agent.protocol.codec import encode
from worker_agent.protocol.commands import Expect, imports_for_itself
from worker_agent.protocol.job.gang_shape import keras_of
from worker_agent.protocol.job.job_spec import JobSpec
from worker_agent.protocol.states import Keras

logger = logging.getLogger(__name__)

# Far less than an agent keeps TensorFlow that is of no use (`worker_agent/daemon/zygotes.py`).
EVERY_S = 60
# A gang of hundreds has a start that this does not shorten.
NODES_MAX = 32


def expect(*, spec: JobSpec, cluster: Cluster, node_ids: Set[str], now: datetime) -> None:
    """The job may soon run on these nodes: tell those that have not been told lately, on commit."""
    if node_ids and not imports_for_itself(spec, cluster.variables):
        transaction.on_commit(partial(_tell, keras_of(spec), sorted(node_ids)[:NODES_MAX], now))


def _tell(keras: Keras, node_ids: list[str], now: datetime) -> None:
    names = {f"expect:{keras}:{node_id}": node_id for node_id in node_ids}
    try:
        due = [names[name] for name in agents.first_in(EVERY_S, list(names))]
        for node in Node.objects.filter(pk__in=due):
            agents.send(agents.Parcel(node_id=node.pk, key=bytes(node.key), body=encode(Expect(keras=keras))), now=now)
    except agents.NotSent as error:
        logger.warning("no node was told to expect a job: %s", error)
