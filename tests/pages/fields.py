"""Reads the form controls out of a page."""

from html.parser import HTMLParser


class Fields(HTMLParser):
    """The controls of a page by name, with their values, and which are marked wrong."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.values: dict[str, str] = {}
        self.wrong: set[str] = set()
        self.described: dict[str, str] = {}
        self._area = self._select = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        got = dict(attrs)
        name = got.get("name") or ""
        if tag in ("input", "textarea", "select") and got.get("aria-invalid"):
            self.wrong.add(name)
        if tag in ("input", "textarea", "select"):
            self.described[name] = got.get("aria-describedby") or ""
        if tag == "textarea":
            self._area, self.values[name] = name, ""
        elif tag == "select":
            self._select = name
        elif tag == "option" and "selected" in got:
            self.values[self._select] = got.get("value") or ""
        elif tag == "input" and got.get("type") in ("radio", "checkbox"):
            if "checked" in got:
                self.values[name] = got.get("value") or ""
        elif tag == "input":
            self.values[name] = got.get("value") or ""

    def handle_endtag(self, tag: str) -> None:
        if tag == "textarea":
            self.values[self._area] = self.values[self._area].removeprefix("\n")
            self._area = ""

    def handle_data(self, data: str) -> None:
        if self._area:
            self.values[self._area] += data
