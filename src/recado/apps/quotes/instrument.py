"""The instruments of the market: symbol, first price, volatility, share of the activity."""

from __future__ import annotations

import math
from dataclasses import dataclass
from random import Random

# Symbols of the São Paulo stock exchange; prices and all other values are invented.
KNOWN_SYMBOLS = (
    "PETR4",
    "VALE3",
    "ITUB4",
    "BBDC4",
    "BBAS3",
    "ABEV3",
    "WEGE3",
    "B3SA3",
    "ELET3",
    "RENT3",
    "SUZB3",
    "PRIO3",
    "GGBR4",
    "RADL3",
    "EQTL3",
    "VIVT3",
    "JBSS3",
    "LREN3",
    "CSAN3",
    "EMBR3",
)

# The share of turnover falls roughly like 1 / rank.
RANK_EXPONENT = 0.9

YEARLY_VOLATILITY_RANGE = (0.18, 0.55)
BETA_RANGE = (0.5, 1.4)
PRICE_RANGE = (8.0, 90.0)  # in reais; an Instrument has cents


@dataclass(frozen=True)
class Instrument:
    symbol: str
    price: float  # in cents, on the first day
    volatility: float  # yearly, of the log price, without the moves of the market
    beta: float  # sensitivity to the moves of the market
    share: float  # of all activity
    spread: int  # in cents, when the market is calm


def make_instruments(count: int, rng: Random) -> list[Instrument]:
    shares = [1 / (rank + 1) ** RANK_EXPONENT for rank in range(count)]
    total = sum(shares)
    return [
        make_instrument(make_symbol(rank), rank, shares[rank] / total, rng) for rank in range(count)
    ]


def make_instrument(symbol: str, rank: int, share: float, rng: Random) -> Instrument:
    low, high = PRICE_RANGE
    price = 100 * low * math.exp(rng.random() * math.log(high / low))
    # A few hundredths of a percent for the busiest instrument, wider for those with less activity.
    spread = max(1, round(price * 0.0003 * (1 + rank / 8)))
    return Instrument(
        symbol,
        float(round(price)),
        rng.uniform(*YEARLY_VOLATILITY_RANGE),
        rng.uniform(*BETA_RANGE),
        share,
        spread,
    )


def make_symbol(rank: int) -> str:
    """Return a known symbol, then AAAA3, BAAA3, …, all different."""
    if rank < len(KNOWN_SYMBOLS):
        return KNOWN_SYMBOLS[rank]
    number, letters = rank - len(KNOWN_SYMBOLS), ""
    for _ in range(4):
        number, letter = divmod(number, 26)
        letters += chr(ord("A") + letter)
    return f"{letters}{3 + number}"
