"""`recado connections`: list, show, close."""

from __future__ import annotations

import argparse
from contextlib import suppress
from typing import Any

from .api import ObjectNotFoundError, path_of
from .command import Command, Invocation, Resource, confirm, list_command, show_command
from .output import byte_rate, count, key, plural, text

COLUMNS = (
    key("name", "name"),
    text("user", "user"),
    text("vhost", "vhost"),
    text("state", "state"),
    text("tls", "ssl"),
    text("client", "client_properties.product"),
    text("version", "client_properties.version"),
    count("channels", "channels"),
    byte_rate("in", "recv_oct_details.rate"),
    byte_rate("out", "send_oct_details.rate"),
)
SHOWN_FIRST = ("name", "user", "vhost", "state", "channels", "connected_at", "client_properties")


def _add_close(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", metavar="NAME", help="as `list` prints them")
    parser.add_argument("--user", metavar="NAME", help="all connections of a user")
    parser.add_argument("--in-vhost", metavar="NAME", help="all connections to a vhost")
    parser.add_argument("--reason", default="", metavar="TEXT", help="sent to the clients")


def _close(call: Invocation) -> None:
    args = call.args
    if not args.names and args.user is None and args.in_vhost is None:
        raise ValueError("which connections? NAME, --user or --in-vhost")
    chosen: list[dict[str, Any]] = [
        call.api.get(path_of("connections", name)) for name in args.names
    ]
    if args.user is not None or args.in_vhost is not None:
        chosen += [
            each
            for each in call.api.get(path_of("connections"))
            if args.user in (None, each.get("user"))
            and args.in_vhost in (None, each.get("vhost"))
            and each["name"] not in args.names
        ]
    names = [each["name"] for each in chosen]
    if not confirm(call, f"close {plural(len(names), 'connection')}", {"connections": names}):
        return
    headers = {"x-reason": args.reason} if args.reason else None
    for name in names:
        with suppress(ObjectNotFoundError):  # closed meanwhile
            call.api.request("DELETE", path_of("connections", name), headers=headers)
    call.output.done(f"closed {plural(len(names), 'connection')}", {"connections": names})


COMMAND = Resource(
    {
        "list": list_command("connections", COLUMNS, has_vhost=False),
        "show": show_command("connection", "connections", SHOWN_FIRST, has_vhost=False),
        "close": Command("Close connections of clients.", _add_close, _close, is_destructive=True),
    }
)
