"""What the page of compared jobs draws: of each job the series of its leader, all attempts in one, thinned."""

import json
from collections.abc import Sequence
from math import isfinite

from orchestrator import series as storage
from orchestrator.models import Job, Replica
from worker_agent.protocol.job.gang_shape import has_chief, is_leader

Columns = dict[str, object]


def curves(jobs: Sequence[Job], *, points: int) -> dict[int, dict[str, Columns]]:
    """By job and name: equally long `steps`, `times` (unix s, to the ms) and `values` (JSON-safe, to 7 digits, which is
    more than a chart shows), of about `points` points.

    What a later attempt did again takes the place of what the earlier one had done.
    """
    by_id = {job.pk: job for job in jobs}
    chiefs = {job.pk: has_chief(job.typed_spec) for job in jobs}
    rows = Replica.objects.filter(job__in=by_id).order_by("job", "attempt", "incarnation")
    leaders = {
        replica.pk: replica
        for replica in rows.only("job_id", "attempt", "role", "index", "incarnation")
        if is_leader(replica.role, replica.index, has_chief=chiefs[replica.job_id])
    }
    read = storage.read([storage.Owner(replica_id=pk) for pk in leaders])
    place = {pk: number for number, pk in enumerate(leaders)}
    joined: dict[tuple[int, str], storage.Curve] = {}
    for owner, name in sorted(read, key=lambda key: place[key[0].replica_id or 0]):
        curve, key = read[owner, name], (leaders[owner.replica_id or 0].job_id, name)
        if before := joined.get(key):
            kept = before.steps < curve.steps[0]
            curve = storage.join([storage.Curve(*(column[kept] for column in before)), curve])
        joined[key] = curve
    found: dict[int, dict[str, Columns]] = {pk: {} for pk in by_id}
    for (job_id, name), curve in joined.items():
        thin = storage.thin(curve, points)
        found[job_id][name] = {
            "steps": thin.steps.tolist(),
            "times": thin.times.round(3).tolist(),
            "values": [_said(value) for value in thin.values.tolist()],
        }
    return found


def _said(value: float) -> float | str:
    """What JSON has no number for, as a word."""
    return float(f"{value:.7g}") if isfinite(value) else json.dumps(value)
