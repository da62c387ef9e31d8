"""The Files card of the job page: what the job left, a folder as one row, and what is not kept. For `contents.py`."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from orchestrator.queries.rows import Artifact, Job, Replica
from worker_agent.protocol.files import LeftFile, NotKept
from worker_agent.protocol.states import Kind

ROWS_SHOWN = 100


@dataclass(frozen=True)
class FileRow:
    """A file at the top, or all that a process left in a `folder` there ("": the one file), the newest first."""

    folder: str
    files: Sequence[Artifact]

    @property
    def newest(self) -> Artifact:
        """The file that came last."""
        return self.files[0]

    @property
    def size_bytes(self) -> int:
        """Of all its files."""
        return sum(file.size_bytes for file in self.files)

    @property
    def shown(self) -> Sequence[Artifact]:
        """Those that are listed, by name."""
        return sorted(self.files, key=lambda file: file.name)[:ROWS_SHOWN]

    @property
    def hidden(self) -> int:
        """How many are in the zip file only."""
        return max(len(self.files) - ROWS_SHOWN, 0)


@dataclass(frozen=True)
class NotKeptFile:
    """A file that stays on its node."""

    file: LeftFile
    replica: Replica


@dataclass(frozen=True)
class FileList:
    """`attempts` are those that left several files, the newest first: each can be had as one zip file."""

    count: int
    rows: Sequence[FileRow]
    hidden: int
    attempts: Sequence[int]
    has_several_processes: bool
    not_kept: Sequence[NotKeptFile]
    not_kept_more: int
    limit_mb: int | None
    limit_reached: bool
    has_unasked: bool


def files_of(job: Job, artifacts: Sequence[Artifact], replicas: Iterable[Replica]) -> FileList:
    """What there is of the job's `artifacts`, the newest first, and what its `replicas` told of."""
    rows: dict[tuple[int, int | None, str], list[Artifact]] = {}
    for file in artifacts:
        rows.setdefault((file.attempt, file.replica_id, file.folder or f"/{file.name}"), []).append(file)
    everything = sorted((FileRow(files[0].folder, files) for files in rows.values()), key=_order)
    by_attempt = Counter(file.attempt for file in artifacts)
    left = [(replica, replica.typed_files_left) for replica in replicas]
    not_kept = [NotKeptFile(file, replica) for replica, told in left for file in told.left]
    spec = job.typed_spec
    return FileList(
        count=len(artifacts),
        rows=everything[:ROWS_SHOWN],
        hidden=sum(len(row.files) for row in everything[ROWS_SHOWN:]),
        attempts=sorted((number for number, count in by_attempt.items() if count > 1), reverse=True),
        has_several_processes=len({file.replica_id for file in artifacts} | {each.replica.pk for each in not_kept}) > 1,
        not_kept=not_kept[:ROWS_SHOWN],
        not_kept_more=len(not_kept[ROWS_SHOWN:]) + sum(told.more for _, told in left),
        limit_mb=spec.files_limit_mb if spec.kind is Kind.SCRIPT else None,
        limit_reached=any(each.file.why is NotKept.LIMIT for each in not_kept),
        has_unasked=any(each.file.why is NotKept.UNASKED for each in not_kept),
    )


def _order(row: FileRow) -> tuple[int, str, str, int]:
    """The latest attempt first, then by name, and by process where several have one of the name."""
    file, replica = row.newest, row.newest.replica
    return -file.attempt, row.folder or file.name, replica.role if replica else "", replica.index if replica else 0
