"""`recado definitions`: users, vhosts, policies and declarations as a file in RabbitMQ's JSON format.

    recado definitions export [FILE] --data DIR     write them to a file or to standard output
    recado definitions import FILE --data DIR       import them into the folder, all or nothing
    recado definitions check FILE [--data DIR]      check whether they could be imported

No broker may run on the folder. A broker imports the file that `node.definitions` names when it starts.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from recado.broker.steps import TURN_UNITS_MAX
from recado.cli import EXIT_FAILED, EXIT_OK, EXIT_USAGE, describe_os_error, print_error
from recado.cli.flags import build_parser, load_config_from_flags, suggest_journal_check
from recado.definitions.difference import DefinitionsCheck
from recado.definitions.document import DefinitionsError, parse_json
from recado.definitions.exporter import export_definitions
from recado.definitions.importer import import_definitions
from recado.definitions.trial import Outcome
from recado.journal.record import CorruptJournalError, UnknownFormatError
from recado.node.assembly import open_offline_broker
from recado.node.settings import Settings
from recado.server.connection import now_ms

DESCRIPTIONS = {
    "export": "Export the definitions of a data folder in RabbitMQ's JSON format.",
    "import": "Import a definitions file into a data folder, all or nothing.",
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
    args = parser.parse_args(options)
    settings = load_config_from_flags(args).settings
    if settings.node.data is None and verb != "check":
        return print_error("missing data folder: set --data DIR or node.data", EXIT_USAGE)
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


def folder_exists(data: str) -> bool:
    """Whether the folder exists: a command that only reads must not create one for a mistyped name."""
    return Path(data).is_dir()


def export_file(settings: Settings, file: str | None, vhost: str | None) -> int:
    with open_offline_broker(settings) as broker:
        document = export_definitions(broker, vhost)
    if file is None:
        print_json(document)
    else:
        text = msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"
        with open(file, "w", encoding="utf-8", opener=open_private) as output:
            output.write(text)
    return EXIT_OK


def open_private(path: str, flags: int) -> int:
    """Open a file that only its owner can read, because it contains password hashes."""
    return os.open(path, flags, 0o600)


def import_file(settings: Settings, args: argparse.Namespace) -> int:
    file, vhost = args.file, args.vhost
    document = parse_json(Path(file).read_bytes())
    local = settings.access.loopback_users
    with open_offline_broker(settings) as broker:
        notes = import_definitions(broker, document, now_ms(), vhost=vhost, loopback_users=local)
    for note in notes:
        print_error(f"{file}: {note}")
    if args.json:
        print_json({"imported": file, "notes": list(notes)})
    else:
        print(f"imported {file}")
    return EXIT_OK


def print_json(value: object) -> None:
    print(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def check_file(settings: Settings, args: argparse.Namespace) -> int:
    file = args.file
    document = parse_json(Path(file).read_bytes())
    with open_offline_broker(settings) as broker:
        check = DefinitionsCheck(broker, document, vhost=args.vhost)
        while not check.is_done:
            check.advance(TURN_UNITS_MAX, now_ms())
    found = check.difference
    for text in (*found.skipped, *found.errors):
        print_error(f"{file}: {text}")
    status = EXIT_FAILED if found.errors else EXIT_OK
    if args.json:
        print_json(msgspec.json.decode(b"".join(found.render())))
        return status
    for outcome in (*found.created, *found.changed):
        print(describe_outcome(outcome))
    unchanged = found.unchanged.total()
    print(f"{len(found.created)} created, {len(found.changed)} changed, {unchanged} unchanged")
    if not found.errors:
        print(f"{file} is valid and can be imported")
    return status


def describe_outcome(outcome: Outcome) -> str:
    """Return a line such as `changed policy (vhost='/' name='p'): pattern '^a' -> '^b'`."""
    identity = " ".join(f"{field}={value!r}" for field, value in outcome.identity.items())
    changes = [f"{field} {old!r} -> {new!r}" for field, (old, new) in outcome.changes.items()]
    separator = ": " if changes else ""
    return f"{outcome.action} {outcome.kind} ({identity}){separator}{', '.join(changes)}"
