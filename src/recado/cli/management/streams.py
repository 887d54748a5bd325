"""`recado streams`: the queues of type stream."""

from __future__ import annotations

import argparse

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
from .output import count, plural_or_unknown, rate, text

COLUMNS = (
    text("vhost", "vhost"),
    text("name", "name"),
    text("policy", "policy"),
    count("messages", "messages"),
    count("consumers", "consumers"),
    text("arguments", "arguments"),
    rate("in", "message_stats.publish_details.rate"),
)


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
    report_declared(call, f"stream '{args.name}' in vhost '{call.vhost}'", is_new=is_new)


def _add_delete(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="STREAM")
    add_vhost(parser)


def _delete(call: Invocation) -> None:
    what = f"stream '{call.args.name}' in vhost '{call.vhost}'"
    queue = call.api.get(queues.queue_path(call))
    if queue.get("type") != "stream":
        raise ValueError(f"{queues.describe(call)} is no stream; see `recado queues delete`")
    messages = queue.get("messages")
    content = plural_or_unknown(messages, "message")
    result = {"stream": call.args.name, "messages": messages}
    if confirm(call, f"delete {what} with {content}", result):
        call.api.delete(queues.queue_path(call))
        call.output.done(f"deleted {what} with {content}", result)


COMMAND = Resource(
    {
        "list": list_command(
            "queues",
            COLUMNS,
            title="streams",
            keep=lambda item: item.get("type") == "stream",
        ),
        "show": show_command("stream", "queues", queues.SHOWN_FIRST, has_vhost=True),
        "declare": Command("Declare a stream.", _add_declare, _declare),
        "delete": Command(
            "Delete a stream and its messages.", _add_delete, _delete, is_destructive=True
        ),
    }
)
