"""Each page links the style sheet in which the rules of its own classes stand."""

import re
from pathlib import Path

import pytest

from tests.environment import ROOT

TEMPLATES, SHEETS = ROOT / "dashboard/templates", ROOT / "dashboard/static/dashboard/css/pages"
OWNED = {sheet.stem: set(re.findall(r"\.(p-[\w-]+)", sheet.read_text())) for sheet in SHEETS.glob("*.css")}
SHARED = {
    name for sheet in SHEETS.parent.glob("*.css") for name in re.findall(r"\.(p-[\w-]+)", sheet.read_text())
}  # a page's own sheet may add to a class that all pages have
PAGES = [path for path in TEMPLATES.rglob("*.html") if '{% extends "dashboard/frame/base.html" %}' in path.read_text()]


def text_of(path: Path) -> str:
    """The template with all that it includes."""
    text = path.read_text()
    return text + "".join(text_of(TEMPLATES / name) for name in re.findall(r'{% include "([^"]+)"', text))


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(TEMPLATES)))
def test_a_page_links_the_sheet_of_its_classes(page: Path) -> None:
    text = text_of(page)
    linked = set(re.findall(r"css/pages/(\w+)\.css", text))
    used = set(re.findall(r"[\w-]+", " ".join(re.findall(r'class="([^"]*)"', text)))) - SHARED
    assert {sheet for sheet, classes in OWNED.items() if classes & used} == linked
