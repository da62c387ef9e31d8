"""What the job page shows of a job's restarts. For `job_page.py`."""

from dataclasses import dataclass
from typing import Any

from dashboard.templatetags.trainyard import MISSING, duration
from dashboard.views.job_words import headline
from orchestrator.queries import restarts as queries
from worker_agent.protocol.states import Cause


@dataclass(frozen=True)
class RestartRow:
    """One of them: `view` as the query has it, `who` began anew, `said` the first line of its reason, `lasted` the time
    it cost."""

    view: queries.RestartView
    who: str
    said: str
    lasted: str


def restarts_of(job: Any) -> list[RestartRow]:
    """The restarts of a job as its page shows them, first one first."""
    return [_row(view) for view in queries.of_job(job)]


def _row(view: queries.RestartView) -> RestartRow:
    known = view.seconds_lost is not None and view.cause != Cause.PAUSED  # a pause loses no time
    lasted = duration(view.seconds_lost) if known else MISSING
    who = ", ".join(view.replicas).capitalize() or "All"
    return RestartRow(view=view, who=who, said=headline(view.reason), lasted=lasted)
