"""What the job page shows of a job's restarts. For `job_page.py`."""

from dataclasses import dataclass

from dashboard.templatetags.trainyard import MISSING, duration
from dashboard.views.job.words import headline
from orchestrator.queries import restarts as queries
from orchestrator.queries.rows import Job


@dataclass(frozen=True)
class RestartRow:
    """One of them: `view` as the query has it, `who` began anew, `said` the first line of its reason, `counts` what it
    is of the restarts that the job asks for ("" where it does not count), `lasted` the time it cost, `away` how long
    those were away that the others did not wait for ("" else)."""

    view: queries.RestartView
    who: str
    said: str
    counts: str
    lasted: str
    away: str


def restarts_of(job: Job) -> list[RestartRow]:
    """The restarts of a job as its page shows them, first one first."""
    rows, tries, most = [], 0, job.typed_spec.max_restarts
    for view in queries.of_job(job):
        tries += view.counted
        rows.append(_row(view, f"Counts as a try ({tries} of {most})." if view.counted and most else ""))
    return rows


def _row(view: queries.RestartView, counts: str) -> RestartRow:
    lasted, away = MISSING if view.seconds_lost is None else _to_the_second(view.seconds_lost), ""
    if view.replicas and view.lost_since is None:
        lasted = "none"
        away = f"away {_to_the_second((view.running_at - view.failed_at).total_seconds())}" if view.running_at else ""
    who = ", ".join(view.replicas).capitalize() or "All"
    return RestartRow(view=view, who=who, said=headline(view.reason), counts=counts, lasted=lasted, away=away)


def _to_the_second(seconds: float) -> str:
    """As other durations, but to the second below ten minutes: 2 min 05 s."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if 0 < minutes < 10 else duration(round(seconds))
