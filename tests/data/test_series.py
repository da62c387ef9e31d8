"""Blocks: what is appended is read back in order, merged or not, and thinned without losing what a line shows."""

import math

import numpy as np
import pytest

from orchestrator import series
from orchestrator.models import SeriesBlock
from orchestrator.series import Addition, Owner, curve_of
from tests.factories import make_node, make_replica

pytestmark = pytest.mark.django_db


@pytest.fixture
def owner() -> Owner:
    return Owner(replica_id=make_replica().pk)


def add(owner: Owner, first: int, count: int, name: str = "loss") -> None:
    steps = range(first, first + count)
    series.append(
        [Addition(owner, name, curve_of(steps, [float(step) for step in steps], [step * 0.5 for step in steps]))]
    )


def test_numbers_come_back_as_they_were_written(owner: Owner) -> None:
    values = [math.nan, math.inf, -math.inf, -0.0, 5e-324, 1.7976931348623157e308]
    series.append([Addition(owner, "<script>", curve_of(range(6), [0.5] * 6, values))])
    run = series.read([owner])[owner, "<script>"]
    assert run.values.tobytes() == np.array(values).tobytes()
    assert run.steps.tolist() == [0, 1, 2, 3, 4, 5]


def test_small_blocks_are_merged_as_they_gather_and_stay_in_order(owner: Owner) -> None:
    for number in range(1000):
        add(owner, number * 3, 3)
    assert SeriesBlock.objects.count() <= series.SORTED_AFTER_BLOCKS
    assert series.read([owner])[owner, "loss"].steps.tolist() == list(range(3000))


def test_a_large_block_between_small_ones_keeps_its_place(owner: Owner) -> None:
    first = 0
    for number in range(200):
        count = series.FULL_BLOCK_POINTS if number % 50 == 20 else 1
        add(owner, first, count)
        first += count
    assert series.read([owner])[owner, "loss"].steps.tolist() == list(range(first))
    assert SeriesBlock.objects.count() < 100


def test_merging_goes_on_after_a_restart(owner: Owner) -> None:
    for number in range(300):
        add(owner, number, 1)
        series.appends.forget()
    assert SeriesBlock.objects.count() <= series.SORTED_AFTER_BLOCKS
    assert series.read([owner])[owner, "loss"].steps.tolist() == list(range(300))


def test_series_do_not_mix(owner: Owner) -> None:
    node = Owner(node_id=make_node().pk)
    for number in range(70):
        add(owner, number, 1, "loss")
        add(owner, number + 1000, 1, "accuracy")
        add(node, number + 2000, 1, "loss")
    found = series.read([owner, node])
    assert found[owner, "loss"].steps[0] == 0
    assert found[owner, "accuracy"].steps.tolist() == list(range(1000, 1070))
    assert found[node, "loss"].steps.tolist() == list(range(2000, 2070))
    assert set(series.read([owner], names=["accuracy"])) == {(owner, "accuracy")}


def test_names_are_bounded_in_number_and_length(owner: Owner) -> None:
    series.append(
        [Addition(owner, f"m{number}", curve_of([0], [0.0], [0.0])) for number in range(series.NAMES_PER_OWNER)]
    )
    refused = series.append(
        [Addition(owner, "one more", curve_of([0], [0.0], [0.0])), Addition(owner, "m1", curve_of([1], [1.0], [1.0]))]
    )
    assert refused == {(owner, "one more")}
    assert len(series.read([owner])[owner, "m1"].steps) == 2
    assert len(series.tidy_name("x" * 1000)) == series.NAME_CHARS
    assert series.tidy_name("\0") == "unnamed"


@pytest.mark.parametrize(
    ("steps", "times", "values"), [([1], [1.0, 2.0], [1.0]), ([1], [1.0], []), ([1], [math.nan], [1.0])]
)
def test_columns_that_do_not_fit_are_refused(steps: list[int], times: list[float], values: list[float]) -> None:
    with pytest.raises(ValueError, match=r"differ|not a number"):
        curve_of(steps, times, values)


def test_thinning_keeps_ends_and_extremes() -> None:
    values = np.sin(np.arange(100_000) / 1000)
    values[31_234], values[77_777] = 40.0, -40.0
    run = curve_of(range(100_000), np.arange(100_000.0), values)
    thin = series.thin(run, 1000)
    assert len(thin.steps) <= 1000
    assert (thin.steps[0], thin.steps[-1]) == (0, 99_999)
    assert {31_234, 77_777} <= set(thin.steps.tolist())
    assert np.all(np.diff(thin.steps) > 0)


