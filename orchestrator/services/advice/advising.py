"""Asking which strategy suits a job, and hearing the answer.

`begin` has a node of the cluster look at the model, in a trial as before a first launch; `answer_to` makes the advice
from what the node told, the first time that somebody asks once it is there. Nothing is started.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec
from django.db import transaction

from orchestrator.domain.advice.advice import advise
from orchestrator.domain.advice.candidates import Goal, Staleness, Wishes, candidates
from orchestrator.domain.advice.sentences import Code
from orchestrator.models import Advice, AdviceStatus, Node, ProbedNode, User
from orchestrator.queries.errors import NotFound
from orchestrator.services.advice.machines import machines_of
from orchestrator.services.advice.workloads import question, workload_of
from orchestrator.services.errors import Conflict, FieldError, Forbidden, Invalid
from orchestrator.services.jobs import submission
from orchestrator.services.nodes.cluster_snapshot import cluster_view
from orchestrator.services.programs import programs
from orchestrator.services.programs.programs import Program
from orchestrator.services.trials import preflights, probing
from worker_agent.protocol.codec import plain, typed
from worker_agent.protocol.findings import Finding
from worker_agent.protocol.job.job_spec import JobSpec
from worker_agent.protocol.job.recipe_text import RecipeInfo
from worker_agent.protocol.job.strategies import PARTICULAR, STRATEGIES
from worker_agent.protocol.job.workload import MeasuredModel, Question
from worker_agent.protocol.states import Kind, Strategy

ANSWER_WITHIN, BUILD_WITHIN = timedelta(seconds=20), timedelta(seconds=150)
KEPT_FOR = timedelta(days=7)
# Jobs of one program that are the same in these have the same advice.
ALIKE = ("cluster", "params", "global_batch_size", "precision", "jit")
# Of a job these are chosen, so what the request says of them is not read.
CHOSEN = PARTICULAR - STRATEGIES[Strategy.ONE_DEVICE].reads


class Wish(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What the one who asks cares for, in the words of REST; as in `Wishes`."""

    fixed_batch: bool = True
    staleness: str = "refused"
    goal: str = "time"


def begin(*, request: Mapping[str, object], measure: bool, wishes: object, by: User, now: datetime) -> Advice:
    """Have a node look at the model, and, to `measure`, time its steps. `Invalid` names every wrong field of the job;
    `Conflict` where no node could look."""
    if not by.may_run_jobs:
        raise Forbidden("Your role lets you look at jobs, not create them.")
    preflights.check_limit(by, now=now)
    wish, checked = _wish(wishes), _checked(request, by)
    if checked.spec is None or checked.cluster is None or not isinstance(checked.program, Program):
        raise Invalid(checked.errors)
    spec, cluster = checked.spec, checked.cluster
    if spec.kind is not Kind.RECIPE:
        raise Invalid([FieldError("kind", "an advice needs a recipe: a script chooses its strategy itself")])
    placed = probing.place(spec, cluster_view(cluster, now=now))
    if isinstance(placed, str):
        raise Conflict(f"No node can look at the model: {placed}.")
    asked = Question()
    if measure:
        machines = machines_of(cluster, now=now)
        asked = question(machines, candidates(machines, _wishes(wish, spec, checked.info))[0])
    with transaction.atomic():
        Advice.objects.filter(created_at__lt=now - KEPT_FOR).delete()
        code = programs.save(checked.program)
        limits = {"answer_by": now + ANSWER_WITHIN, "build_by": now + BUILD_WITHIN}
        row = probing.begin(spec, cluster, now=now, owner=by, **limits)
        node = Node.objects.get(pk=placed[0].node_id)
        probing.ask(node, row, spec, now=now, builds=True, trains=False, question=asked)
        return Advice.objects.create(
            owner=by,
            cluster=cluster,
            code=code,
            preflight=row,
            request=_kept(request, spec),
            wishes=plain(wish),
            spec=plain(spec),
            created_at=now,
        )


def answer_to(*, advice_id: int, by: User, now: datetime) -> Advice:
    """As it stands; `NotFound` unless it is one's own (an administrator sees all)."""
    row = Advice.objects.select_related("cluster", "code", "preflight").filter(pk=advice_id).first()
    if row is None or not by.may_act_for(row.owner_id):
        raise NotFound("There is no such advice. Advices are kept for a week.")
    if row.status == AdviceStatus.RUNNING:
        _go_on(row, now)
    return row


