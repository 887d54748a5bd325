"""Requests made by Schemathesis from the description of the API: no internal error, no hang, and AMQP goes on.

The seed is fixed. `RECADO_EXAMPLES=200 pytest tests/console/test_fuzz.py` makes more requests to each route.
"""

from __future__ import annotations

import os
from base64 import b64encode
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pika
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from schemathesis import Case, GenerationMode
from schemathesis.schemas import APIOperation
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

import recado
from recado.broker.arguments import QUEUE_ARGUMENTS
from recado.broker.policy import POLICY_KEYS

from .http import Api

EXAMPLES_COUNT = int(os.environ.get("RECADO_EXAMPLES", "3"))  # of a route, of each kind
SEED = 19
TIMEOUT_S = 60
Operation = APIOperation[Any, Any, Any, Any]
ALL = {"configure": ".*", "write": ".*", "read": ".*"}
NAMES: dict[str, list[str]] = {  # encoded for a path
    "vhost": ["%2F", "v"],
    "queue": ["q", "stream", "dead"],
    "exchange": ["amq.default", "amq.topic", "x"],
    "source": ["amq.default", "amq.headers", "x"],
    "destination": ["q", "x"],
    "destination_type": ["q", "e"],
    "properties": ["k", "~"],
    "user": ["ana", "guest", "eva"],
    "name": ["limits", "max-queues", "max-channels", "p", "cluster_name"],
    "component": ["vhost-limits", "c"],
}
WORDS = [*QUEUE_ARGUMENTS, *POLICY_KEYS, "x-match", "alternate-exchange", "headers"]
VALUES: list[Any] = [
    *(None, True, 0, 1, -1, 2**31, 2**63, 2**64, -(2**70), 0.5, 5.0, 1e300),
    *("", "q", "x", "classic", "quorum", "stream", "reject-publish", "((", "\x00", "é" * 200),
    *([], ["q"], {}, {"": None}),
]
ENDLESS = "/api/events"  # whose answer has no end; test_events.py sends it invalid parameters
BODY_FIELDS = ("arguments", "definition", "value")


@pytest.fixture(scope="module")
def broker() -> Iterator[recado.Broker]:
    with recado.Broker(config={"management": {"port": 0}}) as running:
        yield running


@pytest.fixture(scope="module")
def api(broker: recado.Broker) -> Api:
    assert broker.management_port is not None
    guest = Api(broker.management_port)
    assert guest.put("/api/users/root", {"password": "p", "tags": "administrator"}) == 201
    return Api(broker.management_port, "root", "p")


def restore(api: Api) -> None:
    """Make the objects that `NAMES` names."""
    for vhost in ("%2F", "v"):
        api.put(f"/api/vhosts/{vhost}", {})
        api.put(f"/api/permissions/{vhost}/root", ALL)
        api.delete(f"/api/vhost-limits/{vhost}/max-queues")
        api.put(f"/api/queues/{vhost}/q", {})
        api.put(
            f"/api/queues/{vhost}/stream",
            {"durable": True, "arguments": {"x-queue-type": "stream"}},
        )
        api.put(f"/api/exchanges/{vhost}/x", {"type": "topic"})
    api.put("/api/users/ana", {"tags": "management"})


@st.composite
def requests_to(draw: st.DrawFn, operation: Operation, mode: GenerationMode) -> Case[Any]:
    """Return a request of Schemathesis, often with the name of an object that exists and a known argument."""
    case = draw(operation.as_strategy(mode))
    for name in list(case.path_parameters or {}):
        if name in NAMES and draw(st.integers(0, 9)):
            case.path_parameters[name] = draw(st.sampled_from(NAMES[name]))
    if isinstance(case.body, dict):
        for name in BODY_FIELDS:
            if isinstance(case.body.get(name), dict) and draw(st.booleans()):
                values = st.dictionaries(
                    st.sampled_from(WORDS), st.sampled_from(VALUES), max_size=3
                )
                case.body[name] = draw(values)
    return case


@pytest.mark.timeout(600 * EXAMPLES_COUNT)
def test_no_request_is_an_internal_error(
    broker: recado.Broker, api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    document = api.get("/api/openapi.json")
    del document["security"]  # otherwise half of the requests have no login
    schema = schemathesis.openapi.from_dict(document)
    session = requests.Session()
    headers = {"authorization": f"Basic {b64encode(b'root:p').decode()}"}
    checks = [status_code_conformance, content_type_conformance, response_schema_conformance]
    statuses: Counter[int] = Counter()

    def send(case: Case[Any]) -> None:
        response = case.call(f"http://127.0.0.1:{api.port}", session, headers, timeout=TIMEOUT_S)
        statuses[response.status_code] += 1
        assert response.status_code < 500 or response.status_code in (501, 503), response.text
        case.validate_response(response, checks=checks)

    for result in schema.get_all_operations():
        operation: Operation = result.ok()  # type: ignore[union-attr]
        if operation.path == ENDLESS:
            continue
        if operation.method != "get":
            restore(api)
        for mode in GenerationMode:
            run = given(requests_to(operation, mode))(send)
            run = settings(
                max_examples=EXAMPLES_COUNT,
                database=None,
                deadline=None,
                phases=[Phase.generate],
                suppress_health_check=list(HealthCheck),
            )(run)
            with suppress(Unsatisfiable):  # nothing of the request can be invalid
                seed(SEED)(run)()
    assert {200, 201, 204, 400, 404} <= statuses.keys()
    assert "error while handling a request" not in caplog.text
    restore(api)
    parameters = pika.URLParameters(f"amqp://root:p@{broker.address}/%2F")
    connection = pika.BlockingConnection(parameters)
    channel = connection.channel()
    channel.queue_declare("last")
    channel.basic_publish("", "last", b"x")
    assert channel.basic_get("last", auto_ack=True)[2] == b"x"
    connection.close()
