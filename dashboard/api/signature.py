"""Which node an agent's request is from: the `Authorization: Trainyard …` header, taken apart and checked.

What is signed is the path as it reads, before it is quoted for the wire. Used twice for an upload: by
`dashboard/config/limits.py` before a byte of it is taken, and by `agents.py`.
"""

import re

from django.utils import timezone

from orchestrator.queries.rows import Node
from orchestrator.services.errors import Forbidden
from orchestrator.services.nodes import joining

HEADER = re.compile(r"Trainyard node=([0-9a-f]{1,12}), at=([0-9]{1,12}), mac=([0-9a-f]{64})")


class NotSigned(Exception):
    """The request is not signed, or not by a node of this installation, or not just now."""


def node_of_request(*, method: str, path: str, authorization: str) -> Node:
    """The node whose key signed this request; raises `NotSigned`."""
    found = HEADER.fullmatch(authorization)
    if found is None:
        raise NotSigned("This needs the signature of a node: Authorization: Trainyard node=…, at=…, mac=…")
    node_id, at, mac = found.groups()
    try:
        return joining.authenticate_request(
            node_id=node_id, method=method, path=path, at=int(at), mac=mac, now=timezone.now()
        )
    except Forbidden as error:
        raise NotSigned(str(error)) from error
