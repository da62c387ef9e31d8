"""An installation of an earlier version, whose power was cut while it worked, starts with this one and goes on.

`old_home/make.py` says what is in the archive and how to make another one.
"""

import json
import re
import sqlite3
import tarfile
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.stack import TERMINAL, Stack, until

pytestmark = [pytest.mark.stack, pytest.mark.tf]

ARCHIVE = Path(__file__).parent / "old_home" / "1e8c960.tar.xz"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data folder as it was left. Checks on nodes are kept for a day, so those of then were asked for now."""
    home = tmp_path_factory.mktemp("old")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(home, filter="data")
    now = datetime.now(UTC).replace(tzinfo=None).isoformat(" ")
    with closing(sqlite3.connect(home / "data" / "trainyard.sqlite3")) as database, database:
        database.execute("UPDATE orchestrator_preflight SET created_at = ?", [now])
    return home


@pytest.fixture(scope="module")
def then(home: Path) -> Any:
    """What REST said then, which jobs had not ended, and what those that ran had left on disk."""
    then = json.loads((home / "then.json").read_text())
    for path, answer in then["rest"].items():
        if path.startswith("/preflight/"):
            del answer["created_at"]
    return then


@pytest.fixture(scope="module")
def stack(home: Path) -> Iterator[Stack]:
    with Stack(home, nodes=3) as running:
        yield running


def test_what_had_ended_is_told_as_it_was_then(stack: Stack, then: Any) -> None:
    going_on = [f"/jobs/{job}" for job in then["open"].values()]
    for path, answer in then["rest"].items():
        if re.split(r"(?<=\d)[/?]", path)[0] not in going_on:
            now = stack.rest.get(path)
            assert now.is_success, f"{path}: {now.text}"
            assert as_of_then(now.json(), answer) == answer, path


def test_every_page_of_then_opens(stack: Stack, then: Any) -> None:
    with httpx.Client(base_url=stack.url, trust_env=False, follow_redirects=True) as browser:
        form = browser.get("/sign-in/")
        token = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', form.text)
        assert token
        sign_in = {"csrfmiddlewaretoken": token[1], "username": stack.username, "password": stack.password}
        assert browser.post("/sign-in/", data=sign_in).is_success
        for path in then["rest"]:
            if re.fullmatch(r"/jobs/\d+", path):
                page = browser.get(f"{path}/")
                assert page.is_success, f"{path}: {page.status_code}"
                assert then["rest"][path]["name"] in page.text


def test_the_running_gang_goes_on_from_its_newest_checkpoint(stack: Stack, then: Any) -> None:
    job, left = then["open"]["running"], then["disk"]["running"]
    done = stack.wait_for_job(job, "succeeded")
    (restart,) = stack.get(f"/jobs/{job}/restarts")
    assert (restart["cause"], restart["counted"], restart["step_resumed"]) == ("node_lost", False, left["saved"])
    assert restart["step_reached"] == left["said"]["worker:0"]["steps"][-1]
    assert (done["attempt"], done["step"]) == (2, done["total_steps"])
    check_everything_is_stored(stack, job, left["said"])
    losses = stack.get(f"/jobs/{job}/series", names="loss", points=20_000)["loss"]
    (again,) = (each["steps"] for each in losses if each["attempt"] == 2)
    assert again == list(range(left["saved"] + 1, done["total_steps"] + 1))


def test_a_gang_that_lost_a_process_unseen_is_launched_again(stack: Stack, then: Any) -> None:
    job, left = then["open"]["lost a peer"], then["disk"]["lost a peer"]
    done = stack.wait_for_job(job, "succeeded")
    (restart,) = stack.get(f"/jobs/{job}/restarts")
    assert (restart["cause"], restart["counted"], restart["step_resumed"]) == ("signal", False, left["saved"])
    assert restart["reason"].startswith(f"worker 1 on {restart['node']} was killed by signal 9 (SIGKILL)")
    assert done["attempt"] == 2
    check_everything_is_stored(stack, job, left["said"])


def test_a_script_that_was_killed_unseen_begins_anew(stack: Stack, then: Any) -> None:
    job = then["open"]["killed"]
    done = stack.wait_for_job(job, "succeeded")
    (restart,) = stack.get(f"/jobs/{job}/restarts")
    assert (done["attempt"], restart["cause"], restart["counted"]) == (2, "signal", False)
    check_everything_is_stored(stack, job, then["disk"]["killed"]["said"])


def test_a_program_that_failed_unseen_has_failed(stack: Stack, then: Any) -> None:
    job = then["open"]["failed"]
    done = ended(stack, job)
    assert (done["status"], done["cause"], done["attempt"]) == ("failed", "exception", 1)
    assert re.search(r"worker 0 on node-\d failed: ValueError: no such order \(in recipe.py, line \d+", done["reason"])
    check_everything_is_stored(stack, job, then["disk"]["failed"]["said"])


def test_what_waited_for_room_runs(stack: Stack, then: Any) -> None:
    assert stack.wait_for_job(then["open"]["waiting"], "succeeded")["attempt"] == 1


def test_what_waited_for_another_try_ends_when_it_fails_in_the_same_way(stack: Stack, then: Any) -> None:
    done = ended(stack, then["open"]["tried again"])
    assert (done["status"], done["cause"], done["attempt"]) == ("failed", "exception", 2)
    assert "ValueError: no such order" in done["reason"]


def test_the_paused_job_is_resumed_where_it_stopped(stack: Stack, then: Any) -> None:
    (paused,) = (each for each in then["rest"].values() if isinstance(each, dict) and each.get("status") == "paused")
    stack.post(f"/jobs/{paused['id']}/resume")
    stack.wait_for_job(paused["id"], "succeeded")
    (restart,) = stack.get(f"/jobs/{paused['id']}/restarts")
    assert (restart["cause"], restart["step_resumed"], restart["steps_lost"]) == ("paused", paused["step"], 0)


def test_what_was_asked_for_then_can_be_asked_for_again(stack: Stack, then: Any) -> None:
    for job in then["rest"].values():
        if isinstance(job, dict) and job.get("name", "").startswith("never launched"):
            again = stack.post(f"/jobs/{job['id']}/retry")
            stack.post(f"/jobs/{again['id']}/stop")
            assert as_of_then(again["spec"], job["spec"]) == job["spec"]


def ended(stack: Stack, job: int) -> Any:
    """The job once it has ended, however."""
    return until(lambda: (now := stack.get(f"/jobs/{job}"))["status"] in TERMINAL and now, within_s=60)


def check_everything_is_stored(stack: Stack, job: int, said: Any) -> None:
    """Every point and every line that the first launch had said when the power was cut, shipped then or not."""
    losses = stack.get(f"/jobs/{job}/series", names="loss", points=20_000)["loss"]
    told = {each["replica"]: each["steps"] for each in losses if each["attempt"] == 1}
    for replica, left in said.items():
        assert told.get(replica, []) == left["steps"]
        assert stack.get(f"/jobs/{job}/logs", replica=replica, attempt=1)["text"] == left["log"]


def as_of_then(now: Any, then: Any) -> Any:
    """An answer of now, without the fields that there were not then."""
    if isinstance(then, dict) and isinstance(now, dict):
        return {name: as_of_then(now.get(name), then[name]) for name in then}
    if isinstance(then, list) and isinstance(now, list) and len(now) == len(then):
        return [as_of_then(*pair) for pair in zip(now, then, strict=True)]
    return now
