"""Exchanges, queues and bindings: list, show, declare, delete and purge.

Declarations call the same functions as AMQP methods, which check limits, equivalence of arguments and
reserved names. The user needs the same permissions.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterable
from functools import partial
from hashlib import md5
from typing import Any, Final, Literal
from urllib.parse import quote_plus, unquote, unquote_plus

import msgspec

from recado.amqp.values import FieldTable, FieldValue, Int64
from recado.broker.binding import Binding, canonical_arguments
from recado.broker.declarations import declare_exchange, declare_queue
from recado.broker.exchange import Exchange
from recado.broker.queue import Queue
from recado.broker.routing import VhostAccess
from recado.broker.vhost import Vhost
from recado.definitions.exporter import to_json_object
from recado.server.names import check_binding

from ..access import Access, listed_vhosts
from ..body import read_body
from ..query import Listing, QueryParameter, collect
from ..request import (
    CREATED,
    NO_CONTENT,
    Answer,
    ApiRequest,
    bad_request,
    check_name,
    not_found,
)
from ..routes import API, Content
from .statistics import SERIES_PARAMETERS, count_unacked, exchange_statistics, queue_statistics

AnyBinding = Binding[Queue | Exchange[Queue]]
_BindingEntry = tuple[str, str, Queue | Exchange[Queue], str, FieldTable]
"""Vhost, source, destination, routing key and arguments."""

_INTEGER_BITS: Final = 64

IF_UNUSED: Final = QueryParameter("if-unused", "Delete it only if it is unused.", bool)
IF_EMPTY: Final = QueryParameter("if-empty", "Delete it only if it is empty.", bool)


class ExchangeBody(msgspec.Struct):
    """The settings of an exchange to declare."""

    type: str = "direct"
    durable: bool = False
    auto_delete: bool = False
    internal: bool = False
    arguments: dict[str, Any] = {}


class QueueBody(msgspec.Struct):
    """The settings of a queue to declare."""

    durable: bool = False
    auto_delete: bool = False
    arguments: dict[str, Any] = {}


class QueueAction(msgspec.Struct):
    """An action on a mirrored queue."""

    action: Literal["sync", "cancel_sync"]


class BindingBody(msgspec.Struct):
    """A binding to add."""

    routing_key: str = ""
    arguments: dict[str, Any] = {}


def access_to(request: ApiRequest, vhost: Vhost[Queue]) -> VhostAccess:
    """Return the user's access to a vhost. Raises `NotAllowedError` if it may not enter the vhost."""
    broker = request.broker
    return VhostAccess(request.user, vhost, broker.consumer_timeouts, broker.coalescer)


def _listed_vhosts(request: ApiRequest) -> list[Vhost[Queue]]:
    if "vhost" in request.parameters:
        return [request.vhost()]
    names = listed_vhosts(request.user, request.broker)
    return [request.broker.vhosts[name] for name in names]


def read_arguments(values: dict[str, Any]) -> FieldTable:
    """Return the `arguments` of a declaration as an AMQP table. Raises `ApiError`."""
    return to_field_table(values, "arguments")


def to_field_table(values: dict[str, Any], where: str) -> FieldTable:
    """Convert JSON to an AMQP table; integers have 64 bits, as in RabbitMQ. Raises `ApiError`."""
    return {
        check_name(f"a name in {where}", name): _to_field_value(value, f"{where}.{name}")
        for name, value in values.items()
    }


def _to_field_value(value: Any, where: str) -> FieldValue:
    match value:
        case None | bool() | float() | str():
            return value
        case int():
            if value.bit_length() >= _INTEGER_BITS:
                raise bad_request(f"{where}: {value} does not fit into 64 bits")
            return Int64(value)
        case list():
            return [_to_field_value(element, where) for element in value]
        case _:
            return to_field_table(value, where)


# ── exchanges ───────────────────────────────────────────────────────────────────────────────────────

_ExchangeEntry = tuple[Vhost[Queue], Exchange[Queue]]


def exchange_object(request: ApiRequest, entry: _ExchangeEntry) -> dict[str, Any]:
    """Return an exchange as RabbitMQ describes it."""
    vhost, exchange = entry
    declared = exchange.declared_settings
    described: dict[str, Any] = {
        "name": exchange.name,
        "vhost": vhost.name,
        "type": declared.exchange_type,
        "durable": declared.durable,
        "auto_delete": declared.auto_delete,
        "internal": declared.internal,
        "arguments": to_json_object(declared.arguments),
    }
    policy = vhost.policies.find_policy(exchange.name, "exchanges")
    if policy is not None:
        described["policy"] = policy.name
    described.update(exchange_statistics(request, exchange))
    return described


