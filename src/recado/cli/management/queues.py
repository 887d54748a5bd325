"""`recado queues`: list, show, declare, alter, delete, purge, peek, move, replay."""

from __future__ import annotations

import argparse
import json
from typing import Any

from recado.cli import EXIT_FAILED, EXIT_OK

from .api import ManagementError, path_of
from .command import (
    Command,
    Invocation,
    Resource,
    add_arguments_option,
    add_vhost,
    confirm,
    list_command,
    parse_count,
    parse_pairs,
    parse_size,
    report_declared,
    show_command,
)
from .messages import add_rendering, print_messages, render_request
from .output import count, key, plural, plural_or_unknown, rate, text

COLUMNS = (
    text("vhost", "vhost"),
    key("name", "name"),
    text("type", "type"),
    text("durable", "durable"),
    text("policy", "policy"),
    count("ready", "messages_ready"),
    count("unacked", "messages_unacknowledged"),
    count("consumers", "consumers"),
    rate("in", "message_stats.publish_details.rate"),
    rate("out", "message_stats.deliver_get_details.rate"),
)
SHOWN_FIRST = (
    "name",
    "vhost",
    "type",
    "state",
    "messages",
    "messages_ready",
    "messages_unacknowledged",
    "consumers",
    "durable",
    "auto_delete",
    "exclusive",
    "arguments",
    "policy",
    "operator_policy",
    "effective_policy_definition",
)


def queue_path(call: Invocation, *rest: str) -> str:
    return path_of("queues", call.vhost, call.args.name, *rest)


def describe(call: Invocation) -> str:
    return f"queue '{call.args.name}' in vhost '{call.vhost}'"


def identify(call: Invocation) -> dict[str, Any]:
    """Return the fields that name the queue in JSON."""
    return {"queue": call.args.name, "vhost": call.vhost}


def _add_name(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="QUEUE")
    add_vhost(parser)


# ── declare, alter, delete, purge ───────────────────────────────────────────────────────────────────


def _add_declare(parser: argparse.ArgumentParser) -> None:
    _add_name(parser)
    parser.add_argument("--type", choices=("classic", "quorum", "stream"), help="default: classic")
    parser.add_argument("--transient", action="store_true", help="deleted by a restart")
    parser.add_argument("--auto-delete", action="store_true", help="deleted with its last consumer")
    add_arguments_option(parser)


def _declare(call: Invocation) -> None:
    args = call.args
    arguments = parse_pairs(args.argument)
    if args.type:
        arguments["x-queue-type"] = args.type
    body = {
        "durable": not args.transient,
        "auto_delete": args.auto_delete,
        "arguments": arguments,
    }
    try:
        is_new = call.api.put(queue_path(call), body)
    except ManagementError as error:
        if call.api.is_recado and "inequivalent" in str(error):
            hint = "`recado queues alter` changes a queue that exists"
            raise ManagementError(error.status, f"{error}; {hint}") from error
        raise
    report_declared(call, describe(call), identify(call), is_new=is_new)


def _add_alter(parser: argparse.ArgumentParser) -> None:
    _add_name(parser)
    parser.add_argument("--type", choices=("classic", "quorum", "stream"))
    parser.add_argument("--durable", action=argparse.BooleanOptionalAction, default=None)
    parser.add_argument("--auto-delete", action=argparse.BooleanOptionalAction, default=None)
    add_arguments_option(parser)
    parser.add_argument(
        "--remove-argument", action="append", default=[], metavar="NAME", help="drop an argument"
    )


def _alter(call: Invocation) -> None:
    args = call.args
    changes: dict[str, Any] = {}
    if args.type is not None:
        changes["type"] = args.type
    if args.durable is not None:
        changes["durable"] = args.durable
    if args.auto_delete is not None:
        changes["auto_delete"] = args.auto_delete
    if args.argument or args.remove_argument:
        current = call.api.get(queue_path(call))["arguments"]
        arguments = {**current, **parse_pairs(args.argument)}
        for name in args.remove_argument:
            if name not in arguments:
                raise ValueError(f"{describe(call)} has no argument {name!r}")
            del arguments[name]
        changes["arguments"] = arguments
    if not changes:
        raise ValueError("nothing to alter; see --type, --durable, --auto-delete, --argument")
    answer = request_extension(call, "alter", changes, {"dry_run": "true"})
    if answer["changes"]:
        change = f"alter {describe(call)}: {_describe_changes(answer['changes'])}"
        if not confirm(call, change, {**identify(call), **answer}):
            return
        answer = request_extension(call, "alter", changes)
    if answer["changes"]:
        line = f"altered {describe(call)}: {_describe_changes(answer['changes'])}"
    else:
        line = f"unchanged: {describe(call)}"
    call.output.done(line, {**identify(call), **answer})


