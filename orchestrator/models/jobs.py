"""Jobs, their attempts and replicas, the program they run and what they leave."""

from typing import Literal

from django.conf import settings
from django.db import models

from orchestrator.domain.gang.reasons import message_in_full
from orchestrator.domain.lifecycle import LIVE_REPLICA
from orchestrator.models.accounts import User
from orchestrator.models.columns import JSONField
from orchestrator.models.machines import Cluster, Node
from worker_agent.protocol.causes import NODE_LEAVES
from worker_agent.protocol.codec import typed
from worker_agent.protocol.ending import Ending
from worker_agent.protocol.files import NAME_BYTES_MAX, LeftFiles
from worker_agent.protocol.job.job_spec import JobSpec
from worker_agent.protocol.states import Cause, JobStatus, ReplicaStatus


class Code(models.Model):
    """A user's program by content. Small (services/programs/programs.py caps it), so it lives in the database, near its
    jobs.
    """

    sha256 = models.CharField(primary_key=True, max_length=64)
    filename = models.CharField(max_length=255)
    archive = models.BooleanField(default=False)
    entry = models.CharField(max_length=255)
    content = models.BinaryField()
    created_at = models.DateTimeField(auto_now_add=True)


class Job(models.Model):
    """What a person asked for (`spec`, a JobSpec as plain JSON) and where it stands.

    `status` moves only through `services/transitions.py`. `cause` and `reason` say why it ended or is ending; the
    final status is derived from the cause. `waiting_for` says why a submitted job cannot be placed yet. `revision`
    grows with every change that pages show. `attempt` 0 means never launched. Before `not_before` it is not launched.
    `requeue` marks a pause for the cluster's sake: it goes back into the queue by itself. `tags` and `notes` are
    people's own words about it; `sketch` is the small curve of its loss (`domain/sketch.py`). Lists find jobs by
    copies of `tags` and `metrics` (`models/listing.py`).
    """

    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="jobs")
    cluster = models.ForeignKey(Cluster, on_delete=models.PROTECT, related_name="jobs")
    code = models.ForeignKey(Code, on_delete=models.PROTECT, related_name="jobs")
    name = models.CharField(max_length=100)
    recipe = models.CharField(max_length=100, blank=True)
    strategy = models.CharField(max_length=32)
    spec = JSONField()
    status = models.CharField(
        max_length=12, choices=[(s.value, s.value) for s in JobStatus], default=JobStatus.SUBMITTED.value
    )
    cause = models.CharField(max_length=24, choices=[(c.value, c.value) for c in Cause], blank=True)
    reason = models.TextField(blank=True)
    waiting_for = models.TextField(blank=True)
    attempt = models.PositiveIntegerField(default=0)
    revision = models.PositiveBigIntegerField(default=0)
    priority = models.IntegerField(default=0)
    step = models.PositiveBigIntegerField(default=0)
    total_steps = models.PositiveBigIntegerField(default=0)
    epoch = models.PositiveIntegerField(default=0)
    epochs = models.PositiveIntegerField(default=0)
    metrics = JSONField(default=dict)
    sketch = JSONField(default=list, blank=True)
    tags = JSONField(default=list, blank=True)
    notes = models.TextField(blank=True)
    retry_of = models.ForeignKey("self", null=True, blank=True, on_delete=models.SET_NULL, related_name="retries")
    created_at = models.DateTimeField(auto_now_add=True)
    not_before = models.DateTimeField(null=True, blank=True)
    requeue = models.BooleanField(default=False)
    started_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        indexes = [
            models.Index(fields=["status", "-id"], name="job_by_status"),
            models.Index(fields=["owner", "-id"], name="job_by_owner"),
            models.Index(fields=["cluster", "-id"], name="job_by_cluster"),
            models.Index(fields=["strategy", "-id"], name="job_by_strategy"),
            models.Index(fields=["name", "-id"], name="job_by_name"),
            models.Index(fields=["status", "ended_at"], name="job_by_outcome"),
        ]

    def __str__(self) -> str:
        return f"j-{self.pk} {self.name}"

    @property
    def typed_spec(self) -> JobSpec:
        """The spec as the frozen message."""
        return typed(self.spec, JobSpec)

    def may_be_changed_by(self, person: User) -> bool:
        """Whether this person may stop, pause, resume or delete it."""
        return person.may_run_jobs and person.may_act_for(self.owner_id)