def _find_exchange(request: ApiRequest, name: str = "exchange") -> _ExchangeEntry:
    vhost = request.vhost()
    exchange = vhost.exchanges.get(request.parameters[name])
    if exchange is None:
        raise not_found()
    return vhost, exchange


def _exchange_listing(request: ApiRequest) -> Answer:
    entries = [
        (vhost, exchange)
        for vhost in _listed_vhosts(request)
        for exchange in vhost.exchanges.values()
    ]
    return Answer(
        listing=Listing(
            entries,
            partial(exchange_object, request),
            lambda entry: entry[1].name,
            {
                "name": lambda entry: entry[1].name,
                "vhost": lambda entry: entry[0].name,
                "type": lambda entry: entry[1].declared_settings.exchange_type,
            },
            lambda entry: (entry[0].name, entry[1].name),
        ),
    )


@API.add("GET", "/api/exchanges", Access.MANAGEMENT, content=Content.PAGES, query=SERIES_PARAMETERS)
def list_exchanges(request: ApiRequest) -> Answer:
    """List the exchanges of all vhosts that the user may use."""
    return _exchange_listing(request)


@API.add(
    "GET", "/api/exchanges/{vhost}", Access.VHOST, content=Content.PAGES, query=SERIES_PARAMETERS
)
def list_exchanges_of_vhost(request: ApiRequest) -> Answer:
    """List the exchanges of one vhost."""
    return _exchange_listing(request)


@API.add("GET", "/api/exchanges/{vhost}/{exchange}", Access.VHOST, query=SERIES_PARAMETERS)
def get_exchange(request: ApiRequest) -> Answer:
    """Return one exchange."""
    described = exchange_object(request, _find_exchange(request))
    return Answer(body={**described, "incoming": [], "outgoing": []})


@API.add("PUT", "/api/exchanges/{vhost}/{exchange}", Access.VHOST, body=ExchangeBody)
def put_exchange(request: ApiRequest) -> Answer:
    """Declare an exchange."""
    vhost, name = request.vhost(), request.parameters["exchange"]
    body = read_body(request, ExchangeBody)
    created = name not in vhost.exchanges
    declare_exchange(
        access_to(request, vhost),
        name,
        body.type,
        durable=body.durable,
        auto_delete=body.auto_delete,
        internal=body.internal,
        arguments=read_arguments(body.arguments),
    )
    return CREATED if created else NO_CONTENT


@API.add("DELETE", "/api/exchanges/{vhost}/{exchange}", Access.VHOST, query=(IF_UNUSED,))
def delete_exchange(request: ApiRequest) -> Answer:
    """Delete an exchange."""
    vhost, exchange = _find_exchange(request)
    access_to(request, vhost).permissions.check_configure("exchange", exchange.name)
    vhost.delete_exchange(exchange.name, if_unused=IF_UNUSED.is_true(request.query))
    return NO_CONTENT


# ── queues ──────────────────────────────────────────────────────────────────────────────────────────


def queue_object(request: ApiRequest, queue: Queue) -> dict[str, Any]:
    """Return a queue as RabbitMQ describes it."""
    declared, node = queue.declared_settings, request.console.node_name
    described: dict[str, Any] = {
        "name": queue.name,
        "vhost": queue.vhost.name,
        "type": declared.queue_type,
        "durable": declared.durable,
        "auto_delete": declared.auto_delete,
        "exclusive": declared.exclusive,
        "arguments": to_json_object(declared.arguments),
        "node": node,
        "state": "running",
        "consumers": len(queue.consumers),
        "exclusive_consumer_tag": next(
            (each.tag for each in queue.consumers if each.exclusive), None
        ),
        "single_active_consumer_tag": queue.active_consumer_tag,
    }
    policies = queue.vhost.policies
    policy = policies.find_policy(queue.name, "queues", declared.queue_type)
    operator = policies.find_policy(queue.name, "queues", declared.queue_type, operator=True)
    described["policy"] = policy.name if policy is not None else None
    described["operator_policy"] = operator.name if operator is not None else None
    described["effective_policy_definition"] = policies.queue_definition(
        queue.name, declared.queue_type
    )
    if declared.queue_type != "classic":
        described["members"] = described["online"] = [node]
        described["leader"] = node
    described.update(queue_statistics(request, queue))
    return described


