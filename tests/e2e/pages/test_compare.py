"""Comparing jobs as a person does it: tick them in the list, compare, share the address, take the points along."""

import csv
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.e2e.stack import Stack

pytestmark = [pytest.mark.stack, pytest.mark.tf, pytest.mark.browser]


@pytest.fixture(scope="module")
def page(browser: Browser, stack: Stack) -> Iterator[Page]:
    """A signed-in page of the administrator; errors that its scripts raise fail the module."""
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    raised: list[str] = []
    page.on("pageerror", lambda error: raised.append(str(error)))
    page.goto(f"{stack.url}/sign-in/")
    page.get_by_label("Name").fill(stack.username)
    page.get_by_label("Password").fill(stack.password)
    page.get_by_role("button", name="Sign in", exact=True).click()
    expect(page.get_by_role("heading", name="Overview", level=1)).to_be_visible()
    yield page
    page.close()
    assert not raised


def test_jobs_ticked_in_the_list_are_compared_at_an_address_that_can_be_shared(page: Page, stack: Stack) -> None:
    made = [stack.submit(name=f"side-{epochs}", epochs=epochs) for epochs in (2, 3)]
    for job in made:
        stack.wait_for_job(job["id"], "succeeded")
    page.goto(f"{stack.url}/jobs/")
    for job in made:
        page.locator(f"input[type=checkbox][value='{job['id']}']").check()
    page.get_by_role("button", name="Compare").or_(page.get_by_role("link", name="Compare")).first.click()
    expect(page.get_by_role("heading", name="Compare 2 jobs", level=1)).to_be_visible()
    _shows_both(page)
    page.get_by_role("link", name="Epoch", exact=True).click()
    _shows_both(page)
    shared = page.url
    page.goto(f"{stack.url}/jobs/")
    page.goto(shared)
    assert "x=epoch" in shared
    _shows_both(page)


def test_a_chart_gives_the_points_that_are_stored(page: Page, stack: Stack) -> None:
    job = stack.submit(name="points", epochs=2)
    stack.wait_for_job(job["id"], "succeeded")
    page.goto(f"{stack.url}/jobs/{job['id']}/")
    card = page.locator(".ty-chart", has=page.get_by_role("heading", name="Loss", exact=True)).first
    card.locator("summary").first.click()
    with page.expect_download() as taken:
        card.get_by_role("button", name="Save points as CSV").click()
    rows = list(csv.reader(taken.value.path().read_text().splitlines()))
    stored = stack.get(f"/jobs/{job['id']}/series?names=loss&points=20000")
    told = [(step, value) for view in stored["loss"] for step, value in zip(view["steps"], view["values"], strict=True)]
    assert told
    assert {(int(row[4]), float(row[6])) for row in rows[1:] if row[1] == "loss"} == set(told)


def _shows_both(page: Page) -> None:
    expect(page.locator("#compare-table")).to_contain_text("side-2")
    expect(page.locator("#compare-table")).to_contain_text("side-3")
    expect(page.locator("[data-compare] .u-over").first).to_be_visible()