class Attempt(models.Model):
    """One gang launch of a job. Its `number` is the fencing token of everything that attempt reports.

    `checkpoint_place` is the folder it writes checkpoints to, "" where the cluster shares none; `resumed_from` the
    checkpoint it began with, `resumed_step` that one's step, also when it has been dropped since (None: began anew).

    At its end: `blame` (`causes.Blame`), `failed_on` the node of the process that it failed of, and
    `step_reached`. `running_at` is when every process was at work.
    """

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="attempts")
    number = models.PositiveIntegerField()
    cause = models.CharField(max_length=24, blank=True)
    reason = models.TextField(blank=True)
    started_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, blank=True)
    checkpoint_place = models.CharField(max_length=500, blank=True)
    resumed_from = models.ForeignKey(
        "Checkpoint", null=True, blank=True, on_delete=models.SET_NULL, related_name="resuming"
    )
    resumed_step = models.PositiveBigIntegerField(null=True, blank=True)
    running_at = models.DateTimeField(null=True, blank=True)
    step_reached = models.PositiveBigIntegerField(null=True, blank=True)
    blame = models.CharField(max_length=16, blank=True)
    failed_on = models.ForeignKey(
        Node, null=True, blank=True, on_delete=models.SET_NULL, related_name="failed_attempts"
    )

    class Meta:
        ordering = ["number"]
        constraints = [models.UniqueConstraint(fields=["job", "number"], name="attempt_unique_in_job")]
        indexes = [
            models.Index(
                fields=["ended_at"], condition=models.Q(failed_on__isnull=False), name="attempt_failed_on_a_node"
            ),
        ]


class Replicas(models.QuerySet["Replica"]):
    """Processes of attempts."""

    def live(self) -> "Replicas":
        """Those that have not ended. They all hold what they were given, so its index tells them from all that ran."""
        return self.filter(held=True, status__in=LIVE_REPLICA)


class Replica(models.Model):
    """One TensorFlow process (role + index) of an attempt, and what it holds on its node while `held`.

    `port` is unique per address while held, also across nodes that share an address. `phase` is the latest milestone
    of the process; `facts` what it told of its strategy (`records.Facts`). `stop_sent_at` marks that the control plane
    asked it to end; `give_up_at` is when it holds nobody up any longer, should it not. `absent_since` is when its
    node's agent was first seen not to list it. `lease_s` came with its launch: 0 where it runs on for ever.
    `forget_sent_at` marks that the agent was told to remove its folder.

    A replica that is replaced while the rest of its gang goes on (`replacement`) is `superseded` by one of the next
    `incarnation` once that is launched. `step` is the last it told, `stepped_at` when that became known, `moved_at`
    when its latest step or milestone did. `refused` counts records that came when they counted no more. `files_left`
    are the files that its agent told of and that are not kept (`LeftFiles`).
    """

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="replicas")
    attempt = models.PositiveIntegerField()
    role = models.CharField(max_length=10)
    index = models.PositiveIntegerField()
    incarnation = models.PositiveIntegerField(default=0)
    superseded = models.BooleanField(default=False)
    replacement = models.ForeignKey(
        "Replacement", null=True, blank=True, on_delete=models.SET_NULL, related_name="replaced"
    )
    node = models.ForeignKey(Node, null=True, on_delete=models.SET_NULL, related_name="replicas")
    node_name = models.CharField(max_length=63)
    host = models.CharField(max_length=255)
    port = models.PositiveIntegerField()
    devices = JSONField(default=list)
    device_kind = models.CharField(max_length=3)
    tf_config = JSONField(null=True, blank=True)
    lease_s = models.FloatField(default=0.0)
    held = models.BooleanField(default=True)
    status = models.CharField(
        max_length=10, choices=[(s.value, s.value) for s in ReplicaStatus], default=ReplicaStatus.ASSIGNED.value
    )
    phase = models.CharField(max_length=24, blank=True)
    facts = JSONField(default=dict, blank=True)
    pid = models.PositiveIntegerField(null=True, blank=True)
    exit_code = models.IntegerField(null=True, blank=True)
    signal = models.PositiveIntegerField(null=True, blank=True)
    cause = models.CharField(max_length=24, blank=True)
    reason = models.TextField(blank=True)
    ending = JSONField(null=True, blank=True)
    log_size = models.PositiveBigIntegerField(default=0)
    started_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)
    stop_sent_at = models.DateTimeField(null=True, blank=True)
    give_up_at = models.DateTimeField(null=True, blank=True)
    forget_sent_at = models.DateTimeField(null=True, blank=True)
    absent_since = models.DateTimeField(null=True, blank=True)
    step = models.PositiveBigIntegerField(null=True, blank=True)
    stepped_at = models.DateTimeField(null=True, blank=True)
    moved_at = models.DateTimeField(null=True, blank=True)
    refused = models.PositiveBigIntegerField(default=0)
    files_left = JSONField(default=dict, blank=True)

    objects = Replicas.as_manager()

    class Meta:
        ordering = ["attempt", "role", "index"]
        constraints = [
            models.UniqueConstraint(
                fields=["job", "attempt", "role", "index", "incarnation"], name="replica_unique_in_attempt"
            ),
            models.UniqueConstraint(
                fields=["host", "port"], condition=models.Q(held=True), name="port_unique_while_held"
            ),
        ]
        indexes = [
            models.Index(fields=["node"], condition=models.Q(held=True), name="replica_held_on_node"),
            models.Index(
                fields=["ended_at"],
                condition=models.Q(cause__in=[cause.value for cause in NODE_LEAVES]),
                name="replica_left_its_node",
            ),
            models.Index(
                fields=["id"],
                condition=models.Q(forget_sent_at=None, ended_at__isnull=False, node__isnull=False),
                name="replica_has_a_folder",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.role}:{self.index}"

    @property
    def words(self) -> str:
        """`worker 0`, for sentences."""
        return f"{self.role} {self.index}"

    @property
    def reason_in_full(self) -> str:
        """What was said of its end, with the last lines of its log."""
        return message_in_full(self.reason, self.typed_ending)

    @property
    def typed_ending(self) -> Ending | None:
        """What ended it, as the frozen message; None while it lives."""
        return typed(self.ending, Ending) if self.ending else None

    @property
    def typed_files_left(self) -> LeftFiles:
        """The files that are not kept, as the frozen message."""
        return typed(self.files_left, LeftFiles)

    @property
    def outcome(self) -> str:
        """How it stands: its status; of one that has exited, how it ended."""
        if self.status != ReplicaStatus.EXITED:
            return self.status
        if (ending := self.typed_ending) is None:
            return "stopped"
        status = JobStatus.PAUSED if ending.saved else ending.row.status
        return "completed" if status is JobStatus.SUCCEEDED else status.value


class Replacement(models.Model):
    """Processes of an attempt that were launched anew while the rest of the gang went on: the ledger within an attempt.

    `replaced` are those in whose place others were launched; `failed` is the one whose end explains theirs, `reason`
    the sentence about it. `step_resumed` is None where no step was lost. `back_at` is when all were at work again.
    """

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="replacements")
    failed = models.ForeignKey(Replica, on_delete=models.CASCADE, related_name="+")
    reason = models.TextField()
    back_at = models.DateTimeField(null=True, blank=True)
    step_reached = models.PositiveBigIntegerField()
    step_resumed = models.PositiveBigIntegerField(null=True, blank=True)

    class Meta:
        ordering = ["failed__ended_at", "id"]


