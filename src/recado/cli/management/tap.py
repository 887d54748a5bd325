"""`recado tap`: print the messages that enter a queue, as they arrive, without taking any.

recado delivers copies to a consumer with `x-wire-tap`. On RabbitMQ a private queue is bound as the tapped queue is,
so messages that reach the tapped queue through the default exchange are not seen. A stream is read from its end, on
both.
"""

from __future__ import annotations

import argparse
import base64
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

import msgspec

from recado.cli.terminal import escape_unprintable

from .amqp_address import find_amqp_url
from .api import ManagementError, UnreachableError, path_of
from .command import Command, Invocation, add_vhost, parse_count
from .messages import show_payload
from .output import Form, format_value

if TYPE_CHECKING:
    from recado.client import Delivery
    from recado.client.blocking import BlockingChannel, BlockingConsumer

PREFETCH_COUNT: Final = 1_000  # of a stream; the other consumers acknowledge nothing
RECONNECT_TIMEOUT_S: Final = 30.0
PROPERTIES: Final = (
    "content_type",
    "content_encoding",
    "correlation_id",
    "reply_to",
    "expiration",
    "message_id",
    "type",
    "user_id",
    "app_id",
    "cluster_id",
    "headers",
    "delivery_mode",
    "priority",
    "timestamp",
)
SELECTOR_FIELDS: Final = frozenset({*PROPERTIES, "exchange", "routing_key", "body", "json"})


def _add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="QUEUE")
    add_vhost(parser)
    parser.add_argument("--selector", metavar="TEXT", help="only messages that match")
    parser.add_argument("-n", "--count", type=parse_count, metavar="N", help="end after N messages")
    parser.add_argument("--amqp-url", metavar="URL", help="default: found by the HTTP API")


def _tap(call: Invocation) -> None:
    from recado.client import ClientError, connect_blocking

    args = call.args
    accepts = compile_selector(args.selector) if args.selector else None
    url = args.amqp_url or find_amqp_url(call.api, call.vhost)
    queue = call.api.get(path_of("queues", call.vhost, args.name))
    try:
        with connect_blocking(url, reconnect_timeout=RECONNECT_TIMEOUT_S) as connection:
            channel = connection.channel(confirms=False)
            consumer = _consume(call, channel, queue)
            print(f"tapping queue '{args.name}'; Ctrl-C ends it", file=sys.stderr)
            left = args.count
            for delivery in _select(consumer, accepts):
                print_delivery(call, delivery)
                if left is not None:
                    left -= 1
                    if left <= 0:
                        return
    except ClientError as error:
        raise UnreachableError(f"tap of queue '{args.name}': {error}") from error


def compile_selector(text: str) -> Callable[[Delivery], bool]:
    """Return a predicate for deliveries. Raises `ValueError` with the position of the error."""
    from recado.selector import SelectorError, compile_predicate, parse

    paths: dict[str, Any] = {name: f"properties.{name}" for name in PROPERTIES}
    try:
        return compile_predicate(parse(text, SELECTOR_FIELDS), paths)
    except SelectorError as error:
        raise ValueError(f"--selector: {error}") from error


def _consume(call: Invocation, channel: BlockingChannel, queue: dict[str, Any]) -> BlockingConsumer:
    """Return a consumer that receives copies of the messages of a queue, in one of the three ways of the module."""
    name = queue["name"]
    if call.api.is_recado and queue.get("type") != "stream":
        return channel.consume(name, no_ack=True, arguments={"x-wire-tap": True})
    if queue.get("type") == "stream":
        channel.qos(PREFETCH_COUNT)
        return channel.consume(name, arguments={"x-stream-offset": "next"})
    private = channel.declare_queue(exclusive=True, auto_delete=True)
    bindings = call.api.get(path_of("queues", call.vhost, name, "bindings"))
    sources = [each for each in bindings if each["source"]]
    if not sources:
        raise ManagementError(
            0,
            f"queue '{name}' has no bindings, and only recado can tap what reaches it through the"
            " default exchange",
        )
    for each in sources:
        key, arguments = each["routing_key"], each["arguments"]
        channel.bind_queue(private.name, each["source"], key, arguments=arguments)
    return channel.consume(private.name, no_ack=True)


def _select(
    consumer: BlockingConsumer, accepts: Callable[[Delivery], bool] | None
) -> Iterator[Delivery]:
    for batch in consumer.batches():
        for delivery in batch:
            if accepts is None or accepts(delivery):
                yield delivery
        if batch and not batch[-1].source.no_ack:
            batch[-1].ack(multiple=True)


def print_delivery(call: Invocation, delivery: Delivery) -> None:
    """Print one line for a delivery: tab-separated, or a JSON object."""
    from recado.definitions.exporter import to_json_object

    decoded = delivery.properties
    table = {name: getattr(decoded, name) for name in PROPERTIES}
    properties = to_json_object({name: each for name, each in table.items() if each is not None})
    if call.output.form is Form.JSON:
        fields = {
            "exchange": delivery.exchange,
            "routing_key": delivery.routing_key,
            "redelivered": delivery.redelivered,
            "properties": properties,
            "payload_bytes": len(delivery.body),
            **_encode_payload(delivery.body),
        }
        call.output.line(msgspec.json.encode(fields).decode())
    else:
        body = delivery.body.decode("utf-8", "backslashreplace")
        shown = show_payload(body) if call.output.form is Form.TABLE else body
        cells = (delivery.exchange or "-", delivery.routing_key, format_value(properties), shown)
        call.output.line("\t".join(escape_unprintable(each.replace("\t", "\\t")) for each in cells))
    sys.stdout.flush()


def _encode_payload(body: bytes) -> dict[str, str]:
    """Return the payload as the HTTP API does: as text, or in base64 if it is not UTF-8."""
    try:
        return {"payload": body.decode(), "payload_encoding": "string"}
    except UnicodeDecodeError:
        return {"payload": base64.b64encode(body).decode(), "payload_encoding": "base64"}


COMMAND = Command(
    "Print the messages that enter a queue, without taking any, until Ctrl-C.", _add, _tap
)