def find_queue(request: ApiRequest, parameter: str = "queue") -> Queue:
    """Return the queue that the path names. Raises `ApiError` 404 if there is none."""
    queue = request.vhost().queues.get(request.parameters[parameter])
    if queue is None or queue.is_reply_address:
        raise not_found()
    return queue


def _queue_listing(request: ApiRequest) -> Answer:
    entries = [
        queue
        for vhost in _listed_vhosts(request)
        for queue in vhost.queues.values()
        if not queue.is_reply_address
    ]
    sort_values: dict[str, Callable[[Queue], Any]] = {
        "name": lambda queue: queue.name,
        "vhost": lambda queue: queue.vhost.name,
        "messages": lambda queue: queue.ready + count_unacked(queue),
        "messages_ready": lambda queue: queue.ready,
        "messages_unacknowledged": count_unacked,
        "consumers": lambda queue: len(queue.consumers),
    }
    return Answer(
        listing=Listing(
            entries,
            partial(queue_object, request),
            lambda queue: queue.name,
            sort_values,
            lambda queue: (queue.vhost.name, queue.name),
        ),
    )


@API.add("GET", "/api/queues", Access.MANAGEMENT, content=Content.PAGES, query=SERIES_PARAMETERS)
def list_queues(request: ApiRequest) -> Answer:
    """List the queues of all vhosts that the user may use."""
    return _queue_listing(request)


@API.add(
    "GET", "/api/queues/detailed", Access.MANAGEMENT, content=Content.PAGES, query=SERIES_PARAMETERS
)
def list_queues_detailed(request: ApiRequest) -> Answer:
    """List the queues of all vhosts that the user may use with all fields."""
    return _queue_listing(request)


@API.add("GET", "/api/queues/{vhost}", Access.VHOST, content=Content.PAGES, query=SERIES_PARAMETERS)
def list_queues_of_vhost(request: ApiRequest) -> Answer:
    """List the queues of one vhost."""
    return _queue_listing(request)


@API.add("GET", "/api/queues/{vhost}/{queue}", Access.VHOST, query=SERIES_PARAMETERS)
def get_queue(request: ApiRequest) -> Answer:
    """Return one queue, with its consumers."""
    from .connections import consumer_object

    queue = find_queue(request)
    described = queue_object(request, queue)
    described["consumer_details"] = [consumer_object(request, each) for each in queue.consumers]
    return Answer(body={**described, "incoming": [], "deliveries": []})


@API.add("PUT", "/api/queues/{vhost}/{queue}", Access.VHOST, body=QueueBody)
def put_queue(request: ApiRequest) -> Answer:
    """Declare a queue."""
    vhost, name = request.vhost(), request.parameters["queue"]
    body = read_body(request, QueueBody)
    created = name not in vhost.queues
    declare_queue(
        request.broker,
        access_to(request, vhost),
        name,
        durable=body.durable,
        auto_delete=body.auto_delete,
        arguments=read_arguments(body.arguments),
        connection=None,
        now=request.now_ms,
    )
    return CREATED if created else NO_CONTENT


@API.add("DELETE", "/api/queues/{vhost}/{queue}", Access.VHOST, query=(IF_UNUSED, IF_EMPTY))
def delete_queue(request: ApiRequest) -> Answer:
    """Delete a queue."""
    queue = find_queue(request)
    access_to(request, queue.vhost).permissions.check_configure("queue", queue.name)
    queue.vhost.find_accessible_queue(None, queue.name)  # refuses exclusive queues
    request.broker.delete_queue(
        queue,
        request.now_ms,
        if_unused=IF_UNUSED.is_true(request.query),
        if_empty=IF_EMPTY.is_true(request.query),
    )
    return NO_CONTENT


@API.add("DELETE", "/api/queues/{vhost}/{queue}/contents", Access.VHOST)
def purge_queue(request: ApiRequest) -> Answer:
    """Drop all ready messages of a queue."""
    queue = find_queue(request)
    access_to(request, queue.vhost).permissions.check_read("queue", queue.name)
    queue.vhost.find_accessible_queue(None, queue.name)
    queue.purge()
    return NO_CONTENT


@API.add(
    "POST",
    "/api/queues/{vhost}/{queue}/actions",
    Access.ADMINISTRATOR,
    answers=(204,),
    body=QueueAction,
)
def act_on_queue(request: ApiRequest) -> Answer:
    """Accept `sync` and `cancel_sync`, and do nothing: there are no mirrored queues."""
    find_queue(request)
    read_body(request, QueueAction)
    return NO_CONTENT


