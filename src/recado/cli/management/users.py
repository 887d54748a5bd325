"""`recado users`: list, show, declare, delete."""

from __future__ import annotations

import argparse
import getpass
import os
import sys

from .api import ObjectNotFoundError, path_of
from .command import (
    Command,
    Invocation,
    Resource,
    confirm,
    list_command,
    report_declared,
    show_command,
)
from .output import key, plural, text

COLUMNS = (key("name", "name"), text("tags", "tags"), text("limits", "limits"))
PASSWORD_VARIABLE = "RECADO_NEW_PASSWORD"


def _add_declare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="USER")
    parser.add_argument(
        "--tags", metavar="TAG,…", help="management, policymaker, monitoring, administrator"
    )
    password = parser.add_mutually_exclusive_group()
    password.add_argument(
        "--password-hash", metavar="TEXT", help="instead of a password, as RabbitMQ exports it"
    )
    password.add_argument(
        "--keep-password", action="store_true", help="of a user that exists: change only its tags"
    )


def _declare(call: Invocation) -> None:
    args = call.args
    known = call.api.find(path_of("users", args.name))
    tags = args.tags
    if tags is None:
        tags = "" if known is None else known["tags"]
    body = {"tags": ",".join(tags) if isinstance(tags, list) else tags}
    if args.keep_password:
        if known is None:
            raise ObjectNotFoundError(404, f"not found: user '{args.name}', whose password to keep")
        body["password_hash"] = known["password_hash"]
        body["hashing_algorithm"] = known["hashing_algorithm"]
    elif args.password_hash is not None:
        body["password_hash"] = args.password_hash
    else:
        body["password"] = _read_password(args.name)
    is_new = call.api.put(path_of("users", args.name), body)
    report_declared(call, f"user '{args.name}'", {"user": args.name}, is_new=is_new)


def _read_password(name: str) -> str:
    """Return a password from the environment, a terminal or a pipe; not from an argument, which `ps` shows."""
    given = os.environ.get(PASSWORD_VARIABLE)
    if given is not None:
        return given
    if sys.stdin.isatty():
        typed = getpass.getpass(f"password of {name}: ")
        if getpass.getpass("the same again: ") != typed:
            raise ValueError("the two passwords differ; nothing was changed")
        return typed
    line = sys.stdin.readline().rstrip("\r\n")
    if not line:
        raise ValueError(
            f"no password: set {PASSWORD_VARIABLE}, or write it to standard input as one line"
        )
    return line


def _add_delete(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="USER")


def _delete(call: Invocation) -> None:
    name = call.args.name
    call.api.get(path_of("users", name))
    connections = [
        each["name"] for each in call.api.get(path_of("connections")) if each.get("user") == name
    ]
    result = {"user": name, "connections": connections}
    change = f"delete user '{name}' and close {plural(len(connections), 'connection')}"
    if confirm(call, change, result):
        call.api.delete(path_of("users", name))
        call.output.done(f"deleted user '{name}'", result)


COMMAND = Resource(
    {
        "list": list_command("users", COLUMNS, has_vhost=False),
        "show": show_command("user", "users", ("name", "tags"), has_vhost=False),
        "declare": Command(
            "Add a user or change its password and tags.",
            _add_declare,
            _declare,
            epilog=f"The password is read from {PASSWORD_VARIABLE} or standard input.",
        ),
        "delete": Command(
            "Delete a user and its permissions.", _add_delete, _delete, is_destructive=True
        ),
    }
)
