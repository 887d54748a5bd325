"""`recado feed …`: parsers and error output of the feed commands."""

from __future__ import annotations

import argparse
import logging
import re
from collections.abc import Sequence

from recado.cli import EXIT_FAILED, EXIT_USAGE, describe_os_error, print_error

DEFAULT_URL = "amqp://guest:guest@localhost"
URL_HELP = f"of the broker, or udp://239.255.42.1:PORT without a broker; default: {DEFAULT_URL}"
DESCRIPTIONS = {
    "publish": "Publish messages: the arguments, or the lines of standard input.",
    "subscribe": "Print messages as they arrive, after recovering missed ones.",
    "archive": "Archive a feed in a folder until SIGTERM or Ctrl-C.",
    "replay": "Print the messages in the folder of an archive, which may be running.",
    "members": "Show the members of a feed.",
    "verify": "Check every file of an archive, and repair damage on request. Exit status 1: damaged.",
    "gc": "Delete messages beyond the given limits from an archive that is not running.",
    "list": "List the feeds of a node of recado, over HTTP.",
    "show": "Show a feed, its archives, views and publishers, over HTTP.",
}
SECONDS_PER_UNIT = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def run_feed(verb: str, options: Sequence[str]) -> int:
    """Run a verb and return the exit status; expected failures are one line on standard error, with a hint."""
    args = build_parser(verb).parse_intermixed_args(options)
    logging.basicConfig(format="recado: %(message)s", level=logging.WARNING)
    try:
        return run_verb(verb, args)
    except ImportError as error:
        if error.name not in ("pyarrow", "numpy"):
            raise
        return print_error("archives need pyarrow: pip install 'recado[feeds]'", EXIT_FAILED)


def run_verb(verb: str, args: argparse.Namespace) -> int:
    from recado.feeds.errors import FeedError, InvalidUrlError
    from recado.selector.errors import SelectorError

    try:
        match verb:
            case "replay" | "gc" | "verify":
                from recado.cli import archive_folder

                commands = {
                    "replay": archive_folder.print_messages,
                    "gc": archive_folder.collect_garbage,
                    "verify": archive_folder.verify_archive,
                }
                return commands[verb](args)
            case _:
                from recado.cli.feed_session import run_live

                return run_live(verb, args)
    except InvalidUrlError as error:
        return print_error(f"--url: {error}", EXIT_USAGE)
    except SelectorError as error:
        return print_error(f"--selector: {error}", EXIT_USAGE)
    except ValueError as error:  # before FeedError, because `StackError` is both
        return print_error(str(error), EXIT_USAGE)
    except FeedError as error:
        return print_error(str(error), EXIT_FAILED)
    except BrokenPipeError:
        raise
    except OSError as error:
        return print_error(describe_os_error(error), EXIT_FAILED)


def build_parser(verb: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"recado feed {verb}", description=DESCRIPTIONS[verb])
    add = parser.add_argument
    if verb in ("replay", "gc", "verify"):
        add("folder", metavar="FOLDER", help="folder of the archive")
    else:
        add("feed", metavar="FEED")
        add("--url", default=DEFAULT_URL, metavar="URL", help=URL_HELP)
    if verb in ("publish", "subscribe", "archive"):
        add(
            "--stack",
            metavar="LAYERS",
            help="layers of the protocol stack, such as DISPATCH:SYNC:PULL:FRAG:FIFO:NAK:MEMBERSHIP:AMQP",
        )
    add("--json", action="store_true", help="print JSON")
    match verb:
        case "publish":
            add("bodies", nargs="*", metavar="BODY", help="default: the lines of standard input")
            add("--key", default="", metavar="KEY", help="routing key of the messages")
            add(
                "--header",
                action="append",
                default=[],
                metavar="NAME=VALUE",
                help="may be repeated",
            )
        case "subscribe":
            add("name", metavar="NAME", help="name of this subscriber in the archives")
            add(
                "--recovery",
                choices=["optimistic", "pessimistic", "archive"],
                help="missed messages to receive first: none (optimistic, the default), all (pessimistic), "
                "or all, sent by the archive as soon as it sees the name return (archive)",
            )
            add(
                "--vector",
                metavar="FILE",
                help="start after the vector in this file, and save the progress there",
            )
            add("--count", type=parse_positive, metavar="N", help="stop after N messages")
        case "archive":
            add("folder", metavar="FOLDER", help="folder of the archive; created if missing")
            add(
                "--name",
                default="archive",
                metavar="NAME",
                help="name of the archive, unique in its feed",
            )
            add(
                "--seal-rows",
                type=parse_positive,
                metavar="N",
                help="seal a Parquet file after N rows",
            )
            add(
                "--seal-interval",
                type=parse_duration,
                metavar="TIME",
                help="seal a Parquet file after this time",
            )
        case "replay":
            add(
                "--from",
                dest="start",
                type=parse_offset,
                default=0,
                metavar="OFFSET",
                help="default: the oldest available",
            )
            add("--to", dest="stop", type=parse_offset, metavar="OFFSET", help="not included")
            add(
                "--subscriber",
                metavar="NAME",
                help="show for each message whether this subscriber certainly received it",
            )
            add("--count", type=parse_positive, metavar="N", help="stop after N messages")
        case "members":
            add(
                "--seconds",
                type=parse_duration,
                default=2.0,
                metavar="N",
                help="time to listen; default: 2",
            )
        case "verify":
            add("--repair", action="store_true", help="restore damaged Parquet files")
            add(
                "--from",
                dest="sources",
                action="append",
                default=[],
                metavar="FOLDER",
                help="with --repair: another archive of the feed to restore rows from; may be repeated",
            )
            add(
                "--yes",
                action="store_true",
                help="with --repair: drop rows that cannot be restored",
            )
        case "gc":
            add("--dry-run", action="store_true", help="print what would happen, change nothing")
        case _:
            pass
    if verb in ("subscribe", "replay"):
        add(
            "--selector",
            metavar="TEXT",
            help="print only matching messages, such as: headers.price > 10",
        )
    if verb in ("archive", "gc"):
        add(
            "--max-age", type=parse_duration, metavar="TIME", help="delete older messages: 36h, 30d"
        )
        add("--max-messages", type=parse_positive, metavar="N", help="retain the newest N messages")
        add(
            "--max-share",
            type=parse_share,
            metavar="SHARE",
            help="maximum share of the storage: 0.5 or 50%%",
        )
        add(
            "--grace",
            type=parse_duration,
            metavar="TIME",
            help="time before files are deleted, for readers; default: 1h",
        )
    return parser


def parse_positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return int(text)


def parse_offset(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not an offset: 0, 1, 2, …")
    return int(text)


def parse_duration(text: str) -> float:
    """Parse a duration into seconds."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhdw]?)", text)
    if not found:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a duration such as 90s, 15m, 36h, 30d or 2w"
        )
    return float(found[1]) * SECONDS_PER_UNIT[found[2] or "s"]


def parse_share(text: str) -> float:
    number = text.removesuffix("%")
    try:
        value = float(number) / (100 if number != text else 1)
    except ValueError:
        value = 0.0
    if not 0 < value <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a share such as 0.5 or 50%")
    return value
