"""`recado streams`: the queues of type stream."""

from __future__ import annotations

import argparse
from typing import Any

from . import queues
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
from .output import JsonObject, count, key, plural_or_unknown, rate, text

COLUMNS = (
    text("vhost", "vhost"),
    key("name", "name"),
    text("policy", "policy"),
    count("messages", "messages"),
    count("consumers", "consumers"),
    text("arguments", "arguments"),
    rate("in", "message_stats.publish_details.rate"),
)


def _describe(call: Invocation) -> str:
    return f"stream '{call.args.name}' in vhost '{call.vhost}'"


def _identify(call: Invocation) -> dict[str, Any]:
    return {"stream": call.args.name, "vhost": call.vhost}


def _check_type(call: Invocation, queue: JsonObject) -> None:
    """Refuse other queues. Raises `ValueError`."""
    if queue.get("type") != "stream":
        raise ValueError(f"{queues.describe(call)} is no stream; see `recado queues --help`")


def _add_declare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="STREAM")
    add_vhost(parser)
    parser.add_argument("--max-length-bytes", type=int, metavar="N", help="retention by size")
    parser.add_argument("--max-age", metavar="AGE", help="retention by age: 7D, 12h, 30m")
    add_arguments_option(parser)


def _declare(call: Invocation) -> None:
    args = call.args
    arguments = {"x-queue-type": "stream", **parse_pairs(args.argument)}
    if args.max_length_bytes is not None:
        arguments["x-max-length-bytes"] = args.max_length_bytes
    if args.max_age is not None:
        arguments["x-max-age"] = args.max_age
    body = {"durable": True, "auto_delete": False, "arguments": arguments}
    is_new = call.api.put(queues.queue_path(call), body)
    report_declared(call, _describe(call), _identify(call), is_new=is_new)


def _add_delete(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="STREAM")
    add_vhost(parser)


def _delete(call: Invocation) -> None:
    queue = call.api.get(queues.queue_path(call))
    _check_type(call, queue)
    messages = queue.get("messages")
    content = f"{_describe(call)} with {plural_or_unknown(messages, 'message')}"
    result = {**_identify(call), "messages": messages}
    if confirm(call, f"delete {content}", result):
        call.api.delete(queues.queue_path(call))
        call.output.done(f"deleted {content}", result)


COMMAND = Resource(
    {
        "list": list_command(
            "queues",
            COLUMNS,
            title="streams",
            keep=lambda item: item.get("type") == "stream",
        ),
        "show": show_command(
            "stream", "queues", queues.SHOWN_FIRST, has_vhost=True, check=_check_type
        ),
        "declare": Command("Declare a stream.", _add_declare, _declare),
        "delete": Command(
            "Delete a stream and its messages.", _add_delete, _delete, is_destructive=True
        ),
        "peek": queues.PEEK._replace(summary="Print messages of a stream, from the oldest."),
    }
)
