"""`recado exchanges`: list, show, declare, delete."""

from __future__ import annotations

import argparse
from typing import Any

from .api import DEFAULT_EXCHANGE, AccessDeniedError, ManagementError, path_of
from .command import (
    Command,
    Invocation,
    Resource,
    add_arguments_option,
    add_vhost,
    confirm,
    list_command,
    parse_pairs,
    report_declared,
    show_command,
)
from .output import key, plural, rate, text

COLUMNS = (
    text("vhost", "vhost"),
    key("name", "name"),
    text("type", "type"),
    text("durable", "durable"),
    text("internal", "internal"),
    text("policy", "policy"),
    text("arguments", "arguments"),
    rate("in", "message_stats.publish_in_details.rate"),
    rate("out", "message_stats.publish_out_details.rate"),
)
SYSTEM_PREFIX = "amq."
SHOWN_FIRST = ("name", "vhost", "type", "durable", "auto_delete", "internal", "arguments", "policy")


def _path(call: Invocation) -> str:
    return path_of("exchanges", call.vhost, call.args.name or DEFAULT_EXCHANGE)


def _describe(call: Invocation) -> str:
    return f"exchange '{call.args.name}' in vhost '{call.vhost}'"


def _identify(call: Invocation) -> dict[str, Any]:
    return {"exchange": call.args.name, "vhost": call.vhost}


def _add_name(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="EXCHANGE")
    add_vhost(parser)


def _add_declare(parser: argparse.ArgumentParser) -> None:
    _add_name(parser)
    parser.add_argument("--type", default="direct", metavar="TYPE", help="default: direct")
    parser.add_argument("--transient", action="store_true", help="deleted by a restart")
    parser.add_argument("--auto-delete", action="store_true", help="deleted with its last binding")
    parser.add_argument("--internal", action="store_true", help="clients cannot publish to it")
    add_arguments_option(parser)


def _declare(call: Invocation) -> None:
    args = call.args
    body = {
        "type": args.type,
        "durable": not args.transient,
        "auto_delete": args.auto_delete,
        "internal": args.internal,
        "arguments": parse_pairs(args.argument),
    }
    is_new = call.api.put(_path(call), body)
    report_declared(call, _describe(call), _identify(call), is_new=is_new)


def _add_delete(parser: argparse.ArgumentParser) -> None:
    _add_name(parser)
    parser.add_argument("--if-unused", action="store_true", help="refuse if it has bindings")


def _delete(call: Invocation) -> None:
    call.api.get(_path(call))  # raises ObjectNotFoundError, also in a dry run
    bindings = call.api.get(f"{_path(call)}/bindings/source")
    if call.is_dry_run:
        _check_refusals(call, len(bindings))
    result = {**_identify(call), "bindings": len(bindings)}
    change = f"delete {_describe(call)} with {plural(len(bindings), 'binding')}"
    if confirm(call, change, result):
        query = {"if-unused": "true"} if call.args.if_unused else None
        call.api.delete(_path(call), query)
        call.output.done(f"deleted {_describe(call)}", result)


def _check_refusals(call: Invocation, bindings: int) -> None:
    """Refuse what the server would refuse. Raises `ManagementError`."""
    if not call.args.name or call.args.name.startswith(SYSTEM_PREFIX):
        raise AccessDeniedError(403, f"access refused: {_describe(call)} belongs to the server")
    if call.args.if_unused and bindings:
        raise ManagementError(400, f"{_describe(call)} is in use: {plural(bindings, 'binding')}")


COMMAND = Resource(
    {
        "list": list_command("exchanges", COLUMNS),
        "show": show_command("exchange", "exchanges", SHOWN_FIRST, has_vhost=True),
        "declare": Command("Declare an exchange.", _add_declare, _declare),
        "delete": Command(
            "Delete an exchange and its bindings.", _add_delete, _delete, is_destructive=True
        ),
    }
)
