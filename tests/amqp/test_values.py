"""Field tables: every type letter, the limits, and invalid input."""

import struct
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from enum import IntEnum, StrEnum

import pamqp.decode
import pamqp.encode
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recado.amqp.errors import AmqpError, AmqpSyntaxError, FrameError
from recado.amqp.values import (
    MAX_ENTRY_COUNT,
    MAX_NESTING_LEVEL,
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
    decode_table,
    encode_table,
)

from .strategies import short_strings, signed, tables, typed, wire_tables


def sized(octets: bytes) -> bytes:
    return struct.pack(">I", len(octets)) + octets


def table_of(value: bytes) -> bytes:
    """A table whose only field, `k`, has the value with these bytes."""
    return sized(b"\x01k" + value)


def decoded(value: bytes) -> FieldValue:
    data = table_of(value)
    table, end = decode_table(data, 0)
    assert end == len(data)
    return table["k"]


def encoded(value: FieldValue) -> bytes:
    return encode_table({"k": value})[6:]


# ── letters ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("value", "octets"),
    [
        (True, b"t\x01"),
        (False, b"t\x00"),
        (Int8(-2), b"b\xfe"),
        (UInt8(254), b"B\xfe"),
        (Int16(-2), b"s\xff\xfe"),
        (UInt16(65534), b"u\xff\xfe"),
        (-2, b"I\xff\xff\xff\xfe"),
        (UInt32(2**32 - 2), b"i\xff\xff\xff\xfe"),
        (Int64(-2), b"l\xff\xff\xff\xff\xff\xff\xff\xfe"),
        (Timestamp(2**64 - 2), b"T\xff\xff\xff\xff\xff\xff\xff\xfe"),
        (Float32(0.5), b"f\x3f\x00\x00\x00"),
        (0.1, b"d\x3f\xb9\x99\x99\x99\x99\x99\x9a"),
        (ScaledDecimal(2, 314), b"D\x02\x00\x00\x01\x3a"),
        ("olá", b"S\x00\x00\x00\x04ol\xc3\xa1"),
        (LongString(b"\xff"), b"S\x00\x00\x00\x01\xff"),
        (b"ol\xc3\xa1", b"x\x00\x00\x00\x04ol\xc3\xa1"),
        ([Int8(1), None, []], b"A\x00\x00\x00\x08b\x01VA\x00\x00\x00\x00"),
        ({"a": None, "": 1}, b"F\x00\x00\x00\x09\x01aV\x00I\x00\x00\x00\x01"),
        (None, b"V"),
    ],
)
def test_each_letter_both_ways(value: FieldValue, octets: bytes) -> None:
    assert encoded(value) == octets
    assert typed(decoded(octets)) == typed(value)


def test_two_letters_leave_as_their_twins() -> None:
    assert encoded(decoded(b"L" + b"\xff" * 8)) == b"l" + b"\xff" * 8
    assert encoded(decoded(b"t\x7f")) == b"t\x01"


class Colour(IntEnum):
    RED = 7


class Size(StrEnum):
    SMALL = "s"


