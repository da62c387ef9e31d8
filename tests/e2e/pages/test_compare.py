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
    page.get_by_role("button", name="Compare").click()
    expect(page.get_by_role("heading", name="Compare 2 jobs", level=1)).to_be_visible()
    _shows_both(page)
    page.get_by_label("Draw curves by").select_option("epoch")
    expect(page.locator('[data-chart="loss"] .at')).to_have_text("Epoch 3.0")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy link").click()
    expect(page.get_by_text("Link copied")).to_be_visible()
    shared = page.evaluate("navigator.clipboard.readText()")
    assert shared == f"{stack.url}/compare/?jobs={made[1]['id']},{made[0]['id']}&x=epoch"
    page.evaluate("localStorage.clear()")
    page.goto(f"{stack.url}/jobs/")
    page.goto(shared)
    _shows_both(page)
    expect(page.locator('[data-chart="loss"] .at')).to_have_text("Epoch 3.0")
    _by_step(page)


def test_a_job_is_found_and_added_and_taken_out_again(page: Page, stack: Stack) -> None:
    made = [stack.submit(name=f"found-{epochs}", epochs=epochs) for epochs in (1, 2)]
    for job in made:
        stack.wait_for_job(job["id"], "succeeded")
    page.goto(stack.url)
    page.get_by_role("navigation", name="Main").get_by_role("link", name="Compare").click()
    for name, wanted in ((f"j-{made[0]['id']}", "found-1"), ("found-2", "found-2")):
        page.get_by_role("button", name="Add job").click()
        page.get_by_role("combobox", name="Add a job by name or number").fill(name)
        expect(page.locator("#add-job-list [aria-selected=true]")).to_contain_text(wanted)
        expect(page.locator("#add-job-list li")).to_have_count(1)
        page.keyboard.press("Enter")
        expect(page.locator("#compare-table thead")).to_contain_text(wanted)
    expect(page.get_by_role("heading", name="Compare 2 jobs", level=1)).to_be_visible()
    page.get_by_role("link", name="Take found-1 out").click()
    expect(page.get_by_role("heading", name="Compare 1 job", level=1)).to_be_visible()
    expect(page.locator("#compare-table thead")).not_to_contain_text("found-1")


def test_the_table_grows_while_a_job_runs(page: Page, stack: Stack) -> None:
    job = stack.submit(name="under-way", epochs=10_000)
    stack.wait_for_job(job["id"], "running")
    page.goto(f"{stack.url}/compare/?jobs={job['id']}")
    steps = page.locator("#compare-table tr", has=page.get_by_role("rowheader", name="Steps")).locator("td")
    before = _number(steps.inner_text())
    page.wait_for_function(
        "(n) => +document.querySelectorAll('#compare-table td.num')[0].textContent.replace(/\\D/g, '') > n",
        arg=before,
        timeout=20_000,
    )
    stack.post(f"/jobs/{job['id']}/stop")
    expect(page.locator("#compare-table")).to_contain_text("Stopped", timeout=20_000)


def test_curves_of_a_job_are_drawn_by_epoch_and_time_and_the_choice_is_kept(page: Page, stack: Stack) -> None:
    job = stack.submit(name="axes", epochs=4)
    stack.wait_for_job(job["id"], "succeeded")
    address = f"{stack.url}/jobs/{job['id']}/"
    page.goto(address)
    card = page.locator('[data-chart="loss"]')
    plot, where, first = card.locator(".ty-plot"), card.locator(".at"), card.locator(".ty-legend .v").first
    expect(where).to_contain_text("Step")
    axis = page.get_by_label("Draw curves by")
    plot.focus()
    page.keyboard.press("+")
    whole = card.get_by_role("button", name="Show all")
    expect(whole).to_be_visible()
    axis.select_option("epoch")
    expect(where).to_have_text("Epoch 4.0")
    expect(whole).to_be_hidden()
    assert page.url == f"{address}?x=epoch"
    plot.focus()
    page.keyboard.press("Home")
    expect(where).not_to_have_text("Epoch 4.0")
    expect(first).not_to_have_text("no data")
    axis.select_option("elapsed")
    expect(where).to_contain_text("Time")
    page.goto(address)
    expect(where).to_contain_text("Time")
    assert page.url == f"{address}?x=elapsed"
    page.goto(f"{address}?x=examples")
    expect(where).to_contain_text("Examples")
    _by_step(page)


# Two attempts, of which the second goes on at step 2 after an hour, as the job page stores and places them.
PLACED = """async (charts) => {
  const { placed, knows } = await import(`${charts}/axis.js`), { Store } = await import(`${charts}/series.js`);
  const store = new Store();
  store.tell("loss", "worker:0", 1, [1, 2, 3], [9, 8, 7], [100, 101, 102]);
  store.tell("loss", "worker:0", 2, [2, 3, 4], [6, 5, 4], [3700, 3701, 3699]);
  const [line] = store.lines("loss", "worker:0"), of = (axis, job) => placed(line.x, line.t, axis, job, store.begun);
  const job = { total_steps: 8, epochs: 4, spec: { global_batch_size: 32 } };
  const script = { total_steps: 0, epochs: 0, spec: {} };
  return { step: of("step", job), epoch: of("epoch", job), elapsed: of("elapsed", job), examples: of("examples", job),
    joints: line.joints, unknown: of("epoch", script), knows: [knows(script, "epoch"), knows(script, "elapsed")] };
}"""


def test_attempts_are_one_line_by_every_axis(page: Page, stack: Stack) -> None:
    page.goto(f"{stack.url}/jobs/")
    assert page.evaluate(PLACED, "/static/dashboard/js/charts") == {
        "step": [1, 2, 3, 4],
        "epoch": [0.5, 1, 1.5, 2],
        "elapsed": [0, 3600, 3601, 3601],
        "examples": [32, 64, 96, 128],
        "joints": [1],
        "unknown": [],
        "knows": [False, True],
    }


def test_pages_say_something_without_a_script(browser: Browser, page: Page, stack: Stack) -> None:
    job = stack.submit(name="plain", epochs=2)
    stack.wait_for_job(job["id"], "succeeded")
    loss = stack.get(f"/jobs/{job['id']}")["metrics"]["loss"]
    context = browser.new_context(java_script_enabled=False, storage_state=page.context.storage_state())
    plain = context.new_page()
    plain.goto(f"{stack.url}/jobs/")
    expect(plain.get_by_role("row").filter(has_text="plain")).to_contain_text("Succeeded")
    for path in (f"/jobs/{job['id']}/", f"/compare/?jobs={job['id']}"):
        plain.goto(stack.url + path)
        row = plain.get_by_role("row").filter(has=plain.get_by_role("rowheader", name="Loss", exact=True))
        expect(row).to_contain_text(f"{loss:.4f}")
        expect(plain.get_by_label("Draw curves by")).to_be_hidden()
    plain.goto(f"{stack.url}/jobs/{job['id']}/")
    with plain.expect_download() as taken:
        plain.get_by_role("link", name="CSV").first.click()
    assert taken.value.path().read_text().startswith("job,series,replica,")
    context.close()


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


def _by_step(page: Page) -> None:
    page.get_by_label("Draw curves by").select_option("step")
    expect(page.locator('[data-chart="loss"] .at')).to_contain_text("Step")


def _number(text: str) -> int:
    return int("".join(filter(str.isdigit, text)) or 0)


def _shows_both(page: Page) -> None:
    expect(page.locator("#compare-table")).to_contain_text("side-2")
    expect(page.locator("#compare-table")).to_contain_text("side-3")
    expect(page.locator("[data-compare] .u-over").first).to_be_visible()
