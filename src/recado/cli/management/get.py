"""`recado get`: take messages from a queue; on request they are put back or rejected."""

from __future__ import annotations

import argparse

from .api import path_of
from .command import Command, Invocation, add_vhost, confirm, parse_count
from .messages import add_rendering, print_messages, render_request
from .output import plural, plural_or_unknown

ACK_MODES = {
    (False, False): "ack_requeue_false",
    (True, False): "ack_requeue_true",
    (False, True): "reject_requeue_false",
}
"""By `--requeue` and `--reject`."""
OUTCOMES = {
    "ack_requeue_false": "remove",
    "ack_requeue_true": "read and put back",
    "reject_requeue_false": "dead-letter or drop",
}


def ack_mode(args: argparse.Namespace) -> str:
    return ACK_MODES[args.requeue, args.reject]


def _add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="QUEUE")
    add_vhost(parser)
    parser.add_argument(
        "-n", "--count", type=parse_count, default=1, metavar="N", help="default: 1"
    )
    outcome = parser.add_mutually_exclusive_group()
    outcome.add_argument("--requeue", action="store_true", help="put them back, as redelivered")
    outcome.add_argument("--reject", action="store_true", help="dead-letter or drop them")
    add_rendering(parser)


def _get(call: Invocation) -> None:
    args = call.args
    if (call.is_dry_run or not args.requeue) and not _confirm(call):
        return
    body = {
        "count": args.count,
        "ackmode": ack_mode(args),
        **render_request(args),
    }
    messages = call.api.request("POST", path_of("queues", call.vhost, args.name, "get"), body)
    print_messages(call, messages)


def _confirm(call: Invocation) -> bool:
    args = call.args
    ready = call.api.get(path_of("queues", call.vhost, args.name)).get("messages_ready")
    change = (
        f"{OUTCOMES[ack_mode(args)]} up to {plural(args.count, 'message')} of queue '{args.name}'"
        f" in vhost '{call.vhost}', which has {plural_or_unknown(ready, 'ready message')}"
    )
    result = {"queue": args.name, "vhost": call.vhost, "messages_ready": ready}
    return confirm(call, change, result)


COMMAND = Command(
    "Take messages from a queue; they are removed unless put back.",
    _add,
    _get,
    is_destructive=True,
    epilog="On recado, `recado queues peek` prints messages and changes nothing.",
)