@pytest.mark.parametrize(
    ("value", "octets"),
    [
        (2**31 - 1, b"I\x7f\xff\xff\xff"),
        (2**31, b"l\x00\x00\x00\x00\x80\x00\x00\x00"),
        (-(2**31), b"I\x80\x00\x00\x00"),
        (-(2**31) - 1, b"l\xff\xff\xff\xff\x7f\xff\xff\xff"),
        (datetime(1970, 1, 1, 0, 0, 5, 999, tzinfo=UTC), b"T" + bytes(7) + b"\x05"),
        (datetime(1970, 1, 1, 2, tzinfo=timezone(timedelta(hours=2))), b"T" + bytes(8)),
        (Colour.RED, b"I\x00\x00\x00\x07"),
        (Size.SMALL, b"S\x00\x00\x00\x01s"),
    ],
)
def test_plain_values_get_the_natural_letter(value: FieldValue, octets: bytes) -> None:
    assert encoded(value) == octets


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        (Int8(128), "128 does not fit into a field of type 'b'"),
        (UInt8(-1), "type 'B'"),
        (Int16(2**15), "type 's'"),
        (UInt16(2**16), "type 'u'"),
        (UInt32(2**32), "type 'i'"),
        (Int64(2**63), "type 'l'"),
        (2**63, "type 'l'"),
        (-(2**63) - 1, "type 'l'"),
        (Timestamp(-1), "type 'T'"),
        (Float32(1e300), "type 'f'"),
        (ScaledDecimal(256, 0), "type 'D'"),
        (ScaledDecimal(0, -1), "type 'D'"),
        (datetime(1969, 1, 1, tzinfo=UTC), "type 'T'"),
        (datetime(2024, 1, 1), "has no time zone"),
        ("\ud800", "surrogates not allowed"),
        ({"é" * 128: 1}, "limited to 255 bytes, this one has 256"),
        ({1, 2}, "cannot contain a set"),
        ([object()], "cannot contain a object"),
    ],
)
def test_a_local_caller_is_told_what_does_not_fit(value: FieldValue, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        encode_table({"k": value})


# ── round trips ───────────────────────────────────────────────────────────────────────────────────


@given(tables())
def test_what_is_encoded_decodes_to_the_same_types(table: FieldTable) -> None:
    data = encode_table(table)
    again, end = decode_table(data, 0)
    assert end == len(data)
    assert typed(again) == typed(table)


@given(wire_tables())
def test_what_is_decoded_encodes_to_the_same_bytes(data: bytes) -> None:
    table, _ = decode_table(data, 0)
    assert encode_table(table) == data


@given(wire_tables(), st.binary(max_size=9), st.binary(max_size=9))
def test_a_table_is_found_amid_other_bytes(data: bytes, before: bytes, after: bytes) -> None:
    alone, _ = decode_table(data, 0)
    amid, end = decode_table(before + data + after, len(before))
    assert encode_table(amid) == encode_table(alone)
    assert end == len(before) + len(data)


def test_the_longest_key() -> None:
    table: FieldTable = {"é" * 127 + "x": 1}
    data = encode_table(table)
    assert data[4] == 255
    assert decode_table(data, 0)[0] == table


def test_of_two_fields_with_one_name_the_first_counts() -> None:
    table, _ = decode_table(sized(b"\x01kb\x01" + b"\x01jV" + b"\x01kb\x02"), 0)
    assert table == {"k": 1, "j": None}


# ── limits ────────────────────────────────────────────────────────────────────────────────────────


def nested(depth: int, *, arrays: bool) -> FieldTable:
    """A table of so many levels, itself counted."""
    value: FieldValue = None
    for _ in range(depth - 1):
        value = [value] if arrays else {"k": value}
    return {"k": value}


def wire_nested(depth: int, letter: bytes) -> bytes:
    value = b"V"
    for _ in range(depth - 1):
        value = letter + sized(value if letter == b"A" else b"\x01k" + value)
    return table_of(value)


@pytest.mark.parametrize("letter", [b"A", b"F"])
def test_depth(letter: bytes) -> None:
    deepest = nested(MAX_NESTING_LEVEL, arrays=letter == b"A")
    data = wire_nested(MAX_NESTING_LEVEL, letter)
    assert encode_table(deepest) == data
    assert decode_table(data, 0) == (deepest, len(data))
    with pytest.raises(ValueError, match="more than 16 nested levels"):
        encode_table(
            {"k": deepest} if letter == b"F" else nested(MAX_NESTING_LEVEL + 1, arrays=True)
        )
    with pytest.raises(AmqpSyntaxError, match="more than 16 nested levels"):
        decode_table(wire_nested(MAX_NESTING_LEVEL + 1, letter), 0)


def test_depth_is_how_deep_not_how_many() -> None:
    wide: FieldTable = {str(number): [{}, {}] for number in range(3 * MAX_NESTING_LEVEL)}
    assert decode_table(encode_table(wide), 0)[0] == wide


def test_a_table_in_itself_is_refused() -> None:
    table: FieldTable = {}
    table["k"] = table
    with pytest.raises(ValueError, match="more than 16 nested levels"):
        encode_table(table)


@pytest.mark.parametrize(
    ("full", "one_more"),
    [
        (
            {str(number): None for number in range(MAX_ENTRY_COUNT)},
            {str(number): None for number in range(MAX_ENTRY_COUNT + 1)},
        ),
        ({"k": [None] * (MAX_ENTRY_COUNT - 1)}, {"k": [None] * MAX_ENTRY_COUNT}),
        (
            {"a": [None] * 511, "b": {"c": [None] * 510}},
            {"a": [None] * 511, "b": {"c": [None] * 511}},
        ),
    ],
)
def test_entries_are_counted_in_all_levels_together(full: FieldTable, one_more: FieldTable) -> None:
    assert decode_table(encode_table(full), 0)[0] == full
    data = encode_table(one_more)
    with pytest.raises(AmqpSyntaxError, match="too many entries"):
        decode_table(data, 0)
    assert decode_table(data, 0, max_entries=MAX_ENTRY_COUNT + 1)[0] == one_more


# ── bad input ─────────────────────────────────────────────────────────────────────────────────────


@given(wire_tables())
def test_every_truncation_is_a_frame_error(data: bytes) -> None:
    for length in range(len(data)):
        with pytest.raises(FrameError):
            decode_table(data[:length], 0)


def decodes_or_faults(data: bytes) -> None:
    try:
        _, end = decode_table(data, 0)
    except AmqpError:
        return
    assert end <= len(data)


@given(st.binary(max_size=80))
def test_random_bytes_decode_or_are_a_frame_error(data: bytes) -> None:
    decodes_or_faults(data)
    decodes_or_faults(sized(data))


@given(wire_tables(), st.data())
def test_a_changed_byte_decodes_or_is_a_frame_error(data: bytes, draw: st.DataObject) -> None:
    changed = bytearray(data)
    changed[draw.draw(st.integers(0, len(data) - 1))] = draw.draw(st.integers(0, 255))
    decodes_or_faults(bytes(changed))


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (table_of(b"Z"), "unknown type 'Z'"),
        (table_of(b"\x00"), "unknown type"),  # which pamqp takes for nothing
        (sized(b"\x02\xff\xfeV"), "name that is not UTF-8"),
        (sized(b"\x01k"), "truncated"),
        (sized(b"\x01kI\x00"), "truncated"),
        (sized(b"\x01kI\x00") + b"\x00\x00\x00", "exceeds its table"),
        (sized(b"\x01kS\x00\x00\x00\x05") + b"hello", "exceeds its table"),
        (sized(b"\xff"), "truncated"),
        (table_of(b"F" + sized(b"\x01kI\x00")) + b"\x00\x00\x00", "exceeds its table"),
        (table_of(b"A" + sized(b"I\x00")) + b"\x00\x00\x00", "exceeds its table"),
        (table_of(b"A\x00\x00\x00\x09V"), "truncated"),
        # a table that claims bytes beyond the data, and a string in it that claims the same
        (b"\x00\x00\x00\x10\x01kS\x00\x00\x00\x09hell", "truncated"),
        (b"\xff\xff\xff\xff", "truncated"),
        (b"", "truncated"),
    ],
)
def test_what_is_wrong_is_said(data: bytes, complaint: str) -> None:
    with pytest.raises(FrameError, match=complaint):
        decode_table(data, 0)


