"""The overview, the node, health checks, and resources of RabbitMQ that a single node answers trivially."""

from __future__ import annotations

import os
import time
from collections.abc import Hashable
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec

from recado.amqp.properties import Properties
from recado.broker.declarations import declare_queue
from recado.broker.exchange import EXCHANGE_TYPES
from recado.server import memory

from ..access import Access, is_monitor, visible_vhosts
from ..body import read_body
from ..history import SummedHistory
from ..query import Listing
from ..request import NO_CONTENT, Answer, ApiRequest, bad_request, not_found
from ..routes import API, Content
from ..sampler import TOTALS_KEY, VHOST_FIELDS
from ..site import run_in_slices
from .statistics import (
    QUEUE_LENGTHS,
    SERIES_PARAMETERS,
    History,
    RequestedSeries,
    counter_object,
    message_statistics,
)
from .topology import access_to

if TYPE_CHECKING:
    from ..console import Console, Listener

PRODUCT: Final = "RabbitMQ"
STANDARD_EXCHANGE_TYPES: Final = frozenset({"direct", "fanout", "topic", "headers"})


class ClusterName(msgspec.Struct):
    """The new name of the cluster."""

    name: str


def exchange_types() -> list[dict[str, Any]]:
    """Return the types of exchanges, described in RabbitMQ's words where it has them."""
    return [
        {
            "name": name,
            "description": f"AMQP {name} exchange, as per the AMQP specification"
            if name in STANDARD_EXCHANGE_TYPES
            else f"{name} exchange",
            "enabled": True,
        }
        for name in (*EXCHANGE_TYPES, "x-delayed-message")
    ]


@API.add("GET", "/api/overview", Access.MANAGEMENT, query=SERIES_PARAMETERS)
def get_overview(request: ApiRequest) -> Answer:
    """Return versions, totals, rates and listeners of the node."""

    async def wait() -> Answer:
        return Answer(body=await _describe_overview(request))

    return Answer(wait=wait)


async def _describe_overview(request: ApiRequest) -> dict[str, Any]:
    console, broker = request.console, request.broker
    names = visible_vhosts(request.user, broker)
    vhosts = [broker.vhosts[name] for name in names]
    queues = [
        queue for vhost in vhosts for queue in vhost.queues.values() if not queue.is_reply_address
    ]
    connections = [each for each in console.server.connections if each.session.access is not None]
    if not is_monitor(request.user):
        connections = [
            each
            for each in connections
            if each.session.access is not None
            and each.session.access.user.name == request.user.name
        ]
    series, sampler = RequestedSeries(request.query), console.sampler
    sums = await run_in_slices(sampler.read_vhosts(queues, names))
    history: History
    key: Hashable
    if is_monitor(request.user):
        totals, history, key = sampler.read_totals(sums.values()), sampler.totals, TOTALS_KEY
    else:  # of the visible vhosts only, also the rates
        history, key = SummedHistory(sampler.vhosts), tuple(names)
        totals = {name: sum(each[name] for each in sums.values()) for name in VHOST_FIELDS}
    lengths = {name: totals.pop(name) for name in QUEUE_LENGTHS}
    described: dict[str, Any] = {
        "management_version": console.compatible_version,
        "rates_mode": "basic",
        "sample_retention_policies": {"global": [600], "basic": [600], "detailed": [600]},
        "exchange_types": exchange_types(),
        "product_version": console.compatible_version,
        "product_name": PRODUCT,
        "rabbitmq_version": console.compatible_version,
        "cluster_name": console.cluster_name,
        "erlang_version": "25.2.3",
        "erlang_full_version": f"recado {console.version} on Python",
        "release_series_support_status": "supported",
        "disable_stats": False,
        "enable_queue_totals": False,
        "message_stats": message_statistics(history, key, totals, series.rates).get(
            "message_stats", {}
        ),
        "churn_rates": counter_object(
            console.sampler.churn, TOTALS_KEY, console.read_churn(), None
        ),
        "queue_totals": counter_object(history, key, lengths, series.lengths),
        "object_totals": {
            "channels": sum(len(each.session.channels) for each in connections),
            "connections": len(connections),
            "exchanges": sum(len(vhost.exchanges) for vhost in vhosts),
            "queues": len(queues),
        },
        "statistics_db_event_queue": 0,
    }
    if is_monitor(request.user):
        described["object_totals"]["consumers"] = sum(len(queue.consumers) for queue in queues)
        described["node"] = console.node_name
        described["listeners"] = console.listener_objects()
        described["contexts"] = console.context_objects()
    return described


