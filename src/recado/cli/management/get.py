"""`recado get`: take messages from a queue; on request they are put back or rejected."""

from __future__ import annotations

import argparse

from .api import path_of
from .command import Command, Invocation, add_vhost
from .messages import add_rendering, print_messages, render_request

ACK_MODES = {
    (False, False): "ack_requeue_false",
    (True, False): "ack_requeue_true",
    (False, True): "reject_requeue_false",
}
"""By `--requeue` and `--reject`."""


def _add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="QUEUE")
    add_vhost(parser)
    parser.add_argument("-n", "--count", type=int, default=1, metavar="N", help="default: 1")
    outcome = parser.add_mutually_exclusive_group()
    outcome.add_argument("--requeue", action="store_true", help="put them back, as redelivered")
    outcome.add_argument("--reject", action="store_true", help="dead-letter or drop them")
    add_rendering(parser)


def _get(call: Invocation) -> None:
    args = call.args
    body = {
        "count": args.count,
        "ackmode": ACK_MODES[args.requeue, args.reject],
        **render_request(args),
    }
    messages = call.api.request("POST", path_of("queues", call.vhost, args.name, "get"), body)
    print_messages(call, messages)


COMMAND = Command("Take messages from a queue; they are removed unless put back.", _add, _get)