def _go_on(row: Advice, now: datetime) -> None:
    """Make the advice if the node has answered."""
    asked = row.preflight.asked.select_related("node", "command").first() if row.preflight else None
    if asked is not None and asked.answered_at is None and ProbedNode.objects.awaited(now).filter(pk=asked.pk).exists():
        return
    values: dict[str, Any] = {"status": AdviceStatus.FAILED.value, "ended_at": now}
    if asked is None or asked.model is None:
        values["reason"] = _why_none(asked)
    else:
        try:
            workload = workload_of(typed(asked.model, MeasuredModel))
            spec = typed(row.spec, JobSpec)
            info = programs.resolve(row.request, by=row.owner).info
            found = advise(workload, machines_of(row.cluster, now=now), _wishes(typed(row.wishes, Wish), spec, info))
        except ValueError as error:
            values["reason"] = f"No advice can be made from what {asked.name} measured: {error}."
        else:
            result: dict[str, Any] = found.as_json()
            result["candidates"] = [each | {"layout": layout_of(each)} for each in result["candidates"]]
            values |= {"status": AdviceStatus.DONE.value, "level": found.level.value, "result": result}
    for name, value in values.items():
        setattr(row, name, value)
    row.save(update_fields=list(values))


def advised(*, request: Mapping[str, object], by: User, most: int) -> list[dict[str, Any]]:
    """From one's latest advice for this job: the best layout of each strategy that fits and may win, one device among
    them. `Invalid` where there is no advice."""
    spec = _checked(request, by).asked
    rows = Advice.objects.filter(owner=by, status=AdviceStatus.DONE.value, code_id=spec.code.sha256 if spec else "")
    found = next((row for row in rows.order_by("-pk")[:20] if spec and _is_for(row, spec)), None)
    if found is None or found.result is None:
        sentence = "there is no advice for this job yet: ask for one with POST /advice, or name the candidates"
        raise Invalid([FieldError("candidates", sentence)])
    best: dict[str, dict[str, Any]] = {}
    for each in found.result["candidates"]:
        refused = Code.STALE_REFUSED in {remark["code"] for remark in each["cautions"]}
        if each["fits"] and not refused and each["global_batch_size"] == found.spec["global_batch_size"]:
            sizes = {name: value for name, value in each["layout"].items() if name != "global_batch_size"}
            best.setdefault(each["strategy"], sizes)
    single = best.pop(Strategy.ONE_DEVICE, None)
    return [*([single] if single else []), *best.values()][:most]


def _is_for(row: Advice, spec: JobSpec) -> bool:
    """Whether a job is what was asked about, as far as an advice depends on it."""
    return all(row.spec[name] == plain(getattr(spec, name)) for name in ALIKE)


def _checked(request: Mapping[str, object], by: User) -> submission.Checked:
    """The job under one device."""
    job = {name: value for name, value in request.items() if name not in CHOSEN}
    return submission.check({"name": "advice", **job, "strategy": Strategy.ONE_DEVICE.value}, by=by)


def layout_of(candidate: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a job that make this candidate of a `result`."""
    reads = STRATEGIES[Strategy(candidate["strategy"])].reads
    sizes = {name: candidate[name] for name in sorted(PARTICULAR & reads) if name in candidate}
    return {"strategy": candidate["strategy"], **sizes, "global_batch_size": candidate["global_batch_size"]}


def _wish(given: object) -> Wish:
    try:
        wish = msgspec.convert(given, Wish)
    except msgspec.ValidationError as error:
        raise Invalid([FieldError("wishes", str(error).replace("`", ""))]) from error
    words: list[tuple[str, str, type[Goal] | type[Staleness]]]
    words = [("staleness", wish.staleness, Staleness), ("goal", wish.goal, Goal)]
    wrong = [
        FieldError(f"wishes.{name}", f"choose one of {', '.join(kind.__members__).lower()}")
        for name, word, kind in words
        if word.upper() not in kind.__members__
    ]
    if wrong:
        raise Invalid(wrong)
    return wish


def _wishes(wish: Wish, spec: JobSpec, recipe: RecipeInfo | None) -> Wishes:
    return Wishes(
        job=spec,
        recipe=recipe,
        fixed_batch=wish.fixed_batch,
        staleness=Staleness[wish.staleness.upper()],
        goal=Goal[wish.goal.upper()],
    )


def _kept(request: Mapping[str, object], spec: JobSpec) -> dict[str, object]:
    """The request, its program by digest."""
    own = {"code": {"sha256": spec.code.sha256, "entry": spec.code.entry}} if "code" in request else {}
    return {**request, **own}


def _why_none(asked: ProbedNode | None) -> str:
    if asked is None:
        return "The node that was asked did not answer in time. Ask again."
    if asked.answered_at is None:
        return f"{asked.name} did not answer in time. Check that its agent runs, and ask again."
    found = [Finding(**each) for each in asked.findings]
    first = next((each for each in found if each.blocks), found[0] if found else None)
    if first is not None:
        return f"{first.sentence}."
    return f"The agent of {asked.name} is too old to measure a model. Update it, and ask again."
