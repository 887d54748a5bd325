"""`recado vhosts`: list, show, declare, delete."""

from __future__ import annotations

import argparse
from typing import Any

from .api import path_of
from .command import (
    Command,
    Invocation,
    Resource,
    confirm,
    list_command,
    report_declared,
    show_command,
)
from .output import (
    TableColumn,
    count,
    format_value,
    key,
    plural,
    plural_or_unknown,
    read_path,
    text,
)


def _show_type(value: Any) -> str:
    """RabbitMQ writes `undefined` for a vhost without a default type."""
    return "" if value == "undefined" else format_value(value)


COLUMNS = (
    key("name", "name"),
    text("description", "description"),
    text("tags", "tags"),
    TableColumn("default queue type", read_path("default_queue_type"), _show_type),
    count("ready", "messages_ready"),
    count("unacked", "messages_unacknowledged"),
)


def _add_declare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="VHOST")
    parser.add_argument("--description", metavar="TEXT")
    parser.add_argument("--tags", metavar="TAG,…")
    parser.add_argument("--default-queue-type", choices=("classic", "quorum", "stream"))


def _declare(call: Invocation) -> None:
    args = call.args
    given = {
        "description": args.description,
        "tags": args.tags,
        "default_queue_type": args.default_queue_type,
    }
    body: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    is_new = call.api.put(path_of("vhosts", args.name), body)
    report_declared(call, f"vhost '{args.name}'", {"vhost": args.name, **body}, is_new=is_new)


def _add_delete(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="VHOST")


def _delete(call: Invocation) -> None:
    name = call.args.name
    call.api.get(path_of("vhosts", name))
    queues = call.api.get(path_of("queues", name), {"columns": "name,messages"})
    counts = [queue.get("messages") for queue in queues]
    messages = None if None in counts else sum(counts)
    result = {"vhost": name, "queues": len(queues), "messages": messages}
    content = f"{plural(len(queues), 'queue')} and {plural_or_unknown(messages, 'message')}"
    change = f"delete vhost '{name}' with {content}"
    if confirm(call, change, result):
        call.api.delete(path_of("vhosts", name))
        call.output.done(f"deleted vhost '{name}' with {content}", result)


COMMAND = Resource(
    {
        "list": list_command("vhosts", COLUMNS, has_vhost=False),
        "show": show_command("vhost", "vhosts", ("name", "description", "tags"), has_vhost=False),
        "declare": Command("Add a vhost, or change its settings.", _add_declare, _declare),
        "delete": Command(
            "Delete a vhost and everything in it.", _add_delete, _delete, is_destructive=True
        ),
    }
)
