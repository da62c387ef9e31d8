"""When the gang of a script has done its work."""

from orchestrator.domain.gang.decisions import End, Finish, Wait, decide
from tests.domain.gang.gangs import NOW, ended, gang, replica
from worker_agent.protocol.states import Cause, JobStatus, Kind, Role, Strategy


def test_of_a_script_everybody_who_computes_has_to_end():
    one_left = gang(ended(0, ago_s=3600), replica(1), kind=Kind.SCRIPT)
    assert decide(one_left, now=NOW) == Wait()
    served = gang(ended(0), ended(1), replica(0, role=Role.PS), kind=Kind.SCRIPT)
    assert decide(served, now=NOW) == End(Cause.COMPLETED, "")


def test_the_servers_and_evaluators_of_a_script_join_for_ever_and_are_ended():
    def after(seconds, *others):
        rest = [replica(0), replica(0, role=Role.PS), *others]
        facts = gang(
            ended(0, role=Role.CHIEF, ago_s=seconds), *rest, strategy=Strategy.PARAMETER_SERVER, kind=Kind.SCRIPT
        )
        return decide(facts, now=NOW)

    assert after(0) == End(Cause.COMPLETED, "")
    assert after(10, replica(0, role=Role.EVALUATOR)) == Wait()
    assert after(31, replica(0, role=Role.EVALUATOR)) == End(Cause.COMPLETED, "")


def test_of_a_script_without_a_chief_all_workers_have_to_end_then_its_servers_are_ended():
    """Worker 0 leads, and the others still work when it has left; parameter servers join for ever."""
    script = {"kind": Kind.SCRIPT, "strategy": Strategy.PARAMETER_SERVER}
    server = replica(0, role=Role.PS)
    assert decide(gang(ended(0), replica(1), server, **script), now=NOW) == Wait()
    done, over = (ended(0), ended(1)), Finish(Cause.COMPLETED, "")
    assert decide(gang(*done, server, **script), now=NOW) == End(Cause.COMPLETED, "")
    assert decide(gang(*done, ended(0, Cause.COMPLETED, role=Role.PS), **script), now=NOW) == Finish(
        Cause.COMPLETED, ""
    )
    late = ended(0, Cause.SIGNAL, role=Role.PS, signal=9)
    assert decide(gang(*done, late, **script), now=NOW) == over, "it only served"
    stopping = {"status": JobStatus.STOPPING, "cause": Cause.STOPPED}
    stopped = [ended(0, Cause.STOPPED), ended(1, Cause.STOPPED), ended(0, Cause.STOPPED, role=Role.PS)]
    assert decide(gang(*stopped, **script, **stopping), now=NOW).status is JobStatus.STOPPED
