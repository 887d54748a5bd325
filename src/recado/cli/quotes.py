"""`recado quotes`: a feed of financial quotes, to see what feeds do.

recado quotes publish         a simulated market, the same for the same seed
recado quotes watch           a live ticker
recado quotes record FILE     every tick once in a database, however often this is killed
recado quotes catchup         a latecomer: everything since the beginning, from the archive, then live
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

import recado
from recado.apps.quotes.board import clock
from recado.apps.quotes.market import Market, Setting
from recado.apps.quotes.publishing import FORMS, publish
from recado.apps.quotes.recording import Ledger, record
from recado.apps.quotes.tick import BadTick, Tick
from recado.apps.quotes.watching import Display, JsonLines, Lines, Ticker, only, watch
from recado.cli import DONE, FAILED, WRONG_USAGE, complain, told
from recado.cli.feed import URL, URL_HELP, positive
from recado.cli.feed_live import until_signal
from recado.feeds.errors import FeedError, WrongUrl
from recado.selector.errors import SelectorError

VERBS = {
    "publish": "Publish a simulated market: quotes, trades, auctions, bursts.",
    "watch": "Show what is published from now on: a ticker in a terminal, else a line for each tick.",
    "record": "Write every tick to an SQLite database, once, however often this is killed and started again.",
    "catchup": "Show everything since the beginning, from the feed's archive, and then what is published.",
}
NO_RICH = "the ticker needs rich: pip install 'recado[quotes]'; or add --plain, or --json"
TOLD_SECONDS = 2.0
MOST_SYMBOLS = 10_000


def quotes(verb: str, options: Sequence[str]) -> int:
    chosen = grammar(verb).parse_args(options)
    try:
        match verb:
            case "publish":
                return asyncio.run(until_signal(publishing(chosen)))
            case "record":
                return asyncio.run(until_signal(recording(chosen)))
            case _:
                return asyncio.run(until_signal(watching(chosen, late=verb == "catchup")))
    except SelectorError as error:
        return complain(str(error), WRONG_USAGE)
    except WrongUrl as error:
        return complain(f"--url: {error}", WRONG_USAGE)
    except (FeedError, BadTick) as error:
        return complain(str(error), FAILED)
    except ValueError as error:  # a name that cannot be one
        return complain(str(error), WRONG_USAGE)
    except sqlite3.Error as error:
        return complain(f"{chosen.file}: {error}", FAILED)
    except BrokenPipeError:
        raise
    except OSError as error:
        return complain(told(error), FAILED)


def grammar(verb: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"recado quotes {verb}", description=VERBS[verb])
    parser.add_argument("--url", default=URL, help=URL_HELP)
    parser.add_argument("--feed", default="quotes", metavar="NAME", help="default: %(default)s")
    parser.add_argument("--messages", type=positive, metavar="N", help="end after so many ticks")
    if verb == "publish":
        parser.add_argument("--seed", type=int, default=1, help="another one, another market")
        parser.add_argument("--symbols", type=symbols, default=20, metavar="N", help="default: 20")
        parser.add_argument(
            "--activity", type=above_zero, default=10.0, metavar="N",
            help="events in a second of the market, of all symbols; default: 10",
        )  # fmt: skip
        parser.add_argument(
            "--speed", type=zero_or_more, default=60.0, metavar="N",
            help="seconds of the market in one of ours, 0: as fast as it goes; default: 60",
        )  # fmt: skip
        parser.add_argument("--body", choices=list(FORMS), default="json")
        return parser
    own = {"watch": "watch", "catchup": "latecomer", "record": "recorder"}[verb]
    parser.add_argument("--name", default=own, help="of this subscriber; default: %(default)s")
    parser.add_argument("--only", metavar="SYMBOLS", help="with commas: PETR4,VALE3")
    parser.add_argument("--selector", metavar="TEXT", help='such as "json.price > 40"')
    if verb == "record":
        parser.add_argument("file", type=Path, metavar="FILE")
        return parser
    parser.add_argument("--plain", action="store_true", help="a line for each tick")
    parser.add_argument("--json", action="store_true", help="a line of JSON for each tick")
    if verb == "catchup":
        parser.add_argument("--once", action="store_true", help="end when the past is over")
    return parser


def symbols(text: str) -> int:
    count = positive(text)
    if count > MOST_SYMBOLS:
        raise argparse.ArgumentTypeError(f"{text} are too many; there may be {MOST_SYMBOLS:,}")
    return count


def above_zero(text: str) -> float:
    value = zero_or_more(text)
    if not value:
        raise argparse.ArgumentTypeError(f"{text!r} is no number above 0")
    return value


def zero_or_more(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < inf:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of 0 or more")
    return value


async def publishing(chosen: argparse.Namespace) -> int:
    market = Market(chosen.seed, Setting(symbols=chosen.symbols, per_second=chosen.activity))
    ticks = islice(market.ticks(), chosen.messages)
    progress = Progress()
    async with recado.connect(chosen.url) as link:
        feed = await link.feed(chosen.feed)
        encode = FORMS[chosen.body]
        count = await publish(feed, ticks, encode=encode, speed=chosen.speed, told=progress)
    print(f"published and confirmed: {count:,}")
    return DONE


class Progress:
    """A line now and then."""

    def __init__(self) -> None:
        self._next = 0.0

    def __call__(self, published: int, last: Tick) -> None:
        if monotonic() >= self._next:
            self._next = monotonic() + TOLD_SECONDS
            print(f"{clock(last.at)}  {published:,} published", file=sys.stderr, flush=True)


async def recording(chosen: argparse.Namespace) -> int:
    with Ledger(chosen.file) as ledger:
        before = len(ledger)
        print(f"{chosen.file} has {before:,} ticks; going on from there", flush=True)
        async with recado.connect(chosen.url) as link:
            feed = await link.feed(chosen.feed)
            start = recado.Vector.from_text(ledger.position)
            async with feed.subscribe(
                chosen.name, selector=selector_of(chosen), recovery=start
            ) as messages:
                count = await record(messages, ledger, limit=chosen.messages)
    print(f"recorded: {count:,}, together {before + count:,}")
    return DONE


async def watching(chosen: argparse.Namespace, late: bool) -> int:
    try:
        display = display_of(chosen)
    except ModuleNotFoundError:
        return complain(NO_RICH, FAILED)
    async with recado.connect(chosen.url) as link:
        feed = await link.feed(chosen.feed)
        async with feed.subscribe(
            chosen.name, selector=selector_of(chosen), recovery=recado.Vector() if late else None
        ) as messages:
            once = late and chosen.once
            count = await watch(
                messages, display, late=late, limit=chosen.messages, until_live=once
            )
    print(f"ticks: {count:,}", file=sys.stderr)
    return DONE


def display_of(chosen: argparse.Namespace) -> Display:
    if chosen.json:
        return JsonLines(sys.stdout)
    if chosen.plain or not sys.stdout.isatty():
        return Lines(sys.stdout)
    from rich.console import Console

    return Ticker(Console(), f"recado {chosen.feed}")


def selector_of(chosen: argparse.Namespace) -> str | None:
    symbols = only(chosen.only.split(",")) if chosen.only else None
    if symbols and chosen.selector:
        return f"{symbols} AND ({chosen.selector})"
    return symbols or chosen.selector
