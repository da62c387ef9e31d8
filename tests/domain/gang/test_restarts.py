"""Whose fault an end was, and whether and when a job is launched again."""

import pytest

from orchestrator.domain.gang.restarts import FREE_WITHIN_LIMITS, Again, AttemptEnd, Never, verdict
from worker_agent.protocol.causes import Blame, Retry
from worker_agent.protocol.ending import Ending
from worker_agent.protocol.states import Cause

BLAMED = {
    Blame.MACHINE: {
        *(Cause.NODE_LOST, Cause.HUNG, Cause.PORT_TAKEN),
        Cause.SIGNAL,  # of which nobody knows the number: who watched over the process was killed as well
    },
    Blame.PROGRAM: {Cause.EXCEPTION, Cause.EXIT_CODE, Cause.OUT_OF_MEMORY, Cause.LOSS_NOT_FINITE},
    Blame.PEER: {Cause.RENDEZVOUS_TIMEOUT},
    Blame.PERSON: {Cause.STOPPED, Cause.PAUSED, Cause.TIME_LIMIT, Cause.AGENT_SHUTDOWN, Cause.PREEMPTED},
    Blame.PLATFORM: {Cause.LEASE_LOST, Cause.LAUNCH_REFUSED},
    Blame.NOBODY: {Cause.COMPLETED},
}
COUNTED = {Cause.EXCEPTION, Cause.EXIT_CODE, Cause.OUT_OF_MEMORY}
NEVER = {Cause.LOSS_NOT_FINITE, Cause.TIME_LIMIT, Cause.STOPPED, Cause.LAUNCH_REFUSED, Cause.PAUSED, Cause.COMPLETED}


def for_free(cause=Cause.NODE_LOST, *, number=1, step=5, first_step=0):
    return AttemptEnd(number, cause, Ending(cause=cause).blame, step, first_step)


def of_program(cause=Cause.EXCEPTION, *, number=1, step=5, said="ValueError: bad"):
    return AttemptEnd(number, cause, Blame.PROGRAM, step, 0, said)


@pytest.mark.parametrize("cause", list(Cause))
def test_whose_fault_each_cause_is_and_what_follows(cause):
    ending = Ending(cause=cause)
    assert cause in BLAMED[ending.blame]
    retry = Retry.COUNTED if cause in COUNTED else Retry.NEVER if cause in NEVER else ending.row.retry
    assert ending.row.retry is retry
    assert (retry in FREE_WITHIN_LIMITS | {Retry.UNLIMITED}) == (cause not in COUNTED | NEVER)


@pytest.mark.parametrize(("number", "blame"), [(9, Blame.MACHINE), (11, Blame.PROGRAM), (6, Blame.PROGRAM)])
def test_only_a_kill_comes_from_outside(number, blame):
    assert Ending(cause=Cause.SIGNAL, signal=number).blame is blame


@pytest.mark.parametrize(
    ("fields", "blame"),
    [
        ({"cause": Cause.EXCEPTION}, Blame.PEER),
        ({"cause": Cause.SIGNAL, "signal": 6}, Blame.PEER),
        ({"cause": Cause.EXIT_CODE}, Blame.PROGRAM),
    ],
)
def test_where_even_the_first_only_lost_a_peer_nobody_failed_by_itself(fields, blame):
    assert Ending(**fields, lost_peer=True).blame is blame


def test_processes_that_lost_one_another_are_launched_again_as_long_as_they_come_further():
    lost = AttemptEnd(1, Cause.EXCEPTION, Blame.PEER, 5, 0)
    aborted = AttemptEnd(2, Cause.SIGNAL, Blame.PEER, 5, 4)
    later = AttemptEnd(2, Cause.EXCEPTION, Blame.PEER, 900, 4)
    killed = for_free(Cause.SIGNAL)
    assert verdict(lost, (killed, of_program()), max_restarts=0) == Again()
    assert verdict(killed, (lost,), max_restarts=0) == Again()
    assert verdict(later, (lost,), max_restarts=0) == Again()
    assert verdict(aborted, (lost,), max_restarts=3) == Never(
        "No process failed by itself, as in attempt 1: check that its nodes can reach each other."
    )


