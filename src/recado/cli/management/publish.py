"""`recado publish`: one message, or each line of standard input as one."""

from __future__ import annotations

import argparse
import base64
import sys
from typing import Any

from recado.cli import EXIT_FAILED, EXIT_OK

from .api import DEFAULT_EXCHANGE, ManagementError, path_of
from .command import Command, Invocation, add_vhost, parse_pairs
from .output import plural


def _add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("exchange", metavar="EXCHANGE", help="'' is the default exchange")
    parser.add_argument("routing_key", metavar="KEY")
    parser.add_argument("body", nargs="?", metavar="BODY", help="default: lines of standard input")
    add_vhost(parser)
    parser.add_argument(
        "-H", "--header", action="append", default=[], metavar="NAME=VALUE", help="a header"
    )
    parser.add_argument(
        "-p",
        "--property",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="content_type, priority, expiration, …",
    )
    parser.add_argument("--transient", action="store_true", help="delivery mode 1")
    parser.add_argument("--base64", action="store_true", help="the body is base64")


def _publish(call: Invocation) -> int:
    """Publish; the exit status is 1 if a message reached no queue."""
    args = call.args
    properties: dict[str, Any] = {
        "delivery_mode": 1 if args.transient else 2,
        **parse_pairs(args.property),
    }
    if args.header:
        properties["headers"] = parse_pairs(args.header)
    if args.body is None and sys.stdin.isatty():
        print("each line is a message; Ctrl-D ends", file=sys.stderr)
    bodies = [args.body] if args.body is not None else (line.rstrip("\n") for line in sys.stdin)
    path = path_of("exchanges", call.vhost, args.exchange or DEFAULT_EXCHANGE, "publish")
    published = unroutable = 0
    for body in bodies:
        if args.base64:
            _check_base64(body)
        answer = call.api.request(
            "POST",
            path,
            {
                "routing_key": args.routing_key,
                "payload": body,
                "payload_encoding": "base64" if args.base64 else "string",
                "properties": properties,
            },
        )
        published += 1
        unroutable += not answer["routed"]
    call.output.done(
        f"published {plural(published, 'message')}"
        + (f", {unroutable:,} reached no queue" if unroutable else ""),
        {"published": published, "unroutable": unroutable},
    )
    return EXIT_FAILED if unroutable else EXIT_OK


def _check_base64(body: str) -> None:
    try:
        base64.b64decode(body, validate=True)
    except ValueError as error:
        raise ManagementError(400, f"the body is not base64: {error}") from error


COMMAND = Command("Publish messages.", _add, _publish)
