"""Route tests: the queues that a message would reach, and the bindings on its way, without publishing it."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from recado.amqp.errors import AmqpError
from recado.amqp.properties import Properties, encode_properties
from recado.amqp.traits import read_traits
from recado.broker.exchange import Exchange
from recado.broker.queue import Queue
from recado.broker.route_trace import RouteTrace, TracedExchange, TracedMatch, trace_route
from recado.broker.single_message import read_copy_keys
from recado.broker.vhost import Vhost
from recado.definitions.exporter import to_json_object

from ..access import Access, find_refusal
from ..body import read_body
from ..broker_steps import run_broker_steps
from ..request import Answer, ApiError, ApiRequest, not_authorised
from ..routes import API
from .messages import MessageProperties, ShortText, read_properties
from .topology import access_to, properties_key, to_field_table


class MessageToRoute(msgspec.Struct):
    """A message without a body."""

    vhost: ShortText
    exchange: Annotated[
        ShortText, msgspec.Meta(description="Empty or `amq.default`: the default exchange.")
    ]
    routing_key: ShortText = ""
    headers: Annotated[
        dict[str, Any], msgspec.Meta(description="Added to the headers of the properties.")
    ] = {}
    properties: MessageProperties = msgspec.field(default_factory=MessageProperties)


@API.add("POST", "/api/route-test", Access.MANAGEMENT, body=MessageToRoute)
def trace_message(request: ApiRequest) -> Answer:
    """Tell to which queues a message would go, by which exchanges and bindings, and why it would not arrive."""
    body = read_body(request, MessageToRoute)
    vhost = _find_vhost(request, body.vhost)
    exchange = vhost.find_exchange("" if body.exchange == "amq.default" else body.exchange)
    properties = read_properties(body.properties)
    headers = {**(properties.headers or {}), **to_field_table(body.headers, "headers")}
    properties = msgspec.structs.replace(properties, headers=headers or None)
    copy_keys = read_copy_keys(headers)
    refusal = _find_publish_refusal(
        request, vhost, exchange, [body.routing_key, *copy_keys], properties
    )
    message_id = (properties.message_id or "").encode()
    steps = trace_route(
        vhost, exchange, body.routing_key, headers, copy_keys, message_id, request.now_ms
    )

    async def wait() -> Answer:
        trace = await run_broker_steps(request, steps)
        return Answer(body=_trace_object(trace, refusal))

    return Answer(wait=wait)


def _find_vhost(request: ApiRequest, name: str) -> Vhost[Queue]:
    """Return a vhost that the user may enter. Raises `ApiError` as for a vhost in the path."""
    refusal = find_refusal(Access.VHOST, request.user, name, request.broker)
    if refusal is not None:
        raise not_authorised(refusal)
    vhost = request.broker.vhosts.get(name)
    if vhost is None:
        raise ApiError(404, "not_found", f"vhost '{name}' not found")
    return vhost


def _find_publish_refusal(
    request: ApiRequest,
    vhost: Vhost[Queue],
    exchange: Exchange[Queue],
    keys: list[str],
    properties: Properties,
) -> str | None:
    """Return why the user could not publish the message, None if it could."""
    try:
        access = access_to(request, vhost)
        access.permissions.check_write("exchange", exchange.name)
        vhost.find_publishable_exchange(exchange.name)
        for key in keys:
            access.check_topic_permission(exchange, key)
        if properties.user_id is not None:
            access.check_user_id(properties.user_id)
    except AmqpError as error:
        return str(error)
    return read_traits(encode_properties(properties)).refusal


def _trace_object(trace: RouteTrace, publish_refusal: str | None) -> dict[str, Any]:
    return {
        "routed": trace.queue_count > 0,
        "unroutable_reason": trace.unroutable_reason,
        "publish_refusal": publish_refusal,
        "routing_keys": trace.keys,
        "queues": [
            {
                "name": each.queue.name,
                "type": each.queue.declared_settings.queue_type,
                "refusal": each.refusal,
            }
            for each in trace.queues
        ],
        "queue_count": trace.queue_count,
        "exchanges": [_exchange_object(each) for each in trace.exchanges],
    }


def _exchange_object(traced: TracedExchange) -> dict[str, Any]:
    return {
        "name": traced.exchange.name,
        "type": traced.exchange.declared_settings.exchange_type,
        "is_alternate": traced.is_alternate,
        "delay_ms": traced.delay_ms,
        "matches": [_match_object(match) for match in traced.matches],
        "match_count": traced.match_count,
        "alternate_exchange": traced.alternate,
        "dead_end": traced.dead_end,
    }


def _match_object(match: TracedMatch) -> dict[str, Any]:
    return {
        "destination": match.destination.name,
        "destination_type": "exchange" if isinstance(match.destination, Exchange) else "queue",
        "routing_key": match.routing_key,
        "arguments": to_json_object(match.arguments),
        "properties_key": properties_key(match.routing_key, match.arguments),
        "matched_keys": match.matched_keys,
        "is_fallback": match.is_fallback,
    }