def test_what_machines_did_costs_nothing_but_not_without_end():
    earlier = tuple(for_free(number=number) for number in range(1, 11))
    assert verdict(for_free(), earlier[:9], max_restarts=0) == Again()
    assert verdict(for_free(), earlier, max_restarts=0) == Never(
        "It has been launched again 10 times after such failures, and did not get past step 5."
    )
    onward = tuple(for_free(number=number, step=number) for number in range(1, 40))
    assert verdict(for_free(step=40), onward, max_restarts=0) == Again()
    assert verdict(for_free(step=39), (*onward, *onward[-8:]), max_restarts=0) == Again()
    assert isinstance(verdict(for_free(step=39), (*onward, *onward[-9:]), max_restarts=0), Never)


def test_three_launches_in_a_row_without_a_step_are_enough():
    no_step = for_free(step=40, first_step=40)
    assert verdict(no_step, (no_step,), max_restarts=5) == Again()
    assert verdict(no_step, (no_step, for_free(), no_step), max_restarts=5) == Again()
    shut_down = for_free(Cause.AGENT_SHUTDOWN, step=40, first_step=40)
    assert verdict(no_step, (no_step, shut_down), max_restarts=5) == Again()
    assert verdict(no_step, (no_step, shut_down, no_step), max_restarts=5) == Never(
        "This was attempt 3 in a row without a step."
    )


def test_a_shutdown_is_never_held_against_the_job():
    shut_down = for_free(Cause.AGENT_SHUTDOWN, step=0)
    assert verdict(shut_down, (shut_down,) * 20, max_restarts=0) == Again()
    assert verdict(for_free(), (shut_down,) * 20, max_restarts=0) == Again()


def test_a_gang_that_did_not_meet_is_given_one_more_chance():
    apart = for_free(Cause.RENDEZVOUS_TIMEOUT, number=2, step=0)
    assert verdict(apart, (for_free(),), max_restarts=0) == Again()
    assert verdict(for_free(Cause.RENDEZVOUS_TIMEOUT, number=3, step=0), (apart,), max_restarts=0) == Never(
        "The same happened in attempt 2, and there has been no progress since."
    )
    assert verdict(for_free(Cause.RENDEZVOUS_TIMEOUT, step=40), (apart,), max_restarts=0) == Again()


def test_a_gang_that_hung_is_launched_again_once():
    hung = for_free(Cause.HUNG, step=5)
    assert verdict(hung, (for_free(),), max_restarts=0) == Again()
    assert verdict(for_free(Cause.HUNG, number=2, step=90), (hung,), max_restarts=9) == Never(
        "The same happened in attempt 1."
    )


def test_a_program_is_tried_again_as_often_as_asked_for_and_later_each_time():
    failures = tuple(of_program(Cause.EXIT_CODE, number=number) for number in range(1, 10))
    assert verdict(failures[0], (), max_restarts=0) == Never()
    waits = [verdict(failures[0], failures[:count], max_restarts=9).wait_s for count in range(9)]
    assert waits == [10, 20, 40, 80, 160, 300, 300, 300, 300]
    assert verdict(failures[0], (for_free(), failures[0]), max_restarts=2) == Again(20.0, 2)
    assert verdict(failures[0], failures[:1], max_restarts=1) == Never(
        "It has been launched again once, as often as the job allows."
    )


def test_the_same_exception_at_the_same_step_twice_ends_the_job():
    first = of_program(number=1, step=57)
    assert verdict(of_program(step=58), (first,), max_restarts=9) == Again(20.0, 2)
    assert verdict(of_program(step=57, said="ValueError: worse"), (first,), max_restarts=9) == Again(20.0, 2)
    again = verdict(of_program(step=57), (first, for_free(number=2)), max_restarts=9)
    assert isinstance(again, Never)
    assert again.why.startswith("The same exception at the same step (57) as in attempt 1: it would come again")


@pytest.mark.parametrize("cause", [Cause.LOSS_NOT_FINITE, Cause.TIME_LIMIT, Cause.STOPPED, Cause.LAUNCH_REFUSED])
def test_some_ends_are_final(cause):
    assert verdict(AttemptEnd(1, cause, Blame.NOBODY, 5, 0), (), max_restarts=100) == Never()
