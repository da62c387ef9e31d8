"""A person pauses a job in the browser: it saves, its devices are free, and resumed it goes on with the next step."""

import pytest
from playwright.sync_api import Browser, expect

from tests.e2e.stack import Stack, until

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