def test_thinning_keeps_a_single_nan_and_its_neighbours_extremes() -> None:
    values = np.ones(50_000)
    values[12_345], values[12_346], values[12_400] = math.nan, 9.0, -9.0
    thin = series.thin(curve_of(range(50_000), np.arange(50_000.0), values), 600)
    kept = dict(zip(thin.steps.tolist(), thin.values.tolist(), strict=True))
    assert len(kept) <= 600
    assert math.isnan(kept[12_345])
    assert (kept[12_346], kept[12_400]) == (9.0, -9.0)


def test_thinning_a_series_of_nothing_but_nan() -> None:
    thin = series.thin(curve_of(range(5000), np.arange(5000.0), [math.nan] * 5000), 100)
    assert np.isnan(thin.values).all()
    assert (thin.steps[0], thin.steps[-1]) == (0, 4999)


def test_short_series_are_left_alone() -> None:
    run = curve_of(range(10), np.arange(10.0), np.arange(10.0))
    assert series.thin(run, 10) is run


def test_a_window_of_time_and_the_end_of_old_load() -> None:
    node, owner = Owner(node_id=make_node().pk), Owner(replica_id=make_replica().pk)
    for number in range(100):
        add(node, number * 10, 10, "cpu_percent")
        add(owner, number * 10, 10)
    recent = series.read([node], since=905.0)[node, "cpu_percent"]
    assert recent.steps.tolist() == list(range(905, 1000))
    assert series.read([node], since=5000.0) == {}
    series.drop_node_points(before=800.0)
    assert series.read([node])[node, "cpu_percent"].steps[0] == 800
    assert len(series.read([owner])[owner, "loss"].steps) == 1000


def test_a_hundred_thousand_points_stay_few_rows_and_few_queries(
    owner: Owner, django_assert_num_queries: object
) -> None:
    for number in range(400):
        add(owner, number * 250, 250)
    assert SeriesBlock.objects.count() < 100
    with django_assert_num_queries(1):  # type: ignore[operator]
        run = series.read([owner])[owner, "loss"]
    assert run.steps.tolist() == list(range(100_000))
    assert len(series.thin(run, 1000).steps) <= 1000


def test_many_owners_are_sorted_in_by_turns() -> None:
    owners = [Owner(replica_id=make_replica(index=index).pk) for index in range(series.SORTED_AT_ONCE + 4)]
    for number in range(series.SORTED_AFTER_BLOCKS):
        said = series.Points(["loss", "accuracy"], [number], [float(number)], [[0.5], [0.25]])
        series.store({owner: [said] for owner in owners})
    unsorted = set(SeriesBlock.objects.filter(name=series.UNSORTED).values_list("replica_id", flat=True))
    assert len(unsorted) == 4, "one batch sorts in no more"
    found = series.read(owners)
    assert len(found) == 2 * len(owners)
    assert all(run.steps.tolist() == list(range(series.SORTED_AFTER_BLOCKS)) for run in found.values())
    assert set(series.read(owners, names=["loss"])) == {(owner, "loss") for owner in owners}


def test_much_at_once_goes_straight_to_its_series(owner: Owner) -> None:
    add(owner, 0, 5)
    add(owner, 5, series.SORTED_AFTER_NUMBERS)
    assert list(SeriesBlock.objects.values_list("name", flat=True)) == ["loss"]
    assert series.read([owner])[owner, "loss"].steps.tolist() == list(range(series.SORTED_AFTER_NUMBERS + 5))


def test_a_batch_is_one_row_of_all_its_series(owner: Owner, django_assert_num_queries) -> None:  # type: ignore[no-untyped-def]
    said = series.Points(["loss", "accuracy", "grad"], [1, 2], [1.0, 2.0], [[0.5, 0.4], [0.25, 0.5], [1.0, 2.0]])
    series.store({owner: [said]})
    with django_assert_num_queries(1):
        series.store({owner: [said, said]})
    assert SeriesBlock.objects.count() == 2
    assert series.read([owner])[owner, "grad"].values.tolist() == [1.0, 2.0] * 3
