"""`recado permissions`: list, show, declare, delete."""

from __future__ import annotations

import argparse

from .api import path_of
from .command import (
    Command,
    Invocation,
    Resource,
    add_vhost,
    confirm,
    list_command,
    report_declared,
)
from .output import text

COLUMNS = (
    text("vhost", "vhost"),
    text("user", "user"),
    text("configure", "configure"),
    text("write", "write"),
    text("read", "read"),
)


def _add_user(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="USER")
    add_vhost(parser)


def _path(call: Invocation) -> str:
    return path_of("permissions", call.vhost, call.args.name)


def _describe(call: Invocation) -> str:
    return f"permissions of user '{call.args.name}' in vhost '{call.vhost}'"


def _show(call: Invocation) -> None:
    call.output.fields(call.api.get(_path(call)))


def _add_declare(parser: argparse.ArgumentParser) -> None:
    _add_user(parser)
    for right in ("configure", "write", "read"):
        parser.add_argument(
            f"--{right}", metavar="REGEX", help="default: as it is, or nothing for a new user"
        )


def _declare(call: Invocation) -> None:
    args = call.args
    known = call.api.find(_path(call)) or {}
    given = {"configure": args.configure, "write": args.write, "read": args.read}
    body = {
        right: known.get(right, "") if pattern is None else pattern
        for right, pattern in given.items()
    }
    is_new = call.api.put(_path(call), body)
    result = {"user": args.name, "vhost": call.vhost, **body}
    report_declared(call, _describe(call), result, is_new=is_new)


def _delete(call: Invocation) -> None:
    known = call.api.get(_path(call))
    if confirm(call, f"delete {_describe(call)}", known):
        call.api.delete(_path(call))
        call.output.done(f"deleted {_describe(call)}", known)


COMMAND = Resource(
    {
        "list": list_command("permissions", COLUMNS, has_vhost=False, names=("user",)),
        "show": Command("Show the permissions of a user in a vhost.", _add_user, _show),
        "declare": Command("Set the permissions of a user in a vhost.", _add_declare, _declare),
        "delete": Command(
            "Take away the permissions of a user in a vhost.",
            _add_user,
            _delete,
            is_destructive=True,
        ),
    }
)
