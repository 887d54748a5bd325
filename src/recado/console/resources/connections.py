"""Connections, channels and consumers.

A user sees and closes its own connections; a monitor sees those of all users, and an administrator also closes them.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from recado.amqp.values import decode_table
from recado.broker.channel import Channel
from recado.broker.consumer import Consumer
from recado.definitions.exporter import to_json_object
from recado.server.certificate_login import format_issuer, format_subject, format_validity
from recado.server.connection import Connection
from recado.server.session import Session, SessionState

from ..access import Access, is_administrator, is_monitor, visible_vhosts
from ..query import Listing, collect
from ..request import NO_CONTENT, Answer, ApiRequest, not_authorised, not_found
from ..routes import API, Content
from .statistics import (
    CHANNEL_FIELDS,
    CONNECTION_FIELDS,
    SERIES_PARAMETERS,
    RequestedSeries,
    counter_object,
    message_statistics,
    read_channel,
)

DEFAULT_REASON = "Closed via management plugin"


def connection_name(connection: Connection) -> str:
    """Return the name of a connection as RabbitMQ forms it: both ends."""
    return session_name(connection.session)


def session_name(session: Session) -> str:
    """Return the name of the connection of a session, also when it is closed."""
    peer, local = session.ends
    return f"{peer[0]}:{peer[1]} -> {local[0]}:{local[1]}"


def _owner(connection: Connection) -> tuple[str, str]:
    access = connection.session.access
    return (access.user.name, access.vhost.name) if access is not None else ("", "")


def connection_object(request: ApiRequest, connection: Connection) -> dict[str, Any]:
    """Return a connection as RabbitMQ describes it."""
    session = connection.session
    peer, local = session.ends
    user, vhost = _owner(connection)
    properties, _ = (
        decode_table(session.client_properties, 0) if session.client_properties else ({}, 0)
    )
    reads, writes = connection.io_counts
    described: dict[str, Any] = {
        "name": connection_name(connection),
        "node": request.console.node_name,
        "type": "network",
        "protocol": "AMQP 0-9-1",
        "state": _state(connection),
        "user": user,
        "user_who_performed_action": user,
        "vhost": vhost,
        "host": local[0],
        "port": local[1],
        "peer_host": peer[0],
        "peer_port": peer[1],
        "auth_mechanism": session.mechanism,
        "connected_at": connection.connected_at_ms,
        "channels": len(session.channels),
        "channel_max": session.channel_max,
        "frame_max": session.frame_max,
        "timeout": session.heartbeat,
        "client_properties": to_json_object(properties),
        "recv_cnt": reads,
        "send_cnt": writes,
        "send_pend": connection.unsent_bytes,
        **_tls_object(connection),
    }
    name = properties.get("connection_name")
    if isinstance(name, str):
        described["user_provided_name"] = name
    values = dict(
        zip(CONNECTION_FIELDS, (connection.received_bytes, connection.sent_bytes), strict=True)
    )
    series, history = RequestedSeries(request.query), request.console.sampler.connections
    described.update(counter_object(history, connection, values, series.data_rates))
    return described


def _state(connection: Connection) -> str:
    if connection.is_blocked:
        return "blocked"
    return {SessionState.OPEN: "running", SessionState.HANDSHAKE: "starting"}.get(
        connection.session.state, "closing"
    )


def _tls_object(connection: Connection) -> dict[str, Any]:
    cipher = connection.transport.get_extra_info("cipher")
    names = ("ssl_cipher", "ssl_hash", "ssl_key_exchange", "ssl_protocol")
    described: dict[str, Any] = {
        "ssl": cipher is not None,
        **dict.fromkeys(names),
        "peer_cert_issuer": None,
        "peer_cert_subject": None,
        "peer_cert_validity": None,
    }
    if cipher is not None:
        described["ssl_cipher"], described["ssl_protocol"] = cipher[0], cipher[1]
    if certificate := connection.peer_certificate:
        described["peer_cert_issuer"] = format_issuer(certificate)
        described["peer_cert_subject"] = format_subject(certificate)
        described["peer_cert_validity"] = format_validity(certificate)
    return described


def _visible_connections(request: ApiRequest) -> list[Connection]:
    """Return the open connections that a user may see: all for a monitor, its own otherwise."""
    everyone = is_monitor(request.user)
    return [
        connection
        for connection in request.console.server.connections
        if connection.session.access is not None
        and (everyone or _owner(connection)[0] == request.user.name)
    ]


def _listing(request: ApiRequest, connections: list[Connection]) -> Answer:
    return Answer(
        listing=Listing(
            connections,
            partial(connection_object, request),
            connection_name,
            {
                "name": connection_name,
                "user": lambda each: _owner(each)[0],
                "vhost": lambda each: _owner(each)[1],
                "connected_at": lambda each: each.connected_at_ms,
                "recv_oct": lambda each: each.received_bytes,
                "send_oct": lambda each: each.sent_bytes,
            },
            lambda each: (_owner(each)[1], connection_name(each)),
        ),
    )


def _find(request: ApiRequest) -> Connection:
    """Return the connection that a path names.

    Raises `ApiError` if there is none, or if it belongs to another user and this one may not see or close it.
    """
    name = request.parameters["connection"]
    for connection in request.console.server.connections:
        if connection.session.access is not None and connection_name(connection) == name:
            allowed = (
                is_administrator(request.user)
                if request.method == "DELETE"
                else is_monitor(request.user)
            )
            if not allowed and _owner(connection)[0] != request.user.name:
                raise not_authorised("User not authorised to access object")
            return connection
    raise not_found()


@API.add(
    "GET", "/api/connections", Access.MANAGEMENT, content=Content.PAGES, query=SERIES_PARAMETERS
)
def list_connections(request: ApiRequest) -> Answer:
    """List the connections that the user may see."""
    return _listing(request, _visible_connections(request))


@API.add(
    "GET",
    "/api/vhosts/{vhost}/connections",
    Access.VHOST,
    content=Content.PAGES,
    query=SERIES_PARAMETERS,
)
def list_connections_of_vhost(request: ApiRequest) -> Answer:
    """List the connections in one vhost that the user may see."""
    vhost = request.vhost().name
    return _listing(
        request, [each for each in _visible_connections(request) if _owner(each)[1] == vhost]
    )


@API.add(
    "GET",
    "/api/connections/username/{user}",
    Access.MANAGEMENT,
    content=Content.PAGES,
    query=SERIES_PARAMETERS,
)
def list_connections_of_user(request: ApiRequest) -> Answer:
    """List the connections of one user that this user may see."""
    user = request.parameters["user"]
    return _listing(
        request, [each for each in _visible_connections(request) if _owner(each)[0] == user]
    )


@API.add("GET", "/api/connections/{connection}", Access.MANAGEMENT, query=SERIES_PARAMETERS)
def get_connection(request: ApiRequest) -> Answer:
    """Return one connection."""
    return Answer(body=connection_object(request, _find(request)))


@API.add("DELETE", "/api/connections/{connection}", Access.MANAGEMENT)
def close_connection(request: ApiRequest) -> Answer:
    """Close a connection; the header `X-Reason` is sent to its client."""
    _find(request).close_forced(request.reason or DEFAULT_REASON)
    return Answer(204)


@API.add("DELETE", "/api/connections/username/{user}", Access.MANAGEMENT)
def close_connections_of_user(request: ApiRequest) -> Answer:
    """Close all connections of a user."""
    user = request.parameters["user"]
    if not is_administrator(request.user) and user != request.user.name:
        raise not_authorised("User not authorised to access object")
    request.console.close_connections(request.reason or DEFAULT_REASON, user=user)
    return NO_CONTENT


# ── channels ────────────────────────────────────────────────────────────────────────────────────────

_ChannelEntry = tuple[Connection, Channel]


def _channels(connections: list[Connection]) -> list[_ChannelEntry]:
    return [
        (connection, channel)
        for connection in connections
        for channel in connection.session.channels.values()
    ]


def channel_name(entry: _ChannelEntry) -> str:
    connection, channel = entry
    return f"{connection_name(connection)} ({channel.number})"


def channel_object(request: ApiRequest, entry: _ChannelEntry) -> dict[str, Any]:
    """Return a channel as RabbitMQ describes it."""
    connection, channel = entry
    (peer_host, peer_port), _ = connection.session.ends
    user, vhost = _owner(connection)
    publisher = channel.publisher
    described: dict[str, Any] = {
        "name": channel_name(entry),
        "number": channel.number,
        "node": request.console.node_name,
        "user": user,
        "user_who_performed_action": user,
        "vhost": vhost,
        "state": "running",
        "connection_details": {
            "name": connection_name(connection),
            "peer_host": peer_host,
            "peer_port": peer_port,
        },
        "confirm": publisher.confirms_enabled,
        "transactional": publisher.transaction is not None,
        "consumer_count": len(channel.consumers),
        "prefetch_count": channel.consumer_prefetch,
        "global_prefetch_count": channel.global_prefetch,
        "messages_unacknowledged": channel.unacked.count_unsettled(),
        "messages_unconfirmed": publisher.unconfirmed,
        "messages_uncommitted": sum(
            len(event.payloads) for _, event in publisher.transaction or ()
        ),
        "acks_uncommitted": 0,
        "pending_raft_commands": 0,
    }
    values = dict(zip(CHANNEL_FIELDS, read_channel(channel), strict=True))
    series, history = RequestedSeries(request.query), request.console.sampler.channels
    described.update(message_statistics(history, channel, values, series.rates))
    return described


def _channel_listing(request: ApiRequest, connections: list[Connection]) -> Answer:
    return Answer(
        listing=Listing(
            _channels(connections),
            partial(channel_object, request),
            channel_name,
            {"name": channel_name, "number": lambda entry: entry[1].number},
            lambda entry: (_owner(entry[0])[1], connection_name(entry[0]), entry[1].number),
        ),
    )


@API.add("GET", "/api/channels", Access.MANAGEMENT, content=Content.PAGES, query=SERIES_PARAMETERS)
def list_channels(request: ApiRequest) -> Answer:
    """List the channels that the user may see."""
    return _channel_listing(request, _visible_connections(request))


@API.add(
    "GET",
    "/api/vhosts/{vhost}/channels",
    Access.VHOST,
    content=Content.PAGES,
    query=SERIES_PARAMETERS,
)
def list_channels_of_vhost(request: ApiRequest) -> Answer:
    """List the channels in one vhost that the user may see."""
    vhost = request.vhost().name
    return _channel_listing(
        request, [each for each in _visible_connections(request) if _owner(each)[1] == vhost]
    )


@API.add(
    "GET",
    "/api/connections/{connection}/channels",
    Access.MANAGEMENT,
    content=Content.PAGES,
    query=SERIES_PARAMETERS,
)
def list_channels_of_connection(request: ApiRequest) -> Answer:
    """List the channels of one connection."""
    return _channel_listing(request, [_find(request)])


@API.add("GET", "/api/channels/{channel}", Access.MANAGEMENT, query=SERIES_PARAMETERS)
def get_channel(request: ApiRequest) -> Answer:
    """Return one channel, with its consumers."""
    name = request.parameters["channel"]
    for entry in _channels(list(request.console.server.connections)):
        if channel_name(entry) == name:
            if not is_monitor(request.user) and _owner(entry[0])[0] != request.user.name:
                raise not_authorised("User not authorised to access object")
            details = [consumer_object(request, each) for each in entry[1].consumers.values()]
            described = channel_object(request, entry)
            return Answer(
                body={**described, "consumer_details": details, "publishes": [], "deliveries": []}
            )
    raise not_found()


# ── consumers ───────────────────────────────────────────────────────────────────────────────────────


def channel_details(request: ApiRequest, channel: Channel) -> dict[str, Any]:
    """Return how other objects refer to a channel; empty if its connection is closed."""
    connection = request.connection_of(channel.connection)
    if connection is None:
        return {}
    (peer_host, peer_port), _ = connection.session.ends
    return {
        "name": channel_name((connection, channel)),
        "number": channel.number,
        "connection_name": connection_name(connection),
        "node": request.console.node_name,
        "peer_host": peer_host,
        "peer_port": peer_port,
        "user": _owner(connection)[0],
    }


def consumer_object(request: ApiRequest, consumer: Consumer) -> dict[str, Any]:
    """Return a consumer as RabbitMQ describes it."""
    active = consumer.queue.is_active(consumer)
    return {
        "consumer_tag": consumer.tag,
        "queue": {"name": consumer.queue.name, "vhost": consumer.queue.vhost.name},
        "channel_details": channel_details(request, consumer.channel),
        "ack_required": not consumer.no_ack,
        "active": active,
        "activity_status": _activity(consumer) if active else "waiting",
        "exclusive": consumer.exclusive,
        "prefetch_count": consumer.prefetch,
        "arguments": to_json_object(consumer.settings.arguments),
    }


def _activity(consumer: Consumer) -> str:
    return "single_active" if consumer.queue.active_consumer_tag is not None else "up"


def _consumer_listing(request: ApiRequest, vhosts: list[str]) -> Answer:
    """Return the list of consumers, which are read in slices. A user that is no monitor gets only its own."""
    everyone = is_monitor(request.user)
    entries = (
        consumer
        for name in vhosts
        for queue in list(request.broker.vhosts[name].queues.values())
        if not queue.is_reply_address
        for consumer in list(queue.consumers)
        if everyone or consumer.channel.access.user.name == request.user.name
    )

    async def wait() -> Answer:
        consumers = await request.console.slices.run(collect(entries))
        return Answer(
            listing=Listing(
                consumers,
                partial(consumer_object, request),
                lambda each: each.tag,
                order=lambda each: (each.queue.vhost.name, each.queue.name, each.tag),
            )
        )

    return Answer(wait=wait)


@API.add("GET", "/api/consumers", Access.MANAGEMENT, content=Content.LIST)
def list_consumers(request: ApiRequest) -> Answer:
    """List the consumers that the user may see: its own, or for a monitor all."""
    return _consumer_listing(request, visible_vhosts(request.user, request.broker))


@API.add("GET", "/api/consumers/{vhost}", Access.MANAGEMENT, content=Content.LIST)
def list_consumers_of_vhost(request: ApiRequest) -> Answer:
    """List the consumers of one vhost that the user may see."""
    return _consumer_listing(request, [request.vhost().name])
