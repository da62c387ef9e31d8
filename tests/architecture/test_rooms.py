"""The build fails when a room outgrows its walls or the words of ARCHITECTURE.md fall behind the code."""

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.environment import ROOT
from worker_agent.protocol.states import JobStatus, NodeState, ReplicaStatus, Strategy

LINES_PER_MODULE = 400
CHARACTERS_PER_TEMPLATE_LINE = 160
SIBLINGS = 14
SOURCES = ("dashboard", "orchestrator", "worker_agent", "trainyard", "examples", "benchmarks", "tests", "scripts")


def files_of(*suffixes: str) -> list[Path]:
    """The project's own files: no migrations, nothing vendored."""
    found = [path for room in SOURCES for path in (ROOT / room).rglob("*") if path.suffix in suffixes]
    return [path for path in found if not {"migrations", "vendor", "__pycache__"} & set(path.parts)]


def tracked_files() -> list[Path]:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode != 0:
        pytest.skip("not a git checkout")
    return [ROOT / line for line in listed.stdout.splitlines()]


@pytest.mark.parametrize("suffix", [".py", ".js", ".css"])
def test_no_module_is_longer_than_400_lines(suffix: str) -> None:
    sizes = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in files_of(suffix)}
    assert sizes
    assert {name: lines for name, lines in sizes.items() if lines > LINES_PER_MODULE} == {}


def test_no_folder_holds_more_than_14_files_of_code() -> None:
    siblings = Counter(str(path.parent.relative_to(ROOT)) for path in files_of(".py", ".js", ".html", ".css"))
    assert siblings
    assert {folder: count for folder, count in siblings.items() if count > SIBLINGS} == {}


def test_the_dashboard_asks_no_table_by_itself() -> None:
    assert not [path for path in ROOT.glob("dashboard/**/*.py") if ".objects" in path.read_text()]


def test_no_line_of_a_template_is_longer_than_160_characters() -> None:
    long = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in files_of(".html")
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if len(line) > CHARACTERS_PER_TEMPLATE_LINE
    ]
    assert long == []


def test_what_tests_import_is_there() -> None:
    """Also in modules that a fast run does not import (`tests/conftest.py`)."""
    imports = re.compile(rf"^from ((?:{'|'.join(SOURCES)})[\w.]*) import (\([^)]*\)|.*)", re.M)
    missing = [
        f"{path.relative_to(ROOT)}: {module}.{name}"
        for path in files_of(".py")
        if path.is_relative_to(ROOT / "tests")
        for module, names in imports.findall(path.read_text())
        for name in re.findall(r"(\w+)(?: as \w+)?,?", names.split("#")[0])
        if not is_there(ROOT.joinpath(*module.split(".")), name)
    ]
    assert missing == []


def is_there(place: Path, name: str) -> bool:
    """Whether the module or package at `place` speaks of that name, or holds a module of it."""
    text = next((path for path in (place.with_suffix(".py"), place / "__init__.py") if path.exists()), None)
    inside = (place / f"{name}.py").exists() or (place / name).is_dir()
    return inside or (text is not None and re.search(rf"\b{name}\b", text.read_text()) is not None)


def test_a_fast_run_imports_no_tensorflow(pytestconfig: pytest.Config) -> None:
    """It costs each process three seconds: tests of what imports it are marked `tf`."""
    assert "tensorflow" not in sys.modules or "not tf" not in pytestconfig.option.markexpr


def test_every_module_says_what_lives_there() -> None:
    silent = [
        str(path.relative_to(ROOT))
        for path in files_of(".py")
        if path.name != "__init__.py" and not path.read_text().lstrip().startswith(('"""', "#!", 'r"""'))
    ]
    assert silent == []


def test_package_files_stay_empty_but_for_models() -> None:
    full = [str(path.relative_to(ROOT)) for path in files_of(".py") if path.name == "__init__.py" and path.read_text()]
    named = ("orchestrator/models/__init__.py", "worker_agent/__init__.py", "trainyard/__init__.py")
    assert set(full) <= set(named)


@pytest.mark.parametrize("words", [JobStatus, ReplicaStatus, NodeState])
def test_architecture_names_every_state(words: type[JobStatus | ReplicaStatus | NodeState]) -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    assert [word.value for word in words if f"`{word.value}`" not in text] == []


def test_architecture_names_every_room() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    rooms = [
        path.name
        for package in ("dashboard", "orchestrator", "worker_agent")
        for path in (ROOT / package).iterdir()
        if path.is_dir() and path.name not in ("__pycache__", "migrations")
    ]
    assert [room for room in rooms if f"{room}/" not in text] == []


def test_strategies_are_the_names_that_rest_promises() -> None:
    assert {each.value for each in Strategy} >= {"one_device", "mirrored", "multi_worker_mirrored", "parameter_server"}


def test_no_file_names_a_package_host() -> None:
    hosts = re.compile(
        "|".join(("pypi" + r"\.org", "pythonhosted" + r"\.org", "npmjs" + r"\.(org|com)", "--index" + "-url h"))
    )
    guilty = []
    for path in tracked_files():
        if path.is_file() and path.stat().st_size < 5_000_000 and "vendor" not in path.parts:
            text = path.read_bytes().decode(errors="ignore")
            if hosts.search(text):
                guilty.append(str(path.relative_to(ROOT)))
    assert guilty == []


def test_locks_are_complete_and_hashed() -> None:
    locks = sorted((ROOT / "requirements").glob("*.txt"))
    assert {path.stem for path in locks} == {"all", "control", "agent-cpu", "agent-gpu", "no-deps", "uv"}
    for path in locks:
        entries = re.split(r"\n(?=\S)", path.read_text().strip())
        assert [entry for entry in entries if "==" not in entry or "--hash=sha256:" not in entry] == [], path.name
