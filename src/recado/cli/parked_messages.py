"""`recado parked`: the messages whose handlers failed, on any AMQP broker; see `recado.patterns`."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from recado.cli import EXIT_FAILED, EXIT_OK, EXIT_USAGE, print_error
from recado.cli.terminal import escape_unprintable

if TYPE_CHECKING:
    from recado.patterns import ParkedMessage

DESCRIPTIONS = {
    "list": "Print the parked messages of a queue, and why they failed.",
    "replay": "Return parked messages to the queues they came from, to be handled again.",
}
DEFAULT_URL = "amqp://guest:guest@127.0.0.1:5672"
DEFAULT_QUEUE = "dead-letters"
LISTED_MAX_COUNT = 1_000


def run_parked(verb: str, options: Sequence[str]) -> int:
    """Run `recado parked VERB`."""
    args = build_parser(verb).parse_args(options)
    logging.basicConfig(level=logging.CRITICAL)  # errors are printed once, below
    try:
        from recado.client import ClientError
        from recado.patterns import CompositionError, MessagingError
    except ImportError as error:
        return print_error(
            f"this command needs {error.name}: pip install 'recado[patterns]'", EXIT_FAILED
        )
    try:
        return asyncio.run(_run(verb, args))
    except (CompositionError, ValueError) as error:
        return print_error(str(error), EXIT_USAGE)
    except (ClientError, MessagingError) as error:
        return print_error(f"queue '{args.queue}': {error}", EXIT_FAILED)


def build_parser(verb: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"recado parked {verb}",
        description=DESCRIPTIONS[verb],
        epilog="Messages that stay are taken and returned to the head of the queue, which counts as a delivery of each"
        " on a quorum queue.",
    )
    add = parser.add_argument
    add("queue", nargs="?", default=DEFAULT_QUEUE, help=f"default: {DEFAULT_QUEUE}")
    add("--url", default=DEFAULT_URL, metavar="URL", help=f"of the broker; default: {DEFAULT_URL}")
    add("--selector", metavar="TEXT", help='only messages that match, such as "json.total > 10"')
    add("--limit", type=_positive, metavar="N", help="at most so many messages")
    if verb == "replay":
        add("--dry-run", action="store_true", help="only print how many would be replayed")
    add("--json", action="store_true", help="print JSON")
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number


async def _run(verb: str, args: argparse.Namespace) -> int:
    from recado.patterns import Messaging, parked_messages, replay

    async with Messaging(args.url, name="recado parked") as app:
        if verb == "list" or args.dry_run:
            limit = args.limit or LISTED_MAX_COUNT
            found = await parked_messages(app, args.queue, args.selector, limit=limit)
            if verb == "list":
                _print_list(found, as_json=args.json)
            else:
                count = sum(each.queue is not None for each in found)
                _print_counts(count, len(found) - count, as_json=args.json, is_dry_run=True)
            return EXIT_OK
        result = await replay(app, args.queue, args.selector, limit=args.limit)
        _print_counts(result.replayed_count, result.left_count, as_json=args.json, is_dry_run=False)
        return EXIT_OK


def _print_list(found: Sequence[ParkedMessage], *, as_json: bool) -> None:
    import msgspec

    if as_json:
        print(json.dumps([msgspec.structs.asdict(each) for each in found], indent=2))
        return
    for each in found:
        line = "  ".join(
            (
                each.time or "-",
                each.queue or "-",
                f"{each.attempts or '-'} attempts",
                each.message_id or "-",
                each.reason or "-",
            )
        )
        print(escape_unprintable(line))
    print(f"{len(found)} parked messages", file=sys.stderr)


def _print_counts(replayed: int, left: int, *, as_json: bool, is_dry_run: bool) -> None:
    if as_json:
        print(json.dumps({"replayed": replayed, "left": left, "dry_run": is_dry_run}))
        return
    verb = "would be replayed" if is_dry_run else "replayed"
    print(f"{replayed} {verb}, {left} left")
