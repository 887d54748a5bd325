"""The endpoints of RabbitMQ 3.13's management API, and what recado answers to each.

The list is that of its dispatcher (`deps/rabbitmq_management/src/rabbit_mgmt_dispatcher.erl` of version 3.13.7,
and the dispatchers of the plugins for streams, shovels and federation), with the methods that the modules
allow. The endpoints are in an order in which one node can answer them.
"""

from __future__ import annotations

from typing import Any

import msgspec

NEW = {"vhost": "new"}
LIMIT = {"value": 10}
PATTERNS = {"configure": ".*", "write": ".*", "read": ".*"}
POLICY = {"pattern": "^p", "definition": {"max-length": 5}}
MESSAGE = {"routing_key": "k", "payload": "x", "payload_encoding": "string", "properties": {}}
GET_ONE = {"count": 1, "ackmode": "ack_requeue_false", "encoding": "auto"}

PARAMETERS = {
    "vhost": "%2F",
    "queue": "q",
    "destination": "q",
    "exchange": "amq.topic",
    "source": "amq.topic",
    "dtype": "q",
    "props": "k",
    "user": "guest",
    "username": "guest",
    "within": "1",
    "unit": "days",
    "protocol": "amqp091",
    "password": "secret",
    "component": "vhost-limits",
    "name": "limits",
    "id": "link",
    "filter": "rabbit",
}
"""What stands for the parameters of a path; the node, a connection, a channel and the port are those of the test."""


class Endpoint(msgspec.Struct, frozen=True):
    """A method of a path, the expected status, and the request: its body, and parameters that differ."""

    method: str
    path: str
    status: int = 200
    body: Any = None
    parameters: dict[str, str] = {}


def _reads(*paths: str) -> tuple[Endpoint, ...]:
    return tuple(Endpoint("GET", path) for path in paths)


def _absent(*endpoints: str) -> tuple[Endpoint, ...]:
    """Return endpoints that a node without the feature does not have."""
    split = (endpoint.split(" ") for endpoint in endpoints)
    return tuple(Endpoint(method, path, 404) for method, path in split)


