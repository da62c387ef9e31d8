"""What the new-job form calls the fields and values of a request, for sentences that name them as REST does.

The rules of the control plane write such a name in backquotes; `in_labels` puts what stands on the form in its place.
Called by `forms.py` for errors, by `templatetags/fields.py` for findings.
"""

import re

from worker_agent.protocol.job.job_spec import FIELDS
from worker_agent.protocol.job.strategies import STRATEGIES

# The first field that has a value names it.
_VALUES = {option.value: option.label for row in reversed(FIELDS.values()) for option in row.options}
LABELS = (
    _VALUES
    | {strategy.value: row.label for strategy, row in STRATEGIES.items()}
    | {row.name: row.label for row in FIELDS.values()}
)
_NAMED = re.compile(r"`([^`]*)`")


def in_labels(sentence: str) -> str:
    """A sentence with the form's words for what it names; without backquotes."""
    return _NAMED.sub(lambda found: LABELS.get(found[1], found[1]), sentence)
