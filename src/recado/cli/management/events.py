"""`recado events`: changes of a running broker, one line each, as they happen.

They come from the event stream of recado's HTTP API; RabbitMQ has none.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any, Final, NamedTuple

import msgspec

from recado.cli.terminal import Colour, escape_unprintable

from .api import UnreachableError, path_of
from .command import Command, Invocation, parse_count
from .output import Form, format_value

CHANGES: Final = (
    "vhost",
    "queue",
    "exchange",
    "binding",
    "policy",
    "operator_policy",
    "parameter",
    "global_parameter",
    "user",
    "permission",
    "topic_permission",
    "connection",
    "channel",
    "consumer",
    "alarm",
)
"""Everything but figures, which would hide the changes."""
IDLE_TIMEOUT_S: Final = 60.0  # the server sends a heartbeat every 15 s


class Event(NamedTuple):
    """An event of the stream."""

    type: str
    data: dict[str, Any]


def parse_events(lines: Iterable[bytes]) -> Iterator[Event]:
    """Parse server-sent events; ids and comments are left out."""
    event_type, data = "message", b""
    for line in lines:
        field, _, value = line.rstrip(b"\n").partition(b": ")
        if field == b"event":
            event_type = value.decode()
        elif field == b"data":
            data += value
        elif not field and data:
            yield Event(event_type, msgspec.json.decode(data))
            event_type, data = "message", b""


def _add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "types",
        nargs="*",
        metavar="TYPE",
        help="queue, alarm, consumer.created, rates, …; default: all but rates",
    )
    parser.add_argument("-V", "--vhost", metavar="NAME", help="only this vhost; default: all")
    parser.add_argument("-n", "--count", type=parse_count, metavar="N", help="end after N events")


def _follow(call: Invocation) -> None:
    args = call.args
    query = {"types": ",".join(args.types or CHANGES)}
    if args.vhost is not None:
        query["vhost"] = args.vhost
    left = args.count
    for event in parse_events(call.api.stream(path_of("events"), query, IDLE_TIMEOUT_S)):
        if event.type == "stream.opened":
            print("following changes; Ctrl-C ends it", file=sys.stderr, flush=True)
            continue
        print_event(call, event)
        if left is not None:
            left -= 1
            if left <= 0:
                return
    raise UnreachableError(f"{call.api.address} has ended the event stream")


def print_event(call: Invocation, event: Event) -> None:
    """Print one line for an event: time, type and fields, or a JSON object."""
    output = call.output
    if output.form is Form.JSON:
        output.line(msgspec.json.encode({"event": event.type, **event.data}).decode())
    else:
        at = datetime.fromtimestamp(event.data.pop("at") / 1_000).astimezone()
        shown = at.isoformat(" " if output.form is Form.TABLE else "T", "milliseconds")
        fields = [
            escape_unprintable(f"{name}={format_value(value)}".replace("\t", "\\t"))
            for name, value in event.data.items()
        ]
        if output.form is Form.PLAIN:
            output.line("\t".join([shown, event.type, *fields]))
        else:
            title = output.paint(f"{event.type:18}", Colour.BOLD)
            output.line("  ".join([shown[11:23], title, *fields]))
    sys.stdout.flush()


COMMAND = Command(
    "Print changes of objects as they happen: created, changed, deleted, opened, closed, alarms.",
    _add,
    _follow,
)