def _describe_changes(changes: dict[str, dict[str, Any]]) -> str:
    return ", ".join(
        f"{name} {_describe_value(each['before'])} -> {_describe_value(each['after'])}"
        for name, each in changes.items()
    )


def _describe_value(value: object) -> str:
    return "none" if value is None else json.dumps(value) if not isinstance(value, str) else value


def _add_delete(parser: argparse.ArgumentParser) -> None:
    _add_name(parser)
    parser.add_argument("--if-empty", action="store_true", help="refuse if it has ready messages")
    parser.add_argument("--if-unused", action="store_true", help="refuse if it has consumers")


def _delete(call: Invocation) -> None:
    queue = call.api.get(queue_path(call))
    messages, consumers = queue.get("messages"), queue.get("consumers")
    held = plural_or_unknown(messages, "message")
    change = f"delete {describe(call)} with {held} and {plural_or_unknown(consumers, 'consumer')}"
    if call.is_dry_run:
        _check_conditions(call, queue.get("messages_ready"), consumers)
    result = {**identify(call), "messages": messages, "consumers": consumers}
    if not confirm(call, change, result):
        return
    query = {"if-empty": call.args.if_empty, "if-unused": call.args.if_unused}
    call.api.delete(queue_path(call), {name: "true" for name, asked in query.items() if asked})
    call.output.done(f"deleted {describe(call)} with {held}", result)


def _check_conditions(call: Invocation, ready: int | None, consumers: int | None) -> None:
    """Refuse what the server would refuse. Raises `ManagementError`."""
    if call.args.if_empty and ready:
        held = plural(ready, "ready message")
        raise ManagementError(400, f"{describe(call)} is not empty: {held}")
    if call.args.if_unused and consumers:
        raise ManagementError(400, f"{describe(call)} is in use: {plural(consumers, 'consumer')}")


def _purge(call: Invocation) -> None:
    queue = call.api.get(queue_path(call))
    ready = queue.get("messages_ready")
    result = {**identify(call), "messages": ready}
    change = f"drop {plural_or_unknown(ready, 'ready message')} of {describe(call)}"
    if not confirm(call, change, result):
        return
    call.api.delete(queue_path(call, "contents"))
    call.output.done(f"dropped {plural_or_unknown(ready, 'message')} of {describe(call)}", result)


# ── operations that RabbitMQ does not have ──────────────────────────────────────────────────────────


def request_extension(
    call: Invocation, operation: str, body: object, query: dict[str, str] | None = None
) -> Any:
    """Send a request that RabbitMQ does not know. Raises `ManagementError` if the server is not recado."""
    try:
        return call.api.request("POST", queue_path(call, operation), body, query)
    except ManagementError as error:
        if call.api.is_recado:
            raise
        raise _not_recado(call, operation) from error


def _not_recado(call: Invocation, operation: str) -> ManagementError:
    reason = f"{operation}: {call.api.address} is not recado; RabbitMQ cannot do this"
    return ManagementError(404, reason)


def _count_ready(call: Invocation, operation: str) -> int:
    """Return the number of ready messages.

    Raises `ManagementError` if the server is not recado, before the user is asked to confirm the operation.
    """
    queue = call.api.get(queue_path(call))
    if not call.api.is_recado:
        raise _not_recado(call, operation)
    return int(queue.get("messages_ready", 0))


def _add_peek(parser: argparse.ArgumentParser) -> None:
    _add_name(parser)
    parser.add_argument(
        "-n", "--count", type=parse_count, default=10, metavar="N", help="default: 10"
    )
    parser.add_argument(
        "--skip", type=parse_size, default=0, metavar="N", help="begin after N messages"
    )
    parser.add_argument("--selector", metavar="TEXT", help="only messages that match")
    add_rendering(parser)


