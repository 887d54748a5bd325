"""The market: the same for the same seed, its invariants, and statistics within bounds."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections import Counter, defaultdict
from datetime import date
from itertools import islice, pairwise
from statistics import fmean, pvariance

import pytest

from recado.apps.quotes.arrivals import FOLLOW_UP_RATIO
from recado.apps.quotes.instrument import KNOWN_SYMBOLS, make_symbol
from recado.apps.quotes.market import Market, MarketSettings
from recado.apps.quotes.tick import Bell, MarketPhase, Quote, Side, Tick, Trade, encode_compact
from recado.apps.quotes.trading_day import MINUTE_US, SECOND_US, TradingHours, next_trading_day

SETTING = MarketSettings(symbols=8, per_second=2.0)


def days(seed: int, count: int, setting: MarketSettings = SETTING) -> list[Tick]:
    """All ticks of the first days."""
    ticks = []
    for tick in Market(seed, setting).ticks():
        ticks.append(tick)
        if isinstance(tick, Bell) and tick.phase is MarketPhase.CLOSED:
            count -= 1
            if not count:
                break
    return ticks


@pytest.fixture(scope="module")
def day() -> list[Tick]:
    return days(7, 1)


def digest(seed: int) -> str:
    ticks = islice(Market(seed).ticks(), 2_000)
    return hashlib.sha256(b"".join(map(encode_compact, ticks))).hexdigest()


def test_the_same_seed_gives_the_same_stream_in_every_process() -> None:
    program = f"from {__name__} import digest; print(digest(11))"
    found = set()
    for salt in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": salt}
        done = subprocess.run(
            [sys.executable, "-c", program],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        found.add(done.stdout.strip())
    assert found == {digest(11)}
    assert digest(12) != digest(11)


def test_time_never_goes_back(day: list[Tick]) -> None:
    assert all(before.at <= after.at for before, after in pairwise(day))


def test_a_bid_is_below_its_ask(day: list[Tick]) -> None:
    quotes = [tick for tick in day if isinstance(tick, Quote)]
    assert all(0 < quote.bid < quote.ask for quote in quotes)
    assert all(quote.bid_size % 100 == quote.ask_size % 100 == 0 for quote in quotes)
    assert all(quote.bid_size and quote.ask_size for quote in quotes)


def test_a_trade_is_at_the_quote_before_it(day: list[Tick]) -> None:
    quoted: dict[str, Quote] = {}
    for tick in day:
        match tick:
            case Quote():
                quoted[tick.symbol] = tick
            case Trade(side=Side.BUY):
                assert tick.price == quoted[tick.symbol].ask
                assert 0 < tick.size <= quoted[tick.symbol].ask_size
            case Trade(side=Side.SELL):
                assert tick.price == quoted[tick.symbol].bid
                assert 0 < tick.size <= quoted[tick.symbol].bid_size
            case Trade() | Bell():
                pass


def test_an_auction_ends_with_one_trade_of_each_symbol(day: list[Tick]) -> None:
    phase = MarketPhase.CLOSED
    crossed: dict[MarketPhase, Counter[str]] = defaultdict(Counter)
    for tick in day:
        if isinstance(tick, Bell):
            phase = tick.phase
        elif isinstance(tick, Trade):
            assert (tick.side is Side.AUCTION) is (phase is not MarketPhase.TRADING)
            crossed[phase][tick.symbol] += 1
    for auction in (MarketPhase.OPENING, MarketPhase.CLOSING):
        assert crossed[auction] == dict.fromkeys(KNOWN_SYMBOLS[:8], 1)
    assert len(crossed[MarketPhase.TRADING]) == 8


def test_the_bells_of_three_days_skip_the_weekend() -> None:
    setting = MarketSettings(symbols=1, per_second=0.1, first_day=date(2026, 2, 27))  # a Friday
    bells = [tick for tick in days(1, 2, setting) if isinstance(tick, Bell)]
    assert [bell.phase for bell in bells] == list(MarketPhase) * 2
    assert bells[4].at - bells[0].at == 3 * 24 * 60 * MINUTE_US
    assert next_trading_day(date(2026, 2, 28)) == date(2026, 3, 2)


def test_activity_is_that_of_the_setting(day: list[Tick]) -> None:
    """Events by themselves, and those of two bursts of each symbol with what follows them."""
    quotes = sum(isinstance(tick, Quote) for tick in day)
    expected = 2.0 * 7 * 3600 + 8 * 2 * 190 / (1 - FOLLOW_UP_RATIO)
    assert expected * 0.85 < quotes < expected * 1.15


def test_the_day_is_busiest_at_its_ends(day: list[Tick]) -> None:
    opens = TradingHours().on_day(MarketSettings().first_day).opens
    hours = Counter(
        (tick.at - opens) // (60 * MINUTE_US) for tick in day if isinstance(tick, Quote)
    )
    assert min(hours[0], hours[6]) > 1.5 * hours[3]


def test_activity_comes_in_bursts(day: list[Tick]) -> None:
    """Counts of independent events would vary by their mean; clusters and news make it many times that."""
    opens, seconds = TradingHours().on_day(MarketSettings().first_day).opens, 7 * 3600
    counts = Counter((tick.at - opens) // SECOND_US for tick in day)
    each = [counts[second] for second in range(seconds)]
    assert pvariance(each) > 3 * fmean(each)
    assert max(each) > 10 * fmean(each)


def test_prices_of_a_day_stay_near_each_other(day: list[Tick]) -> None:
    """A symbol moves some percent in a day: more than a tick, less than a crash."""
    prices: dict[str, list[float]] = defaultdict(list)
    for tick in day:
        if isinstance(tick, Trade):
            prices[tick.symbol].append(tick.price)
    ranges = [max(each) / min(each) - 1 for each in prices.values()]
    assert 0.005 < fmean(ranges) < 0.10


def test_symbols_are_never_the_same() -> None:
    assert len({make_symbol(rank) for rank in range(30_000)}) == 30_000


def test_the_first_symbols_are_traded_most(day: list[Tick]) -> None:
    quotes = Counter(tick.symbol for tick in day if isinstance(tick, Quote))
    assert quotes[KNOWN_SYMBOLS[0]] > 2 * quotes[KNOWN_SYMBOLS[7]]
