"""`recado quotes`: an example feed of financial quotes.

recado quotes publish         publish a simulated market, reproducible by its seed
recado quotes watch           show a live ticker
recado quotes record FILE     write every tick once to a database, even if this is killed
recado quotes catchup         show all ticks since the beginning, from the archive, then live ones
"""

from __future__ import annotations

import argparse
import asyncio
import sqlite3
import sys
from collections.abc import Sequence
from itertools import islice
from math import inf
from pathlib import Path
from time import monotonic

import recado.feeds
from recado.apps.quotes.board import format_time
from recado.apps.quotes.market import Market, MarketSettings
from recado.apps.quotes.publisher import ENCODERS, publish
from recado.apps.quotes.recorder import TickDatabase, record_ticks
from recado.apps.quotes.tick import Tick, TickError
from recado.apps.quotes.viewer import (
    TickDisplay,
    Ticker,
    TickJsonLines,
    TickLines,
    symbol_selector,
    watch,
)
from recado.cli import EXIT_FAILED, EXIT_OK, EXIT_USAGE, describe_os_error, print_error
from recado.cli.feed import DEFAULT_URL, URL_HELP, parse_positive
from recado.cli.feed_session import until_signal
from recado.feeds.errors import FeedError, InvalidUrlError
from recado.selector.errors import SelectorError

DESCRIPTIONS = {
    "publish": "Publish a simulated market: quotes, trades, auctions, bursts.",
    "watch": "Show live ticks: a ticker on a terminal, otherwise one line per tick.",
    "record": "Write every tick once to an SQLite database, even if this is killed and restarted.",
    "catchup": "Show all ticks since the beginning from the feed's archive, then live ones.",
}
RICH_HINT = "the ticker needs rich: pip install 'recado[quotes]'; or add --plain, or --json"
PROGRESS_INTERVAL_S = 2.0
SYMBOLS_MAX = 10_000


def run_quotes(verb: str, options: Sequence[str]) -> int:
    args = build_parser(verb).parse_args(options)
    try:
        match verb:
            case "publish":
                return asyncio.run(until_signal(publish_quotes(args)))
            case "record":
                return asyncio.run(until_signal(record_quotes(args)))
            case _:
                return asyncio.run(until_signal(watch_quotes(args, from_start=verb == "catchup")))
    except SelectorError as error:
        return print_error(str(error), EXIT_USAGE)
    except InvalidUrlError as error:
        return print_error(f"--url: {error}", EXIT_USAGE)
    except (FeedError, TickError) as error:
        return print_error(str(error), EXIT_FAILED)
    except ValueError as error:  # an invalid name
        return print_error(str(error), EXIT_USAGE)
    except sqlite3.Error as error:
        return print_error(f"{args.file}: {error}", EXIT_FAILED)
    except BrokenPipeError:
        raise
    except OSError as error:
        return print_error(describe_os_error(error), EXIT_FAILED)


def build_parser(verb: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"recado quotes {verb}", description=DESCRIPTIONS[verb])
    parser.add_argument("--url", default=DEFAULT_URL, help=URL_HELP)
    parser.add_argument("--feed", default="quotes", metavar="NAME", help="default: %(default)s")
    parser.add_argument("--messages", type=parse_positive, metavar="N", help="stop after N ticks")
    if verb == "publish":
        parser.add_argument("--seed", type=int, default=1, help="seed of the simulated market")
        parser.add_argument(
            "--symbols", type=parse_symbol_count, default=20, metavar="N", help="default: 20"
        )
        parser.add_argument(
            "--activity", type=parse_above_zero, default=10.0, metavar="N",
            help="events per second of market time, all symbols together; default: 10",
        )  # fmt: skip
        parser.add_argument(
            "--speed", type=parse_zero_or_more, default=60.0, metavar="N",
            help="market seconds per second; 0: unlimited; default: 60",
        )  # fmt: skip
        parser.add_argument("--body", choices=list(ENCODERS), default="json")
        return parser
    default_name = {"watch": "watch", "catchup": "latecomer", "record": "recorder"}[verb]
    parser.add_argument(
        "--name", default=default_name, help="name of this subscriber; default: %(default)s"
    )
    parser.add_argument("--only", metavar="SYMBOLS", help="comma-separated: PETR4,VALE3")
    parser.add_argument("--selector", metavar="TEXT", help='such as "json.price > 40"')
    if verb == "record":
        parser.add_argument("file", type=Path, metavar="FILE")
        return parser
    parser.add_argument("--plain", action="store_true", help="print one line per tick")
    parser.add_argument("--json", action="store_true", help="print one line of JSON per tick")
    if verb == "catchup":
        parser.add_argument(
            "--once", action="store_true", help="stop when the archive has been read"
        )
    return parser


