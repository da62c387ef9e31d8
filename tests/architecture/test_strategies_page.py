"""The strategies page says in prose what the table of strategies declares: its guides, and what stands around them."""

import re
from pathlib import Path

import pytest

from worker_agent.protocol.job.job_spec import FIELDS
from worker_agent.protocol.job.strategies import PARTICULAR, STRATEGIES, readers_of

PAGE = (Path(__file__).parents[2] / "docs" / "strategies.md").read_text(encoding="utf-8")
MADE, AROUND = PAGE.split("<!-- end of strategies -->")
VALUES = {str(option) for row in FIELDS.values() for option in row.options}
# What else stands in code on that page.
OTHER_NAMES = {
    "POST /preflight",
    "TF_CONFIG",
    "TRAINYARD_REHEARSE",
    "code",
    "digits_mlp",
    "false",
    "local",
    "task",
    "tf.keras",
}


def names_in(text: str) -> set[str]:
    return set(re.findall(r"`([^`]+)`", text))


@pytest.mark.parametrize("field", sorted(PARTICULAR))
def test_a_field_of_some_strategies_is_explained_there(field: str) -> None:
    guides = " ".join(STRATEGIES[strategy].guide for strategy in readers_of(field))
    assert field in names_in(guides + AROUND), f"say what {field} does in a guide of its strategies, or around them"


@pytest.mark.parametrize("strategy", list(STRATEGIES))
def test_a_guide_speaks_of_fields_that_its_strategy_reads(strategy: str) -> None:
    row = STRATEGIES[strategy]
    named = names_in(row.guide) & set(FIELDS)
    assert named <= row.reads | (set(FIELDS) - PARTICULAR)


def test_the_page_names_only_what_there_is() -> None:
    assert names_in(PAGE) <= set(FIELDS) | VALUES | set(STRATEGIES) | OTHER_NAMES
    assert names_in(PAGE) >= OTHER_NAMES


def test_every_choice_of_how_gradients_are_summed_is_named() -> None:
    for field in ("communication", "cross_device", "precision"):
        values = {str(option) for option in FIELDS[field].options} - {"float32"}
        assert values <= names_in(PAGE), field