def _peek(call: Invocation) -> None:
    args = call.args
    body = {"count": args.count, "skip": args.skip, **render_request(args)}
    if args.selector:
        body["selector"] = args.selector
    print_messages(call, request_extension(call, "peek", body))


PEEK = Command("Print messages of a queue without taking them.", _add_peek, _peek)


def _add_move(parser: argparse.ArgumentParser) -> None:
    _add_name(parser)
    parser.add_argument("--to", required=True, metavar="QUEUE", help="the destination")
    parser.add_argument("--to-vhost", metavar="NAME", help="default: the same vhost")
    _add_selection(parser)


def _add_selection(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--count", type=parse_count, metavar="N", help="at most N messages; default: all"
    )
    parser.add_argument("--selector", metavar="TEXT", help="only messages that match")


def _selection(args: argparse.Namespace) -> dict[str, Any]:
    chosen = {"count": args.count, "selector": args.selector}
    return {name: value for name, value in chosen.items() if value is not None}


def _report_end(call: Invocation, line: str, answer: dict[str, Any]) -> int:
    """Print how a move or replay ended; the exit status is 1 if that was before all messages were treated."""
    reason = answer["reason"]
    call.output.done(line if reason is None else f"{line}; ended early: {reason}", answer)
    return EXIT_OK if reason is None else EXIT_FAILED


def _move(call: Invocation) -> int:
    args = call.args
    body = {"destination": args.to, **_selection(args)}
    if args.to_vhost is not None:
        body["destination_vhost"] = args.to_vhost
    ready = _count_ready(call, "move")
    to_vhost = call.vhost if args.to_vhost is None else args.to_vhost
    if (to_vhost, args.to) == (call.vhost, args.name):
        raise ValueError(f"--to: {describe(call)} is the source itself")
    call.api.get(
        path_of("queues", to_vhost, args.to)
    )  # raises ObjectNotFoundError, also in a dry run
    result = {**identify(call), "destination": args.to, "destination_vhost": to_vhost}
    change = f"move messages of {describe(call)} ({ready:,} ready) to '{args.to}'"
    if not confirm(call, change, {**result, "messages_ready": ready}):
        return EXIT_OK
    answer = request_extension(call, "move", body)
    line = f"moved {plural(answer['moved'], 'message')} to '{args.to}', {answer['left']:,} left"
    return _report_end(call, line, {**result, **answer})


def _add_replay(parser: argparse.ArgumentParser) -> None:
    _add_name(parser)
    _add_selection(parser)
    parser.add_argument(
        "--max-replays",
        type=parse_count,
        metavar="N",
        help="leave messages that were replayed N times already",
    )


def _replay(call: Invocation) -> int:
    ready = _count_ready(call, "replay")
    change = f"return dead letters of {describe(call)} ({ready:,} ready) to where they died"
    if not confirm(call, change, {**identify(call), "messages_ready": ready}):
        return EXIT_OK
    body = _selection(call.args)
    if call.args.max_replays is not None:
        body["max_replays"] = call.args.max_replays
    answer = request_extension(call, "replay", body)
    line = f"replayed {plural(answer['replayed'], 'message')}, {answer['left']:,} left"
    if kept := [f"{number:,} {why}" for why, number in answer["kept"].items() if number]:
        line += f" (kept: {', '.join(kept)})"
    return _report_end(call, line, {**identify(call), **answer})


COMMAND = Resource(
    {
        "list": list_command("queues", COLUMNS),
        "show": show_command("queue", "queues", SHOWN_FIRST, has_vhost=True),
        "declare": Command("Declare a durable queue.", _add_declare, _declare),
        "alter": Command(
            "Change declared settings of a queue; messages, bindings and consumers stay.",
            _add_alter,
            _alter,
            is_destructive=True,
        ),
        "delete": Command(
            "Delete a queue and its messages.", _add_delete, _delete, is_destructive=True
        ),
        "purge": Command(
            "Drop the ready messages of a queue.", _add_name, _purge, is_destructive=True
        ),
        "peek": PEEK,
        "move": Command("Move messages to another queue.", _add_move, _move, is_destructive=True),
        "replay": Command(
            "Return dead letters to the queue where they died.",
            _add_replay,
            _replay,
            is_destructive=True,
        ),
    }
)
