"""Facts about tools that use RabbitMQ's management API: which requests they send, in the order in which they would
send them, and which fields they need in the answers.

The requests are those of the tools' own documentation and client libraries: `rabbitmqadmin` 2 (the Rust crate
`rabbitmq_http_client`), Terraform's provider (the Go package `rabbit-hole`, which ends some paths with a slash),
KEDA's scaler, the exporter `rabbitmq_exporter`, Spring's test support, and Hutch (the Ruby gem `carrot-top`).
Fields are those without which a tool fails or shows nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

Fields = Mapping[str, type | tuple[type, ...]]
NUMBER = (int, float)


class Call(NamedTuple):
    """A request, the status that the tool expects, and the fields that it reads from the answer.

    `{node}` and `{port}` in the path stand for those of the test. If the answer is a list, `fields` are those of
    each entry, and there must be one. A name with dots is a path into objects.
    """

    method: str
    path: str
    status: int = 200
    body: Any = None
    fields: Fields = MappingProxyType({})
    headers: Mapping[str, str] = MappingProxyType({})


def _all(kind: type | tuple[type, ...], *names: str) -> Fields:
    return dict.fromkeys(names, kind)


_NAMED: Fields = {"name": str}
_IN_VHOST: Fields = {"name": str, "vhost": str}

# ── rabbitmqadmin 2 ─────────────────────────────────────────────────────────────────────────────────

_LISTENER: Fields = {"node": str, "protocol": str, "port": int, "ip_address": str}
_QUEUE: Fields = {
    **_IN_VHOST,
    "type": str,
    "durable": bool,
    "auto_delete": bool,
    "exclusive": bool,
    "arguments": dict,
    "node": str,
    "state": str,
    "messages": int,
    "consumers": int,
}
_EXCHANGE: Fields = {
    **_IN_VHOST,
    "type": str,
    "durable": bool,
    "auto_delete": bool,
    "internal": bool,
    "arguments": dict,
}
_BINDING: Fields = {
    "vhost": str,
    "source": str,
    "destination": str,
    "destination_type": str,
    "routing_key": str,
    "arguments": dict,
    "properties_key": str,
}
_POLICY: Fields = {
    **_IN_VHOST,
    "pattern": str,
    "apply-to": str,
    "priority": int,
    "definition": dict,
}
_PARAMETER: Fields = {**_IN_VHOST, "component": str, "value": dict}
_PERMISSIONS: Fields = _all(str, "user", "vhost", "configure", "read", "write")
_CONNECTION: Fields = {
    "name": str,
    "node": str,
    "state": str,
    "protocol": str,
    "user": str,
    "connected_at": int,
    "host": str,
    "port": int,
    "peer_host": str,
    "peer_port": int,
    "channel_max": int,
    "channels": int,
    "client_properties": dict,
}
_CHANNEL: Fields = {
    "number": int,
    "name": str,
    "connection_details.name": str,
    "connection_details.peer_host": str,
    "connection_details.peer_port": int,
    "vhost": str,
    "state": str,
    "consumer_count": int,
    "confirm": bool,
    "prefetch_count": int,
    "messages_unacknowledged": int,
    "messages_unconfirmed": int,
}
_CONSUMER: Fields = {
    "consumer_tag": str,
    "active": bool,
    "ack_required": bool,
    "prefetch_count": int,
    "exclusive": bool,
    "arguments": dict,
    "queue.name": str,
    "queue.vhost": str,
    "channel_details.number": int,
    "channel_details.name": str,
    "channel_details.connection_name": str,
    "channel_details.node": str,
    "channel_details.peer_host": str,
    "channel_details.peer_port": int,
    "channel_details.user": str,
}
_DEFINITIONS: Fields = _all(
    list,
    "users",
    "vhosts",
    "permissions",
    "topic_permissions",
    "parameters",
    "global_parameters",
    "policies",
    "queues",
    "exchanges",
    "bindings",
)
_PAGE: Fields = {
    "items": list,
    **_all(int, "page", "page_count", "page_size", "filtered_count", "item_count", "total_count"),
}
_HASH = "rI5/gSDbNKVQpU+hGKN1rb8JvCMeKYnCHHxs4lfzl7lXmZJP"  # of the password "secret"
_DEFINITION = {"name": "imported", "durable": True, "auto_delete": False, "arguments": {}}

RABBITMQADMIN_2: tuple[Call, ...] = (
    # show
    Call(
        "GET",
        "/api/overview",
        fields={
            **_all(
                str,
                "cluster_name",
                "node",
                "erlang_full_version",
                "erlang_version",
                "rabbitmq_version",
                "product_name",
                "product_version",
            ),
            **_all(
                int,
                "statistics_db_event_queue",
                "churn_rates.connection_created",
                "churn_rates.connection_closed",
                "churn_rates.queue_declared",
                "churn_rates.queue_created",
                "churn_rates.queue_deleted",
                "churn_rates.channel_created",
                "churn_rates.channel_closed",
                "queue_totals.messages",
                "object_totals.connections",
                "object_totals.channels",
                "object_totals.queues",
                "object_totals.exchanges",
                "object_totals.consumers",
            ),
            "queue_totals.messages_details.rate": NUMBER,
            "message_stats": dict,
            "listeners": list,
        },
    ),
    Call(
        "GET",
        "/api/nodes/{node}/memory",
        fields={
            "memory.strategy": str,
            **_all(
                int,
                *(
                    f"memory.{part}"
                    for part in (
                        "connection_readers",
                        "connection_writers",
                        "connection_channels",
                        "connection_other",
                        "queue_procs",
                        "quorum_queue_procs",
                        "stream_queue_procs",
                        "stream_queue_replica_reader_procs",
                        "stream_queue_coordinator_procs",
                        "plugins",
                        "metadata_store",
                        "other_proc",
                        "metrics",
                        "mgmt_db",
                        "mnesia",
                        "quorum_ets",
                        "metadata_store_ets",
                        "other_ets",
                        "binary",
                        "msg_index",
                        "code",
                        "atom",
                        "other_system",
                        "allocated_unused",
                        "reserved_unallocated",
                        "total.rss",
                        "total.allocated",
                        "total.erlang",
                    )
                ),
            ),
        },
    ),
    # declare
    Call(
        "PUT",
        "/api/vhosts/shop%2Feu",
        201,
        {
            "name": "shop/eu",
            "description": "orders",
            "tags": ["production"],
            "default_queue_type": "quorum",
            "tracing": False,
        },
    ),
    Call(
        "PUT",
        "/api/users/ana",
        201,
        {"name": "ana", "password_hash": _HASH, "tags": "management"},
    ),
    Call(
        "PUT",
        "/api/permissions/shop%2Feu/ana",
        201,
        {"user": "ana", "vhost": "shop/eu", "configure": ".*", "read": ".*", "write": ".*"},
    ),
    Call(
        "PUT",
        "/api/exchanges/%2F/new%20orders",
        201,
        {"type": "topic", "durable": True, "auto_delete": False, "arguments": {}},
    ),
    Call(
        "PUT",
        "/api/queues/%2F/new%20orders",
        201,
        {
            "name": "new orders",
            "durable": True,
            "auto_delete": False,
            "exclusive": False,
            "arguments": {"x-queue-type": "quorum"},
        },
    ),
    Call(
        "PUT",
        "/api/queues/%2F/history",
        201,
        {
            "name": "history",
            "durable": True,
            "auto_delete": False,
            "exclusive": False,
            "arguments": {"x-queue-type": "stream", "x-max-age": "8h"},
        },
    ),
    Call(
        "POST",
        "/api/bindings/%2F/e/new%20orders/q/new%20orders",
        201,
        {"routing_key": "eu.#", "arguments": {"a": 1}},
    ),
    Call(
        "POST",
        "/api/bindings/%2F/e/new%20orders/e/amq.fanout",
        201,
        {"routing_key": "#", "arguments": {}},
    ),
    *(
        Call(
            "PUT",
            f"/api/{kind}/%2F/short",
            201,
            {
                "vhost": "/",
                "name": "short",
                "pattern": "^new",
                "apply-to": "queues",
                "priority": 7,
                "definition": {"max-length": 100},
            },
        )
        for kind in ("policies", "operator-policies")
    ),
    Call(
        "PUT",
        "/api/parameters/vhost-limits/%2F/limits",
        201,
        {
            "name": "limits",
            "vhost": "/",
            "component": "vhost-limits",
            "value": {"max-queues": 9_000},
        },
    ),
    Call(
        "PUT",
        "/api/global-parameters/cluster_tags",
        201,
        {"name": "cluster_tags", "value": {"region": "eu"}},
    ),
    Call("PUT", "/api/vhost-limits/%2F/max-connections", 204, {"value": 500}),
    Call("PUT", "/api/user-limits/ana/max-channels", 204, {"value": 50}),
    # list
    Call(
        "GET",
        "/api/nodes",
        fields={
            "name": str,
            **_all(int, "uptime", "run_queue", "processors", "fd_total", "proc_total"),
            **_all(int, "mem_limit", "disk_free_limit"),
            "os_pid": str,
            **_all(bool, "mem_alarm", "disk_free_alarm", "being_drained"),
            "rates_mode": str,
            "enabled_plugins": list,
        },
    ),
    Call("GET", "/api/vhosts", fields={**_NAMED, "tags": list, "description": str}),
    Call("GET", "/api/vhost-limits/%2F", fields={"vhost": str, "value": dict}),
    Call("GET", "/api/user-limits", fields={"user": str, "value": dict}),
    Call("GET", "/api/user-limits/ana", fields={"user": str, "value": dict}),
    Call("GET", "/api/users", fields={**_NAMED, "tags": list, "password_hash": str}),
    Call("GET", "/api/connections", fields=_CONNECTION),
    Call("GET", "/api/connections?page=1&page_size=10", fields=_PAGE),
    Call(
        "GET",
        "/api/connections/username/guest",
        fields=_all(str, "name", "node", "user", "vhost"),
    ),
    Call("GET", "/api/channels", fields=_CHANNEL),
    Call("GET", "/api/channels?page=1&page_size=10", fields=_PAGE),
    Call("GET", "/api/consumers", fields=_CONSUMER),
    Call("GET", "/api/policies", fields=_POLICY),
    Call("GET", "/api/policies/%2F", fields=_POLICY),
    Call("GET", "/api/policies/%2F/short", fields=_POLICY),
    Call("GET", "/api/operator-policies", fields=_POLICY),
    Call("GET", "/api/operator-policies/%2F", fields=_POLICY),
    Call("GET", "/api/operator-policies/%2F/short", fields=_POLICY),
    Call("GET", "/api/queues/%2F", fields=_QUEUE),
    Call("GET", "/api/queues/%2F?page=1&page_size=10", fields=_PAGE),
    Call("GET", "/api/queues/%2F/new%20orders", fields=_QUEUE),
    Call("GET", "/api/queues/detailed", fields=_QUEUE),
    Call("GET", "/api/exchanges/%2F", fields=_EXCHANGE),
    Call("GET", "/api/exchanges/%2F?page=1&page_size=10", fields=_PAGE),
    Call("GET", "/api/bindings", fields=_BINDING),
    Call("GET", "/api/permissions", fields=_PERMISSIONS),
    Call("GET", "/api/parameters", fields=_PARAMETER),
    Call("GET", "/api/parameters/vhost-limits/%2F", fields=_PARAMETER),
    Call("GET", "/api/global-parameters", fields=_NAMED),
    Call("GET", "/api/feature-flags"),
    Call("GET", "/api/deprecated-features"),
    Call("GET", "/api/deprecated-features/used"),
    Call(
        "GET",
        "/api/auth/attempts/{node}",
        fields={
            "protocol": str,
            **_all(int, "auth_attempts", "auth_attempts_failed", "auth_attempts_succeeded"),
        },
    ),
    Call("GET", "/api/shovels", 404),  # as RabbitMQ without the plugins
    Call("GET", "/api/federation-links", 404),
    # health_check
    *(
        Call("GET", f"/api/health/checks/{check}", fields={"status": str})
        for check in (
            "alarms",
            "local-alarms",
            "node-is-quorum-critical",
            "port-listener/{port}",
            "protocol-listener/amqp",
        )
    ),
    # publish, get, purge
    Call(
        "POST",
        "/api/exchanges/%2F/amq.default/publish",
        fields={"routed": bool},
        body={
            "routing_key": "new orders",
            "payload": "one coffee",
            "payload_encoding": "string",
            "properties": {},
        },
    ),
    Call(
        "POST",
        "/api/queues/%2F/new%20orders/get",
        fields={
            "payload_bytes": int,
            "redelivered": bool,
            "exchange": str,
            "routing_key": str,
            "message_count": int,
            "properties": (dict, list),
            "payload": str,
            "payload_encoding": str,
        },
        body={"count": 1, "ackmode": "ack_requeue_true", "encoding": "auto"},
    ),
    Call("DELETE", "/api/queues/%2F/new%20orders/contents", 204),
    # definitions
    Call("GET", "/api/definitions", fields=_DEFINITIONS),
    Call(
        "GET",
        "/api/definitions/%2F",
        fields=_all(list, "parameters", "policies", "queues", "exchanges", "bindings"),
    ),
    Call("POST", "/api/definitions", 204, {"queues": [{**_DEFINITION, "vhost": "/"}]}),
    Call("POST", "/api/definitions/%2F", 204, {"queues": [_DEFINITION]}),
    # rebalance, close
    Call("POST", "/api/rebalance/queues", 204, {}),
    Call("DELETE", "/api/connections/username/ana", 204),
    # delete; that of a binding begins with the list in which its key is
    Call("GET", "/api/queues/%2F/new%20orders/bindings", fields=_BINDING),
    Call("GET", "/api/exchanges/%2F/amq.fanout/bindings/destination", fields=_BINDING),
    Call("DELETE", "/api/bindings/%2F/e/new%20orders/e/amq.fanout/%23", 204),
    Call("DELETE", "/api/vhost-limits/%2F/max-connections", 204),
    Call("DELETE", "/api/user-limits/ana/max-channels", 204),
    Call("DELETE", "/api/parameters/vhost-limits/%2F/limits", 204),
    Call("DELETE", "/api/global-parameters/cluster_tags", 204),
    Call("DELETE", "/api/policies/%2F/short", 204),
    Call("DELETE", "/api/operator-policies/%2F/short", 204),
    Call("DELETE", "/api/permissions/shop%2Feu/ana", 204),
    Call("DELETE", "/api/exchanges/%2F/new%20orders", 204),
    Call("DELETE", "/api/queues/%2F/new%20orders", 204),
    Call("DELETE", "/api/queues/%2F/history", 204),
    Call("DELETE", "/api/queues/%2F/imported", 204),
    Call("DELETE", "/api/users/ana", 204),
    Call("DELETE", "/api/vhosts/shop%2Feu", 204),
    Call("DELETE", "/api/vhosts/shop%2Feu", 404),  # --idempotently
)

# ── Terraform ───────────────────────────────────────────────────────────────────────────────────────


def _life(  # the plan reads, apply writes and reads again, a changed plan writes, destroy deletes
    path: str, body: Mapping[str, Any], changed: Mapping[str, Any] | None, fields: Fields
) -> Iterable[Call]:
    yield Call("GET", path, 404)
    yield Call("PUT", path, 201, body)
    yield Call("GET", path, fields=fields)
    if changed is not None:
        yield Call("PUT", path, 204, changed)


_TF_PERMISSIONS = {"configure": ".*", "write": ".*", "read": ".*"}
_TF_POLICY = {
    "pattern": "^o",
    "definition": {"max-length": 10},
    "priority": 1,
    "apply-to": "queues",
}
_TF_BINDING = {
    "source": "amq.topic",
    "vhost": "tf",
    "destination": "orders",
    "destination_type": "queue",
    "routing_key": "a.#",
    "arguments": {"x": 1},
    "properties_key": "",
}

TERRAFORM: tuple[Call, ...] = (
    Call("GET", "/api/overview", fields={"management_version": str, "rabbitmq_version": str}),
    Call("GET", "/api/whoami", fields={"name": str, "tags": list}),
    *_life(
        "/api/vhosts/tf",
        {"description": "", "tags": "", "default_queue_type": "", "tracing": False},
        {"description": "all", "tags": "a,b", "default_queue_type": "", "tracing": False},
        {"name": str, "tracing": bool},
    ),
    *_life(
        "/api/users/tf",
        {"name": "tf", "password": "secret", "tags": "policymaker"},
        {"name": "tf", "password": "secret", "tags": "policymaker,monitoring"},
        {"name": str, "tags": list, "password_hash": str},
    ),
    Call("GET", "/api/users/", fields=_NAMED),
    *_life("/api/permissions/tf/tf", _TF_PERMISSIONS, _TF_PERMISSIONS, _PERMISSIONS),
    Call("GET", "/api/permissions/", fields=_PERMISSIONS),
    Call(
        "PUT",
        "/api/topic-permissions/tf/tf",
        201,
        {"exchange": "amq.topic", "write": ".*", "read": ".*"},
    ),
    Call(
        "GET",
        "/api/topic-permissions/tf/tf",
        fields=_all(str, "user", "vhost", "exchange", "write", "read"),
    ),
    Call("GET", "/api/topic-permissions/", fields={"exchange": str}),
    *_life(
        "/api/exchanges/tf/orders",
        {"type": "topic", "durable": True, "arguments": {"alternate-exchange": "amq.fanout"}},
        None,
        _EXCHANGE,
    ),
    *_life(
        "/api/queues/tf/orders",
        {
            "type": "quorum",
            "durable": True,
            "arguments": {"x-queue-type": "quorum", "x-max-length": 1000},
        },
        None,
        _QUEUE,
    ),
    Call("POST", "/api/bindings/tf/e/amq.topic/q/orders", 201, _TF_BINDING),
    Call("GET", "/api/bindings/tf", fields=_BINDING),
    Call("GET", "/api/bindings/tf/e/amq.topic/q/orders", fields=_BINDING),
    Call("GET", "/api/bindings/", fields=_BINDING),
    *_life("/api/policies/tf/short", _TF_POLICY, {**_TF_POLICY, "priority": 2}, _POLICY),
    *_life("/api/operator-policies/tf/short", _TF_POLICY, {**_TF_POLICY, "priority": 2}, _POLICY),
    Call("PUT", "/api/vhost-limits/tf/max-queues", 204, {"value": 100}),
    Call("GET", "/api/vhost-limits/tf", fields={"vhost": str, "value": dict}),
    Call("PUT", "/api/user-limits/tf/max-connections", 204, {"value": 100}),
    Call("GET", "/api/user-limits/tf", fields={"user": str, "value": dict}),
    Call("GET", "/api/global-parameters"),
    Call("GET", "/api/cluster-name/", fields=_NAMED),
    Call("GET", "/api/queues?page=1&page_size=100", fields=_PAGE),
    Call("DELETE", "/api/user-limits/tf/max-connections", 204),
    Call("DELETE", "/api/vhost-limits/tf/max-queues", 204),
    Call("DELETE", "/api/operator-policies/tf/short", 204),
    Call("DELETE", "/api/policies/tf/short", 204),
    Call("DELETE", "/api/queues/tf/orders?if-unused=false", 204),
    Call("DELETE", "/api/exchanges/tf/orders", 204),
    Call("DELETE", "/api/topic-permissions/tf/tf/amq.topic", 204),
    Call("DELETE", "/api/permissions/tf/tf", 204),
    Call("DELETE", "/api/users/tf", 204),
    Call("DELETE", "/api/vhosts/tf", 204),
)

# ── tools that only read ────────────────────────────────────────────────────────────────────────────

_ONLY_JSON = {"accept": "application/bert, application/json;q=0.1"}

EXPORTER: tuple[Call, ...] = (
    Call(
        "GET",
        "/api/overview",
        headers=_ONLY_JSON,
        fields={
            "cluster_name": str,
            "rabbitmq_version": str,
            "erlang_version": str,
            "node": str,
            **_all(
                int,
                "object_totals.channels",
                "object_totals.connections",
                "object_totals.consumers",
                "object_totals.queues",
                "object_totals.exchanges",
                "queue_totals.messages",
                "queue_totals.messages_ready",
                "queue_totals.messages_unacknowledged",
            ),
            **_all(
                NUMBER,
                "message_stats.publish_details.rate",
                "message_stats.deliver_no_ack_details.rate",
                "message_stats.deliver_details.rate",
            ),
        },
    ),
    Call(
        "GET",
        "/api/nodes?sort=",
        headers=_ONLY_JSON,
        fields={
            "name": str,
            "running": bool,
            "partitions": list,
            **_all(int, "uptime", "mem_used", "mem_limit", "disk_free", "disk_free_limit"),
            **_all(bool, "mem_alarm", "disk_free_alarm"),
            **_all(int, "fd_used", "fd_total", "sockets_used", "sockets_total"),
        },
    ),
    Call(
        "GET",
        "/api/queues?sort=",
        headers=_ONLY_JSON,
        fields={
            **_IN_VHOST,
            "durable": bool,
            "state": str,
            "node": str,
            "arguments": dict,
            **_all(int, "messages", "messages_ready", "messages_unacknowledged", "consumers"),
        },
    ),
    Call("GET", "/api/exchanges?sort=", headers=_ONLY_JSON, fields=_IN_VHOST),
    Call(
        "GET",
        "/api/connections?sort=",
        headers=_ONLY_JSON,
        fields={
            **_all(str, "vhost", "node", "peer_host", "user", "state"),
            **_all(int, "channels", "recv_oct", "recv_cnt", "send_oct", "send_cnt", "send_pend"),
        },
    ),
    Call("GET", "/api/aliveness-test/%2F", headers=_ONLY_JSON, fields={"status": str}),
    Call("GET", "/api/nodes/{node}/memory", headers=_ONLY_JSON, fields={"memory.total.rss": int}),
    Call("GET", "/api/federation-links", 404, headers=_ONLY_JSON),
    Call("GET", "/api/shovels", 404, headers=_ONLY_JSON),
)
SPRING: tuple[Call, ...] = (Call("GET", "/api/aliveness-test/%2F", fields={"status": str}),)
HUTCH: tuple[Call, ...] = (
    Call("GET", "/api/exchanges", fields=_EXCHANGE),
    Call("GET", "/api/bindings", fields={"source": str, "destination": str, "routing_key": str}),
)

TOOLS: Mapping[str, tuple[Call, ...]] = {
    "rabbitmqadmin 2": RABBITMQADMIN_2,
    "Terraform": TERRAFORM,
    "rabbitmq_exporter": EXPORTER,
    "Spring": SPRING,
    "Hutch": HUTCH,
}

# ── KEDA ────────────────────────────────────────────────────────────────────────────────────────────

KEDA_QUEUE = "/api/queues{vhost}/{name}"
KEDA_REGEX = (
    "/api/queues{vhost}?page=1&use_regex=true&pagination=false&name={name}&page_size={size}"
)
KEDA_FIELDS: Fields = {
    "name": str,
    "messages": int,
    "messages_unacknowledged": int,
    "message_stats.publish_details.rate": NUMBER,
    "message_stats.deliver_get_details.rate": NUMBER,
}
"""In KEDA_QUEUE the name is encoded as in a query, with `+` for a space; `vhost` is empty for all vhosts."""
