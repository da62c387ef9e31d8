"""A job's spec as a person reads it: the settings of the job page, in the order of the form."""

import shlex
from typing import Any

from dashboard.templatetags.trainyard import group
from orchestrator.queries.rows import Job
from worker_agent.protocol.job.field import Field
from worker_agent.protocol.job.job_spec import JobSpec
from worker_agent.protocol.job.strategies import fields_read, label
from worker_agent.protocol.states import Choice, Kind

ELSEWHERE = ("name", "kind", "strategy", "cluster", "env")


def settings_of(job: Job) -> list[tuple[str, str]]:
    """(name, value) of everything that was asked for and says something."""
    return [("Program", _program(job, job.typed_spec)), *settings_in(job.typed_spec)]


def settings_in(spec: JobSpec) -> list[tuple[str, str]]:
    """The same without the program."""
    asked = [(row, getattr(spec, row.name)) for row in fields_read(spec.strategy, spec.kind)]
    return [
        ("Strategy", label(spec.strategy)),
        *(
            (row.label, _in_words(row, value))
            for row, value in asked
            if row.name not in ELSEWHERE and (row.always or value != row.default)
        ),
        *((name, str(value)) for name, value in spec.params.items()),
        *spec.env.items(),
    ]


def _program(job: Job, spec: JobSpec) -> str:
    if spec.code.git:
        git = spec.code.git
        return f"{spec.code.entry} of {git.url} at {git.commit[:12]} ({git.ref or 'HEAD'})"
    if job.recipe:
        return f"{job.recipe} (recipe)"
    return str(job.code.filename) + ("" if spec.kind is Kind.RECIPE else " (script)")


def _in_words(row: Field, value: Any) -> str:
    match value:
        case None:
            return row.example
        case bool():
            return "yes" if value else "no"
        case Choice():
            return value.label
        case list():
            return shlex.join(value)
        case str():
            return "written by hand" if row.name == "tf_config" else ", ".join(value.splitlines())
    shown = str(group(value)) if isinstance(value, int) else f"{value:g}"
    return f"{shown} {row.unit}".strip()
