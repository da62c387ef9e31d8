"""Which processes of a gang are launched anew while the others go on."""

import pytest

from orchestrator.domain.gang.decisions import End, Finish, Replace, Wait, decide
from orchestrator.domain.gang.restarts import Again, AttemptEnd
from tests.domain.gang.gangs import NOW, ended, gang, replica
from worker_agent.protocol.causes import Blame
from worker_agent.protocol.states import Cause, JobStatus, Kind, ReplicaStatus, Role, Strategy

LOST = {"cause": Cause.EXCEPTION, "message": "A peer went away: UnavailableError: Socket closed", "lost_peer": True}
KILLED = {"cause": Cause.SIGNAL, "signal": 9}


def served(*replicas, **fields):
    """A gang under parameter servers: these, and of chief, workers and ps those that are not among them."""
    there = {(each.role, each.index) for each in replicas}
    others = [(Role.CHIEF, 0), (Role.WORKER, 0), (Role.WORKER, 1), (Role.PS, 0), (Role.PS, 1)]
    rest = [replica(index, role=role) for role, index in others if (role, index) not in there]
    return gang(*replicas, *rest, **({"strategy": Strategy.PARAMETER_SERVER} | fields))


def replaced(decision):
    assert isinstance(decision, Replace)
    return [{(each.role, each.index) for each in part.members} for part in decision.parts]


VARIABLES = {(Role.CHIEF, 0), (Role.PS, 0), (Role.PS, 1)}


def test_a_worker_is_replaced_alone():
    (part,) = decide(served(ended(1, **KILLED)), now=NOW).parts
    assert [(each.role, each.index) for each in part.members] == [(Role.WORKER, 1)]
    assert (part.again, part.from_checkpoint) == (Again(), False)


@pytest.mark.parametrize(("role", "index"), [(Role.CHIEF, 0), (Role.PS, 0), (Role.PS, 1)])
def test_who_holds_variables_begins_anew_together(role, index):
    (part,) = decide(served(ended(index, role=role, **KILLED)), now=NOW).parts
    assert {(each.role, each.index) for each in part.members} == VARIABLES
    assert part.from_checkpoint


def test_two_failures_are_mended_side_by_side():
    found = replaced(decide(served(ended(0, **KILLED), ended(0, role=Role.PS, **KILLED)), now=NOW))
    assert sorted(found, key=len) == [{(Role.WORKER, 0)}, VARIABLES]


def test_a_chief_that_lost_its_server_is_blamed_on_the_server():
    chief = ended(0, role=Role.CHIEF, **LOST, ago_s=1)
    assert decide(served(chief), now=NOW) == Wait()
    (part,) = decide(served(chief, ended(1, role=Role.PS, **KILLED)), now=NOW).parts
    assert (part.why.role, part.why.index, part.failed.role) == (Role.PS, 1, Role.PS)


def test_a_chief_that_lost_a_worker_is_blamed_on_the_worker():
    chief = ended(0, role=Role.CHIEF, **LOST)
    parts = decide(served(chief, ended(1, **KILLED)), now=NOW).parts
    assert {part.why.role for part in parts} == {Role.WORKER}
    assert {part.failed.role for part in parts} == {Role.CHIEF, Role.WORKER}


def test_a_chief_whose_servers_live_says_for_sure_when_they_have_ended():
    chief = ended(0, role=Role.CHIEF, **LOST, ago_s=3)
    assert replaced(decide(served(chief), now=NOW)) == [VARIABLES]
    stopped = [ended(index, Cause.STOPPED, role=Role.PS) for index in (0, 1)]
    (part,) = decide(served(chief, *stopped), now=NOW).parts
    assert (part.why.role, part.again) == (Role.CHIEF, Again())
    before = AttemptEnd(1, Cause.EXCEPTION, Blame.PEER, 3, 0)
    assert isinstance(decide(served(chief, *stopped, earlier=(before,)), now=NOW), End)


@pytest.mark.parametrize(
    "cause",
    [Cause.NODE_LOST, Cause.LEASE_LOST, Cause.HUNG, Cause.AGENT_SHUTDOWN, Cause.PORT_TAKEN, Cause.RENDEZVOUS_TIMEOUT],
)
def test_what_takes_the_place_as_well_ends_the_gang(cause):
    status = ReplicaStatus.LOST if cause is Cause.NODE_LOST else ReplicaStatus.EXITED
    decision = decide(served(ended(1, cause, status=status, ago_s=5)), now=NOW)
    assert isinstance(decision, End)