def parse_symbol_count(text: str) -> int:
    count = parse_positive(text)
    if count > SYMBOLS_MAX:
        raise argparse.ArgumentTypeError(
            f"{text} symbols are too many; the maximum is {SYMBOLS_MAX:,}"
        )
    return count


def parse_above_zero(text: str) -> float:
    value = parse_zero_or_more(text)
    if not value:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return value


def parse_zero_or_more(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of 0 or more")
    return value


async def publish_quotes(args: argparse.Namespace) -> int:
    market = Market(args.seed, MarketSettings(symbols=args.symbols, per_second=args.activity))
    ticks = islice(market.ticks(), args.messages)
    progress = PublishProgress()
    async with recado.feeds.connect(args.url) as connection:
        feed = connection.feed(args.feed)
        encode = ENCODERS[args.body]
        count = await publish(feed, ticks, encode=encode, speed=args.speed, on_batch=progress)
    print(f"published and confirmed: {count:,}")
    return EXIT_OK


class PublishProgress:
    """Prints a line every two seconds."""

    def __init__(self) -> None:
        self._next = 0.0

    def __call__(self, published: int, last: Tick) -> None:
        if monotonic() >= self._next:
            self._next = monotonic() + PROGRESS_INTERVAL_S
            print(f"{format_time(last.at)}  {published:,} published", file=sys.stderr, flush=True)


async def record_quotes(args: argparse.Namespace) -> int:
    with TickDatabase(args.file) as database:
        before = len(database)
        print(f"{args.file} has {before:,} ticks; continuing from there", flush=True)
        async with recado.feeds.connect(args.url) as connection:
            feed = connection.feed(args.feed)
            start = recado.feeds.Vector.from_text(database.position)
            async with feed.subscribe(
                args.name, selector=build_selector(args), recovery=start
            ) as messages:
                count = await record_ticks(messages, database, limit=args.messages)
    print(f"recorded: {count:,}, total: {before + count:,}")
    return EXIT_OK


async def watch_quotes(args: argparse.Namespace, from_start: bool) -> int:
    try:
        display = choose_display(args)
    except ModuleNotFoundError:
        return print_error(RICH_HINT, EXIT_FAILED)
    async with recado.feeds.connect(args.url) as connection:
        feed = connection.feed(args.feed)
        async with feed.subscribe(
            args.name,
            selector=build_selector(args),
            recovery=recado.feeds.Vector() if from_start else None,
        ) as messages:
            once = from_start and args.once
            count = await watch(
                messages, display, catching_up=from_start, limit=args.messages, until_live=once
            )
    print(f"ticks: {count:,}", file=sys.stderr)
    return EXIT_OK


def choose_display(args: argparse.Namespace) -> TickDisplay:
    if args.json:
        return TickJsonLines(sys.stdout)
    if args.plain or not sys.stdout.isatty():
        return TickLines(sys.stdout)
    from rich.console import Console

    return Ticker(Console(), f"recado {args.feed}")


def build_selector(args: argparse.Namespace) -> str | None:
    symbols = symbol_selector(args.only.split(",")) if args.only else None
    if symbols and args.selector:
        return f"{symbols} AND ({args.selector})"
    return symbols or args.selector
