"""`recado bindings`: list, declare, delete."""

from __future__ import annotations

import argparse
from typing import Any

from .api import DEFAULT_EXCHANGE, AccessDeniedError, ObjectNotFoundError, path_of
from .command import (
    Command,
    Invocation,
    Resource,
    add_arguments_option,
    add_vhost,
    confirm,
    list_command,
    parse_pairs,
)
from .output import text

COLUMNS = (
    text("vhost", "vhost"),
    text("source", "source"),
    text("destination", "destination"),
    text("kind", "destination_type"),
    text("routing key", "routing_key"),
    text("arguments", "arguments"),
)


def _path(call: Invocation, *rest: str) -> str:
    args = call.args
    kind = "e" if args.to_exchange else "q"
    source = args.source or DEFAULT_EXCHANGE
    return path_of("bindings", call.vhost, "e", source, kind, args.destination, *rest)


def _add_ends(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", metavar="EXCHANGE")
    parser.add_argument("destination", metavar="DESTINATION", help="a queue")
    parser.add_argument("routing_key", nargs="?", default="", metavar="KEY", help="default: empty")
    parser.add_argument("--to-exchange", action="store_true", help="the destination is an exchange")
    add_vhost(parser)
    add_arguments_option(parser)


def _describe(call: Invocation) -> str:
    args = call.args
    return (
        f"binding of '{args.source}' to '{args.destination}' with key '{args.routing_key}'"
        f" in vhost '{call.vhost}'"
    )


def _declare(call: Invocation) -> None:
    args = call.args
    body = {"routing_key": args.routing_key, "arguments": parse_pairs(args.argument)}
    call.api.request("POST", _path(call), body)
    result = {
        "source": args.source,
        "vhost": call.vhost,
        "destination": args.destination,
        "destination_type": "exchange" if args.to_exchange else "queue",
        **body,
    }
    call.output.done(f"declared {_describe(call)}", result)


def _delete(call: Invocation) -> None:
    args = call.args
    arguments = parse_pairs(args.argument)
    found: list[dict[str, Any]] = [
        binding
        for binding in call.api.get(_path(call))
        if binding["routing_key"] == args.routing_key and binding["arguments"] == arguments
    ]
    if not found:
        raise ObjectNotFoundError(404, f"not found: {_describe(call)}, with the given arguments")
    if call.is_dry_run and not args.source:
        raise AccessDeniedError(403, f"access refused: {_describe(call)}: of the default exchange")
    if confirm(call, f"delete {_describe(call)}", found[0]):
        # The key is already encoded once by the server; in a path it is encoded again.
        call.api.delete(_path(call, found[0]["properties_key"]))
        call.output.done(f"deleted {_describe(call)}", found[0])


COMMAND = Resource(
    {
        "list": list_command("bindings", COLUMNS, names=("source", "destination")),
        "declare": Command("Bind a queue or an exchange to an exchange.", _add_ends, _declare),
        "delete": Command(
            "Delete the binding with this key and these arguments.",
            _add_ends,
            _delete,
            is_destructive=True,
        ),
    }
)
