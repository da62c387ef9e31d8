"""Tables in docs/ are those of the code; `.venv/bin/python scripts/tables.py` writes them anew."""

import pytest

from scripts.tables import TABLES, page_with


@pytest.mark.parametrize("name", TABLES)
def test_a_table_of_the_docs_is_that_of_the_code(name: str) -> None:
    path, text = page_with(name)
    assert path.read_text() == text, "run: .venv/bin/python scripts/tables.py"
