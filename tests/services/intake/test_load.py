"""The load of nodes: a block per node and minute, written by parts, and nothing twice."""

from datetime import datetime, timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from msgspec.structs import replace

from orchestrator import series
from orchestrator.many_rows import insert_rows
from orchestrator.models import Node, SeriesBlock
from orchestrator.services.intake.load import GPU_LOAD, WRITTEN_AT_ONCE, WRITTEN_EVERY_S, Load, taken
from tests.data.conftest import NOW
from tests.data.fakes import NOW_S
from tests.factories import make_node
from worker_agent.protocol.reports import GpuSample, Sample

pytestmark = pytest.mark.django_db


@pytest.fixture
def load() -> Load:
    return Load()


def after(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def sample(gpus: int = 0, cpu: float = 5.0) -> Sample:
    found = [
        GpuSample(index=index, utilisation=50.0, memory_bytes=1 << 30, temperature=60.0, power_w=200.0 + index)
        for index in range(gpus)
    ]
    numbers = {"memory_used_bytes": 1, "memory_total_bytes": 2, "network_sent_bps": 3.0, "network_received_bps": 4.0}
    return Sample(at=NOW_S, cpu_percent=cpu, gpus=found, **numbers)


def beat(load: Load, node: Node, second: float, *, gpus: int = 0) -> None:
    load.keep([taken(node.pk, NOW_S + second, sample(gpus, cpu=second))], now=after(second))


def curve(node: Node, name: str = "cpu_percent") -> list[float]:
    owner = series.Owner(node_id=node.pk)
    return series.read([owner])[owner, name].values.tolist()


def test_a_gpu_that_takes_the_place_of_another_has_a_curve_of_its_own(load: Load) -> None:
    node, second = make_node(), sample(2)
    other = [replace(gpu, index=gpu.index + 1) for gpu in second.gpus]
    load.keep([taken(node.pk, NOW_S, second)], now=NOW)
    load.keep([taken(node.pk, NOW_S + 1, replace(second, gpus=other))], now=after(1))
    load.write(now=after(1), everything=True)
    assert curve(node, "gpu0_power_w") == [200.0]
    assert curve(node, "gpu1_power_w") == [201.0, 200.0]
    assert curve(node, "gpu2_power_w") == [201.0]


def test_a_minute_is_one_block_of_all_that_a_heartbeat_tells(load: Load) -> None:
    node = make_node()
    for second in range(120):
        beat(load, node, second, gpus=2)
        load.write(now=after(second))
    load.write(now=after(120), everything=True)
    assert SeriesBlock.objects.count() == 2
    assert curve(node) == [float(second) for second in range(120)]
    assert curve(node, "gpu1_power_w") == [201.0] * 120
    owner = series.Owner(node_id=node.pk)
    assert len(series.read([owner])) == 4 + 2 * len(GPU_LOAD)
    late = series.read([owner], names=["cpu_percent"], since=NOW_S + 110)[owner, "cpu_percent"]
    assert late.times.tolist() == [NOW_S + second for second in range(110, 120)]


def test_nothing_is_written_before_its_time(load: Load) -> None:
    node = make_node()
    beat(load, node, 0)
    with CaptureQueriesContext(connection) as captured:
        load.write(now=after(WRITTEN_EVERY_S - 1))
    assert not captured
    load.write(now=after(WRITTEN_EVERY_S))
    assert curve(node) == [0.0]


def test_many_nodes_are_written_by_parts_with_as_many_questions(load: Load) -> None:
    nodes = [make_node(name=f"many-{number}") for number in range(WRITTEN_AT_ONCE + 50)]
    for node in nodes:
        beat(load, node, 0)
    written = []
    for second in (10, 11, 12):
        with CaptureQueriesContext(connection) as captured:
            load.write(now=after(second))
        assert len(captured) <= 5
        written.append(SeriesBlock.objects.count())
    assert written == [WRITTEN_AT_ONCE, len(nodes), len(nodes)]
    for node in nodes:
        beat(load, node, 13)
    load.write(now=after(40), everything=True)
    assert SeriesBlock.objects.count() == len(nodes)
    assert all(curve(node) == [0.0, 13.0] for node in nodes)


def test_a_removed_node_keeps_nobody_from_being_written(load: Load) -> None:
    gone, stays = make_node(), make_node()
    beat(load, gone, 0)
    beat(load, stays, 0)
    gone.delete()
    load.write(now=after(20))
    assert curve(stays) == [0.0]
    assert SeriesBlock.objects.count() == 1


def test_a_gpu_that_comes_or_goes_begins_a_new_block(load: Load) -> None:
    node = make_node()
    for second, gpus in enumerate([0, 0, 1, 1, 0]):
        beat(load, node, second, gpus=gpus)
    load.write(now=after(60), everything=True)
    assert SeriesBlock.objects.count() == 3
    assert curve(node) == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert len(curve(node, "gpu0_power_w")) == 2


def test_what_was_stored_by_series_is_read_with_it(load: Load) -> None:
    node = make_node()
    owner = series.Owner(node_id=node.pk)
    row = series._block(owner, "cpu_percent", series.curve_of([0, 0], [NOW_S - 2, NOW_S - 1], [70.0, 71.0]))
    insert_rows(SeriesBlock, [row], columns=series.BLOCK_COLUMNS)
    beat(load, node, 1)
    load.write(now=after(60), everything=True)
    assert curve(node) == [70.0, 71.0, 1.0]


def test_a_clock_that_is_set_back_writes_all_the_same(load: Load) -> None:
    node = make_node()
    beat(load, node, 7200)
    load.write(now=after(0))
    assert curve(node) == [7200.0]
