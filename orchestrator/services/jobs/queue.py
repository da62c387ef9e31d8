"""The jobs that wait, and what for: one look at the queue, the clusters and the rehearsals serves a whole pass of
`dispatch.py`, however many jobs wait.

Nothing is locked here. It says whom to try and what the others are told; who is launched is decided anew under guard.
"""

from collections.abc import Callable
from datetime import datetime
from typing import NamedTuple

from django.db.models import Q

from orchestrator.domain.placement import node_findings, planning
from orchestrator.domain.placement.planning import ClusterView, Never, NotNow, Placed
from orchestrator.models import Cluster, Job
from orchestrator.services import fencing
from orchestrator.services.nodes.cluster_snapshot import cluster_view
from orchestrator.services.trials import probing
from orchestrator.services.trials.rehearsals import Rehearsals
from worker_agent.protocol.job.job_spec import JobSpec
from worker_agent.protocol.states import JobStatus

Outcome = Placed | NotNow | Never
READ = ("cluster_id", "attempt", "waiting_for", "spec")


class Waiting(NamedTuple):
    """A job of the queue; those of one `shape` have room, or have none, at the same time."""

    job: Job
    spec: JobSpec
    shape: str


class Queue:
    """The jobs whose time has come, by priority, then by age."""

    def __init__(self, now: datetime) -> None:
        self._now = now
        due = Job.objects.filter(Q(not_before=None) | Q(not_before__lte=now), status=JobStatus.SUBMITTED.value)
        self._waiting: list[Waiting] = []
        for job in due.order_by("-priority", "pk").only(*READ):
            spec = job.typed_spec
            self._waiting.append(Waiting(job, spec, planning.shape_of(spec)))
        self._clusters = Cluster.objects.in_bulk({each.job.cluster_id for each in self._waiting})
        self._rooms = {pk: Room(cluster, now) for pk, cluster in self._clusters.items()}
        self._fenced = fencing.who_waits() if any(each.job.attempt for each in self._waiting) else {}
        self._rehearsals = self._read_rehearsals()
        self._tried: set[int] = set()

    def launch_what_fits(self, launch: Callable[[int], bool]) -> int:
        """Have `launch` try, by its id, each job that has room, or whose rehearsal has refused it or is to be begun;
        how many it has launched. Where one was not, its cluster is looked at again."""
        launched = 0
        begun: set[str] = set()
        for each in self._waiting:
            room, rehearsed = self._rooms[each.job.cluster_id], self._rehearsals.of(each.job)
            if rehearsed.is_due:
                is_due = rehearsed.alike not in begun and room.fits_when_empty(each)
                begun.add(rehearsed.alike)
            else:
                is_due = bool(rehearsed.refused) or not (room.was_full(each) or self._reason(each))
            if is_due:
                self._tried.add(each.job.pk)
                if launch(each.job.pk):
                    launched += 1
                    room.take(each)
                else:
                    room.has_changed()
        if begun:
            self._rehearsals = self._read_rehearsals()
        return launched

    def news(self) -> dict[str, list[int]]:
        """What those that were not tried wait for now, and have not been told: the jobs' ids by reason."""
        news: dict[str, list[int]] = {}
        for each in self._waiting:
            reason = "" if each.job.pk in self._tried else self._reason(each)
            if reason and reason != each.job.waiting_for:
                news.setdefault(reason, []).append(each.job.pk)
        return news

    def _reason(self, each: Waiting) -> str:
        if each.job.pk in self._fenced:
            return self._fenced[each.job.pk]
        room = self._rooms[each.job.cluster_id]
        return why_not(each.spec, room.view, room.outcome(each)) or self._rehearsals.of(each.job).waits_for

    def _read_rehearsals(self) -> Rehearsals:
        asked = [(each.job, each.spec, self._clusters[each.job.cluster_id]) for each in self._waiting]
        return Rehearsals(asked, now=self._now)


class Room:
    """Which shapes have room in a cluster; each is placed once a look at it."""

    def __init__(self, cluster: Cluster, now: datetime) -> None:
        self._cluster, self._now = cluster, now
        self._view: ClusterView | None = None
        self._outcomes: dict[str, Outcome] = {}
        self._full: set[str] = set()
        self._fits_when_empty: dict[str, bool] = {}

    @property
    def view(self) -> ClusterView:
        """The cluster as it was when it was last looked at."""
        if self._view is None:
            self._view = cluster_view(self._cluster, now=self._now)
        return self._view

    def has_changed(self) -> None:
        """The next who asks looks at the cluster again."""
        self._view, self._outcomes = None, {}

    def take(self, each: Waiting) -> None:
        """It has the place that was found for it."""
        outcome = self.outcome(each)
        if isinstance(outcome, Placed):
            self._view, self._outcomes = self.view.with_gang(outcome.replicas), {}

    def outcome(self, each: Waiting) -> Outcome:
        """Where the whole gang has a place now, or why it has none."""
        if each.shape not in self._outcomes:
            self._outcomes[each.shape] = planning.place(each.spec, self.view)
            if not isinstance(self._outcomes[each.shape], Placed):
                self._full.add(each.shape)
        return self._outcomes[each.shape]

    def was_full(self, each: Waiting) -> bool:
        """Whether its shape had no room earlier in this pass. What becomes free meanwhile is left to the next one,
        which asks those who come first."""
        return each.shape in self._full

    def fits_when_empty(self, each: Waiting) -> bool:
        """Whether the gang has a place once others have ended: where it is rehearsed."""
        if each.shape not in self._fits_when_empty:
            self._fits_when_empty[each.shape] = not isinstance(probing.place(each.spec, self.view), str)
        return self._fits_when_empty[each.shape]


def why_not(spec: JobSpec, view: ClusterView, outcome: Outcome) -> str:
    """What speaks against a place or the nodes; "" when nothing does."""
    if not isinstance(outcome, Placed):
        return outcome.message
    found = node_findings.findings(spec, planning.nodes_of(outcome.replicas, view))
    return next((finding.sentence for finding in found if finding.blocks), "")
