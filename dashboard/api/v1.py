"""REST, version 1: the API object, the format of answers and the document. Operations are in `jobs`,
`checkpoints`, `preflights`, `strategy_tests`, `advice`, `machines`."""

import json
from typing import Any

from django.http import HttpRequest
from ninja import NinjaAPI
from ninja.openapi.docs import Swagger
from ninja.renderers import BaseRenderer
from ninja.responses import NinjaJSONEncoder

from dashboard.api import checkpoints, jobs, machines, preflights
from dashboard.api.advice import operations as advice
from dashboard.api.advice.shapes import AdviceWishes
from dashboard.api.auth import Session, Token, may_read_documents
from dashboard.api.problems import install
from dashboard.api.shapes import JobRequest
from dashboard.api.strategy_tests import operations as strategy_tests
from dashboard.api.strategy_tests.shapes import StrategyTestRequest
from orchestrator.live import jsonable


class Json(BaseRenderer):
    """JSON that every reader can read: numbers that JSON lacks are the words NaN, Infinity and -Infinity."""

    media_type = "application/json"

    def render(self, request: HttpRequest, data: Any, *, response_status: int) -> str:
        """Finite data, which is nearly all, is written in one go."""
        try:
            return json.dumps(data, cls=NinjaJSONEncoder, allow_nan=False)
        except ValueError:
            return json.dumps(jsonable(data), cls=NinjaJSONEncoder, allow_nan=False)


class Api(NinjaAPI):
    """Ninja's API with the schemas in its document that no operation declares by itself."""

    def get_openapi_schema(self, **kwargs: Any) -> Any:
        """The OpenAPI document."""
        document = super().get_openapi_schema(**kwargs)
        schemas = document["components"]["schemas"]
        template = "#/components/schemas/{model}"
        for kind in (JobRequest, StrategyTestRequest, AdviceWishes):
            made = kind.model_json_schema(ref_template=template)
            schemas.update(made.pop("$defs", {}))
            schemas[kind.__name__] = made
        return document


class Docs(Swagger):
    """Swagger's page in a frame of ours. Links within its buttons are off: nothing could be said of both."""

    template = "dashboard/api/docs.html"


api = Api(
    title="Trainyard",
    docs=Docs(settings={"deepLinking": False, "syntaxHighlight": False}),
    version="1",
    description="Jobs, machines and recipes. Send `Authorization: Bearer <token>` with a token of your account page.",
    auth=[Token(), Session()],
    renderer=Json(),
    docs_decorator=may_read_documents,
)
install(api)
for room in (jobs, checkpoints, preflights, strategy_tests, advice, machines):
    api.add_router("", room.router)
