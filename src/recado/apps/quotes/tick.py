"""The messages of the market: quotes, trades, and the bell at the start of each phase of the day.

Bodies have two forms. JSON is for people, selectors and other programs. The compact form is for speed, and has
no symbol, because that is the key of the message:

    quote = | 1 u8 | at i64 | bid u32 | ask u32 | bid size u32 | ask size u32 |
    trade = | 2 u8 | at i64 | price u32 | size u32 | side u8 |
    bell  = | 3 u8 | at i64 | phase u8 |

Little-endian; `at` is in µs since 1970 in the market's own time, and prices are in cents.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from enum import Enum

import msgspec

# The key of messages about the whole market.
MARKET_KEY = "MARKET"


class MarketPhase(Enum):
    """A phase of the trading day."""

    OPENING = "opening auction"
    TRADING = "trading"
    CLOSING = "closing auction"
    CLOSED = "closed"


class Side(Enum):
    """Which side initiated a trade: a buyer took the ask, or a seller the bid; or it was an auction."""

    BUY = "buy"
    SELL = "sell"
    AUCTION = "auction"


class Quote(msgspec.Struct, frozen=True, tag_field="kind", tag="quote"):
    symbol: str
    at: int
    bid: float
    ask: float
    bid_size: int
    ask_size: int


class Trade(msgspec.Struct, frozen=True, tag_field="kind", tag="trade"):
    symbol: str
    at: int
    price: float
    size: int
    side: Side


class Bell(msgspec.Struct, frozen=True, tag_field="kind", tag="bell"):
    at: int
    phase: MarketPhase


Tick = Quote | Trade | Bell

encode_json: Callable[[Tick], bytes] = msgspec.json.Encoder().encode
decode_json: Callable[[bytes], Tick] = msgspec.json.Decoder(Tick).decode

QUOTE_STRUCT = struct.Struct("<BqIIII")
TRADE_STRUCT = struct.Struct("<BqIIB")
BELL_STRUCT = struct.Struct("<BqB")
QUOTE_TYPE, TRADE_TYPE, BELL_TYPE = 1, 2, 3

SIDES = tuple(Side)
PHASES = tuple(MarketPhase)


class TickError(ValueError):
    """A message body is not a tick."""


def tick_key(tick: Tick) -> str:
    return MARKET_KEY if isinstance(tick, Bell) else tick.symbol


def encode_compact(tick: Tick) -> bytes:
    match tick:
        case Quote(_, at, bid, ask, bid_size, ask_size):
            return QUOTE_STRUCT.pack(
                QUOTE_TYPE, at, to_cents(bid), to_cents(ask), bid_size, ask_size
            )
        case Trade(_, at, price, size, side):
            return TRADE_STRUCT.pack(TRADE_TYPE, at, to_cents(price), size, SIDES.index(side))
        case Bell(at, phase):
            return BELL_STRUCT.pack(BELL_TYPE, at, PHASES.index(phase))


def decode(key: str, body: bytes) -> Tick:
    """Decode a tick in either form. Raises TickError.

    JSON starts with a brace, which is no type of the compact form.
    """
    try:
        if body[:1] == b"{":
            return decode_json(body)
        return decode_compact(key, body)
    except (msgspec.DecodeError, struct.error, LookupError) as error:
        raise TickError(f"the body of {key!r} is not a tick: {error}") from error


def decode_compact(key: str, body: bytes) -> Tick:
    match body[0]:
        case 1:
            _, at, bid, ask, bid_size, ask_size = QUOTE_STRUCT.unpack(body)
            return Quote(key, at, bid / 100, ask / 100, bid_size, ask_size)
        case 2:
            _, at, price, size, side = TRADE_STRUCT.unpack(body)
            return Trade(key, at, price / 100, size, SIDES[side])
        case 3:
            _, at, phase = BELL_STRUCT.unpack(body)
            return Bell(at, PHASES[phase])
        case other:
            raise LookupError(f"kind {other}")


def to_cents(price: float) -> int:
    return round(price * 100)