@API.add("GET", "/api/cluster-name", Access.MANAGEMENT)
def get_cluster_name(request: ApiRequest) -> Answer:
    """Return the name of the cluster."""
    return Answer(body={"name": request.console.cluster_name})


@API.add("PUT", "/api/cluster-name", Access.ADMINISTRATOR, answers=(204,), body=ClusterName)
def put_cluster_name(request: ApiRequest) -> Answer:
    """Set the name of the cluster."""
    body = read_body(request, ClusterName)
    request.broker.set_global_parameter("cluster_name", body.name)
    return NO_CONTENT


def node_object(request: ApiRequest) -> dict[str, Any]:
    """Return the node as RabbitMQ describes it."""
    console = request.console
    limits = console.read_limits()
    return {
        "name": console.node_name,
        "type": "disc",
        "running": True,
        "os_pid": str(os.getpid()),
        "uptime": int((time.time() - console.started_at) * 1_000),
        "processors": os.cpu_count() or 1,
        "rates_mode": "basic",
        "partitions": [],
        "run_queue": 0,
        "exchange_types": exchange_types(),
        "auth_mechanisms": [
            {"name": name, "description": f"SASL {name} authentication mechanism", "enabled": True}
            for name in ("AMQPLAIN", "PLAIN")
        ],
        "applications": [{"name": "recado", "description": "recado", "version": console.version}],
        "contexts": console.context_objects(),
        "log_files": ["-"],
        "db_dir": console.data_path,
        "config_files": [],
        "net_ticktime": 60,
        "enabled_plugins": ["rabbitmq_management", "rabbitmq_prometheus"],
        "mem_calculation_strategy": "rss",
        "mem_used": memory.resident_bytes(),
        "mem_limit": limits.memory_bytes,
        "mem_alarm": limits.memory_alarm,
        "disk_free": limits.disk_free_bytes,
        "disk_free_limit": limits.disk_free_min_bytes,
        "disk_free_alarm": limits.disk_alarm,
        "fd_used": limits.open_files,
        "fd_total": limits.open_files_max,
        "sockets_used": len(console.server.connections),
        "sockets_total": limits.open_files_max,
        "proc_used": 1,
        "proc_total": 1_048_576,
        **console.read_churn(),
        "cluster_links": [],
    }


@API.add("GET", "/api/nodes", Access.MONITORING, content=Content.LIST)
def list_nodes(request: ApiRequest) -> Answer:
    """List the nodes: this one."""
    return Answer(listing=Listing([request.console.node_name], lambda _: node_object(request), str))


def _check_node(request: ApiRequest) -> None:
    if request.parameters["node"] != request.console.node_name:
        raise not_found()


@API.add("GET", "/api/nodes/{node}", Access.MONITORING)
def get_node(request: ApiRequest) -> Answer:
    """Return one node."""
    _check_node(request)
    return Answer(body=node_object(request))


@API.add("GET", "/api/nodes/{node}/memory", Access.MONITORING)
def get_node_memory(request: ApiRequest) -> Answer:
    """Return the memory that the node uses."""
    _check_node(request)
    used = memory.resident_bytes()
    total = {"erlang": used, "rss": used, "allocated": used}
    return Answer(body={"memory": {"total": total, "strategy": "rss", "other_proc": used}})


@API.add("GET", "/api/extensions", Access.MANAGEMENT, content=Content.LIST)
def list_extensions(request: ApiRequest) -> Answer:
    """List the extensions of RabbitMQ's web interface: none."""
    return Answer(body=[])


@API.add("GET", "/api/auth", Access.PUBLIC)
def get_auth(request: ApiRequest) -> Answer:
    """Return how users log in."""
    return Answer(body={"oauth_enabled": False})


