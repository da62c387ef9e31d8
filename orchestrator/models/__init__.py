"""The tables. Columns and constraints only; what may happen to a row is in `services/`."""

from orchestrator.models.accounts import ApiToken, User, UserRole, digest_of
from orchestrator.models.advice import Advice, AdviceStatus
from orchestrator.models.jobs import Artifact, Attempt, Checkpoint, Code, Job, Replacement, Replica
from orchestrator.models.listing import JobMetric, JobTag
from orchestrator.models.machines import Cluster, JoinToken, Node
from orchestrator.models.records import Command, Cursor, Event, LogChunk, SeriesBlock, ServiceBeat
from orchestrator.models.strategy_tests import Candidate, Run, StrategyTest, TestStatus
from orchestrator.models.trials import Preflight, ProbedNode

__all__ = [
    "Advice",
    "AdviceStatus",
    "ApiToken",
    "Artifact",
    "Attempt",
    "Candidate",
    "Checkpoint",
    "Cluster",
    "Code",
    "Command",
    "Cursor",
    "Event",
    "Job",
    "JobMetric",
    "JobTag",
    "JoinToken",
    "LogChunk",
    "Node",
    "Preflight",
    "ProbedNode",
    "Replacement",
    "Replica",
    "Run",
    "SeriesBlock",
    "ServiceBeat",
    "StrategyTest",
    "TestStatus",
    "User",
    "UserRole",
    "digest_of",
]