# ── pamqp as oracle ───────────────────────────────────────────────────────────────────────────────

# pamqp is right about these; its keys are short, sorted, and its floats have 32 bits.
PAMQP_KEYS = st.text(max_size=32)
PAMQP_SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    signed(64),
    st.floats(width=32, allow_nan=False),
    st.text(max_size=20),
    st.binary(max_size=20).map(bytearray),
    st.datetimes(datetime(1970, 1, 1), datetime(2100, 1, 1)).map(
        lambda moment: moment.replace(microsecond=0, tzinfo=UTC)
    ),
    st.builds(
        lambda digits, scale: Decimal(digits).scaleb(-scale),
        st.integers(0, 2**31 - 1),
        st.integers(0, 9),
    ),
)
PAMQP_TABLES = st.dictionaries(
    PAMQP_KEYS,
    st.recursive(
        PAMQP_SCALARS,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(PAMQP_KEYS, inner, max_size=3),
        max_leaves=8,
    ),
    max_size=5,
)


def as_pamqp(value: object) -> object:
    """What pamqp decodes where recado decodes this."""
    match value:
        case Timestamp():
            return datetime.fromtimestamp(value, tz=UTC)
        case ScaledDecimal():
            return Decimal(value.digits).scaleb(-value.scale)
        case dict():
            return {key: as_pamqp(inner) for key, inner in value.items()}
        case list():
            return [as_pamqp(inner) for inner in value]
        case _:
            return value


@given(PAMQP_TABLES)
def test_tables_of_pamqp(table: dict[str, object]) -> None:
    data = pamqp.encode.field_table(table)  # type: ignore[arg-type]
    ours, end = decode_table(data, 0)
    assert end == len(data)
    assert as_pamqp(ours) == table
    assert encode_table(ours) == data


@given(
    st.dictionaries(
        short_strings(),
        st.one_of(
            st.none(), st.booleans(), signed(64), st.floats(allow_nan=False), st.text(max_size=20)
        ),
        max_size=5,
    )
)
def test_pamqp_reads_our_tables(table: FieldTable) -> None:
    data = encode_table(table)
    assert pamqp.decode.field_table(data) == (len(data), table)


def test_where_pamqp_is_wrong_and_recado_is_not() -> None:
    """Each of these is why the strategies above are narrower than AMQP."""

    def through_pamqp(table: FieldTable) -> object:
        return pamqp.decode.field_table(pamqp.encode.field_table(table))[1]  # type: ignore[arg-type]

    def through_recado(table: FieldTable) -> FieldTable:
        return decode_table(encode_table(table), 0)[0]

    tenth: FieldTable = {"k": 0.1}
    assert through_pamqp(tenth) != tenth  # rounded to 32 bits
    assert through_recado(tenth) == tenth

    long_key: FieldTable = {"k" * 200: 1}
    assert through_pamqp(long_key) == {"k" * 128: 1}  # cut
    assert through_recado(long_key) == long_key

    unsorted: FieldTable = {"b": 1, "a": 2}
    assert list(decode_table(pamqp.encode.field_table(unsorted), 0)[0]) == ["a", "b"]  # type: ignore[arg-type]
    assert list(through_recado(unsorted)) == ["b", "a"]

    late = table_of(b"T" + (2**33).to_bytes(8, "big"))
    assert pamqp.decode.field_table(late)[1]["k"] == datetime.fromtimestamp(  # as milliseconds
        2**33 / 1000, tz=UTC
    )
    assert decode_table(late, 0)[0] == {"k": 2**33}


def test_a_decimal_is_a_number() -> None:
    assert float(ScaledDecimal(2, 314)) == 3.14
    assert float(ScaledDecimal(255, 1)) == 1e-255
