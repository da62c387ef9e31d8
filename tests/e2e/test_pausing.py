"""A person pauses a job in the browser: it saves, its devices are free, and resumed it goes on with the next step.

From its submission to its end a job's page does not move, also when the job fails or is stopped. A script that begins
anew has one log and two lines in a chart, live and after a reload.
"""

import pytest
from playwright.sync_api import Browser, expect

from tests.e2e.stack import Stack, until
from tests.e2e.test_browser import SHIFTS

pytestmark = [pytest.mark.stack, pytest.mark.tf, pytest.mark.browser]


def test_pause_and_resume(browser: Browser, stack: Stack) -> None:
    page = browser.new_page()
    job_id = stack.submit(recipe="digits_mlp", strategy="one_device", epochs=20_000, checkpoint_steps=10**6)["id"]
    until(lambda: stack.get(f"/jobs/{job_id}")["step"] > 50, within_s=120, what=stack.said)
    page.goto(f"{stack.url}/jobs/{job_id}/")
    page.get_by_label("Name").fill(stack.username)
    page.get_by_label("Password").fill(stack.password)
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("button", name="Pause", exact=True).click()
    page.get_by_role("button", name="Pause job").click()
    expect(page.get_by_role("button", name="Resume")).to_be_visible(timeout=60_000)
    paused = stack.get(f"/jobs/{job_id}")
    (row,) = stack.get(f"/jobs/{job_id}/checkpoints")
    assert (paused["status"], row["step"]) == ("paused", paused["step"])
    assert job_id not in [device["job"] for node in stack.get("/nodes") for device in node["devices"]]

    page.get_by_role("button", name="Resume").click()
    expect(page.get_by_role("button", name="Pause", exact=True)).to_be_visible(timeout=60_000)
    (restart,) = stack.get(f"/jobs/{job_id}/restarts")
    assert (restart["cause"], restart["step_resumed"], restart["steps_lost"]) == ("paused", paused["step"], 0)
    page.close()
    stack.post(f"/jobs/{job_id}/stop")
    stack.wait_for_job(job_id, "stopped")


COUNTS = """
import os, time, trainyard
attempt = os.environ["TRAINYARD_ATTEMPT"]
print("attempt", attempt, "begins", flush=True)
step = 0
while True:
    step += 1
    trainyard.log(step, loss=1 / step)
    time.sleep(0.1)
"""


def test_a_script_that_begins_anew_hides_nothing(browser: Browser, stack: Stack) -> None:
    code = {"filename": "train.py", "text": COUNTS}
    job = stack.submit(recipe=None, epochs=None, kind="script", code=code)
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.goto(f"{stack.url}/sign-in/")
    page.get_by_label("Name").fill(stack.username)
    page.locator("[name=password]").fill(stack.password)
    page.locator("[name=password]").press("Enter")
    page.wait_for_url(f"{stack.url}/")
    page.goto(f"{stack.url}/jobs/{job['id']}/")
    said = page.locator(".ty-log-body .m")
    expect(said.filter(has_text="attempt 1 begins")).to_be_visible(timeout=60_000)
    expect(page.locator('[data-chart="loss"]')).to_be_visible()
    assert page.locator("[data-attempt]:visible").count() == 0
    stack.post(f"/jobs/{job['id']}/pause")
    stack.wait_for_job(job["id"], "paused")
    stack.post(f"/jobs/{job['id']}/resume")
    for reload in (False, True):
        if reload:
            page.reload()
        expect(said.filter(has_text="attempt 2 begins")).to_be_visible(timeout=60_000)
        expect(said.filter(has_text="attempt 1 begins")).to_have_count(1)
        expect(page.locator(".ty-log-sep.is-restart")).to_have_text(["Attempt 2"])
        expect(page.locator('[data-chart="loss"] .ty-legend .k')).to_have_text(["Loss", "Loss, attempt 2"])
    page.locator("#logs [data-attempt]").select_option("1")
    for reload in (False, True):
        if reload:
            page.reload()
        assert page.url.endswith("?attempt=1")
        expect(said.filter(has_text="attempt 2 begins")).to_have_count(0)
        expect(said.filter(has_text="attempt 1 begins")).to_have_count(1)
        expect(page.locator('[data-chart="loss"] .ty-legend .k')).to_have_text(["Loss"])
        expect(page.locator(".ty-subnav [data-attempt]")).to_have_value("1")
    page.close()
    stack.post(f"/jobs/{job['id']}/stop")


LOOP = """
import time, trainyard
for step in range({steps}):
    trainyard.log(step, loss=1 / (step + 1))
    time.sleep(0.05)
import no_such_package_anywhere
"""


@pytest.mark.parametrize(("action", "end"), [("", "Failed"), ("pause", "Paused"), ("stop", "Stopped")])
def test_nothing_moves(browser: Browser, stack: Stack, action: str, end: str) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.goto(f"{stack.url}/sign-in/")
    page.get_by_label("Name").fill(stack.username)
    page.locator("[name=password]").fill(stack.password)
    page.locator("[name=password]").press("Enter")
    page.wait_for_url(f"{stack.url}/")
    code = {"filename": "train.py", "text": LOOP.format(steps=10**6 if action else 60)}
    job = stack.submit(recipe=None, epochs=None, kind="script", strategy="one_device", code=code)
    page.goto(f"{stack.url}/jobs/{job['id']}/")
    head = page.locator("#job-head")
    if action:
        expect(page.locator('[data-chart="loss"] canvas')).to_be_visible(timeout=120_000)
        stack.post(f"/jobs/{job['id']}/{action}")
    expect(head.get_by_text(end, exact=True)).to_be_visible(timeout=120_000)
    page.wait_for_timeout(1000)
    shifts = page.evaluate(SHIFTS)
    assert sum(each[0] for each in shifts) <= 0.02, sorted(shifts)[-3:]
    if not action:
        expect(page.get_by_text("Add the package that has no_such_package_anywhere to Packages.")).to_be_visible()
        page.get_by_label("More actions").click()
        page.get_by_role("button", name="Delete job…").click()
        page.keyboard.press("Escape")
        expect(page.get_by_label("More actions")).to_be_focused()
        page.get_by_role("link", name="Edit and start").click()
        expect(page.locator("#f-requirements")).to_be_focused()
        expect(page.locator("#f-requirements")).to_have_value("no_such_package_anywhere")
    page.close()
