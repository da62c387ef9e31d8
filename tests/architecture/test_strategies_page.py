"""docs/strategies.md speaks of every strategy and of every field that some of them read."""

from pathlib import Path

import pytest

from worker_agent.protocol.job.strategies import PARTICULAR, STRATEGIES

PAGE = (Path(__file__).parents[2] / "docs" / "strategies.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("strategy", list(STRATEGIES))
def test_each_strategy_has_its_paragraph(strategy):
    assert f"\n**{STRATEGIES[strategy].label}** (`{strategy.value}`)." in PAGE
    assert f"| `{strategy.value}` |" in PAGE


@pytest.mark.parametrize("field", sorted(PARTICULAR))
def test_each_field_is_explained(field):
    assert f"`{field}`" in PAGE