@API.add("POST", "/api/rebalance/queues", Access.ADMINISTRATOR, answers=(204,))
def rebalance_queues(request: ApiRequest) -> Answer:
    """Accept the request to rebalance queue leaders, and do nothing: there is one node."""
    return Answer(204)


# ── bindings ────────────────────────────────────────────────────────────────────────────────────────


def properties_key(routing_key: str, arguments: FieldTable) -> str:
    """Return the name of a binding among those with the same source and destination, as in RabbitMQ.

    It is the encoded routing key, or `~` if that is empty. With arguments, `~` and a hash of them follow the key.
    """
    encoded = quote_plus(routing_key, safe="-_.")
    if arguments:
        digest = md5(canonical_arguments(arguments), usedforsecurity=False).digest()
        return f"{encoded}~{urlsafe_b64encode(digest).decode().rstrip('=')}"
    return encoded or "~"


def destination_type(destination: Queue | Exchange[Queue]) -> str:
    return "queue" if isinstance(destination, Queue) else "exchange"


def binding_object(entry: _BindingEntry) -> dict[str, Any]:
    """Return a binding as RabbitMQ describes it."""
    vhost, source, destination, routing_key, arguments = entry
    return {
        "source": source,
        "vhost": vhost,
        "destination": destination.name,
        "destination_type": destination_type(destination),
        "routing_key": routing_key,
        "arguments": to_json_object(arguments),
        "properties_key": properties_key(routing_key, arguments),
    }


def _binding_listing(request: ApiRequest, entries: Iterable[_BindingEntry]) -> Answer:
    """Return a list of bindings, which are read in slices: there can be very many."""

    async def wait() -> Answer:
        collected = await request.console.slices.run(collect(entries))
        return Answer(
            listing=Listing(
                collected, binding_object, lambda entry: entry[3], order=_order_of_binding
            )
        )

    return Answer(wait=wait)


def _order_of_binding(entry: _BindingEntry) -> tuple[str, ...]:
    vhost, source, destination, routing_key, _ = entry
    return vhost, source, destination_type(destination), destination.name, routing_key


def _default_binding(vhost: Vhost[Queue], queue: Queue) -> _BindingEntry:
    return (vhost.name, "", queue, queue.name, {})


def _to_entry(vhost: Vhost[Queue], binding: AnyBinding) -> _BindingEntry:
    return (
        vhost.name,
        binding.source,
        binding.destination,
        binding.routing_key,
        binding.arguments,
    )


def _all_bindings(vhost: Vhost[Queue]) -> Iterable[_BindingEntry]:
    for queue in list(vhost.queues.values()):
        if not queue.is_reply_address:
            yield _default_binding(vhost, queue)
    for exchange in list(vhost.exchanges.values()):
        yield from _bindings_from(vhost, exchange)


def _bindings_from(vhost: Vhost[Queue], exchange: Exchange[Queue]) -> Iterable[_BindingEntry]:
    for binding in list(exchange.bindings.values()):
        if not binding.destination.deleted:
            yield _to_entry(vhost, binding)


@API.add("GET", "/api/bindings", Access.MANAGEMENT, content=Content.LIST)
def list_bindings(request: ApiRequest) -> Answer:
    """List the bindings of all vhosts that the user may use."""
    return _binding_listing(
        request, (each for vhost in _listed_vhosts(request) for each in _all_bindings(vhost))
    )


@API.add("GET", "/api/bindings/{vhost}", Access.VHOST, content=Content.LIST)
def list_bindings_of_vhost(request: ApiRequest) -> Answer:
    """List the bindings of one vhost."""
    return _binding_listing(request, _all_bindings(request.vhost()))


@API.add(
    "GET", "/api/exchanges/{vhost}/{exchange}/bindings/source", Access.VHOST, content=Content.LIST
)
def list_bindings_from_exchange(request: ApiRequest) -> Answer:
    """List the bindings whose source is an exchange."""
    vhost, exchange = _find_exchange(request)
    if exchange is vhost.default_exchange:
        queues = [queue for queue in vhost.queues.values() if not queue.is_reply_address]
        return _binding_listing(request, (_default_binding(vhost, queue) for queue in queues))
    return _binding_listing(request, _bindings_from(vhost, exchange))


