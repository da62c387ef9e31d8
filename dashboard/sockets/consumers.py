"""The feeds that pages open: one job, the list of jobs, one node, all machines. `feed.py` says how each one lives."""

import re
from urllib.parse import parse_qs

from dashboard.sockets.feed import Feed, Receive
from dashboard.sockets.rights import NO_SUCH_THING
from orchestrator import live
from orchestrator.queries import jobs, machines, telemetry
from orchestrator.queries.rows import Node, User

SERIES_POINTS = 1000
LOG_LINES = 500
EVENTS = 500
# As many as the list page can show at once.
LISTED_JOBS = 100
# More than a page of the list of nodes has.
SHOWN_NODES = 200
NODE_ID = re.compile(r"[0-9a-f]{12}")


class JobFeed(Feed):
    """`/ws/jobs/<id>/`: everything that the job page shows; `…/attempts/<n>/`: of the log, that attempt alone."""

    def groups(self) -> list[str]:
        """The job's own group."""
        return [live.job_group(self.asked["job_id"])]

    def check(self, user: User) -> None:
        """The job exists and is for this person."""
        jobs.get(user, self.asked["job_id"])

    def snapshot(self, user: User) -> dict[str, object]:
        """Summary, series, cursors, the end of the log, events, and the load of the nodes in use."""
        with telemetry.one_moment():
            job = jobs.get(user, self.asked["job_id"])
            used = {replica.node_id: replica.node for replica in jobs.replicas(job) if replica.node is not None}
            return {
                "job": jobs.summary(job),
                "series": telemetry.series(job, points=SERIES_POINTS),
                "cursors": telemetry.cursors(job),
                "log": telemetry.log_tail(job, lines=LOG_LINES, attempt=self.asked.get("attempt")),
                "log_ends": telemetry.log_ends(job),
                "events": [live.event_written(event) for event in jobs.events(job, limit=EVENTS)],
                "samples": telemetry.load(list(used.values())),
            }


class JobsFeed(Feed):
    """`/ws/jobs/`: the newest jobs and how many stand where."""

    def groups(self) -> list[str]:
        """Everybody's list."""
        return [live.JOBS]

    def snapshot(self, user: User) -> dict[str, object]:
        """Summaries, newest first."""
        with telemetry.one_moment():
            found = jobs.page(user, limit=LISTED_JOBS).items
            return {"jobs": [jobs.summary(job) for job in found], "counts": jobs.counts(user)}


class NodeFeed(Feed):
    """`/ws/nodes/<id>/`: one node's state and load."""

    def groups(self) -> list[str]:
        """The node's own group, and its load."""
        return [live.node_group(self.asked["node_id"]), live.load_group(self.asked["node_id"])]

    def check(self, user: User) -> None:
        """The node exists and is for this person."""
        machines.node(user, self.asked["node_id"])

    def snapshot(self, user: User) -> dict[str, object]:
        """State, the latest sample, and the load of the last 15 minutes."""
        with telemetry.one_moment():
            node = machines.node(user, self.asked["node_id"])
            return {"node": _node(node), "samples": telemetry.load([node])}


class MachinesFeed(Feed):
    """`/ws/machines/?nodes=<id>,<id>`: changes of all nodes and holders, the load of those that the page shows."""

    def groups(self) -> list[str]:
        """All nodes, and the load of these."""
        return [live.MACHINES, *(live.load_group(node_id) for node_id in self._shown())]

    def snapshot(self, user: User) -> dict[str, object]:
        """The state of the nodes that the page shows."""
        shown = machines.nodes(user).filter(pk__in=self._shown()).values_list("pk", "state")
        return {"nodes": [{"node_id": node_id, "state": state} for node_id, state in shown]}

    def _shown(self) -> list[str]:
        asked = parse_qs(self.query.decode("latin-1")).get("nodes", [""])[0].split(",")
        return [node_id for node_id in dict.fromkeys(asked) if NODE_ID.fullmatch(node_id)][:SHOWN_NODES]


class Nowhere(Feed):
    """Any other address."""

    async def live(self, receive: Receive) -> int | None:
        """There is nothing here, for anybody."""
        return NO_SUCH_THING


def _node(node: Node) -> dict[str, object]:
    return {
        "node_id": node.pk,
        "name": node.name,
        "cluster": node.cluster.name,
        "state": node.state,
        "reason": node.state_reason,
        "sample": node.sample,
        "last_seen_at": node.last_seen_at,
    }
