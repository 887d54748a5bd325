"""The viewers: lines, JSON, the ticker, and when they end."""

from __future__ import annotations

import asyncio
import json
from io import StringIO
from itertools import islice
from typing import TYPE_CHECKING, cast

from rich.console import Console

from recado.apps.quotes.market import Market
from recado.apps.quotes.tick import Bell, MarketPhase, Quote, Side, Trade
from recado.apps.quotes.viewer import (
    Ticker,
    TickJsonLines,
    TickLines,
    format_tick,
    symbol_selector,
    watch,
)

from .stage import PUBLISHER, Given, messages_of

if TYPE_CHECKING:
    from recado.feeds.subscription import Subscription

AT = 1_772_445_600_000_000


def given(count: int = 30, size: int = 10, live_after: int = 0) -> Given:
    messages = messages_of(islice(Market(1).ticks(), count))
    batches = [messages[place : place + size] for place in range(0, count, size)]
    return Given(batches, live_after)


def watching(
    messages: Given, display: TickLines | Ticker, limit: int | None = None, late: bool = False
) -> int:
    return asyncio.run(
        watch(cast("Subscription", messages), display, limit=limit, catching_up=late)
    )


def test_a_line_for_each_tick() -> None:
    assert format_tick(Quote("PETR4", AT, 38.0, 38.02, 300, 400)) == (
        "2026-03-02 10:00:00  PETR4   quote  38.00 × 300  38.02 × 400"
    )
    assert format_tick(Trade("VALE3", AT, 61.5, 200, Side.SELL)) == (
        "2026-03-02 10:00:00  VALE3   trade  61.50 × 200  sell"
    )
    assert format_tick(Bell(AT, MarketPhase.OPENING)) == (
        "2026-03-02 10:00:00  MARKET  bell   opening auction"
    )
    out = StringIO()
    assert watching(given(), TickLines(out)) == 30
    assert len(out.getvalue().splitlines()) == 30


def test_json_says_whose_it_is_and_how_sure() -> None:
    out = StringIO()
    watching(given(), TickJsonLines(out))
    first, second, *_ = [json.loads(line) for line in out.getvalue().splitlines()]
    assert first["kind"] == "bell"
    assert (second["kind"], second["publisher"]) == ("quote", PUBLISHER.hex())
    assert (second["sequence"], second["certainty"]) == (2, "live")


def test_it_ends_at_the_limit() -> None:
    assert watching(given(), TickLines(StringIO()), limit=11) == 20


def test_the_ticker_draws_the_board() -> None:
    out = StringIO()
    console = Console(file=out, width=110, height=30, color_system=None)
    ticker = Ticker(console, "recado quotes")
    assert watching(given(400, 100), ticker) == 400
    assert "PETR4" in out.getvalue()
    assert "400 ticks" in out.getvalue()
    assert "live" in out.getvalue()
    assert "catching up" not in out.getvalue()


def test_a_latecomer_is_live_when_it_has_the_past() -> None:
    for live_after, state in ((10, "catching up"), (2, "live")):
        out = StringIO()
        console = Console(file=out, width=110, height=30, color_system=None)
        watching(given(400, 100, live_after), Ticker(console, "recado quotes"), late=True)
        assert state in out.getvalue()


def test_a_selector_for_some_symbols_lets_the_bells_through() -> None:
    assert symbol_selector(["PETR4", "VALE3"]) == "key IN ('PETR4', 'VALE3', 'MARKET')"
    assert symbol_selector(["O'X"]) == "key IN ('O''X', 'MARKET')"
