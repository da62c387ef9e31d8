"""The main walk as a person does it, in a real browser on real processes.

Sign in → register a cluster → join agents with the shown command → create jobs → watch the curves → stop one.
"""

import math
import re
import shlex
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, expect

from tests.e2e import recipes
from tests.e2e.stack import Stack, until
from tests.environment import ROOT, child_environment

pytestmark = [pytest.mark.stack, pytest.mark.tf, pytest.mark.browser]

CLUSTER = "yard"
RUNS_S = 120_000


@pytest.fixture(scope="module")
def page(browser: Browser, stack: Stack) -> Iterator[Page]:
    """A signed-in page of the administrator; errors in its console fail the module, refusals excepted."""
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    complaints: list[str] = []

    def listen(message: ConsoleMessage) -> None:
        if message.type == "error" and not re.search("WebSocket connection|net::ERR_|status of 422", message.text):
            complaints.append(message.text)

    page.on("console", listen)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(f"{stack.url}/jobs/")
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    page.get_by_label("Name").fill(stack.username)
    page.get_by_label("Password").fill(stack.password)
    page.get_by_role("button", name="Sign in", exact=True).click()
    expect(page.get_by_role("heading", name="Jobs", level=1)).to_be_visible()
    yield page
    page.close()
    assert not complaints


@dataclass
class Yard:
    """The cluster registered through the browser."""

    nodes: tuple[str, ...]


