"""`recado feed …`: which command is meant, its words, and how failures are told."""

from __future__ import annotations

import argparse
import logging
import re
from collections.abc import Sequence

from recado.cli import EXIT_FAILED, EXIT_USAGE, describe_os_error, print_error

DEFAULT_URL = "amqp://guest:guest@localhost"
URL_HELP = f"of a broker, or udp://239.255.42.1:PORT for none; default: {DEFAULT_URL}"
DESCRIPTIONS = {
    "publish": "Publish messages: those that are named, or the lines of standard input.",
    "subscribe": "Print messages as they come, after those that were missed.",
    "archive": "Archive a feed in a folder, until SIGTERM or Ctrl-C.",
    "replay": "Print what is in the folder of an archive; it may be at work.",
    "members": "Show who takes part in a feed.",
    "verify": "Check every file of an archive, and repair what is damaged. Exit status 1: there is damage.",
    "gc": "Let go what an archive need not keep; it must not be at work.",
}
SECONDS_PER_UNIT = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def run_feed(verb: str, options: Sequence[str]) -> int:
    """Every foreseeable failure is one line on standard error, with a hint."""
    chosen = build_parser(verb).parse_intermixed_args(options)
    logging.basicConfig(format="recado: %(message)s", level=logging.WARNING)
    try:
        return run_verb(verb, chosen)
    except ImportError as error:
        if error.name not in ("pyarrow", "numpy"):
            raise
        return print_error("archives need pyarrow: pip install 'recado[feeds]'", EXIT_FAILED)


def run_verb(verb: str, chosen: argparse.Namespace) -> int:
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
                return commands[verb](chosen)
            case _:
                from recado.cli.feed_session import run_live

                return run_live(verb, chosen)
    except InvalidUrlError as error:
        return print_error(f"--url: {error}", EXIT_USAGE)
    except FeedError as error:
        return print_error(str(error), EXIT_FAILED)
    except SelectorError as error:
        return print_error(f"--selector: {error}", EXIT_USAGE)
    except ValueError as error:
        return print_error(str(error), EXIT_USAGE)
    except BrokenPipeError:
        raise
    except OSError as error:
        return print_error(describe_os_error(error), EXIT_FAILED)


def build_parser(verb: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"recado feed {verb}", description=DESCRIPTIONS[verb])
    add = parser.add_argument
    if verb in ("replay", "gc", "verify"):
        add("folder", metavar="FOLDER", help="of the archive")
    else:
        add("feed", metavar="FEED")
        add("--url", default=DEFAULT_URL, metavar="URL", help=URL_HELP)
    if verb in ("publish", "subscribe", "archive"):
        add("--stack", metavar="LAYERS", help="such as DISPATCH:SYNC:PULL:FRAG:FIFO:NAK:REACH:AMQP")
    add("--json", action="store_true", help="for programs")
    match verb:
        case "publish":
            add("bodies", nargs="*", metavar="BODY", help="default: the lines of standard input")
            add("--key", default="", metavar="KEY", help="of all of them")
            add(
                "--header",
                action="append",
                default=[],
                metavar="NAME=VALUE",
                help="may be repeated",
            )
        case "subscribe":
            add("name", metavar="NAME", help="under which archives know this subscriber")
            add(
                "--recovery",
                choices=["optimistic", "pessimistic", "archive"],
                help="of what was missed: nothing (default), all that may have been, or as the archive says",
            )
            add("--vector", metavar="FILE", help="begin behind what it says, and keep it there")
            add("--count", type=parse_positive, metavar="N", help="end after so many")
        case "archive":
            add("folder", metavar="FOLDER", help="of the archive; made if there is none")
            add(
                "--name",
                default="archive",
                metavar="NAME",
                help="each archive of a feed has its own",
            )
            add("--seal-rows", type=parse_positive, metavar="N", help="rows of a Parquet file")
            add("--seal-seconds", type=parse_duration, metavar="TIME", help="or older than this")
        case "replay":
            add(
                "--from",
                dest="start",
                type=parse_offset,
                default=0,
                metavar="OFFSET",
                help="default: the first there is",
            )
            add("--to", dest="stop", type=parse_offset, metavar="OFFSET", help="not included")
            add("--subscriber", metavar="NAME", help="say of each whether this one surely had it")
            add("--count", type=parse_positive, metavar="N", help="end after so many")
        case "members":
            add(
                "--seconds",
                type=parse_duration,
                default=2.0,
                metavar="N",
                help="how long to listen; default: 2",
            )
        case "verify":
            add("--repair", action="store_true", help="restore damaged Parquet files")
            add(
                "--from",
                dest="sources",
                action="append",
                default=[],
                metavar="FOLDER",
                help="with --repair: another archive of the feed to take rows from; may be repeated",
            )
            add("--yes", action="store_true", help="with --repair: drop rows that are nowhere else")
        case _:
            pass  # gc has only what it shares with others
    if verb in ("subscribe", "replay"):
        add("--selector", metavar="TEXT", help="only those, as in: headers.price > 10")
    if verb in ("archive", "gc"):
        add("--max-age", type=parse_duration, metavar="TIME", help="let go what is older: 36h, 30d")
        add("--max-messages", type=parse_positive, metavar="N", help="keep so many of the newest")
        add("--max-share", type=parse_share, metavar="SHARE", help="of the storage: 0.5 or 50%%")
        add(
            "--grace",
            type=parse_duration,
            metavar="TIME",
            help="for those who still read; default: 1h",
        )
    return parser


def parse_positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number above 0")
    return int(text)


def parse_offset(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no offset; they are 0, 1, 2, …")
    return int(text)


def parse_duration(text: str) -> float:
    """Seconds."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhdw]?)", text)
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r} is no time; write 90s, 15m, 36h, 30d or 2w")
    return float(found[1]) * SECONDS_PER_UNIT[found[2] or "s"]


def parse_share(text: str) -> float:
    number = text.removesuffix("%")
    try:
        value = float(number) / (100 if number != text else 1)
    except ValueError:
        value = 0.0
    if not 0 < value <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no share; write 0.5 or 50%")
    return value
