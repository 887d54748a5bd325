"""`recado definitions`: users, vhosts, policies and declarations as a file in RabbitMQ's JSON format.

    recado definitions export [FILE] --data DIR     write them to a file or to standard output
    recado definitions import FILE --data DIR       import them into the folder, all or nothing
    recado definitions check FILE [--data DIR]      check whether they could be imported

No broker may run on the folder. With --url or --context instead of --data, the definitions of a running broker are
exported, changed or compared over HTTP. That broker may be RabbitMQ, except for `check`; RabbitMQ does not undo an
import that fails in the middle. A broker imports the file that `node.definitions` names when it starts.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from recado.broker.steps import TURN_UNITS_MAX
from recado.cli import EXIT_FAILED, EXIT_OK, EXIT_USAGE, describe_os_error, print_error
from recado.cli.flags import build_parser, load_config_from_flags, suggest_journal_check
from recado.definitions.difference import DefinitionsCheck
from recado.definitions.document import DefinitionsError, parse_json
from recado.definitions.exporter import export_definitions
from recado.definitions.importer import import_definitions
from recado.journal.record import CorruptJournalError, UnknownFormatError
from recado.node.assembly import open_offline_broker
from recado.node.settings import Settings
from recado.server.connection import now_ms

DESCRIPTIONS = {
    "export": "Export the definitions of a data folder or a running broker in RabbitMQ's JSON format.",
    "import": "Import a definitions file into a data folder or a running broker; recado imports all or nothing.",
    "check": "Check whether a definitions file could be imported, without importing it.",
}


def run_definitions(verb: str, options: Sequence[str]) -> int:
    parser = build_parser(f"definitions {verb}", DESCRIPTIONS[verb], has_listener=False)
    if verb == "export":
        parser.add_argument("file", nargs="?", metavar="FILE", help="default: standard output")
        parser.add_argument("--vhost", metavar="NAME", help="export only this vhost")
    else:
        parser.add_argument("file", metavar="FILE", help="JSON file exported by RabbitMQ or recado")
        where = "for a file of one vhost: the existing vhost to import it into"
        parser.add_argument("--vhost", metavar="NAME", help=where)
        parser.add_argument("--json", action="store_true", help="print JSON")
    running = parser.add_argument_group("a running broker, instead of a data folder")
    running.add_argument(
        "--url", metavar="URL", help="http://USER:PASSWORD@HOST:PORT of the HTTP API"
    )
    running.add_argument("--context", metavar="NAME", help="a server of `recado context`")
    args = parser.parse_args(options)
    if args.url or args.context:
        return run_on_running_broker(verb, args)
    settings = load_config_from_flags(args).settings
    if settings.node.data is None and verb != "check":
        return print_error(
            "missing data folder: set --data DIR or node.data, or --url of a running broker",
            EXIT_USAGE,
        )
    if (
        settings.node.data is not None
        and verb != "import"
        and not folder_exists(settings.node.data)
    ):
        return print_error(f"folder not found: {settings.node.data}", EXIT_FAILED)
    try:
        if verb == "export":
            return export_file(settings, args.file, args.vhost)
        if verb == "check":
            return check_file(settings, args)
        return import_file(settings, args)
    except DefinitionsError as error:
        return print_error(f"{args.file or settings.node.data}: {error}", EXIT_FAILED)
    except CorruptJournalError as error:
        return print_error(f"{error}; {suggest_journal_check(settings)}", EXIT_FAILED)
    except UnknownFormatError as error:
        return print_error(f"{settings.node.data}: {error}", EXIT_FAILED)
    except OSError as error:
        return print_error(describe_os_error(error), EXIT_FAILED)


def run_on_running_broker(verb: str, args: argparse.Namespace) -> int:
    from recado.cli.management import report_errors
    from recado.cli.management.definitions import run_on_server

    if vars(args)["node.data"] is not None:
        return print_error("--data is a folder without a running broker; omit it", EXIT_USAGE)

    def run() -> int:
        try:
            return run_on_server(verb, args)
        except DefinitionsError as error:
            return print_error(f"{args.file}: {error}", EXIT_FAILED)

    return report_errors(run)


def folder_exists(data: str) -> bool:
    """Whether the folder exists: a command that only reads must not create one for a mistyped name."""
    return Path(data).is_dir()


def export_file(settings: Settings, file: str | None, vhost: str | None) -> int:
    with open_offline_broker(settings) as broker:
        document = export_definitions(broker, vhost)
    write_document(document, file)
    return EXIT_OK


def write_document(document: object, file: str | None) -> None:
    """Write definitions to a file, or print them if there is none."""
    text = msgspec.json.format(msgspec.json.encode(document), indent=2).decode()
    if file is None:
        print(text)
        return
    with open(file, "w", encoding="utf-8", opener=open_private) as output:
        output.write(f"{text}\n")


def open_private(path: str, flags: int) -> int:
    """Open a file that only its owner can read, because it contains password hashes."""
    return os.open(path, flags, 0o600)


def import_file(settings: Settings, args: argparse.Namespace) -> int:
    file, vhost = args.file, args.vhost
    document = parse_json(Path(file).read_bytes())
    local = settings.access.loopback_users
    with open_offline_broker(settings) as broker:
        notes = import_definitions(broker, document, now_ms(), vhost=vhost, loopback_users=local)
    print_import(file, notes, as_json=args.json)
    return EXIT_OK


def print_import(file: str, notes: Sequence[str], *, as_json: bool) -> None:
    for note in notes:
        print_error(f"{file}: {note}")
    if as_json:
        write_document({"imported": file, "notes": notes}, None)
    else:
        print(f"imported {file}")


def check_file(settings: Settings, args: argparse.Namespace) -> int:
    file = args.file
    document = parse_json(Path(file).read_bytes())
    with open_offline_broker(settings) as broker:
        check = DefinitionsCheck(broker, document, vhost=args.vhost)
        while not check.is_done:
            check.advance(TURN_UNITS_MAX, now_ms())
    found = msgspec.json.decode(b"".join(check.difference.render()))
    return print_difference(file, found, as_json=args.json)


def print_difference(file: str, found: Mapping[str, Any], *, as_json: bool) -> int:
    """Print what an import would do, and return the exit status: a failure if it has errors."""
    for text in (*found["skipped"], *found["errors"]):
        print_error(f"{file}: {text}")
    status = EXIT_FAILED if found["errors"] else EXIT_OK
    if as_json:
        write_document(found, None)
        return status
    for action in ("created", "changed"):
        for item in found[action]:
            print(f"{action} {describe_item(item)}")
    created, changed = len(found["created"]), len(found["changed"])
    print(f"{created} created, {changed} changed, {sum(found['unchanged'].values())} unchanged")
    if not found["errors"]:
        print(f"{file} is valid and can be imported")
    return status


def describe_item(item: Mapping[str, Any]) -> str:
    """Return a text such as `policy (vhost='/' name='p'): pattern '^a' -> '^b'`."""
    identity = [
        f"{field}={value!r}" for field, value in item.items() if field not in ("kind", "changes")
    ]
    changes = [
        f"{field} {each['from']!r} -> {each['to']!r}"
        for field, each in item.get("changes", {}).items()
    ]
    separator = ": " if changes else ""
    return f"{item['kind']} ({' '.join(identity)}){separator}{', '.join(changes)}"
