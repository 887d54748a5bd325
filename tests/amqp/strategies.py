"""Hypothesis strategies for AMQP values: field tables as Python objects and as bytes."""

import struct
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from recado.amqp.values import (
    FieldTable,
    FieldValue,
    Float32,
    Int8,
    Int16,
    Int64,
    LongString,
    ScaledDecimal,
    Timestamp,
    UInt8,
    UInt16,
    UInt32,
)


def unsigned(bits: int) -> st.SearchStrategy[int]:
    return st.integers(0, 2**bits - 1)


def signed(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def short_strings() -> st.SearchStrategy[str]:
    """At most 252 bytes; what happens at 255 has tests of its own."""
    return st.text(max_size=63)


NOT_UTF8 = st.binary(max_size=20).map(lambda octets: octets + b"\xff")

SCALARS: st.SearchStrategy[FieldValue] = st.one_of(
    st.none(),
    st.booleans(),
    signed(8).map(Int8),
    unsigned(8).map(UInt8),
    signed(16).map(Int16),
    unsigned(16).map(UInt16),
    signed(32),
    unsigned(32).map(UInt32),
    signed(64).map(Int64),
    unsigned(64).map(Timestamp),
    st.floats(allow_nan=False),
    st.floats(allow_nan=False, width=32).map(Float32),
    st.builds(ScaledDecimal, unsigned(8), unsigned(32)),
    st.text(max_size=40),
    st.binary(max_size=20),
    NOT_UTF8.map(LongString),
)


def _nest(inner: st.SearchStrategy[FieldValue]) -> st.SearchStrategy[FieldValue]:
    return st.lists(inner, max_size=4) | st.dictionaries(short_strings(), inner, max_size=4)


VALUES: st.SearchStrategy[FieldValue] = st.recursive(SCALARS, _nest, max_leaves=12)


def tables() -> st.SearchStrategy[FieldTable]:
    """Tables of values that decode to what they were, type for type."""
    return st.dictionaries(short_strings(), VALUES, max_size=6)


def _fixed(letter: str, layout: str, numbers: st.SearchStrategy[Any]) -> st.SearchStrategy[bytes]:
    return numbers.map(lambda number: letter.encode() + struct.pack(">" + layout, number))


def _sized(letter: bytes) -> Callable[[bytes], bytes]:
    return lambda octets: letter + struct.pack(">I", len(octets)) + octets


# Built from the letters, without recado's encoder: what any client might send.
WIRE_SCALARS: st.SearchStrategy[bytes] = st.one_of(
    st.just(b"V"),
    _fixed("t", "?", st.booleans()),
    _fixed("b", "b", signed(8)),
    _fixed("B", "B", unsigned(8)),
    _fixed("s", "h", signed(16)),
    _fixed("u", "H", unsigned(16)),
    _fixed("I", "i", signed(32)),
    _fixed("i", "I", unsigned(32)),
    _fixed("l", "q", signed(64)),
    _fixed("T", "Q", unsigned(64)),
    _fixed("d", "d", st.floats()),
    _fixed("f", "f", st.floats(width=32, allow_nan=False)),
    st.tuples(unsigned(8), unsigned(32)).map(lambda pair: b"D" + struct.pack(">BI", *pair)),
    st.binary(max_size=20).map(_sized(b"S")),
    st.text(max_size=20).map(str.encode).map(_sized(b"S")),
    st.binary(max_size=20).map(_sized(b"x")),
)


def _wire_fields(values: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    names = short_strings().map(lambda name: bytes((len(name.encode()),)) + name.encode())
    fields = st.dictionaries(names, values, max_size=4)
    return fields.map(lambda found: b"".join(name + value for name, value in found.items()))


def _wire_nest(inner: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    arrays = st.lists(inner, max_size=4).map(b"".join).map(_sized(b"A"))
    return arrays | _wire_fields(inner).map(_sized(b"F"))


def wire_tables() -> st.SearchStrategy[bytes]:
    values = st.recursive(WIRE_SCALARS, _wire_nest, max_leaves=10)
    return _wire_fields(values).map(_sized(b""))


def typed(value: object) -> object:
    """The value with its types beside it, because `Int8(5) == 5 == 5.0`."""
    if isinstance(value, dict):
        return {key: typed(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [typed(inner) for inner in value]
    return type(value), value
