"""Programs from git addresses: what is taken, what is pinned, and what git is kept from doing."""

import io
import zipfile

import pytest

from orchestrator.models import Code
from orchestrator.services.programs import git, programs
from orchestrator.services.programs.git import GitRefused, fetch
from orchestrator.services.programs.programs import Program, Rejected
from tests.services.programs.git_server import commit, repository, serving
from tests.services.programs.git_server import git as run_git
from worker_agent.protocol.states import Kind, Strategy

SCRIPT = "import tensorflow as tf\nstrategy = tf.distribute.MultiWorkerMirroredStrategy()\n"


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A server on loopback, which speaks http; people's servers speak https."""
    monkeypatch.setattr(git, "PROTOCOLS", ("https", "http"))
    with serving(tmp_path) as address:
        yield tmp_path, address


def names_of(content):
    return sorted(zipfile.ZipFile(io.BytesIO(content)).namelist())


def test_branches_tags_commits_and_folders(place):
    root, address = place
    first = repository(root / "repo", {"main.py": SCRIPT, "deep/train.py": "print(1)\n"})
    run_git(root / "repo", "tag", "v1")
    second = commit(root / "repo", {"main.py": SCRIPT + "# more\n"})
    url = f"{address}/repo"
    assert fetch(url).ref.commit == second
    assert fetch(url, "main").ref.commit == second
    assert fetch(url, "v1").ref.commit == first
    whole = fetch(url, "v1")
    assert names_of(whole.content) == ["deep/", "deep/train.py", "main.py"]
    assert whole.content == fetch(url, "v1").content
    part = fetch(url, "v1", "deep")
    assert names_of(part.content) == ["train.py"]
    assert part.ref.path == "deep"


def test_what_is_wrong_with_an_address_is_said_without_asking_anybody():
    for url in (
        "ext::sh -c touch% /tmp/owned",
        "file:///etc",
        "/etc",
        "ssh://git@host/repo",
        "git@host:repo",
        "--upload-pack=touch /tmp/owned",
        "http://host/repo",
        "https://",
        "https://ho\nst/repo",
    ):
        with pytest.raises(GitRefused, match="begins with https://"):
            fetch(url)
    with pytest.raises(GitRefused, match="password out of the address"):
        fetch("https://me:secret@host/repo")
    for ref in ("--upload-pack=x", "a..b", "a b", "x" * 300):
        with pytest.raises(GitRefused, match="branch, tag or commit"):
            fetch("https://host/repo", ref)
    with pytest.raises(GitRefused, match="the folder"):
        fetch("https://host/repo", "main", "../up")


def test_what_is_not_there_is_said(place, settings):
    root, address = place
    repository(root / "repo", {"main.py": SCRIPT, "noise.bin": "".join(chr(33 + i * 7919 % 90) for i in range(50_000))})
    url = f"{address}/repo"
    with pytest.raises(GitRefused, match="no such branch"):
        fetch(url, "nowhere")
    with pytest.raises(GitRefused, match="no repository at that address"):
        fetch(f"{address}/other")
    with pytest.raises(GitRefused, match="no such folder"):
        fetch(url, "main", "nothing")
    with pytest.raises(GitRefused, match="is a file of that repository"):
        fetch(url, "main", "main.py")
    settings.MAX_CODE_BYTES = 200
    with pytest.raises(GitRefused, match="larger than"):
        fetch(url)


def test_a_server_that_does_not_answer_costs_a_limited_time(place, monkeypatch):
    _, address = place
    monkeypatch.setattr(git, "TIME_S", 0.5)
    with pytest.raises(GitRefused, match=r"could not be fetched within 0\.5 s"):
        fetch(f"{address}/slow/repo")


def test_a_script_from_git_is_pinned_to_its_commit(place, member):
    root, address = place
    pinned = repository(root / "repo", {"lab/run.py": SCRIPT, "lab/other.py": "", "README": "x"})
    request = {"kind": "script", "code": {"git": {"url": f"{address}/repo", "ref": "main"}, "entry": "lab/run.py"}}
    first = programs.resolve(request, by=member)
    assert isinstance(first, Program), first
    assert first.ref.git is not None
    assert (first.ref.git.commit, first.ref.entry, first.ref.archive) == (pinned, "lab/run.py", True)
    assert first.script.strategies == (Strategy.MULTI_WORKER_MIRRORED,)
    assert Code.objects.filter(sha256=first.ref.sha256).exists()
    commit(root / "repo", {"lab/run.py": "print('changed meanwhile')\n"})
    # The submission a moment after the preview runs what the preview showed.
    assert programs.resolve(request, by=member) == first
    unnamed = programs.resolve({**request, "code": {"git": request["code"]["git"]}}, by=member)
    assert isinstance(unnamed, Rejected)
    assert "name the file to run as entry; there is lab/other.py, lab/run.py" in unnamed.errors[0].message


def test_a_link_in_a_repository_is_refused(place, member):
    root, address = place
    repository(root / "repo", {"main.py": SCRIPT})
    (root / "repo/secret").symlink_to("/etc/passwd")
    commit(root / "repo", {})
    outcome = programs.resolve({"kind": Kind.SCRIPT, "code": {"git": {"url": f"{address}/repo"}}}, by=member)
    assert isinstance(outcome, Rejected)
    assert "'secret' is a link" in outcome.errors[0].message
