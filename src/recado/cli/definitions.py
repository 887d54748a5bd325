"""`recado definitions`: users, vhosts, policies and what is declared, as a file in RabbitMQ's JSON format.

    recado definitions export [FILE] --data DIR     what the folder has, to the file or to standard output
    recado definitions import FILE --data DIR       into the folder, all of it or nothing
    recado definitions check FILE [--data DIR]      whether it could be imported

They are for a folder on which no broker runs; a broker that starts imports the file of `node.definitions`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from recado.cli import DONE, FAILED, WRONG_USAGE, complain, told
from recado.cli.flags import damage_hint, effective, grammar
from recado.journal.record import Corrupt, Unknown
from recado.node.definitions.document import DefinitionsError, parse
from recado.node.definitions.exporting import export_definitions
from recado.node.definitions.importing import copy_of, import_definitions
from recado.node.offline import at_rest
from recado.node.settings import Settings
from recado.server.connection import clock


def definitions(verb: str, options: Sequence[str]) -> int:
    described = {
        "export": "Write what a data folder has, as a file that RabbitMQ 3.10 imports too.",
        "import": "Read a file into a data folder, all of it or nothing.",
        "check": "Tell whether a file could be imported, and change nothing.",
    }
    parser = grammar(f"definitions {verb}", described[verb], listens=False)
    if verb == "export":
        parser.add_argument("file", nargs="?", metavar="FILE", help="default: standard output")
        parser.add_argument("--vhost", metavar="NAME", help="only what is in this one")
    else:
        parser.add_argument("file", metavar="FILE", help="JSON, as RabbitMQ or recado exports it")
        where = "for a file of one vhost: the one, which must exist, that all of it goes to"
        parser.add_argument("--vhost", metavar="NAME", help=where)
    chosen = parser.parse_args(options)
    settings = effective(chosen).settings
    if settings.node.data is None and verb != "check":
        return complain("which folder? --data DIR or node.data names it", WRONG_USAGE)
    if settings.node.data is not None and verb != "import" and not is_folder(settings.node.data):
        return complain(f"there is no folder {settings.node.data}", FAILED)
    try:
        if verb == "export":
            return export(settings, chosen.file, chosen.vhost)
        return take_in(settings, chosen.file, chosen.vhost, keep=verb == "import")
    except DefinitionsError as error:
        return complain(f"{chosen.file or settings.node.data}: {error}", FAILED)
    except Corrupt as error:
        return complain(f"{error}; {damage_hint(settings)}", FAILED)
    except Unknown as error:
        return complain(f"{settings.node.data}: {error}", FAILED)
    except OSError as error:
        return complain(told(error), FAILED)


def is_folder(data: str) -> bool:
    """Who only looks into a folder does not make one: the name may be mistyped."""
    return Path(data).is_dir()


def export(settings: Settings, file: str | None, vhost: str | None) -> int:
    with at_rest(settings) as broker:
        document = export_definitions(broker, vhost)
    text = msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"
    if file is None:
        sys.stdout.write(text)
    else:
        with open(file, "w", encoding="utf-8", opener=for_the_owner) as output:
            output.write(text)
    return DONE


def for_the_owner(path: str, flags: int) -> int:
    """A new file has the hashes of passwords: it is nobody else's to read."""
    return os.open(path, flags, 0o600)


def take_in(settings: Settings, file: str, vhost: str | None, *, keep: bool) -> int:
    document = parse(Path(file).read_bytes())
    local = settings.access.loopback_users
    with at_rest(settings) as there:
        broker = there if keep else copy_of(there)
        notes = import_definitions(broker, document, clock(), vhost=vhost, loopback_users=local)
    for note in notes:
        complain(f"{file}: {note}")
    print(f"{file} was imported" if keep else f"{file} can be imported")
    return DONE
