"""`recado policies`: list, show, declare, delete; with `--operator`, operator policies."""

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
    parse_pairs,
    report_declared,
)
from .output import TableColumn, key, read_path, text

COLUMNS = (
    text("vhost", "vhost"),
    key("name", "name"),
    text("pattern", "pattern"),
    text("apply to", "apply-to"),
    TableColumn("priority", read_path("priority"), str, is_number=True),
    text("definition", "definition"),
)


def _add_name(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="POLICY")
    add_vhost(parser)
    parser.add_argument("--operator", action="store_true", help="an operator policy")


def _path(call: Invocation) -> str:
    kind = "operator-policies" if call.args.operator else "policies"
    return path_of(kind, call.vhost, call.args.name)


def _describe(call: Invocation) -> str:
    kind = "operator policy" if call.args.operator else "policy"
    return f"{kind} '{call.args.name}' in vhost '{call.vhost}'"


def _show(call: Invocation) -> None:
    call.output.fields(call.api.get(_path(call)), ("name", "vhost", "pattern"))


def _add_declare(parser: argparse.ArgumentParser) -> None:
    _add_name(parser)
    parser.add_argument("pattern", metavar="PATTERN", help="regular expression for names")
    parser.add_argument("definition", nargs="+", metavar="KEY=VALUE", help="max-length=1000 …")
    parser.add_argument("--priority", type=int, default=0, metavar="N", help="default: 0")
    parser.add_argument(
        "--apply-to",
        default="all",
        metavar="KIND",
        help="all, queues, exchanges, classic_queues, quorum_queues, streams; default: all",
    )


def _declare(call: Invocation) -> None:
    args = call.args
    body = {
        "pattern": args.pattern,
        "definition": parse_pairs(args.definition),
        "priority": args.priority,
        "apply-to": args.apply_to,
    }
    is_new = call.api.put(_path(call), body)
    report_declared(
        call, _describe(call), {"name": args.name, "vhost": call.vhost, **body}, is_new=is_new
    )


def _delete(call: Invocation) -> None:
    known = call.api.get(_path(call))
    if confirm(call, f"delete {_describe(call)}", known):
        call.api.delete(_path(call))
        call.output.done(f"deleted {_describe(call)}", known)


def _list_all() -> Command:
    listed = list_command("policies", COLUMNS)

    def add(parser: argparse.ArgumentParser) -> None:
        listed.add_arguments(parser)
        parser.add_argument("--operator", action="store_true", help="operator policies")

    def execute(call: Invocation) -> int | None:
        kind = "operator-policies" if call.args.operator else "policies"
        return list_command(kind, COLUMNS).execute(call)

    return Command(listed.summary, add, execute)


COMMAND = Resource(
    {
        "list": _list_all(),
        "show": Command("Show a policy.", _add_name, _show),
        "declare": Command("Add or change a policy.", _add_declare, _declare),
        "delete": Command("Delete a policy.", _add_name, _delete, is_destructive=True),
    }
)
