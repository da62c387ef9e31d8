"""Every page in a real browser: nothing that axe finds, in light and dark, and nothing out of sight on a phone. A page
that outlived its version says so.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import axe_playwright_python
import pytest
from playwright.sync_api import Browser, Page, Route, expect

from tests.e2e.stack import Stack

pytestmark = [pytest.mark.stack, pytest.mark.tf, pytest.mark.browser]

AXE = (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text()
TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
# The last one is experimental, and so off where it is not asked for.
OPTIONS = {
    "runOnly": {"type": "tag", "values": TAGS},
    "rules": {"label-content-name-mismatch": {"enabled": True}},
}
FOUND = """async (options) => (await axe.run(document, options)).violations.map(
  ({ id, impact, nodes }) => `${impact} ${id}: ${nodes.slice(0, 3).map((node) => node.html).join(" | ")}`)"""
# What keys reach and eyes do not: past the window, or past a frame that hides the rest of it. What scrolls in its own
# frame is in reach.
CUT = """() => {
  const cut = [];
  const wide = document.documentElement.scrollWidth;
  if (wide > innerWidth) cut.push(`the page is ${wide} px wide`);
  for (const each of document.querySelectorAll("a[href], button, input, select, textarea, summary")) {
    const { left, right, width, height } = each.getBoundingClientRect();
    if (!each.checkVisibility({ visibilityProperty: true })) continue;
    if (each.closest(".ty-skip, .visually-hidden, .ty-toasts")) continue;
    if (width < 2 || height < 2) continue;
    for (let frame = each.parentElement; frame; frame = frame.parentElement) {
      const scrolls = getComputedStyle(frame).overflowX;
      if (scrolls === "auto" || scrolls === "scroll") break;
      const whole = frame === document.documentElement;
      if (!whole && scrolls === "visible") continue;
      const box = whole ? { left: 0, right: innerWidth, width: innerWidth } : frame.getBoundingClientRect();
      if (left >= box.left - 1 && right <= box.right + 1) continue;
      cut.push(each.outerHTML.slice(0, 160));
      break;
    }
  }
  return cut;
}"""
PAGES = [
    *("/", "/jobs/", "/jobs/new/", "/jobs/{job}/", "/clusters/", "/clusters/local/", "/clusters/local/settings/"),
    *("/nodes/", "/nodes/{node}/", "/people/", "/people/1/", "/account/tokens/", "/account/password/"),
    *("/compare/?jobs={job}", "/api/v1/docs", "/nowhere/"),
]


@pytest.fixture(scope="module")
def page(browser: Browser, stack: Stack) -> Iterator[Page]:
    """A signed-in page of the administrator, into which a test may put a script."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, bypass_csp=True)
    page = context.new_page()
    page.goto(f"{stack.url}/sign-in/")
    page.get_by_label("Name").fill(stack.username)
    page.get_by_label("Password").fill(stack.password)
    page.get_by_role("button", name="Sign in", exact=True).click()
    expect(page.get_by_role("heading", name="Overview", level=1)).to_be_visible()
    yield page
    context.close()


@pytest.fixture(scope="module")
def places(stack: Stack) -> dict[str, Any]:
    """What pages are about: a job with everything that an ended one has, and a node."""
    job = stack.submit(name="seen", epochs=3)
    stack.wait_for_job(job["id"], "succeeded")
    return {"job": job["id"], "node": stack.get("/nodes")[0]["id"]}


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("path", PAGES)
def test_axe_finds_nothing(page: Page, stack: Stack, places: dict[str, Any], path: str, theme: str) -> None:
    page.goto(f"{stack.url}{path.format(**places)}{'&' if '?' in path else '?'}theme={theme}")
    if path.endswith("docs"):
        expect(page.locator("section.models")).to_be_visible()
        page.locator("button.opblock-summary-control").first.click()
        expect(page.locator(".responses-table").first).to_be_visible()
    page.wait_for_load_state("networkidle")
    page.evaluate(AXE)
    assert page.evaluate(FOUND, OPTIONS) == []


@pytest.mark.parametrize("path", PAGES)
def test_a_phone_shows_all_of_it(page: Page, stack: Stack, places: dict[str, Any], path: str) -> None:
    page.set_viewport_size({"width": 360, "height": 740})
    page.goto(f"{stack.url}{path.format(**places)}")
    page.wait_for_load_state("networkidle")
    if path == "/jobs/new/":
        expect(page.get_by_role("button", name="Start job", exact=True)).to_be_in_viewport(ratio=1)
    cut = page.evaluate(CUT)
    page.set_viewport_size({"width": 1280, "height": 900})
    assert cut == []


def test_a_page_that_outlived_its_version_offers_to_be_loaded_again(page: Page, stack: Stack) -> None:
    def updated(route: Route) -> None:
        answer = route.fetch()
        route.fulfill(response=answer, headers=answer.headers | {"trainyard-version": "another"})

    page.route("**/state/**", updated)
    page.goto(f"{stack.url}/clusters/local/")
    expect(page.get_by_text("Trainyard was updated.")).to_be_visible()
    page.unroute("**/state/**")
    page.evaluate("window.before = true")
    page.get_by_role("button", name="Reload page").click()
    page.wait_for_function("!window.before")
    page.wait_for_load_state("networkidle")
    expect(page.get_by_text("Trainyard was updated.")).to_be_hidden()
