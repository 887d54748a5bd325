"""Basic properties: round trips, comparison with pamqp, and invalid input."""

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import commands

from recado.amqp.errors import AmqpError, AmqpSyntaxError, FrameError
from recado.amqp.properties import Properties, decode_properties, encode_properties
from recado.amqp.values import MAX_ENTRY_COUNT, FieldTable

from .strategies import short_strings, tables, typed, unsigned, wire_tables

TEXT = st.none() | short_strings()
OCTET = st.none() | unsigned(8)
FIELDS = Properties.__struct_fields__


def properties(
    text: st.SearchStrategy[str | None] = TEXT,
    headers: st.SearchStrategy[FieldTable | None] | None = None,
    mode: st.SearchStrategy[int | None] = OCTET,
    timestamp: st.SearchStrategy[int] | None = None,
) -> st.SearchStrategy[Properties]:
    fields: dict[str, st.SearchStrategy[Any]] = dict.fromkeys(FIELDS, text) | {
        "headers": st.none() | tables() if headers is None else headers,
        "delivery_mode": mode,
        "priority": OCTET,
        "timestamp": st.none() | (unsigned(64) if timestamp is None else timestamp),
    }
    return st.fixed_dictionaries(fields).map(lambda values: Properties(**values))


ALL_SET = Properties(
    content_type="text/plain",
    content_encoding="gzip",
    headers={"k": None},
    delivery_mode=2,
    priority=9,
    correlation_id="c",
    reply_to="r",
    expiration="60000",
    message_id="m",
    timestamp=1,
    type="t",
    user_id="guest",
    app_id="a",
    cluster_id="",
)


def test_the_bytes() -> None:
    assert encode_properties(Properties()) == b"\x00\x00"
    assert encode_properties(ALL_SET) == (
        b"\xff\xfc"
        b"\x0atext/plain\x04gzip"
        b"\x00\x00\x00\x03\x01kV"
        b"\x02\x09"
        b"\x01c\x01r\x0560000\x01m"
        b"\x00\x00\x00\x00\x00\x00\x00\x01"
        b"\x01t\x05guest\x01a\x00"
    )


@pytest.mark.parametrize("place", range(len(FIELDS)), ids=FIELDS.__getitem__)
def test_each_has_its_flag(place: int) -> None:
    name = FIELDS[place]
    alone = Properties(**{name: getattr(ALL_SET, name)})
    data = encode_properties(alone)
    assert int.from_bytes(data[:2], "big") == 1 << 15 - place
    assert decode_properties(data) == alone


@given(properties())
def test_there_and_back(wanted: Properties) -> None:
    data = encode_properties(wanted)
    again = decode_properties(data)
    for name in FIELDS:
        assert typed(getattr(again, name)) == typed(getattr(wanted, name))
    assert encode_properties(again) == data


@given(wire_tables())
def test_headers_keep_their_bytes(headers: bytes) -> None:
    data = b"\x20\x00" + headers
    assert encode_properties(decode_properties(data)) == data


@given(st.binary(max_size=255))
def test_strings_keep_their_octets_whatever_they_are(octets: bytes) -> None:
    data = b"\x04\x00" + bytes((len(octets),)) + octets
    assert encode_properties(decode_properties(data)) == data


def test_empty_is_not_absent() -> None:
    empty = Properties(content_type="", headers={}, priority=0, timestamp=0)
    assert decode_properties(encode_properties(empty)) == empty
    assert empty != Properties()


def test_headers_are_limited_unless_asked() -> None:
    many = Properties(headers={str(number): None for number in range(MAX_ENTRY_COUNT + 1)})
    data = encode_properties(many)
    with pytest.raises(AmqpSyntaxError, match="too many entries"):
        decode_properties(data)
    assert decode_properties(data, max_entries=MAX_ENTRY_COUNT + 1) == many


# ── pamqp as oracle ───────────────────────────────────────────────────────────────────────────────

