"""The documentation speaks of every strategy and of every field."""

from pathlib import Path

import pytest

from worker_agent.protocol.job.job_spec import FIELDS
from worker_agent.protocol.job.strategies import STRATEGIES

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "strategies.md").read_text(encoding="utf-8")
FIELDS_PAGE = (DOCS / "fields.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("strategy", list(STRATEGIES))
def test_each_strategy_has_its_paragraph(strategy):
    assert f"\n**{STRATEGIES[strategy].label}** (`{strategy.value}`)." in PAGE
    assert f"| `{strategy.value}` |" in PAGE


@pytest.mark.parametrize("field", FIELDS)
def test_each_field_is_explained(field):
    assert f"\n| `{field}` |" in FIELDS_PAGE