@API.add("GET", "/api/feature-flags", Access.MANAGEMENT, content=Content.LIST)
def list_feature_flags(request: ApiRequest) -> Answer:
    """List RabbitMQ's feature flags: all features are always there."""
    return Answer(body=[])


@API.add("GET", "/api/deprecated-features", Access.MANAGEMENT, content=Content.LIST)
def list_deprecated_features(request: ApiRequest) -> Answer:
    """List deprecated features: none."""
    return Answer(body=[])


@API.add("GET", "/api/deprecated-features/used", Access.MANAGEMENT, content=Content.LIST)
def list_used_deprecated_features(request: ApiRequest) -> Answer:
    """List deprecated features in use: none."""
    return Answer(body=[])


# ── health ──────────────────────────────────────────────────────────────────────────────────────────

OK: Final = {"status": "ok"}
ALIVENESS_QUEUE: Final = "aliveness-test"
SINGLE_NODE: Final = {"status": "ok", "reason": "single node cluster"}


def _failed(reason: str, **fields: Any) -> Answer:
    return Answer(503, body={"status": "failed", "reason": reason, **fields})


@API.add("GET", "/api/aliveness-test/{vhost}", Access.VHOST, answers=(200, 503))
def test_aliveness(request: ApiRequest) -> Answer:
    """Declare the queue `aliveness-test`, publish to it and get the message back."""
    vhost = request.vhost()
    access, name = access_to(request, vhost), ALIVENESS_QUEUE
    queue = declare_queue(
        request.broker,
        access,
        name,
        durable=False,
        arguments={},
        connection=None,
        now=request.now_ms,
    )
    access.permissions.check_read("queue", name)
    channel = request.console.open_channel(request, access)
    try:
        channel.publish("", name, Properties(), b"test_message")
        message = channel.get(queue, no_ack=True)
    finally:
        channel.close()
    return Answer(body=OK) if message is not None else _failed("no message came back")


def _alarms(request: ApiRequest) -> Answer:
    alarm = request.console.server.alarm
    if alarm is None:
        return Answer(body=OK)
    resource = "memory" if "memory" in alarm else "disk"
    alarms = [{"node": request.console.node_name, "resource": resource}]
    return _failed(f"There are alarms in effect: {alarm}", alarms=alarms)


@API.add("GET", "/api/health/checks/alarms", Access.MANAGEMENT, answers=(200, 503))
def check_alarms(request: ApiRequest) -> Answer:
    """Answer 503 if a memory or disk alarm is in effect."""
    return _alarms(request)


@API.add("GET", "/api/health/checks/local-alarms", Access.MANAGEMENT, answers=(200, 503))
def check_local_alarms(request: ApiRequest) -> Answer:
    """Answer 503 if a memory or disk alarm of this node is in effect."""
    return _alarms(request)


@API.add("GET", "/api/health/checks/port-listener/{port}", Access.MANAGEMENT, answers=(200, 503))
def check_port_listener(request: ApiRequest) -> Answer:
    """Answer 503 if nothing listens on a port."""
    text = request.parameters["port"]
    if not (text.isascii() and text.isdigit() and len(text) <= 5):
        raise bad_request(f"port: not a number: {text!r}")
    ports = [each["port"] for each in request.console.listener_objects()]
    if int(text) in ports:
        return Answer(body={"status": "ok", "port": int(text)})
    return _failed("No active listener", missing=int(text), ports=ports)


@API.add(
    "GET", "/api/health/checks/protocol-listener/{protocol}", Access.MANAGEMENT, answers=(200, 503)
)
def check_protocol_listener(request: ApiRequest) -> Answer:
    """Answer 503 if no listener speaks a protocol."""
    wanted = request.parameters["protocol"]
    names = {"amqp091": "amqp", "amqp0.9.1": "amqp", "amqps": "amqp/ssl"}
    protocols = sorted({each["protocol"] for each in request.console.listener_objects()})
    if names.get(wanted.lower(), wanted.lower()) in protocols:
        return Answer(body={"status": "ok", "protocol": wanted})
    return _failed("No active listener", missing=wanted, protocols=protocols)


@API.add("GET", "/api/health/checks/virtual-hosts", Access.MANAGEMENT)
def check_virtual_hosts(request: ApiRequest) -> Answer:
    """Answer ok: a vhost always runs."""
    return Answer(body=OK)


