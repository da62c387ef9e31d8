"""What the job page shows of a job's restarts. For `job_page.py`."""

from dataclasses import dataclass
from typing import Any

from dashboard.templatetags.trainyard import MISSING, duration
from dashboard.views.job_words import headline
from orchestrator.queries import restarts as queries
from worker_agent.protocol.states import Cause


@dataclass(frozen=True)
class RestartRow:
    """One of them: `view` as the query has it, `who` began anew, `said` the first line of its reason, `counts` what it
    is of the restarts that the job asks for ("" where it does not count), `lasted` the time it cost."""

    view: queries.RestartView
    who: str
    said: str
    counts: str
    lasted: str


def restarts_of(job: Any) -> list[RestartRow]:
    """The restarts of a job as its page shows them, first one first."""
    rows, tries, most = [], 0, job.typed_spec.max_restarts
    for view in queries.of_job(job):
        tries += view.counted
        rows.append(_row(view, f"Counts as a try ({tries} of {most})." if view.counted and most else ""))
    return rows


def _row(view: queries.RestartView, counts: str) -> RestartRow:
    known = view.seconds_lost is not None and view.cause != Cause.PAUSED  # a pause loses no time
    lasted = duration(view.seconds_lost) if known else MISSING
    who = ", ".join(view.replicas).capitalize() or "All"
    return RestartRow(view=view, who=who, said=headline(view.reason), counts=counts, lasted=lasted)