@pytest.fixture(scope="module")
def yard(page: Page, stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    """A new cluster with two agents, joined by the command that the page shows."""
    page.goto(f"{stack.url}/clusters/#register")
    page.locator("#register").get_by_label("Name", exact=True).fill(CLUSTER)
    page.get_by_label("First port").fill("32000")
    page.get_by_label("Last port").fill("32099")
    page.get_by_role("button", name="Register cluster").click()
    agents = []
    try:
        for name in ("yard-1", "yard-2"):
            if agents:
                page.goto(f"{stack.url}/clusters/{CLUSTER}/")
                page.get_by_role("button", name="Add node").click()
            command = page.locator("#joincmd").inner_text()
            folder = tmp_path_factory.mktemp(name)
            agents.append(_run_shown(command, name=name, folder=folder))
            expect(page.get_by_role("link", name=name).first).to_be_visible(timeout=30_000)
        yield Yard(("yard-1", "yard-2"))
    finally:
        for agent in agents:
            agent.send_signal(signal.SIGTERM)
        for agent in agents:
            agent.wait(30)


def _run_shown(command: str, *, name: str, folder: Path) -> subprocess.Popen[bytes]:
    """The shown line as it stands, in this checkout, with a home of its own."""
    environment = child_environment() | {"HOME": str(folder)}
    line = f"exec {command} --name {shlex.quote(name)} --address 127.0.0.1 --slots 2 --end-replicas-on-exit"
    with (folder / "agent.log").open("wb") as log:
        return subprocess.Popen(["sh", "-c", line], cwd=ROOT, env=environment, stdout=log, stderr=subprocess.STDOUT)


def create(page: Page, stack: Stack, *, name: str, strategy: str, epochs: int, **numbers: int) -> int:
    """Fill in the form for the digits recipe and start it; the job's number."""
    page.goto(f"{stack.url}/jobs/new/")
    page.get_by_label("Name", exact=True).fill(name)
    page.get_by_label("Recipe", exact=True).select_option("digits_mlp")
    page.locator(f'input[name="strategy"][value="{strategy}"]').check()
    page.get_by_label("Cluster").select_option(CLUSTER)
    for field, value in numbers.items():
        page.locator(f"#f-{field}").fill(str(value))
    page.get_by_text("Batch and learning").click()
    page.get_by_label("Epochs", exact=True).fill(str(epochs))
    page.get_by_label("Global batch size").fill("64")
    page.get_by_role("button", name="Start job").click()
    expect(page.get_by_role("heading", name=name, level=1)).to_be_visible()
    return int(page.url.rstrip("/").rsplit("/", 1)[1])


def charted(page: Page, chart: str) -> list[list[str]]:
    """The rows of a chart's table view: step, then one value per line."""
    card = page.locator(f'[data-chart="{chart}"]')
    if card.locator('[data-tool="table"]').get_attribute("aria-pressed") != "true":
        card.locator('[data-tool="table"]').click()
        expect(card.locator("table")).to_be_visible()
    return card.locator("tbody tr").evaluate_all(
        "rows => rows.map(row => [...row.cells].map(cell => cell.textContent))"
    )


def number(text: str) -> float:
    """A number as the page prints it."""
    return float(re.sub(r"[\u202f\u2009 ]", "", text).replace("\u2212", "-"))


def assert_charted_is_stored(page: Page, stack: Stack, job_id: int) -> None:
    """Every value in the loss chart's table is the stored one."""
    (stored,) = stack.get(f"/jobs/{job_id}/series", names="loss", points=20_000)["loss"]
    values = dict(zip(stored["steps"], stored["values"], strict=True))
    rows = charted(page, "loss")
    assert len(rows) >= 5
    for step, shown, *_ in rows:
        assert math.isclose(number(shown), values[int(number(step))], rel_tol=1e-2, abs_tol=1e-4), (step, shown)


# How far the page has shifted since it was opened, as a browser counts it: by how much, when, and what.
SHIFTS = """() => new Promise((told) => setTimeout(told, 1000, []) && new PerformanceObserver((list) => told(
  list.getEntries().filter((each) => !each.hadRecentInput).map((each) => [each.value, Math.round(each.startTime),
    each.sources.map(({ node, previousRect, currentRect }) =>
      [node?.id || node?.className || node?.textContent || "gone", previousRect.y, currentRect.y])])
)).observe({ type: "layout-shift", buffered: true }))"""
CHARTS = "cards => cards.map(card => card.dataset.chart)"
SECTIONS = ["Charts", "Replicas", "Timeline", "Checkpoints", "Logs", "Events", "Files", "Configuration"]
STRATEGIES: list[Any] = [
    ("one_device", {}, {"worker:0"}),
    ("mirrored", {"devices_per_worker": 2}, {"worker:0"}),
    ("multi_worker_mirrored", {"workers": 2}, {"worker:0", "worker:1"}),
    ("parameter_server", {"workers": 2, "ps": 1}, {"chief:0", "worker:0", "worker:1", "ps:0"}),
]


@pytest.mark.parametrize(("strategy", "numbers", "replicas"), STRATEGIES)
def test_a_job_runs_to_success_before_ones_eyes(
    page: Page, stack: Stack, yard: Yard, strategy: str, numbers: dict[str, int], replicas: set[str]
) -> None:
    job_id = create(page, stack, name=f"walk {strategy}", strategy=strategy, epochs=20, **numbers)
    head = page.locator("#job-head")
    expect(head.get_by_text("Running")).to_be_visible(timeout=RUNS_S)
    loss = page.locator('[data-chart="loss"]')
    expect(loss).to_be_visible(timeout=RUNS_S)
    expect(head.get_by_text("Succeeded")).to_be_visible(timeout=RUNS_S)
    shifts = page.evaluate(SHIFTS)
    assert sum(each[0] for each in shifts) <= 0.02, sorted(shifts)[-3:]
    expect(page.locator("#event-list").get_by_text("The training completed.")).to_be_visible()
    live = page.locator("[data-chart]").evaluate_all(CHARTS)
    page.reload()
    expect(page.locator("[data-chart]")).to_have_count(len(live))
    assert page.locator("[data-chart]").evaluate_all(CHARTS) == live
    assert page.locator(".ty-subnav a:visible").all_inner_texts() == SECTIONS

    assert_charted_is_stored(page, stack, job_id)
    job = stack.get(f"/jobs/{job_id}")
    assert job["metrics"]["val_accuracy"] > 0.9
    rows = stack.get(f"/jobs/{job_id}/replicas")
    assert {f"{row['role']}:{row['index']}" for row in rows} == replicas
    assert {row["node"] for row in rows} <= set(yard.nodes)
    for row in rows:
        if strategy in ("one_device", "mirrored"):
            assert row["tf_config"] is None
        else:
            assert row["tf_config"]["task"] == {"type": row["role"], "index": row["index"]}
            mine = row["tf_config"]["cluster"][row["role"]][row["index"]]
            assert mine == f"{row['host']}:{row['port']}"
    page.set_viewport_size({"width": 360, "height": 780})
    for link in page.locator("#checkpoints tbody a, #files tbody a").all():
        box = link.bounding_box()
        assert box is not None
        assert box["x"] + box["width"] <= 360
    page.set_viewport_size({"width": 1280, "height": 900})
    with page.expect_download() as download:
        page.get_by_role("link", name="model.keras").first.click()
    assert Path(download.value.path()).read_bytes()[:2] == b"PK"


def test_the_chart_grows_without_a_reload_and_stop_ends_the_job(page: Page, stack: Stack, yard: Yard) -> None:
    job_id = create(page, stack, name="to be stopped", strategy="multi_worker_mirrored", epochs=5000, workers=2)
    expect(page.locator("#job-head").get_by_text("Running")).to_be_visible(timeout=RUNS_S)
    page.evaluate("window.untouched = true")
    expect(page.locator('[data-chart="loss"]')).to_be_visible(timeout=RUNS_S)
    first = until(lambda: charted(page, "loss"), within_s=30)
    until(lambda: number(charted(page, "loss")[-1][0]) > number(first[-1][0]) + 20, within_s=60)
    assert page.evaluate("window.untouched")

    waits = create(page, stack, name="waits", strategy="multi_worker_mirrored", epochs=1, workers=4)
    expect(page.locator("#job-run").get_by_text("Needs 4 workers")).to_be_visible(timeout=10_000)
    stack.post(f"/jobs/{waits}/stop")
    page.goto(f"{stack.url}/jobs/{job_id}/")

    page.get_by_role("button", name="Stop", exact=True).click()
    page.get_by_role("button", name="Stop job").click()
    expect(page.locator("#job-head").get_by_text("Stopped", exact=True)).to_be_visible(timeout=30_000)

    job = stack.get(f"/jobs/{job_id}")
    assert (job["status"], job["cause"]) == ("stopped", "stopped")
    assert {row["status"] for row in stack.get(f"/jobs/{job_id}/replicas")} == {"exited"}
    assert_charted_is_stored(page, stack, job_id)


def test_the_page_fills_its_gap_after_the_web_server_was_killed(page: Page, stack: Stack, yard: Yard) -> None:
    job_id = create(page, stack, name="gap", strategy="multi_worker_mirrored", epochs=5000, workers=2)
    expect(page.locator('[data-chart="loss"]')).to_be_visible(timeout=RUNS_S)
    page.evaluate("window.untouched = true")
    before = number(until(lambda: charted(page, "loss"), within_s=30)[-1][0])
    stack.kill_process("web")
    until(lambda: number(charted(page, "loss")[-1][0]) > before + 200, within_s=60)
    assert page.evaluate("window.untouched")
    stack.post(f"/jobs/{job_id}/stop")
    expect(page.locator("#job-head").get_by_text("Stopped", exact=True)).to_be_visible(timeout=30_000)
    assert_charted_is_stored(page, stack, job_id)


def test_back_after_a_submission_finds_the_form_as_it_was_typed(page: Page, stack: Stack) -> None:
    page.goto(f"{stack.url}/jobs/new/")
    page.get_by_label("Recipe", exact=True).select_option("breast_cancer")
    expect(page.locator("#f-param-l2")).to_have_count(1)
    for part in ("Hyper-parameters", "Batch and learning", "Priority, limits, environment", "After a failure"):
        page.get_by_text(part, exact=True).click()
    page.locator("#f-param-l2").fill("0.01")
    typed = {"name": "as typed", "epochs": "7", "priority": "-3", "env": "A=1\nB=2", "max_restarts": "2"}
    for name, value in typed.items():
        page.locator(f"#f-{name}").fill(value)
    page.get_by_role("button", name="Start job").click()
    expect(page.get_by_role("heading", name="as typed", level=1)).to_be_visible()
    stack.post(f"/jobs/{page.url.rstrip('/').rsplit('/', 1)[1]}/stop")

    page.go_back()
    expect(page.locator("#f-param-l2")).to_have_value("0.01")
    expect(page.locator("#f-param-filters")).to_have_count(0)
    for name, value in typed.items():
        expect(page.locator(f"#f-{name}")).to_have_value(value)
    expect(page.locator("#f-max_restarts")).to_be_visible()


def test_a_metric_named_like_a_tag_is_shown_as_text(page: Page, stack: Stack) -> None:
    job = stack.submit(
        recipe=None, code={"filename": "recipe.py", "text": recipes.ODD_METRIC}, epochs=1, name="<b>odd</b>"
    )
    stack.wait_for_job(job["id"], "succeeded")
    page.goto(f"{stack.url}/jobs/{job['id']}/")
    expect(page.get_by_role("heading", name="<b>odd</b>")).to_be_visible()
    expect(page.get_by_role("heading", name=re.compile("script", re.IGNORECASE))).to_be_visible()
    assert page.title() != "broken"


def test_a_chart_is_read_and_zoomed_by_keyboard_and_drawn_before_printing(page: Page, stack: Stack) -> None:
    job = stack.submit(name="keys")
    stack.wait_for_job(job["id"], "succeeded")
    (loss,) = stack.get(f"/jobs/{job['id']}/series", names="loss", points=20_000)["loss"]
    page.goto(f"{stack.url}/jobs/{job['id']}/")
    plot, shown = page.locator('[data-chart="loss"] .ty-plot'), page.locator('[data-chart="loss"] .ty-legend .v').first
    expect(plot.locator("canvas")).to_be_visible()
    plot.focus()
    page.keyboard.press("Home")
    expect(page.locator('[data-chart="loss"] .at')).to_have_text(f"Step {loss['steps'][0]}")

    def reads_first(after: str) -> bool:
        page.keyboard.press(after)
        page.keyboard.press("Home")
        page.evaluate("() => new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)))")
        return math.isclose(number(shown.inner_text()), loss["values"][0], rel_tol=1e-2)

    assert reads_first("End")
    where, whole = page.locator('[data-chart="loss"] .at'), page.locator('[data-chart="loss"]').get_by_text("Show all")
    assert number(where.inner_text().removeprefix("Step")) == loss["steps"][0]
    expect(whole).to_be_hidden()
    page.keyboard.press("End")
    assert not reads_first("+")
    whole.click()
    expect(whole).to_be_hidden()
    assert reads_first("0")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    expect(page.locator("[data-chart]:not(:has(canvas))")).to_have_count(0)


DRAWN = """async (charts) => {
  const { options } = await import(`${charts}/options.js`), { takeTurns } = await import(`${charts}/series.js`);
  const x = [...Array(400).keys()], one = { x, y: x.map(Math.sqrt) }, other = { x, y: x.map((v) => v / 9) };
  const dashed = { ...one, dash: [5, 4], sparse: true }, lines = [one, { ...one }, other, dashed, { ...dashed }];
  takeTurns(lines);
  const chart = { all: lines, hidden: new Set(), spec: { x: "step", format: "plain" }, size: () => ({}) };
  const points = options(chart).series[4].points.show;
  const shown = (width) => points({ data: [x, ...lines.map((l) => l.y)], bbox: { width } }, 4, 0, 399);
  return { turns: lines.map((l) => l.turns ?? null), narrow: shown(800), wide: shown(8000) };
}"""


def test_lines_of_400_epochs_do_not_hide_each_other(page: Page, stack: Stack) -> None:
    page.goto(f"{stack.url}/jobs/")
    drawn = page.evaluate(DRAWN, "/static/dashboard/js/charts")
    assert drawn["turns"] == [[0, 0, 8, 8], [0, 8, 8, 0], None, [0, 0, 5, 13], [0, 9, 5, 4]]
    assert (drawn["narrow"], drawn["wide"]) == (False, True)


def test_a_refused_upload_keeps_its_reason(page: Page, stack: Stack) -> None:
    page.goto(f"{stack.url}/jobs/new/")
    page.locator('input[name="source"][value="upload"]').check()
    bad = {"name": "bad.py", "mimeType": "text/x-python", "buffer": b"def build_model(params)\n"}
    page.locator("#f-upload").set_input_files(files=[bad])
    error = page.locator("#f-upload-e")
    expect(error).to_contain_text("bad.py, line 1")
    with page.expect_response("**/jobs/new/preview/"):
        page.get_by_label("Name", exact=True).fill("refused")
    expect(error).to_contain_text("bad.py, line 1")
    with page.expect_response("**/jobs/new/preview/"):
        page.get_by_role("button", name="Start job").click()
    expect(error).to_contain_text("bad.py, line 1")


def test_what_was_typed_survives_an_error(page: Page, stack: Stack, yard: Yard) -> None:
    page.goto(f"{stack.url}/jobs/new/")
    page.get_by_label("Name", exact=True).fill("kept")
    page.get_by_label("Recipe", exact=True).select_option("digits_mlp")
    page.locator('input[name="strategy"][value="multi_worker_mirrored"]').check()
    page.get_by_label("Cluster").select_option(CLUSTER)
    page.locator("#f-workers").fill("2")
    page.get_by_text("Batch and learning").click()
    page.get_by_label("Global batch size").fill("65")
    page.get_by_role("button", name="Start job").click()
    expect(page.locator("#f-global_batch_size")).to_have_attribute("aria-invalid", "true")
    expect(page.locator("#f-global_batch_size-e")).to_contain_text("64")
    expect(page.get_by_label("Name", exact=True)).to_have_value("kept")
    expect(page.locator("#f-global_batch_size")).to_have_value("65")