@API.add(
    "GET",
    "/api/exchanges/{vhost}/{exchange}/bindings/destination",
    Access.VHOST,
    content=Content.LIST,
)
def list_bindings_to_exchange(request: ApiRequest) -> Answer:
    """List the bindings whose destination is an exchange."""
    vhost, exchange = _find_exchange(request)
    return _binding_listing(
        request, (_to_entry(vhost, each) for each in list(vhost.bindings_to(exchange)))
    )


@API.add("GET", "/api/queues/{vhost}/{queue}/bindings", Access.VHOST, content=Content.LIST)
def list_bindings_to_queue(request: ApiRequest) -> Answer:
    """List the bindings of a queue."""
    queue = find_queue(request)
    vhost = queue.vhost
    entries = [_default_binding(vhost, queue)]
    return _binding_listing(
        request, [*entries, *(_to_entry(vhost, each) for each in vhost.bindings_to(queue))]
    )


def _find_ends(
    request: ApiRequest,
) -> tuple[Vhost[Queue], Exchange[Queue], Queue | Exchange[Queue]]:
    vhost, source = _find_exchange(request, "source")
    name = request.parameters["destination"]
    destination: Queue | Exchange[Queue] | None
    if request.parameters["destination_type"] == "q":
        destination = vhost.queues.get(name)
    elif request.parameters["destination_type"] == "e":
        destination = vhost.exchanges.get("" if name == "amq.default" else name)
    else:
        raise not_found()
    if destination is None:
        raise not_found()
    return vhost, source, destination


def _between(
    vhost: Vhost[Queue], source: Exchange[Queue], destination: Queue | Exchange[Queue]
) -> list[_BindingEntry]:
    if source is vhost.default_exchange:
        return [_default_binding(vhost, destination)] if isinstance(destination, Queue) else []
    return [
        _to_entry(vhost, each)
        for each in vhost.bindings_to(destination)
        if each.source == source.name
    ]


_ENDS: Final = "/api/bindings/{vhost}/e/{source}/{destination_type}/{destination}"


@API.add("GET", _ENDS, Access.VHOST, content=Content.LIST)
def list_bindings_between(request: ApiRequest) -> Answer:
    """List the bindings between an exchange and a queue (`q`) or exchange (`e`)."""
    return _binding_listing(request, _between(*_find_ends(request)))


@API.add("POST", _ENDS, Access.VHOST, answers=(201,), body=BindingBody)
def post_binding(request: ApiRequest) -> Answer:
    """Bind a queue or exchange to an exchange; the header `location` of the answer names the binding."""
    body = read_body(request, BindingBody)
    key = check_name("routing_key", body.routing_key)
    arguments = read_arguments(body.arguments)
    vhost, source, name = (
        request.vhost(),
        request.parameters["source"],
        request.parameters["destination"],
    )
    access = access_to(request, vhost)
    if request.parameters["destination_type"] == "q":
        check_binding(access, "queue", name, source, key)
        vhost.bind_queue(name, source, key, arguments)
    elif request.parameters["destination_type"] == "e":
        check_binding(access, "exchange", name, source, key)
        vhost.bind_exchange(name, source, key, arguments)
    else:
        raise not_found()
    location = properties_key(key, arguments)
    return Answer(201, headers={"location": location}, durable=True)


def _find_binding(request: ApiRequest) -> _BindingEntry:
    wanted = request.parameters["properties"]
    names = {wanted, unquote(wanted), unquote_plus(wanted)}  # clients encode it once or twice
    for entry in _between(*_find_ends(request)):
        key = properties_key(entry[3], entry[4])
        if key in names or unquote_plus(key) in names:
            return entry
    raise not_found()


@API.add("GET", _ENDS + "/{properties}", Access.VHOST)
def get_binding(request: ApiRequest) -> Answer:
    """Return one binding by its `properties_key`."""
    return Answer(body=binding_object(_find_binding(request)))


@API.add("DELETE", _ENDS + "/{properties}", Access.VHOST)
def delete_binding(request: ApiRequest) -> Answer:
    """Remove one binding by its `properties_key`."""
    _, source, destination, key, arguments = _find_binding(request)
    vhost = request.vhost()
    access = access_to(request, vhost)
    if isinstance(destination, Queue):
        check_binding(access, "queue", destination.name, source, key)
        vhost.unbind_queue(destination.name, source, key, arguments)
    else:
        check_binding(access, "exchange", destination.name, source, key)
        vhost.unbind_exchange(destination.name, source, key, arguments)
    return NO_CONTENT