class Artifact(models.Model):
    """A file that a job left: `name` is its path below the program's folder. It is stored under the data folder as
    `artifacts/<id>/<last part of the name>`, and served as attachment only. `replica` None: from an older version.
    """

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="artifacts")
    attempt = models.PositiveIntegerField()
    replica = models.ForeignKey(Replica, null=True, on_delete=models.CASCADE, related_name="artifacts")
    name = models.CharField(max_length=NAME_BYTES_MAX)
    kind = models.CharField(max_length=16, default="model")
    size_bytes = models.PositiveBigIntegerField()
    sha256 = models.CharField(max_length=64)
    metrics = JSONField(default=dict)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-id"]
        constraints = [
            models.UniqueConstraint(fields=["job", "attempt", "name", "replica"], name="artifact_unique_in_attempt")
        ]

    @property
    def folder(self) -> str:
        """The first folder of its path, "" where it lies at the top."""
        return self.name.partition("/")[0] if "/" in self.name else ""

    @property
    def path_in_folder(self) -> str:
        """The rest of its path."""
        return self.name.removeprefix(f"{self.folder}/")


class Checkpoint(models.Model):
    """A complete checkpoint: in the folder `place` that the nodes share or, with `place` "", on its way from its node
    to Trainyard's own store, `<checkpoint root>/<job>/<name>/`. A launch may begin with it once it is `usable`. Whether
    it `is_best` of its job is no column: `queries/checkpoints.py` looks at all of them.
    """

    is_best = False

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="checkpoints")
    attempt = models.PositiveIntegerField()
    name = models.CharField(max_length=64)
    step = models.PositiveBigIntegerField()
    epoch = models.PositiveIntegerField()
    metrics = JSONField(default=dict)
    size_bytes = models.PositiveBigIntegerField()
    sha256 = models.CharField(max_length=64)
    place = models.CharField(max_length=500, blank=True)
    usable = models.BooleanField(default=False)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-attempt", "-step"]
        constraints = [models.UniqueConstraint(fields=["job", "name"], name="checkpoint_unique_in_job")]

    def __str__(self) -> str:
        return f"step {self.step} of j-{self.job_id}"

    @property
    def where(self) -> Literal["store", "folder", "node"]:
        """Where it lies: in Trainyard's own store, in the folder that the nodes share, or still on its node."""
        return "folder" if self.place else "store" if self.usable else "node"