# pamqp is right where no property is empty, delivery mode is 1 or 2, the cluster id is absent, the
# timestamp is before 2106, and keys come sorted.
PAMQP_PROPERTIES = properties(
    text=st.none() | short_strings().filter(bool),
    headers=st.none()
    | st.dictionaries(
        st.text("abcxyz-", max_size=20), st.booleans() | st.text(max_size=9), max_size=4
    ).map(lambda table: dict(sorted(table.items()))),
    mode=st.none() | st.sampled_from([1, 2]),
    timestamp=unsigned(32),
).map(lambda found: Properties(*(getattr(found, name) for name in FIELDS[:-1])))


def pamqp_twin(ours: Properties) -> commands.Basic.Properties:
    fields = {name: getattr(ours, name) for name in FIELDS}
    fields["message_type"] = fields.pop("type")
    fields["cluster_id"] = ""
    if ours.timestamp is not None:
        fields["timestamp"] = datetime.fromtimestamp(ours.timestamp, tz=UTC)
    return commands.Basic.Properties(**fields)


@given(PAMQP_PROPERTIES)
def test_pamqp_writes_and_reads_the_same(ours: Properties) -> None:
    twin = pamqp_twin(ours)
    data = twin.marshal()
    assert encode_properties(ours) == data
    assert decode_properties(data) == ours
    read = commands.Basic.Properties()
    read.unmarshal(int.from_bytes(data[:2], "big"), data[2:])
    assert read == twin


def test_where_pamqp_is_wrong_and_recado_is_not() -> None:
    empty = Properties(correlation_id="")
    assert pamqp_twin(empty).marshal() == b"\x00\x00"  # pamqp omits empty properties
    assert encode_properties(empty) == b"\x04\x00\x00"


# ── bad input ─────────────────────────────────────────────────────────────────────────────────────


@given(properties())
def test_every_truncation_is_a_frame_error(wanted: Properties) -> None:
    data = encode_properties(wanted)
    for length in range(len(data)):
        with pytest.raises(FrameError):
            decode_properties(data[:length])


@given(properties(), st.binary(min_size=1, max_size=4))
def test_bytes_too_many_are_a_frame_error(wanted: Properties, more: bytes) -> None:
    with pytest.raises(FrameError, match=f"followed by {len(more)} stray bytes"):
        decode_properties(encode_properties(wanted) + more)


@given(st.binary(max_size=60))
def test_random_bytes_decode_or_are_a_frame_error(data: bytes) -> None:
    try:
        decoded = decode_properties(data)
    except AmqpError:
        return
    assert decode_properties(encode_properties(decoded)) == decoded or "nan" in repr(decoded)


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"", "truncated"),
        (b"\x80", "truncated"),
        (b"\x80\x00", "truncated"),
        (b"\x80\x00\x05text", "truncated"),
        (b"\x00\x40\x00\x00", "truncated"),
        (b"\x00\x01", "undefined property"),
        (b"\x00\x01\x00\x00", "undefined property"),
        (b"\x00\x02", "undefined property"),
        (b"\x20\x00\x00\x00\x00\x03\x01kZ", "unknown type 'Z'"),
    ],
)
def test_what_is_wrong_is_said(data: bytes, complaint: str) -> None:
    with pytest.raises(FrameError, match=complaint):
        decode_properties(data)


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        (Properties(priority=256), "priority: 256 is not an unsigned integer of 8 bits"),
        (Properties(timestamp=-1), "timestamp: -1 is not an unsigned integer of 64 bits"),
        (Properties(message_id="x" * 256), "message_id: a short string is limited to 255 bytes"),
        (Properties(type="\ud800"), "type: .*surrogates not allowed"),
        (Properties(headers={"k": 2**63}), "headers: .* does not fit"),
    ],
)
def test_a_local_caller_is_told_what_does_not_fit(wrong: Properties, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        encode_properties(wrong)
