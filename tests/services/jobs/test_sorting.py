"""The order of the list of jobs: by every column and by a metric, page by page, with those that lack it last."""

import pytest

from orchestrator.models import JobMetric, User
from orchestrator.queries import jobs
from orchestrator.queries.sorting import COLUMNS, DEEPEST, Order
from tests.factories import make_cluster, make_job
from worker_agent.protocol.states import JobStatus

pytestmark = pytest.mark.django_db


def names(user: User, order: Order, **asked: object) -> list[str]:
    return [job.name for job in jobs.page(user, order=order, **asked).items]


def with_metric(name: str, value: float | None, **columns: object) -> None:
    JobMetric.objects.create(job=make_job(name=name, **columns), name="acc", value=value)


def test_every_column_sorts_both_ways(member: User, teammate: User) -> None:
    make_job(owner=teammate, cluster=make_cluster("a"), name="x", status=JobStatus.RUNNING, step=1, total_steps=4)
    make_job(owner=member, cluster=make_cluster("b"), name="y", status=JobStatus.FAILED, step=3, total_steps=4)
    make_job(owner=member, cluster=make_cluster("c"), name="z", status=JobStatus.SUBMITTED)
    assert names(member, Order("submitted")) == ["x", "y", "z"]
    assert names(member, Order("name", descending=True)) == ["z", "y", "x"]
    assert names(member, Order("status")) == ["y", "x", "z"]
    assert names(member, Order("owner")) == ["z", "y", "x"]
    assert names(member, Order("owner", descending=True)) == ["x", "y", "z"]
    assert names(member, Order("cluster", descending=True)) == ["z", "y", "x"]
    assert names(member, Order("progress")) == ["x", "y", "z"]
    assert names(member, Order("progress", descending=True)) == ["y", "x", "z"]
    for column in COLUMNS:
        assert len(names(member, Order(column), owner="mel")) == 2


def test_a_metric_sorts_and_who_lacks_it_comes_last(member: User) -> None:
    for name, value in {"half": 0.5, "none": None, "best": 0.9, "worst": 0.1}.items():
        with_metric(name, value)
    make_job(name="without")
    rising = ["worst", "half", "best", "without", "none"]
    falling = ["best", "half", "worst", "without", "none"]
    for descending, expected in ((False, rising), (True, falling)):
        order = Order("metric", descending, "acc")
        assert names(member, order) == expected
        paged, cursor = [], 0
        while cursor is not None:
            found = jobs.page(member, order=order, cursor=cursor, limit=2)
            paged += [job.name for job in found.items]
            cursor = found.next
        assert paged == expected
    assert names(member, Order("metric", metric="unheard of")) == ["without", "worst", "best", "none", "half"]


def test_a_sorted_list_is_filtered_and_knows_the_page_before(member: User) -> None:
    for number in range(5):
        with_metric(str(number), number, owner=member if number % 2 else None)
    order = Order("metric", descending=True, metric="acc")
    assert names(member, order, owner="mel") == ["3", "1"]
    second = jobs.page(member, order=order, cursor=2, limit=2)
    assert ([job.name for job in second.items], second.newer, second.next) == (["2", "1"], 0, 4)
    assert jobs.page(member, order=order, cursor=10**12, limit=2) == jobs.Page([], None, DEEPEST - 2)


def test_the_names_of_metrics_are_found_once_each(member: User) -> None:
    for name in ("loss", "acc", "loss"):
        JobMetric.objects.create(job=make_job(), name=name, value=1.0)
    assert jobs.metric_names(member) == ["acc", "loss"]


@pytest.mark.parametrize("word", ["", "nonsense", "-", "metric", "-submitted", "pk"])
def test_words_that_name_no_order_mean_the_newest_first(word: str) -> None:
    assert Order.read(word, metric="") is None
