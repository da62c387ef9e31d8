"""Static files as browsers get them: prepared once, compressed, named by what is in them, small enough, and kept for
the pages of the version before.
"""

import gzip
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from django.test import Client, RequestFactory, override_settings

from dashboard.config.static import StaticFilesMiddleware
from dashboard.config.static_preparation import prepare
from dashboard.static_files import SOURCES, STATIC_FILES, StaticFiles
from dashboard.templatetags import trainyard
from tests.environment import ROOT, child_environment

SCRIPT_BYTES = 20_480
PAGES = sorted(
    {
        name
        for template in (ROOT / "dashboard/templates").rglob("*.html")
        for name in re.findall(r'{% script "([^"]+)" %}', template.read_text())
    }
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of this version."""
    made = tmp_path_factory.mktemp("prepared") / "static"
    assert prepare(made)
    return made


@pytest.fixture
def prepared(folder: Path) -> Iterator[StaticFiles]:
    """The storage of a web server that was started on them."""
    with override_settings(STATIC_ROOT=folder, WHITENOISE_AUTOREFRESH=False):
        trainyard.script.cache_clear()
        yield STATIC_FILES
    trainyard.script.cache_clear()


def test_a_second_start_has_nothing_to_do(folder: Path) -> None:
    assert not prepare(folder)


@pytest.mark.parametrize("page", PAGES)
def test_own_scripts_of_a_page_keep_to_their_budget(folder: Path, page: str) -> None:
    storage = StaticFiles(location=folder)
    asked = {*storage.modules("dashboard/js/base/app.js"), *storage.modules(f"dashboard/{page}")}
    own = [each.removeprefix("/static/") for each in asked if "/vendor/" not in each]
    served = sum((folder / f"{each}.gz").stat().st_size for each in own)
    assert served <= SCRIPT_BYTES, f"{page}: {served} bytes in {len(own)} scripts"


def test_the_command_needs_no_other_setting(tmp_path: Path) -> None:
    line = [sys.executable, "manage.py", "static_files"]
    given = child_environment() | {"TRAINYARD_STATIC_DIR": str(tmp_path / "static"), "HOME": str(tmp_path)}
    subprocess.run(line, cwd=ROOT, env=given, check=True, capture_output=True)
    assert {each.name for each in tmp_path.iterdir()} == {"static", "static.lock"}


def test_modules_name_one_another_by_hashed_names(folder: Path) -> None:
    storage = StaticFiles(location=folder)
    page = storage.modules("dashboard/js/job/page.js")
    assert len(page) > 10
    for each in page:
        path = folder / each.removeprefix("/static/")
        assert re.search(r"\.[0-9a-f]{8}\.js$", path.name)
        assert gzip.decompress((folder / f"{path}.gz").read_bytes()) == path.read_bytes()
    dom = (folder / storage.stored_name("dashboard/js/base/dom.js")).read_text()
    assert re.search(r'new URL\("\.\./\.\./icons\.[0-9a-f]{8}\.svg",', dom)
    assert not re.search(r'"\./[a-z_]+\.js"', (folder / storage.stored_name("dashboard/js/base/app.js")).read_text())


def test_the_version_before_stays_for_its_open_pages_and_no_longer(folder: Path, tmp_path: Path) -> None:
    mine = tmp_path / "static"
    assert prepare(mine)
    manifest = mine / "staticfiles.json"
    content = json.loads(manifest.read_text())
    for name, of in (("old.12345678.js", "one"), ("older.12345678.js", "two")):
        (mine / name).write_text(of)
    content["paths"]["old.js"] = "old.12345678.js"
    manifest.write_text(json.dumps(content))
    (mine / SOURCES).write_text("another version")
    assert prepare(mine)
    assert (mine / "old.12345678.js").read_text() == "one"
    assert not (mine / "older.12345678.js").exists()
    (mine / SOURCES).write_text("yet another")
    assert prepare(mine)
    assert not (mine / "old.12345678.js").exists()
    assert {each.name for each in tmp_path.iterdir()} == {"static", "static.lock"}


def test_a_hashed_file_is_compressed_and_kept_for_good(prepared: StaticFiles, db: None) -> None:
    served = StaticFilesMiddleware(lambda _request: None)
    address = prepared.url("dashboard/css/base.css")
    stored = Path(prepared.path(prepared.stored_name("dashboard/css/base.css"))).read_bytes()
    with closing(served(RequestFactory().get(address, headers={"Accept-Encoding": "gzip"}))) as answer:
        assert answer.headers["Content-Encoding"] == "gzip"
        assert answer.headers["Cache-Control"] == "max-age=315360000, public, immutable"
        assert gzip.decompress(b"".join(answer)) == stored
    with closing(served(RequestFactory().get("/static/dashboard/css/base.css"))) as plain:
        assert "immutable" not in plain.headers["Cache-Control"]


def test_a_page_asks_for_all_its_modules_at_once_and_knows_its_version(prepared: StaticFiles) -> None:
    page = Client().get("/sign-in/")
    text = page.content.decode()
    first, *imported = prepared.modules("dashboard/js/sign_in.js")
    assert f'src="{first}"' in text
    assert all(f'<link rel="modulepreload" href="{each}">' in text for each in imported)
    assert page.headers["Trainyard-Version"] == prepared.manifest_hash != ""
    assert f'data-version="{prepared.manifest_hash}"' in text
