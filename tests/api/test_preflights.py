"""REST of preflights: begin one, ask until it is done; what is refused."""

import pytest

from orchestrator.models import Command, Node, Preflight, User
from orchestrator.services.trials import probing
from tests.api.conftest import Caller, Program
from tests.api.test_jobs import request_body
from tests.factories import make_user
from worker_agent.protocol.findings import Finding
from worker_agent.protocol.reports import Probed

__all__ = ["request_body"]


@pytest.fixture
def api(calls_as: Caller, member: User) -> Program:
    """REST as a member."""
    return calls_as(member)


def test_a_check_from_request_to_answer(api: Program, request_body: dict[str, object]) -> None:
    begun = api.post("/preflight", request_body)
    assert begun.status_code == 202
    assert begun.json()["state"] == "running"
    row = Preflight.objects.get(pk=begun.json()["id"])
    for number, node in enumerate(Node.objects.filter(probes__preflight=row).order_by("name")):
        found = [Finding("the program ends", "it raised", "Mend it")] if number == 0 else []
        report = Probed(node_id=node.pk, preflight_id=row.pk, findings=found)
        probing.on_probed(node=node, report=report, now=row.created_at)
    done = api.get(f"/preflight/{row.pk}").json()
    assert (done["state"], done["waiting"], done["blocked"], len(done["nodes"])) == ("done", [], True, 2)
    assert [(each["severity"], each["what"], each["remedy"]) for each in done["findings"]] == [
        ("error", "the program ends", "Mend it")
    ]
    assert done["findings"][0]["node"] in done["nodes"]


def test_a_check_that_is_cancelled_ends_on_its_nodes_and_is_forgotten(
    api: Program, request_body: dict[str, object]
) -> None:
    begun = api.post("/preflight", request_body).json()["id"]
    assert api.delete(f"/preflight/{begun}").status_code == 204
    assert Command.objects.filter(kind="withdraw").count() == 2
    assert api.get(f"/preflight/{begun}").status_code == 404
    assert api.delete(f"/preflight/{begun}").status_code == 404


def test_what_cannot_be_checked(api: Program, request_body: dict[str, object]) -> None:
    wrong = api.post("/preflight", request_body | {"workers": 99, "global_batch_size": 99})
    assert wrong.status_code == 422
    assert [error["field"] for error in wrong.json()["errors"]] == ["workers"]
    assert api.get("/preflight/99").status_code == 404
    assert not Preflight.objects.exists()


def test_a_check_is_ones_own(api: Program, request_body: dict[str, object]) -> None:
    begun = api.post("/preflight", request_body).json()["id"]
    Preflight.objects.update(owner=make_user())
    assert api.get(f"/preflight/{begun}").status_code == 404