ENDPOINTS: tuple[Endpoint, ...] = (
    # What changes, with a GET of each object while it exists
    Endpoint("PUT", "/api/vhosts/{vhost}", 201, {}, NEW),
    Endpoint("GET", "/api/vhosts/{vhost}", parameters=NEW),
    Endpoint("POST", "/api/vhosts/{vhost}/start/{node}", 204),
    Endpoint("PUT", "/api/vhost-limits/{vhost}/{name}", 204, LIMIT, {"name": "max-queues"}),
    *_reads(
        "/api/vhost-limits",
        "/api/vhost-limits/{vhost}",
        "/api/parameters",
        "/api/parameters/{component}",
        "/api/parameters/{component}/{vhost}",
        "/api/parameters/{component}/{vhost}/{name}",
    ),
    Endpoint("DELETE", "/api/vhost-limits/{vhost}/{name}", 204, parameters={"name": "max-queues"}),
    Endpoint(
        "PUT",
        "/api/parameters/{component}/{vhost}/{name}",
        201,
        {"value": {"max-queues": 100}},
        NEW,
    ),
    Endpoint("DELETE", "/api/parameters/{component}/{vhost}/{name}", 204, parameters=NEW),
    Endpoint("PUT", "/api/users/{user}", 201, {"password": "x", "tags": ""}, {"user": "ana"}),
    *_reads("/api/users/without-permissions", "/api/users", "/api/users/{user}"),
    Endpoint("PUT", "/api/permissions/{vhost}/{user}", 201, PATTERNS, {"user": "ana"}),
    Endpoint(
        "PUT",
        "/api/topic-permissions/{vhost}/{user}",
        201,
        {"exchange": "amq.topic", "write": ".*", "read": ".*"},
    ),
    Endpoint(
        "PUT",
        "/api/topic-permissions/{vhost}/{user}/{exchange}",
        204,
        {"exchange": "amq.topic", "write": "^a", "read": ".*"},
    ),
    *_reads(
        "/api/permissions",
        "/api/permissions/{vhost}/{user}",
        "/api/users/{user}/permissions",
        "/api/vhosts/{vhost}/permissions",
        "/api/topic-permissions",
        "/api/topic-permissions/{vhost}/{user}",
        "/api/topic-permissions/{vhost}/{user}/{exchange}",
        "/api/users/{user}/topic-permissions",
        "/api/vhosts/{vhost}/topic-permissions",
    ),
    Endpoint("DELETE", "/api/topic-permissions/{vhost}/{user}/{exchange}", 204),
    Endpoint("DELETE", "/api/topic-permissions/{vhost}/{user}", 404),  # none is left
    Endpoint("DELETE", "/api/permissions/{vhost}/{user}", 204, parameters={"user": "ana"}),
    Endpoint("PUT", "/api/user-limits/{user}/{name}", 204, LIMIT, {"name": "max-channels"}),
    *_reads("/api/user-limits", "/api/user-limits/{user}"),
    Endpoint("DELETE", "/api/user-limits/{user}/{name}", 204, parameters={"name": "max-channels"}),
    Endpoint("DELETE", "/api/users/{user}", 204, parameters={"user": "ana"}),
    Endpoint("POST", "/api/users/bulk-delete", 204, {"users": []}),
    Endpoint("PUT", "/api/policies/{vhost}/{name}", 201, POLICY),
    *_reads("/api/policies", "/api/policies/{vhost}", "/api/policies/{vhost}/{name}"),
    Endpoint("DELETE", "/api/policies/{vhost}/{name}", 204),
    Endpoint("PUT", "/api/operator-policies/{vhost}/{name}", 201, POLICY),
    *_reads(
        "/api/operator-policies",
        "/api/operator-policies/{vhost}",
        "/api/operator-policies/{vhost}/{name}",
    ),
    Endpoint("DELETE", "/api/operator-policies/{vhost}/{name}", 204),
    Endpoint("PUT", "/api/global-parameters/{name}", 201, {"value": {"a": 1}}),
    *_reads("/api/global-parameters", "/api/global-parameters/{name}"),
    Endpoint("DELETE", "/api/global-parameters/{name}", 204),
    Endpoint("PUT", "/api/exchanges/{vhost}/{exchange}", 201, {}, {"exchange": "e"}),
    *_reads(
        "/api/exchanges",
        "/api/exchanges/{vhost}",
        "/api/exchanges/{vhost}/{exchange}",
        "/api/exchanges/{vhost}/{exchange}/bindings/source",
        "/api/exchanges/{vhost}/{exchange}/bindings/destination",
    ),
    Endpoint("DELETE", "/api/exchanges/{vhost}/{exchange}", 204, parameters={"exchange": "e"}),
    Endpoint("PUT", "/api/queues/{vhost}/{queue}", 201, {}, {"queue": "other"}),
    Endpoint(
        "POST",
        "/api/bindings/{vhost}/e/{source}/{dtype}/{destination}",
        201,
        {"routing_key": "k"},
    ),
    *_reads(
        "/api/bindings",
        "/api/bindings/{vhost}",
        "/api/bindings/{vhost}/e/{source}/{dtype}/{destination}",
        "/api/bindings/{vhost}/e/{source}/{dtype}/{destination}/{props}",
        "/api/queues",
        "/api/queues/detailed",
        "/api/queues/{vhost}",
        "/api/queues/{vhost}/{queue}",
        "/api/queues/{vhost}/{destination}/bindings",
    ),
    Endpoint("POST", "/api/exchanges/{vhost}/{exchange}/publish", 200, MESSAGE),
    Endpoint("POST", "/api/queues/{vhost}/{queue}/get", 200, GET_ONE),
    Endpoint("DELETE", "/api/queues/{vhost}/{queue}/contents", 204),
    Endpoint("POST", "/api/queues/{vhost}/{queue}/actions", 204, {"action": "sync"}),
    Endpoint("DELETE", "/api/bindings/{vhost}/e/{source}/{dtype}/{destination}/{props}", 204),
    Endpoint("DELETE", "/api/queues/{vhost}/{queue}", 204, parameters={"queue": "other"}),
    Endpoint("DELETE", "/api/vhosts/{vhost}", 204, parameters=NEW),
    Endpoint("POST", "/api/rebalance/queues", 204),
    Endpoint("PUT", "/api/cluster-name", 204, {"name": "test"}),
    # Definitions
    *_reads("/api/definitions", "/api/definitions/{vhost}", "/api/all-configuration"),
    Endpoint("POST", "/api/definitions", 204, {"queues": []}),
    Endpoint("POST", "/api/definitions/{vhost}", 204, {"queues": []}),
    Endpoint("POST", "/api/all-configuration", 204, {"queues": []}),
    # The node, its clients and its statistics
    *_reads(
        "/api/overview",
        "/api/cluster-name",
        "/api/nodes",
        "/api/nodes/{node}",
        "/api/nodes/{node}/memory",
        "/api/nodes/{node}/memory/relative",
        "/api/extensions",
        "/api/vhosts",
        "/api/vhosts/{vhost}/connections",
        "/api/vhosts/{vhost}/channels",
        "/api/connections",
        "/api/connections/{connection}",
        "/api/connections/{connection}/channels",
        "/api/connections/username/{username}",
        "/api/channels",
        "/api/channels/{channel}",
        "/api/consumers",
        "/api/consumers/{vhost}",
    ),
    Endpoint("DELETE", "/api/reset", 204),
    Endpoint("DELETE", "/api/reset/{node}", 204),
    # Logins
    *_reads(
        "/api/whoami",
        "/api/auth",
        "/api/auth/attempts/{node}",
        "/api/auth/attempts/{node}/source",
        "/api/auth/hash_password/{password}",
    ),
    Endpoint("DELETE", "/api/auth/attempts/{node}", 204),
    Endpoint("DELETE", "/api/auth/attempts/{node}/source", 204),
    Endpoint("POST", "/api/login", 200, b"username=guest&password=guest"),
    # Health checks
    *_reads(
        "/api/aliveness-test/{vhost}",
        "/api/healthchecks/node",
        "/api/healthchecks/node/{node}",
        "/api/health/checks/alarms",
        "/api/health/checks/local-alarms",
        "/api/health/checks/certificate-expiration/{within}/{unit}",
        "/api/health/checks/port-listener/{port}",
        "/api/health/checks/protocol-listener/{protocol}",
        "/api/health/checks/virtual-hosts",
        "/api/health/checks/node-is-mirror-sync-critical",
        "/api/health/checks/node-is-quorum-critical",
    ),
    # Features that every node has, or that no client uses
    *_reads(
        "/api/feature-flags",
        "/api/deprecated-features",
        "/api/deprecated-features/used",
        "/api/stream/connections",
        "/api/stream/connections/{vhost}",
        "/api/stream/publishers",
        "/api/stream/publishers/{vhost}",
        "/api/stream/publishers/{vhost}/{queue}",
        "/api/stream/consumers",
        "/api/stream/consumers/{vhost}",
    ),
    Endpoint("PUT", "/api/feature-flags/{name}/enable", 400, {}, {"name": "no_such_flag"}),
    *_absent(
        "GET /api/stream/connections/{vhost}/{connection}",
        "DELETE /api/stream/connections/{vhost}/{connection}",
        "GET /api/stream/connections/{vhost}/{connection}/publishers",
        "GET /api/stream/connections/{vhost}/{connection}/consumers",
    ),
    # Last, because they close the connection of the test
    Endpoint("DELETE", "/api/connections/{connection}", 204),
    Endpoint("DELETE", "/api/connections/username/{username}", 204),
    # Erlang's tables and settings
    *_absent(
        "GET /api/nodes/{node}/memory/ets",
        "GET /api/nodes/{node}/memory/ets/relative",
        "GET /api/nodes/{node}/memory/ets/{filter}",
        "GET /api/nodes/{node}/memory/ets/{filter}/relative",
        "GET /api/config/effective",
    ),
    # The members of quorum queues in a cluster
    *_absent(
        "POST /api/queues/quorum/{vhost}/{queue}/replicas/add",
        "DELETE /api/queues/quorum/{vhost}/{queue}/replicas/delete",
        "POST /api/queues/quorum/replicas/on/{node}/grow",
        "DELETE /api/queues/quorum/replicas/on/{node}/shrink",
        "GET /api/queues/quorum/{vhost}/{queue}/status",
    ),
    # Plugins: offsets that clients of the stream protocol store, shovels, federation
    *_absent(
        "GET /api/stream/{vhost}/{queue}/tracking",
        "GET /api/shovels",
        "GET /api/shovels/{vhost}",
        "GET /api/shovels/vhost/{vhost}/{name}",
        "DELETE /api/shovels/vhost/{vhost}/{name}",
        "DELETE /api/shovels/vhost/{vhost}/{name}/restart",
        "GET /api/federation-links",
        "GET /api/federation-links/{vhost}",
        "GET /api/federation-links/state/down/",
        "GET /api/federation-links/{vhost}/state/down",
        "DELETE /api/federation-links/vhost/{vhost}/{id}/{node}/restart",
    ),
)
