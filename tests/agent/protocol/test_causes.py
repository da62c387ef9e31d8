"""The table of causes: a row for each, one for each cause and blame, and words for all that may end a job early."""

import pytest

from worker_agent.protocol.causes import CAUSES, NODE_LEAVES, Blame, Retry, Row, row_of
from worker_agent.protocol.states import Cause, JobStatus


def test_every_cause_has_its_row() -> None:
    assert {row.cause for row in CAUSES} == set(Cause)
    assert len({(row.cause, row.blame) for row in CAUSES}) == len(CAUSES)


@pytest.mark.parametrize("row", CAUSES, ids=lambda row: f"{row.cause}-{row.blame}")
def test_each_row_is_found_and_has_its_words(row: Row) -> None:
    assert row_of(row.cause, row.blame) is row
    assert row.verb
    assert row.title
    assert row.remedy.endswith(".") or row.status in (JobStatus.SUCCEEDED, JobStatus.STOPPED)


def test_without_a_blame_of_its_own_a_cause_has_its_first_row() -> None:
    assert row_of(Cause.SIGNAL).retry is Retry.COUNTED
    assert row_of(Cause.HUNG, Blame.PERSON) is row_of(Cause.HUNG)


def test_the_causes_by_which_a_node_leaves_are_those_of_the_database_index() -> None:
    """`Replica.Meta.indexes` holds them: another one needs a migration."""
    assert NODE_LEAVES == (Cause.PREEMPTED, Cause.AGENT_SHUTDOWN)
    assert {row.cause for row in CAUSES if row.is_final} == {
        *(Cause.COMPLETED, Cause.STOPPED, Cause.PAUSED, Cause.TIME_LIMIT)
    }
