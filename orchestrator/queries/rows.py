"""The rows that queries return, by type: for pages, REST and sockets, which name them and touch no table."""

from orchestrator.models import (
    Advice,
    AdviceStatus,
    Artifact,
    Attempt,
    Candidate,
    Checkpoint,
    Cluster,
    Event,
    Job,
    Node,
    Replica,
    Run,
    StrategyTest,
    TestStatus,
    User,
)

__all__ = [
    "Advice",
    "AdviceStatus",
    "Artifact",
    "Attempt",
    "Candidate",
    "Checkpoint",
    "Cluster",
    "Event",
    "Job",
    "Node",
    "Replica",
    "Run",
    "StrategyTest",
    "TestStatus",
    "User",
]
