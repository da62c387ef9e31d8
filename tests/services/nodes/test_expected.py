"""Nodes hear of a job that is being filled in: seldom, only where it is of use, and nobody waits for it."""

from datetime import datetime

import pytest

from orchestrator.models import Cluster, Command
from orchestrator.services.nodes import expected
from tests.agent.plans import make_spec
from tests.factories import make_cluster, make_node
from tests.services.conftest import FakeGateway
from worker_agent.protocol.commands import Expect
from worker_agent.protocol.states import Keras, Strategy


@pytest.fixture
def yard(db: None) -> Cluster:
    cluster = make_cluster("yard")
    make_node(cluster, "one")
    make_node(cluster, "two")
    return cluster


@pytest.fixture
def fill_in(yard: Cluster, now: datetime, django_capture_on_commit_callbacks):
    """Somebody fills in such a job, for all nodes."""

    def fill(**spec: object) -> None:
        node_ids = set(yard.nodes.values_list("pk", flat=True))
        with django_capture_on_commit_callbacks(execute=True):
            expected.expect(spec=make_spec(**spec), cluster=yard, node_ids=node_ids, now=now)

    return fill


def test_each_node_hears_it_once_however_often_the_form_changes(fill_in, gateway: FakeGateway) -> None:
    for name in "abc":
        fill_in(name=name)
    assert gateway.commands == [Expect(keras=Keras.KERAS3)] * 2
    assert len({parcel.node_id for parcel in gateway.parcels}) == 2
    assert not Command.objects.exists()


def test_the_other_keras_is_another_word(fill_in, gateway: FakeGateway) -> None:
    fill_in()
    fill_in(strategy=Strategy.PARAMETER_SERVER, workers=2, ps=1)
    assert [command.keras for command in gateway.commands] == [Keras.KERAS3] * 2 + [Keras.TF_KERAS] * 2


def test_a_job_that_imports_tensorflow_for_itself_has_no_use_of_it(fill_in, gateway: FakeGateway) -> None:
    fill_in(requirements=["einops"])
    fill_in(env={"TF_ENABLE_ONEDNN_OPTS": "0"})
    assert not gateway.parcels


def test_a_broker_that_is_down_keeps_nobody_from_filling_in(fill_in, gateway: FakeGateway) -> None:
    gateway.broken = True
    fill_in()
    gateway.broken = False
    fill_in()
    assert len(gateway.parcels) == 2
