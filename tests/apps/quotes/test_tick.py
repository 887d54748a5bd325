"""Ticks: both forms of body are equivalent, and other bodies are refused with their key."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recado.apps.quotes.tick import (
    MARKET_KEY,
    Bell,
    MarketPhase,
    Quote,
    Side,
    Tick,
    TickError,
    Trade,
    decode,
    encode_compact,
    encode_json,
    tick_key,
)

MOMENTS = st.integers(0, 2**62)
SIZES = st.integers(0, 2**32 - 1)
PRICES = st.integers(1, 2**32 - 1).map(lambda cents: cents / 100)
SYMBOLS = st.text("ABCDEFGH345", min_size=1, max_size=6)
TICKS: st.SearchStrategy[Tick] = st.one_of(
    st.builds(Quote, SYMBOLS, MOMENTS, PRICES, PRICES, SIZES, SIZES),
    st.builds(Trade, SYMBOLS, MOMENTS, PRICES, SIZES, st.sampled_from(Side)),
    st.builds(Bell, MOMENTS, st.sampled_from(MarketPhase)),
)


@given(TICKS)
def test_both_forms_give_the_tick_back(tick: Tick) -> None:
    assert decode(tick_key(tick), encode_json(tick)) == tick
    assert decode(tick_key(tick), encode_compact(tick)) == tick


def test_json_is_what_a_selector_reads() -> None:
    trade = Trade("PETR4", 1_772_445_600_000_000, 38.12, 500, Side.BUY)
    assert json.loads(encode_json(trade)) == {
        "kind": "trade",
        "symbol": "PETR4",
        "at": 1_772_445_600_000_000,
        "price": 38.12,
        "size": 500,
        "side": "buy",
    }


def test_the_key_is_the_symbol_and_a_bell_is_for_everybody() -> None:
    assert tick_key(Quote("VALE3", 0, 1.0, 1.01, 100, 100)) == "VALE3"
    assert tick_key(Bell(0, MarketPhase.TRADING)) == MARKET_KEY


def test_the_compact_form_is_small() -> None:
    quote = Quote("VALE3", 1_772_445_600_000_000, 61.2, 61.21, 300, 500)
    assert len(encode_compact(quote)) == 25
    assert len(encode_json(quote)) > 100


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b'{"kind":"rumour"}', b"\x00", b"\x01\x02", b"\x03" + bytes(8) + b"\x09", b"\xff"],
)
def test_what_is_no_tick_is_refused(body: bytes) -> None:
    with pytest.raises(TickError, match="the body of 'VALE3' is not a tick"):
        decode("VALE3", body)


@given(st.binary(max_size=64))
def test_no_body_does_worse_than_being_refused(body: bytes) -> None:
    with suppress(TickError):
        decode("VALE3", body)
