"""HTTP requests that declare, delete, bind, publish and get, by users who lack AMQP permissions."""

from __future__ import annotations

from typing import NamedTuple

from tests.console.http import Api

from .permission_cases import DEFINITIONS, FULL, NEW, PASSWORD, VHOST

ADMINISTRATOR = "administrator"  # without permissions
CHOSEN = (
    FULL,
    "only write read",
    "only configure read",
    "only configure write",
    "only nothing",
    "no write on queue",
    "no read on queue",
    "no read on exchange",
    "no write on other",
    "no read on new",
    r"no write on amq\.default",
    "topics",
)


class Request(NamedTuple):
    """A request in the vhost, and whether objects have to be restored if it is allowed."""

    method: str
    path: str
    body: object = None
    changes: bool = False


def _publish(exchange: str, key: str) -> Request:
    message = {"routing_key": key, "payload": "", "payload_encoding": "string", "properties": {}}
    return Request("POST", f"exchanges/{VHOST}/{exchange}/publish", message)


def _get(queue: str, mode: str) -> Request:
    body = {"count": 1, "encoding": "auto", "ackmode": mode}
    return Request("POST", f"queues/{VHOST}/{queue}/get", body)


def _dead_letters(exchange: str) -> object:
    return {"arguments": {"x-dead-letter-exchange": exchange}}


def _alternate(exchange: str) -> object:
    return {"type": "direct", "arguments": {"alternate-exchange": exchange}}


def _bind(ends: str, key: str) -> Request:
    return Request("POST", f"bindings/{VHOST}/e/{ends}", {"routing_key": key})


REQUESTS: tuple[Request, ...] = (
    Request("PUT", f"queues/{VHOST}/{NEW}", {}, True),
    Request("PUT", f"queues/{VHOST}/queue", {}),
    Request("PUT", f"queues/{VHOST}/queue", {"arguments": {"x-max-length": 1}}),
    Request("PUT", f"queues/{VHOST}/{NEW}", _dead_letters("other"), True),
    Request("PUT", f"queues/{VHOST}/{NEW}", _dead_letters("none"), True),
    Request("DELETE", f"queues/{VHOST}/queue", None, True),
    Request("DELETE", f"queues/{VHOST}/none"),
    Request("DELETE", f"queues/{VHOST}/queue/contents"),
    Request("DELETE", f"queues/{VHOST}/none/contents"),
    Request("PUT", f"exchanges/{VHOST}/{NEW}", {"type": "direct"}, True),
    Request("PUT", f"exchanges/{VHOST}/exchange", {"type": "direct"}),
    Request("PUT", f"exchanges/{VHOST}/topic", {"type": "direct"}),
    Request("PUT", f"exchanges/{VHOST}/{NEW}", _alternate("other"), True),
    Request("PUT", f"exchanges/{VHOST}/exchange", _alternate("other")),
    Request("DELETE", f"exchanges/{VHOST}/exchange", None, True),
    Request("DELETE", f"exchanges/{VHOST}/none"),
    _bind("exchange/q/queue", "k"),
    _bind("topic/q/queue", "r"),
    _bind("topic/q/queue", "x"),
    _bind("exchange/e/other", "k"),
    _bind("none/q/queue", "k"),
    _bind("exchange/q/none", "k"),
    Request("DELETE", f"bindings/{VHOST}/e/exchange/q/queue/k", None, True),
    Request("DELETE", f"bindings/{VHOST}/e/exchange/e/other/k", None, True),
    Request("DELETE", f"bindings/{VHOST}/e/exchange/q/queue/none"),
    _publish("exchange", "k"),
    _publish("amq.default", "queue"),
    _publish("internal", "k"),
    _publish("topic", "topics.w"),
    _publish("topic", "x"),
    _publish("none", "k"),
    *(
        _get("queue", mode)
        for mode in (
            "ack_requeue_true",
            "ack_requeue_false",
            "reject_requeue_true",
            "reject_requeue_false",
        )
    ),
    _get("none", "ack_requeue_true"),
    Request("GET", f"aliveness-test/{VHOST}"),
)

_OBJECTS: tuple[Request, ...] = (
    Request("DELETE", f"queues/{VHOST}/{NEW}"),
    Request("DELETE", f"exchanges/{VHOST}/{NEW}"),
    Request("PUT", f"queues/{VHOST}/queue", {}),
    Request("PUT", f"exchanges/{VHOST}/exchange", {"type": "direct"}),
    Request("PUT", f"exchanges/{VHOST}/topic", {"type": "topic"}),
    Request("PUT", f"exchanges/{VHOST}/other", {"type": "fanout"}),
    Request("PUT", f"exchanges/{VHOST}/internal", {"type": "fanout", "internal": True}),
    _bind("exchange/q/queue", "k"),
    _bind("exchange/e/other", "k"),
)


def outcomes(root: Api) -> dict[tuple[str, str], str]:
    """Return status and error of every request by every user."""
    users = [{**user, "tags": "management"} for user in DEFINITIONS["users"]]
    users.append({"name": ADMINISTRATOR, "password": PASSWORD, "tags": "administrator"})
    assert root.post("/api/definitions", {**DEFINITIONS, "users": users}).status == 204
    owner = Api(root.port, FULL, PASSWORD)
    found = {}
    for user in (*CHOSEN, ADMINISTRATOR):
        restore(owner)
        api = Api(root.port, user, PASSWORD)
        for request in REQUESTS:
            reply = api.request(request.method, f"/api/{request.path}", request.body)
            error = reply.body.get("error") if isinstance(reply.body, dict) else None
            name = f"{request.method} {request.path} {request.body or ''}"
            found[user, name] = f"{reply.status} {error}" if error else str(reply.status)
            if request.changes and reply.status < 300:
                restore(owner)
    return found


def restore(owner: Api) -> None:
    for request in _OBJECTS:
        reply = owner.request(request.method, f"/api/{request.path}", request.body)
        assert reply.status in (201, 204, 404), reply
