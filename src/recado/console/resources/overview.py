"""The overview and the node."""

from __future__ import annotations

import os
import time
from collections.abc import Hashable
from typing import Any, Final

import msgspec

from recado.broker.exchange import EXCHANGE_TYPES
from recado.server import memory

from ..access import Access, is_monitor, visible_vhosts
from ..body import read_body
from ..history import SummedHistory
from ..query import Listing
from ..request import NO_CONTENT, Answer, ApiRequest, not_found
from ..routes import API, Content
from ..sampler import TOTALS_KEY, VHOST_FIELDS
from .statistics import (
    QUEUE_LENGTHS,
    SERIES_PARAMETERS,
    History,
    RequestedSeries,
    counter_object,
    message_statistics,
)

PRODUCT: Final = "RabbitMQ"
MEMORY_PARTS: Final = (
    "connection_readers",
    "connection_writers",
    "connection_channels",
    "connection_other",
    "queue_procs",
    "queue_slave_procs",
    "quorum_queue_procs",
    "quorum_queue_dlx_procs",
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
)
"""The categories of RabbitMQ 3.13, which tools require. recado reports all of its memory as `other_proc`."""
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
    sums = await console.slices.run(sampler.read_vhosts(queues, names))
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
        "is_op_policy_updating_enabled": True,
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
    """Return the node as RabbitMQ describes it; fields about Erlang have constant values."""
    console = request.console
    limits = console.read_limits()
    return {
        "name": console.node_name,
        "type": "disc",
        "running": True,
        "being_drained": False,
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


def check_node(request: ApiRequest) -> None:
    """Raise `ApiError` 404 unless the path names this node."""
    if request.parameters["node"] != request.console.node_name:
        raise not_found()


@API.add("GET", "/api/nodes/{node}", Access.MONITORING)
def get_node(request: ApiRequest) -> Answer:
    """Return one node."""
    check_node(request)
    return Answer(body=node_object(request))


@API.add("GET", "/api/nodes/{node}/memory", Access.MONITORING)
def get_node_memory(request: ApiRequest) -> Answer:
    """Return the memory that the node uses."""
    check_node(request)
    used = memory.resident_bytes()
    total = {"erlang": used, "rss": used, "allocated": used}
    parts = dict.fromkeys(MEMORY_PARTS, 0) | {"other_proc": used}
    return Answer(body={"memory": {**parts, "strategy": "rss", "total": total}})


@API.add("GET", "/api/nodes/{node}/memory/relative", Access.MONITORING)
def get_relative_node_memory(request: ApiRequest) -> Answer:
    """Return the memory that the node uses, in percent."""
    check_node(request)
    parts = dict.fromkeys(MEMORY_PARTS, 0) | {"other_proc": 100}
    return Answer(body={"memory": {**parts, "total": 100}})
