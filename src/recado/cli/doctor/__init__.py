"""`recado doctor`: check this machine and the configuration before or while a broker runs.

Each module is about one subject. Its `inspect_…` reads the state of the system and passes it to functions named
`check_…`, which decide. Nothing is changed: the check of the disk writes to a file without a name, which disappears
when it is closed.

Exit status: 1 if there is an error, otherwise 0.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

from recado.cli import EXIT_FAILED, EXIT_OK
from recado.cli.flags import build_parser, load_config_from_flags
from recado.node.config import Config, ConfigError

from .diagnosis import Finding, Severity

DESCRIPTION = (
    "Check this machine and the configuration of a broker: ports, disk, limits, clock, TLS, journal, Java,"
    " packages. Nothing is changed. Exit status 1: there is an error."
)


def run_doctor(options: Sequence[str]) -> int:
    from .report import FindingPrinter

    parser = build_parser("doctor", DESCRIPTION)
    parser.add_argument(
        "--connections",
        type=int,
        metavar="N",
        help="connections that you expect; default: server.max_connections, otherwise 1000",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    args = parser.parse_args(options)
    report = FindingPrinter(as_json=args.json)
    for finding in inspect_all(args):
        report.add(finding)
    report.end()
    return EXIT_FAILED if report.counts[Severity.ERROR] else EXIT_OK


def inspect_all(args: argparse.Namespace) -> Iterator[Finding]:
    """Yield the findings of all checks; only the first one if the configuration is wrong."""
    try:
        config = load_config_from_flags(args)
    except ConfigError as error:
        reason = "the broker does not start, and nothing else can be checked"
        yield Finding("configuration", Severity.ERROR, str(error), reason)
        return
    yield describe_config(config)

    from recado.cli.journal import find_journals

    from .certificates import inspect_certificates
    from .clock import inspect_clock
    from .disk import inspect_disk
    from .extras import inspect_extras
    from .java import inspect_java
    from .journal import inspect_journal, read_lock
    from .open_files import inspect_open_files
    from .ports import inspect_ports

    settings = config.settings
    data = None if settings.node.data is None else Path(settings.node.data)
    lock = None if data is None else read_lock(data)
    yield from inspect_ports(settings, lock.pid if lock is not None and lock.is_held else None)
    yield from inspect_disk(settings)
    yield from inspect_open_files(settings, args.connections)
    yield from inspect_clock([] if data is None else find_journals(data))
    yield from inspect_certificates(settings)
    if data is not None and lock is not None:
        yield from inspect_journal(data, lock)
    yield from inspect_java()
    yield from inspect_extras(settings)


def describe_config(config: Config) -> Finding:
    origins = sorted(set(config.origins.values()))
    found = f"valid, from {', '.join(origins)}" if origins else "valid, all defaults"
    return Finding("configuration", Severity.OK, found)
