"""REST of clusters and nodes. Everybody may look; only administrators change (the services refuse others as well)."""

from collections.abc import Callable, Iterable

from ninja import Router, Status
from ninja.params.functions import Query

from dashboard.api import machine_shapes as shapes
from dashboard.api.auth import administrator
from dashboard.api.limits import WRITES
from dashboard.api.problems import PROBLEMS
from dashboard.requests import SignedIn
from orchestrator.queries import machines
from orchestrator.queries.rows import Cluster, Node
from orchestrator.services.nodes import joining
from orchestrator.services.nodes import nodes as service

NODES_LIMIT = 500
MOST_SKIPPED = 1_000_000

router = Router(tags=["machines"])


@router.get("/clusters", response={200: list[shapes.Cluster], **PROBLEMS}, summary="Clusters")
def list_clusters(request: SignedIn) -> Iterable[Cluster]:
    """By name."""
    return machines.clusters(request.user)


@router.post("/clusters", response={201: shapes.Cluster, **PROBLEMS}, summary="Register a cluster", throttle=WRITES)
def create_cluster(request: SignedIn, body: shapes.ClusterRequest) -> Status[Cluster]:
    """For administrators."""
    by = administrator(request)
    made = service.create_cluster(by=by, **body.dict())
    return Status(201, machines.cluster(by, made.name))


@router.get("/clusters/{slug:name}", response={200: shapes.Cluster, **PROBLEMS}, summary="One cluster")
def get_cluster(request: SignedIn, name: str) -> Cluster:
    """By its name."""
    return machines.cluster(request.user, name)


@router.post(
    "/clusters/{slug:name}/join-tokens",
    response={201: shapes.JoinToken, **PROBLEMS},
    summary="Let one node join",
    throttle=WRITES,
)
def create_join_token(request: SignedIn, name: str) -> Status[dict[str, str]]:
    """For administrators. The token works once, for 24 hours."""
    by = administrator(request)
    token = joining.create_join_token(cluster=machines.cluster(by, name), by=by)
    return Status(201, {"token": token, "command": joining.join_command(token)})


@router.get("/nodes", response={200: list[shapes.Node], **PROBLEMS}, summary="Nodes")
def list_nodes(
    request: SignedIn,
    cluster: str = Query("", description="Of this cluster only."),
    offset: int = Query(0, ge=0, le=MOST_SKIPPED, description="How many to leave out at the beginning."),
    limit: int = Query(100, ge=1, le=NODES_LIMIT, description="At most so many; fewer are all that is left."),
) -> list[dict[str, object]]:
    """By cluster and name."""
    user = request.user
    found = machines.nodes(user, machines.cluster(user, cluster) if cluster else None)
    return _nodes(list(found[offset : offset + limit]))


@router.get("/nodes/{slug:node_id}", response={200: shapes.Node, **PROBLEMS}, summary="One node")
def get_node(request: SignedIn, node_id: str) -> dict[str, object]:
    """The node, its devices and what holds them."""
    return _answer(request, node_id)


def _node_action(act: Callable[..., object], *, summary: str, words: str) -> None:
    """`POST /nodes/<id>/<name of the service>`, for administrators."""

    def view(request: SignedIn, node_id: str, body: shapes.Reason | None = None) -> dict[str, object]:
        act(node_id=node_id, by=administrator(request), reason=body.reason if body else "")
        return _answer(request, node_id)

    view.__name__, view.__doc__ = act.__name__, words
    path = f"/nodes/{{slug:node_id}}/{act.__name__}"
    router.post(path, response={200: shapes.Node, **PROBLEMS}, summary=summary, throttle=WRITES)(view)


_node_action(service.cordon, summary="Place nothing new", words="For administrators. Running jobs continue.")
_node_action(service.uncordon, summary="Use it again", words="For administrators.")
_node_action(
    service.drain,
    summary="Empty it",
    words="For administrators. Jobs with checkpoints continue elsewhere, the others may finish. Then it is cordoned.",
)
_node_action(
    service.reclaim,
    summary="Use its dirty devices",
    words="For administrators. Devices and ports that were not released are used again, whatever was left there.",
)


@router.post(
    "/nodes/{slug:node_id}/rename", response={200: shapes.Node, **PROBLEMS}, summary="Rename it", throttle=WRITES
)
def rename(request: SignedIn, node_id: str, body: shapes.NewName) -> dict[str, object]:
    """For administrators."""
    service.rename(node_id=node_id, name=body.name, by=administrator(request))
    return _answer(request, node_id)


@router.delete("/nodes/{slug:node_id}", response={204: None, **PROBLEMS}, summary="Remove it", throttle=WRITES)
def remove(request: SignedIn, node_id: str) -> Status[None]:
    """For administrators. Its key is worth nothing from then on."""
    service.remove(node_id=node_id, by=administrator(request))
    return Status(204, None)


def _answer(request: SignedIn, node_id: str) -> dict[str, object]:
    return _nodes([machines.node(request.user, node_id)])[0]


def _nodes(rows: list[Node]) -> list[dict[str, object]]:
    slots = machines.slots(rows)
    return [
        {
            "id": row.pk,
            "name": row.name,
            "cluster": row.cluster.name,
            "address": row.address,
            "state": row.state,
            "reason": row.state_reason,
            "devices": [
                {
                    "index": slot.index,
                    "kind": slot.kind,
                    "name": slot.name,
                    "state": slot.state,
                    "job": slot.holder.job_id if slot.holder else None,
                    "replica": str(slot.holder) if slot.holder else None,
                }
                for slot in slots[row.pk]
            ],
            "dirty": row.not_used,
            "inventory": row.inventory,
            "sample": row.sample,
            "last_seen_at": row.last_seen_at,
            "joined_at": row.joined_at,
        }
        for row in rows
    ]