def test_a_node_that_takes_nothing_new_ends_the_gang():
    decision = decide(served(ended(1, node_takes=False, **KILLED)), now=NOW)
    assert isinstance(decision, End)
    assert decision.restart
    # One whose own process is at work does not matter: it stays.
    assert replaced(decide(served(ended(1, **KILLED), replica(0, node_takes=False)), now=NOW)) == [{(Role.WORKER, 1)}]


@pytest.mark.parametrize("status", [JobStatus.LAUNCHING, JobStatus.RESTARTING, JobStatus.STOPPING])
def test_only_a_running_gang_is_mended(status):
    assert not isinstance(decide(served(ended(1, **KILLED), status=status), now=NOW), Replace)


def test_a_synchronous_gang_goes_down_together_and_its_evaluator_comes_back_alone():
    assert isinstance(decide(gang(replica(0), ended(1, **KILLED)), now=NOW), End)
    judge = ended(0, role=Role.EVALUATOR, **KILLED)
    assert replaced(decide(gang(replica(0), replica(1), judge), now=NOW)) == [{(Role.EVALUATOR, 0)}]
    assert isinstance(decide(gang(replica(0), ended(1, **KILLED), judge), now=NOW), End)


def test_the_chief_of_a_script_takes_everybody_along_its_workers_do_not():
    assert replaced(decide(served(ended(1, **KILLED), kind=Kind.SCRIPT), now=NOW)) == [{(Role.WORKER, 1)}]
    assert isinstance(decide(served(ended(0, role=Role.CHIEF, **KILLED), kind=Kind.SCRIPT), now=NOW), End)


def test_a_program_that_fails_is_tried_as_often_as_it_may():
    crash = ended(1, Cause.EXCEPTION, message="ValueError: bad")
    decision = decide(served(crash), now=NOW)
    assert isinstance(decision, End)
    assert not decision.restart
    (part,) = decide(served(crash, max_restarts=1), now=NOW).parts
    assert part.again == Again(10.0, 1)
    once = (AttemptEnd(1, Cause.EXCEPTION, Blame.PROGRAM, 3, 0, "TypeError"),)
    assert isinstance(decide(served(crash, max_restarts=1, earlier=once), now=NOW), End)


def test_what_the_machines_did_has_an_end_too():
    often = tuple(AttemptEnd(1, Cause.SIGNAL, Blame.MACHINE, 99, first_step) for first_step in range(10))
    decision = decide(served(ended(1, **KILLED), earlier=often, step=99), now=NOW)
    assert isinstance(decision, End)
    assert "It has been launched again 10 times" in decision.reason
    assert replaced(decide(served(ended(1, **KILLED), earlier=often[1:], step=99), now=NOW)) == [{(Role.WORKER, 1)}]


def test_when_the_training_is_done_its_servers_may_die():
    chief, judge = ended(0, role=Role.CHIEF), replica(0, role=Role.EVALUATOR)
    assert decide(served(chief, judge, ended(0, role=Role.PS, **KILLED)), now=NOW) == Wait()
    dead = ended(0, role=Role.EVALUATOR, **KILLED)
    assert replaced(decide(served(chief, dead), now=NOW)) == [{(Role.EVALUATOR, 0)}]
    gone = [ended(index, role=role, **KILLED) for role, index in [(Role.PS, 0), (Role.PS, 1), (Role.WORKER, 0)]]
    everybody = gang(chief, *gone, ended(1, **KILLED), strategy=Strategy.PARAMETER_SERVER)
    assert decide(everybody, now=NOW) == Finish(Cause.COMPLETED, "")


def test_of_a_script_without_a_chief_worker_0_takes_the_gang_along():
    """It made the variables; another worker only goes on with them."""
    leader, other, server = replica(0), replica(1), replica(0, role=Role.PS)
    script = {"strategy": Strategy.PARAMETER_SERVER, "kind": Kind.SCRIPT}
    assert replaced(decide(gang(leader, ended(1, **KILLED), server, **script), now=NOW)) == [{(Role.WORKER, 1)}]
    for failed in ((ended(0, **KILLED), other, server), (leader, other, ended(0, role=Role.PS, **KILLED))):
        decision = decide(gang(*failed, **script), now=NOW)
        assert isinstance(decision, End)
        assert decision.restart