UNITS_S: Final = {
    "days": 86_400.0,
    "weeks": 7 * 86_400.0,
    "months": 365 / 12 * 86_400,
    "years": 365 * 86_400.0,
}
WITHIN_DIGITS_MAX_COUNT: Final = 9


@API.add(
    "GET",
    "/api/health/checks/certificate-expiration/{within}/{unit}",
    Access.MANAGEMENT,
    answers=(200, 503),
)
def check_certificate_expiration(request: ApiRequest) -> Answer:
    """Answer 503 with the listeners whose certificates expire within a period."""
    within, unit = request.parameters["within"], request.parameters["unit"].lower()
    if not (within.isascii() and within.isdigit() and len(within) <= WITHIN_DIGITS_MAX_COUNT):
        raise bad_request("Invalid expiration value.")
    if unit not in UNITS_S:
        raise bad_request("Time unit not recognised. Supported units: days, weeks, months, years.")
    limit_s = request.now_ms / 1000 + int(within) * UNITS_S[unit]
    found = [_find_expiring(request.console, each, limit_s) for each in request.console.listeners]
    if expiring := [each for each in found if each is not None]:
        return _failed("Certificates expiring", expired=expiring)
    return Answer(body=OK)


def _find_expiring(console: Console, listener: Listener, limit_s: float) -> dict[str, Any] | None:
    """Return a listener with its certificates that expire before a time, None if there are none."""
    files = console.certificates
    if files is None or listener.protocol not in ("amqp/ssl", "https"):
        return None
    is_amqp = listener.protocol == "amqp/ssl"  # HTTPS asks for no client certificates
    certificate, authorities = (
        [_format_expiry(date) for date in dates if date.timestamp() < limit_s]
        for dates in (files.certificate_expiry, files.ca_expiry if is_amqp else ())
    )
    if not certificate and not authorities:
        return None
    return {
        "node": console.node_name,
        "protocol": listener.protocol,
        "interface": listener.address,
        "port": listener.port,
        "certfile": files.certificate_file,
        "cacertfile": (files.ca_file or "") if is_amqp else "",
        "certfile_expires_on": certificate,
        "cacertfile_expires_on": authorities,
    }


def _format_expiry(date: datetime) -> str:
    """Return a date as RabbitMQ writes it, with the hour in one digit if that suffices."""
    return f"{date:%Y-%m-%d} {date.hour}:{date:%M:%S}"


@API.add("GET", "/api/health/checks/node-is-mirror-sync-critical", Access.MANAGEMENT)
def check_mirror_sync_critical(request: ApiRequest) -> Answer:
    """Answer ok: there is one node."""
    return Answer(body=SINGLE_NODE)


@API.add("GET", "/api/health/checks/node-is-quorum-critical", Access.MANAGEMENT)
def check_quorum_critical(request: ApiRequest) -> Answer:
    """Answer ok: there is one node."""
    return Answer(body=SINGLE_NODE)


@API.add("GET", "/api/health/checks/ready-to-serve-clients", Access.MANAGEMENT, answers=(200, 503))
def check_ready(request: ApiRequest) -> Answer:
    """Answer 503 unless clients can connect."""
    return _readiness(request)


@API.add("GET", "/health/live", Access.PUBLIC)
def probe_liveness(request: ApiRequest) -> Answer:
    """Answer 200 while the process serves requests; alarms and recovery do not matter."""
    return Answer(body=OK)


@API.add("GET", "/health/ready", Access.PUBLIC, answers=(200, 503))
def probe_readiness(request: ApiRequest) -> Answer:
    """Answer 200 once clients can connect, 503 before that."""
    return _readiness(request)


def _readiness(request: ApiRequest) -> Answer:
    if request.console.is_ready:
        return Answer(body=OK)
    return _failed("the broker does not accept connections yet")


@API.add("GET", "/health/alarms", Access.PUBLIC, answers=(200, 503))
def probe_alarms(request: ApiRequest) -> Answer:
    """Answer 503 while a memory or disk alarm blocks publishers."""
    return Answer(body=OK) if request.console.server.alarm is None else _failed("alarm in effect")
