"""What a gang's states call for."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.domain.gang.decisions import End, Finish, Leave, Relaunch, Running, Wait, blame_in, decide, root_cause
from orchestrator.domain.gang.restarts import Again, AttemptEnd
from tests.domain.gang.gangs import NOW, ended, gang, replica
from worker_agent.protocol.causes import Blame
from worker_agent.protocol.states import Cause, JobStatus, ReplicaStatus, Role, Strategy

PEER = "A peer went away: UnavailableError: Socket closed"
LOST = {"cause": Cause.EXCEPTION, "message": PEER, "lost_peer": True}


def saved(index, cause=Cause.PAUSED, **fields):
    return ended(index, cause, saved=True, code=75, message="It saved a checkpoint and left.", **fields)


def test_a_gang_of_which_one_was_asked_from_outside_saves_and_leaves():
    asked = saved(1, Cause.PREEMPTED)
    assert decide(gang(replica(0), asked), now=NOW) == decide(gang(saved(0), asked), now=NOW) == Leave(asked)
    assert Leave(asked).reason == "worker 1 on node-2 got a SIGTERM from outside."
    assert decide(gang(saved(0), replica(1)), now=NOW) == Wait(), "who was asked is not known yet"
    assert decide(gang(saved(0, ago_s=3), replica(1)), now=NOW) == Leave(None)
    assert Leave(None).reason == "Its gang got a SIGTERM from outside."
    shut_down = decide(gang(saved(0), saved(1, Cause.AGENT_SHUTDOWN)), now=NOW)
    assert shut_down.reason == "worker 1 on node-2 was ended because the agent of its node was shut down."


def test_a_server_that_is_to_leave_takes_its_gang_along_once_that_is_at_work():
    leaves = replica(1, is_leaving=True)
    assert decide(gang(replica(0), leaves), now=NOW) == Leave(leaves)
    assert Leave(leaves).reason == "worker 1 on node-2 got a SIGTERM from outside."
    assert decide(gang(replica(0, ReplicaStatus.STARTING), leaves, status=JobStatus.LAUNCHING), now=NOW) == Wait()
    assert decide(gang(replica(0), leaves, status=JobStatus.LAUNCHING), now=NOW) == Running()


def test_an_evaluator_whose_agent_was_shut_down_costs_its_gang_no_step():
    evaluator = ended(0, Cause.AGENT_SHUTDOWN, role=Role.EVALUATOR)
    assert decide(gang(replica(0), replica(1), evaluator), now=NOW) == Leave(evaluator)
    failed = ended(1, Cause.EXCEPTION, message="ValueError")
    assert isinstance(decide(gang(replica(0), failed, evaluator), now=NOW), End), "what failed by itself comes first"


def test_who_has_saved_and_left_is_no_failure_of_a_gang_that_is_heard_of_late():
    launching = gang(saved(1, Cause.PREEMPTED), replica(0, ReplicaStatus.STARTING), status=JobStatus.LAUNCHING)
    assert decide(launching, now=NOW) == Wait()
    assert decide(gang(saved(1), replica(0), status=JobStatus.LAUNCHING), now=NOW) == Running()


def test_who_left_at_once_when_asked_from_outside_is_launched_again_and_nobodys_fault():
    asked = ended(1, Cause.PREEMPTED, signal=15)
    assert decide(gang(replica(0), asked), now=NOW).restart
    assert blame_in((asked,), asked) is Blame.PERSON


def test_a_gang_at_work_goes_on():
    assert decide(gang(replica(0), replica(1)), now=NOW) == Wait()


def test_running_once_every_process_is_at_work():
    starting = gang(replica(0), replica(1, ReplicaStatus.STARTING), status=JobStatus.LAUNCHING)
    assert decide(starting, now=NOW) == Wait()
    assert decide(gang(replica(0), replica(1), status=JobStatus.LAUNCHING), now=NOW) == Running()


def test_all_completed_is_success():
    assert decide(gang(ended(0), ended(1)), now=NOW) == Finish(Cause.COMPLETED, "")
    assert decide(gang(ended(0), replica(1)), now=NOW) == Wait()


def test_those_who_linger_after_worker_0_has_completed_are_ended():
    assert decide(gang(ended(0, ago_s=31), replica(1)), now=NOW) == End(Cause.COMPLETED, "")
    assert decide(gang(replica(0), ended(1, ago_s=31)), now=NOW) == Wait()


def test_under_parameter_servers_the_chief_decides():
    gang_of = [ended(0, role=Role.CHIEF), replica(0), replica(0, role=Role.PS)]
    assert decide(gang(*gang_of, strategy=Strategy.PARAMETER_SERVER), now=NOW) == End(Cause.COMPLETED, "")
    stopping = gang(
        ended(0, role=Role.CHIEF),
        ended(0, Cause.STOPPED),
        strategy=Strategy.PARAMETER_SERVER,
        status=JobStatus.STOPPING,
        cause=Cause.COMPLETED,
    )
    assert decide(stopping, now=NOW) == Finish(Cause.COMPLETED, "")


def test_in_a_pipeline_the_first_worker_decides():
    assert decide(gang(ended(0), replica(1), strategy=Strategy.PIPELINE), now=NOW) == End(Cause.COMPLETED, "")
    assert decide(gang(replica(0), replica(1), strategy=Strategy.PIPELINE), now=NOW) == Wait()


def test_the_stages_of_a_pipeline_are_ended_when_the_first_worker_has_trained():
    gang_of = [ended(0), replica(1), replica(2)]
    assert decide(gang(*gang_of, strategy=Strategy.PIPELINE), now=NOW) == End(Cause.COMPLETED, "")
    late = gang(
        ended(0),
        ended(1, Cause.STOPPED),
        strategy=Strategy.PIPELINE,
        status=JobStatus.STOPPING,
        cause=Cause.STOPPED,
    )
    assert decide(late, now=NOW).status == JobStatus.SUCCEEDED


@pytest.mark.parametrize("strategy", [Strategy.MULTI_WORKER_MIRRORED, Strategy.PARAMETER_SERVER])
def test_an_evaluator_has_time_for_the_last_checkpoint_and_not_without_end(strategy):
    evaluator = replica(0, role=Role.EVALUATOR)

    def after(seconds):
        rest = [replica(0, role=Role.PS)] if strategy is Strategy.PARAMETER_SERVER else []
        leader = ended(0, role=Role.CHIEF, ago_s=seconds)
        return decide(gang(leader, ended(0, ago_s=seconds), *rest, evaluator, strategy=strategy), now=NOW)

    assert after(60) == Wait()
    assert after(601) == End(Cause.COMPLETED, "")
    done = gang(ended(0), ended(0, role=Role.EVALUATOR))
    assert decide(done, now=NOW) == Finish(Cause.COMPLETED, "")


def test_an_evaluator_that_ends_first_ends_nobody():
    early = gang(replica(0), ended(0, role=Role.EVALUATOR, ago_s=60))
    assert decide(early, now=NOW) == Wait()


def test_a_chief_of_a_synchronous_gang_leads():
    assert decide(gang(replica(0, role=Role.CHIEF), ended(0, ago_s=31)), now=NOW) == Wait()
    assert decide(gang(ended(0, role=Role.CHIEF, ago_s=31), replica(0)), now=NOW) == End(Cause.COMPLETED, "")


def test_a_killed_worker_ends_the_rest_in_words_and_the_gang_is_launched_again():
    decision = decide(gang(replica(0), ended(1, Cause.SIGNAL, signal=9, message="x", last_lines="bye")), now=NOW)
    assert decision == End(
        Cause.SIGNAL,
        "worker 1 on node-2 was killed by signal 9 (SIGKILL). The last lines it wrote:\nbye",
        restart=True,
    )


def test_a_consequence_waits_for_its_cause():
    early = gang(ended(0, **LOST, ago_s=1), replica(1))
    assert decide(early, now=NOW) == Wait()
    late = gang(ended(0, **LOST, ago_s=2), replica(1))
    unknown = decide(late, now=NOW)
    assert (unknown.restart, unknown.certain) == (True, False)


@pytest.mark.parametrize(
    ("heard_meanwhile", "relaunched"),
    [(Cause.NODE_LOST, True), (Cause.AGENT_SHUTDOWN, True), (Cause.STOPPED, True), (Cause.LOSS_NOT_FINITE, False)],
)
def test_whether_a_gang_that_lost_a_peer_is_launched_again_is_known_when_all_have_ended(heard_meanwhile, relaunched):
    told = ended(0, **LOST, ago_s=9)
    torn_down = gang(told, ended(1, heard_meanwhile), status=JobStatus.RESTARTING, cause=Cause.EXCEPTION, reason=PEER)
    decision = decide(torn_down, now=NOW)
    assert isinstance(decision, Relaunch if relaunched else Finish)
    assert decision.cause is (Cause.EXCEPTION if heard_meanwhile is Cause.STOPPED else heard_meanwhile)


def test_a_gang_in_which_everybody_only_lost_a_peer_is_launched_again_once():
    lost = [ended(index, **LOST, ago_s=9 - index) for index in (0, 1)]
    torn_down = gang(*lost, status=JobStatus.RESTARTING, cause=Cause.EXCEPTION, reason=PEER)
    assert decide(torn_down, now=NOW) == Relaunch(Cause.EXCEPTION, f"worker 0 on node-1 failed: {PEER}", Again())
    both = decide(gang(*lost), now=NOW)
    assert (both.cause, both.restart, both.certain) == (Cause.EXCEPTION, True, True)
    before = AttemptEnd(1, Cause.EXCEPTION, Blame.PEER, step=7, first_step=0)
    again = decide(gang(*lost, status=JobStatus.RESTARTING, attempt=2, earlier=(before,)), now=NOW)
    assert (again.status, again.cause) == (JobStatus.FAILED, Cause.EXCEPTION)
    assert "No process failed by itself, as in attempt 1" in again.reason


def test_who_loses_a_peer_that_has_run_to_its_end_was_given_more_work_by_the_program():
    gang_of = [ended(0, ago_s=5), ended(1, **LOST)]
    assert blame_in(tuple(gang_of), gang_of[1]) is Blame.PROGRAM
    assert decide(gang(*gang_of), now=NOW).status is JobStatus.FAILED
    judged = (ended(0, role=Role.EVALUATOR), gang_of[1])
    assert blame_in(judged, gang_of[1]) is Blame.PEER


def test_an_abort_of_its_own_comes_before_who_says_that_it_lost_a_peer():
    told, aborted = ended(0, **LOST, ago_s=2), ended(1, Cause.SIGNAL, signal=6, ago_s=1)
    assert root_cause((told, aborted)) is aborted


@pytest.mark.parametrize(
    "own",
    [
        {"cause": Cause.SIGNAL, "signal": 9},
        {"cause": Cause.OUT_OF_MEMORY},
        {"cause": Cause.LOSS_NOT_FINITE},
        {"cause": Cause.EXCEPTION, "message": "ValueError: bad shape"},
        {"cause": Cause.EXIT_CODE, "code": 3},
        {"cause": Cause.PORT_TAKEN},
    ],
)
def test_what_a_process_did_itself_comes_before_a_lost_peer(own):
    consequence = ended(0, **LOST, ago_s=3)
    aborted = ended(2, Cause.SIGNAL, signal=6, ago_s=4)
    assert root_cause((consequence, aborted, ended(1, **own))).index == 1


def test_of_equals_the_first_wins():
    first, second = (ended(index, Cause.EXCEPTION, message="ValueError", ago_s=5 - index) for index in (0, 1))
    assert root_cause((second, first)) is first


def test_the_verdict_may_change_until_the_last_has_ended():
    stopping = gang(
        ended(0, **LOST, ago_s=9),
        ended(1, Cause.NODE_LOST, status=ReplicaStatus.LOST, message="Node node-2 is lost."),
        status=JobStatus.STOPPING,
        cause=Cause.EXCEPTION,
        reason="worker 0 lost its peer",
    )
    decision = decide(stopping, now=NOW)
    assert (decision.status, decision.cause) == (JobStatus.FAILED, Cause.NODE_LOST)
    assert "Node node-2 is lost." in decision.reason


def test_a_shutdown_is_nobodys_fault_however_often():
    assert decide(gang(ended(0, Cause.AGENT_SHUTDOWN), replica(1), attempt=7), now=NOW).restart


def test_a_taken_port_is_launched_again_up_to_three_times():
    cause = Cause.PORT_TAKEN
    earlier = tuple(AttemptEnd(number, cause, Blame.MACHINE, step=0, first_step=0) for number in (1, 2))
    for number in (1, 2):
        facts = gang(ended(0, cause), replica(1), attempt=number, earlier=earlier[: number - 1])
        assert decide(facts, now=NOW).restart
    last = decide(gang(ended(0, cause), attempt=3, earlier=earlier), now=NOW)
    assert last.status is JobStatus.FAILED
    assert last.reason.endswith("This was attempt 3 in a row without a step.")
    torn_down = gang(ended(0, cause), ended(1, Cause.STOPPED), status=JobStatus.RESTARTING, cause=cause, reason="r")
    assert decide(torn_down, now=NOW) == Relaunch(cause, "worker 0 on node-1 found its port in use.", Again())


def test_a_failing_program_is_tried_again_as_often_as_asked_for():
    crashed = ended(0, Cause.EXIT_CODE, code=3)
    assert isinstance(decide(gang(crashed), now=NOW), Finish)
    assert decide(gang(crashed, replica(1), max_restarts=1), now=NOW).restart
    torn_down = gang(crashed, ended(1, Cause.STOPPED), status=JobStatus.RESTARTING, max_restarts=1)
    assert decide(torn_down, now=NOW).again == Again(10.0, 1)


def test_the_verdict_of_a_stopping_gang_keeps_its_words():
    facts = gang(
        ended(0, Cause.PORT_TAKEN),
        status=JobStatus.STOPPING,
        cause=Cause.PORT_TAKEN,
        reason="Taken. For the third time.",
    )
    assert decide(facts, now=NOW) == Finish(Cause.PORT_TAKEN, "Taken. For the third time.")


def test_stopping_waits_for_the_last():
    assert decide(gang(replica(0), status=JobStatus.STOPPING, cause=Cause.STOPPED), now=NOW) == Wait()


def test_a_stop_outranks_later_failures():
    stopping = gang(ended(0, Cause.EXCEPTION, message="x"), status=JobStatus.STOPPING, cause=Cause.STOPPED, reason="me")
    assert decide(stopping, now=NOW) == Finish(Cause.STOPPED, "me")


def test_a_stop_that_comes_too_late_changes_nothing():
    stopping = gang(ended(0), ended(1), status=JobStatus.STOPPING, cause=Cause.STOPPED, reason="me")
    assert decide(stopping, now=NOW).status is JobStatus.SUCCEEDED


def test_time_limit_fails_the_job():
    stopping = gang(ended(0, Cause.STOPPED), status=JobStatus.STOPPING, cause=Cause.TIME_LIMIT, reason="too long")
    assert decide(stopping, now=NOW) == Finish(Cause.TIME_LIMIT, "too long")


def test_a_replica_stopped_by_nobodys_wish_ends_the_gang_legally():
    assert isinstance(decide(gang(ended(0, Cause.STOPPED), status=JobStatus.LAUNCHING), now=NOW), End)


facts = st.builds(
    replica,
    st.integers(0, 3),
    st.sampled_from([ReplicaStatus.ASSIGNED, ReplicaStatus.STARTING, ReplicaStatus.RUNNING]),
    st.none() | st.sampled_from(list(Cause)),
    role=st.sampled_from([Role.WORKER, Role.CHIEF, Role.PS]),
    ago_s=st.floats(0, 60),
    message=st.text(),
    lost_peer=st.booleans(),
    silent=st.booleans(),
    signal=st.none() | st.integers(1, 64),
)


@given(
    st.lists(facts, min_size=1, max_size=5),
    st.sampled_from(list(JobStatus)),
    st.sampled_from(list(Strategy)),
    st.integers(1, 4),
    st.none() | st.sampled_from(list(Cause)),
)
def test_nothing_finishes_while_a_process_lives(replicas, status, strategy, number, cause):
    replicas = [
        found if found.cause is None else replica(found.index, ReplicaStatus.EXITED, found.cause, role=found.role)
        for found in replicas
    ]
    decision = decide(gang(*replicas, status=status, strategy=strategy, attempt=number, cause=cause), now=NOW)
    live = any(found.cause is None for found in replicas)
    assert not (live and isinstance(decision, Finish | Relaunch))
    if isinstance(decision, End):
        assert status in (JobStatus.LAUNCHING, JobStatus.RUNNING)


SILENT = LOST | {"silent": True}
SUSPENDED = {"kernel_saw": "the process was suspended by a signal (state T).", "message": "No longer heard."}


def test_who_answers_no_more_without_having_ended_hangs():
    lost = ended(0, **SILENT, ago_s=2)
    decision = decide(gang(lost, replica(1)), now=NOW)
    assert isinstance(decision, End)
    assert (decision.cause, decision.restart, decision.certain, decision.stacks) == (Cause.HUNG, True, False, True)
    assert decision.reason == "worker 1 on node-2 stopped answering, so worker 0 on node-1 gave up."
    three = decide(gang(lost, replica(1), replica(2)), now=NOW)
    assert three.reason == "One process of the gang stopped answering, so worker 0 on node-1 gave up."
    torn_down = gang(
        lost,
        ended(1, Cause.HUNG, **SUSPENDED, signal=9),
        status=JobStatus.RESTARTING,
        cause=Cause.HUNG,
        reason=decision.reason,
    )
    again = decide(torn_down, now=NOW)
    assert isinstance(again, Relaunch)
    assert again.cause is Cause.HUNG
    assert again.reason == f"{decision.reason} worker 1 on node-2: the process was suspended by a signal (state T)."


@pytest.mark.parametrize(
    "words",
    [
        "ValueError: unknown collective 'ring2'",
        "ValueError: the order was cancelled",
        "TimeoutError: deadline exceeded at the data server's peer",
        "A peer went away: connection reset, heartbeat, coordination service, unavailable",
    ],
)
def test_words_of_the_programs_own_give_no_restart_that_any_other_exception_does_not_get(words):
    for others in ((replica(1),), (replica(1), replica(0, role=Role.PS)), ()):
        told, plain = (ended(0, Cause.EXCEPTION, message=text, ago_s=3) for text in (words, "ValueError: bad"))
        for strategy in (Strategy.MULTI_WORKER_MIRRORED, Strategy.PARAMETER_SERVER):
            found = decide(gang(told, *others, strategy=strategy), now=NOW)
            wanted = decide(gang(plain, *others, strategy=strategy), now=NOW)
            assert not getattr(found, "restart", False)
            assert found == replace(wanted, reason=wanted.reason.replace("ValueError: bad", words))


def test_heartbeats_that_stopped_because_a_process_ended_are_no_hang():
    lost = ended(0, **SILENT, ago_s=2)
    for other in (ended(1, Cause.SIGNAL, signal=9), ended(1, Cause.COMPLETED)):
        decision = decide(gang(lost, other, replica(2)), now=NOW)
        assert getattr(decision, "cause", None) is not Cause.HUNG


def test_what_a_process_did_by_itself_comes_before_the_hang_of_the_rest():
    torn_down = gang(
        ended(0, Cause.HUNG, message="No step.", ago_s=3),
        ended(1, Cause.OUT_OF_MEMORY, ago_s=1),
        status=JobStatus.RESTARTING,
        cause=Cause.HUNG,
        reason="No step.",
    )
    assert decide(torn_down, now=NOW).cause is Cause.OUT_OF_MEMORY
