"""Method payloads: round trips of every method, comparison with pamqp, and invalid input."""

import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pamqp import base, commands

from recado.amqp.codec import decode_method, encode_method
from recado.amqp.errors import AmqpError, CommandInvalidError, FrameError
from recado.amqp.methods import (
    METHODS,
    AccessRequest,
    AccessRequestOk,
    BasicDeliver,
    BasicNack,
    BasicPublish,
    BasicQos,
    BasicReturn,
    ChannelOpenOk,
    ConnectionClose,
    ConnectionOpen,
    ConnectionStartOk,
    ExchangeDeclare,
    Method,
    QueueBind,
    QueueDeclare,
    QueueDeclareOk,
    TxSelect,
)
from recado.amqp.values import Int8

from .strategies import short_strings, signed, tables, typed, unsigned

WIRE: dict[str, st.SearchStrategy[Any]] = {
    "bit": st.booleans(),
    "octet": unsigned(8),
    "short": unsigned(16),
    "long": unsigned(32),
    "longlong": unsigned(64),
    "shortstr": short_strings(),
    "longstr": st.binary(max_size=60),
    "table": tables(),
}

# Where pamqp is right: it has signed delivery tags, text for octets, and the tables that
# test_values names.
PAMQP_WIRE = WIRE | {
    "longlong": unsigned(63),
    "longstr": st.text(max_size=60).map(str.encode),
    "table": st.dictionaries(
        st.text("abcxyz-", max_size=20),
        st.none() | st.booleans() | signed(64) | st.text(max_size=9),
        max_size=4,
    ),
}


def methods(
    kinds: list[type[Method]], wire: dict[str, st.SearchStrategy[Any]]
) -> st.SearchStrategy[Method]:
    def build(kind: type[Method]) -> st.SearchStrategy[Method]:
        fields = {
            name: wire[kind.__annotations__[name].__metadata__[0]]
            for name in kind.__struct_fields__
        }
        return st.fixed_dictionaries(fields).map(lambda values: kind(**values))

    return st.sampled_from(kinds).flatmap(build)


ALL = list(METHODS.values())
EVERY_METHOD = methods(ALL, WIRE)
IN_PAMQP = [kind for kind in ALL if kind.class_id != AccessRequest.class_id]


# ── there and back ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.name)
@settings(max_examples=25)  # of each of 66 methods
@given(data=st.data())
def test_every_method_there_and_back(kind: type[Method], data: st.DataObject) -> None:
    method = data.draw(methods([kind], WIRE))
    again = decode_method(encode_method(method))
    assert type(again) is kind
    for name in kind.__struct_fields__:
        assert typed(getattr(again, name)) == typed(getattr(method, name))


@pytest.mark.parametrize(
    ("method", "payload"),
    [
        (TxSelect(), b"\x00\x5a\x00\x0a"),
        (BasicNack(1, True, False), b"\x00\x3c\x00\x78" + bytes(7) + b"\x01\x01"),
        (BasicNack(1, False, True), b"\x00\x3c\x00\x78" + bytes(7) + b"\x01\x02"),
        (BasicQos(0, 10, True), b"\x00\x3c\x00\x0a" + bytes(4) + b"\x00\x0a\x01"),
        (BasicPublish("", "hello"), b"\x00\x3c\x00\x28\x00\x00\x00\x05hello\x00"),
        (
            BasicDeliver("c", 2, True, "x", "k"),
            b"\x00\x3c\x00\x3c\x01c" + bytes(7) + b"\x02\x01\x01x\x01k",
        ),
        (
            QueueDeclare("q", durable=True, no_wait=True, arguments={"p": Int8(9)}),
            b"\x00\x32\x00\x0a\x00\x00\x01q\x12\x00\x00\x00\x04\x01pb\x09",
        ),
        (
            ExchangeDeclare("x", "topic", True, True, True, True, True),
            b"\x00\x28\x00\x0a\x00\x00\x01x\x05topic\x1f\x00\x00\x00\x00",
        ),
        (QueueDeclareOk("q", 3, 4), b"\x00\x32\x00\x0b\x01q\x00\x00\x00\x03\x00\x00\x00\x04"),
        (ConnectionOpen("/"), b"\x00\x0a\x00\x28\x01/\x00\x00"),
        (ChannelOpenOk(), b"\x00\x14\x00\x0b\x00\x00\x00\x00"),
        (AccessRequest("/data", False, True, False, True, True), b"\x00\x1e\x00\x0a\x05/data\x1a"),
        (AccessRequestOk(), b"\x00\x1e\x00\x0b\x00\x01"),
    ],
)
def test_the_bytes(method: Method, payload: bytes) -> None:
    assert encode_method(method) == payload
    assert decode_method(payload) == method


@pytest.mark.parametrize("text", ["x" * 255, "é" * 127 + "x", "😀" * 63 + "abc"])
def test_the_longest_short_string(text: str) -> None:
    method = BasicPublish("", text)
    assert encode_method(method)[7] == 255
    assert decode_method(encode_method(method)) == method


def test_what_a_client_puts_into_reserved_fields_is_ignored() -> None:
    assert decode_method(b"\x00\x3c\x00\x28\xff\xff\x00\x01k\x01") == BasicPublish("", "k", True)
    assert decode_method(b"\x00\x0a\x00\x28\x01/\x03abc\x01") == ConnectionOpen("/")


def test_bits_beyond_the_defined_are_ignored() -> None:
    assert decode_method(b"\x00\x3c\x00\x28\x00\x00\x00\x01k\xfe") == BasicPublish(
        "", "k", False, True
    )


# ── pamqp as oracle ───────────────────────────────────────────────────────────────────────────────


def pamqp_twin(method: Method) -> base.Frame:
    """The same method as a pamqp frame, without pamqp's opinions on names."""
    known: Any = commands.INDEX_MAPPING[method.class_id << 16 | method.method_id]
    lenient = type("Lenient", (known,), {"validate": lambda _: None, "__init__": lambda _: None})
    twin: base.Frame = lenient()
    for ours, theirs in zip(type(method).__annotations__, known.attributes(), strict=True):
        value = getattr(method, ours)
        setattr(twin, theirs, value.decode() if isinstance(value, bytes) else value)
    return twin


def pamqp_fields(frame: base.Frame) -> list[object]:
    return [getattr(frame, name) for name in frame.attributes()]


@given(methods(IN_PAMQP, PAMQP_WIRE))
def test_pamqp_reads_what_we_write(method: Method) -> None:
    twin = pamqp_twin(method)
    expected = pamqp_fields(twin)
    twin.unmarshal(encode_method(method)[4:])
    assert pamqp_fields(twin) == expected


@given(methods(IN_PAMQP, PAMQP_WIRE))
def test_we_read_what_pamqp_writes(method: Method) -> None:
    twin = pamqp_twin(method)
    ids = struct.pack(">HH", method.class_id, method.method_id)
    assert decode_method(ids + twin.marshal()) == method


def test_where_pamqp_is_wrong_and_recado_is_not() -> None:
    tag = BasicNack(2**63)
    assert decode_method(encode_method(tag)) == tag
    twin = pamqp_twin(tag)
    twin.unmarshal(encode_method(tag)[4:])
    assert pamqp_fields(twin)[0] == -(2**63)  # it takes delivery tags for signed numbers

    response = ConnectionStartOk(response=b"\x00guest\x00\xff\xfe")
    assert decode_method(encode_method(response)) == response
    with pytest.raises(UnicodeDecodeError):
        pamqp_twin(response)  # it writes only text where AMQP has octets


# ── bad input ─────────────────────────────────────────────────────────────────────────────────────


@given(EVERY_METHOD)
def test_every_truncation_is_a_frame_error(method: Method) -> None:
    payload = encode_method(method)
    for length in range(len(payload)):
        with pytest.raises(FrameError):
            decode_method(payload[:length])


@given(EVERY_METHOD, st.binary(min_size=1, max_size=4))
def test_bytes_too_many_are_a_frame_error(method: Method, more: bytes) -> None:
    with pytest.raises(FrameError, match=f"{method.name} is followed by {len(more)} stray bytes"):
        decode_method(encode_method(method) + more)


def decodes_or_faults(payload: bytes) -> None:
    try:
        method = decode_method(payload)
    except AmqpError:
        return
    assert decode_method(encode_method(method)) == method or "nan" in repr(method)


@given(st.sampled_from(ALL), st.binary(max_size=60))
def test_random_arguments_decode_or_are_a_fault(kind: type[Method], arguments: bytes) -> None:
    decodes_or_faults(struct.pack(">HH", kind.class_id, kind.method_id) + arguments)


@given(st.binary(max_size=60))
def test_random_bytes_decode_or_are_a_fault(payload: bytes) -> None:
    decodes_or_faults(payload)


@given(EVERY_METHOD, st.data())
def test_a_changed_byte_decodes_or_is_a_fault(method: Method, draw: st.DataObject) -> None:
    payload = bytearray(encode_method(method))
    payload[draw.draw(st.integers(0, len(payload) - 1))] = draw.draw(st.integers(0, 255))
    decodes_or_faults(bytes(payload))


@pytest.mark.parametrize(
    ("payload", "complaint"),
    [
        (b"", "method frame is truncated"),
        (b"\x00\x3c\x00", "method frame is truncated"),
        (
            b"\x00\x3c\x00\x28\x00\x00\x02\xff\xfe\x00\x00",
            "basic.publish contains a string that is not",
        ),
        (b"\x00\x3c\x00\x28\x00\x00\x02x", "basic.publish is truncated"),
        (b"\x00\x3c\x00\x28\x00\x00\x00\x00", "basic.publish is truncated"),
        (b"\x00\x0a\x00\x15\x00\x00\x00\x05hell", "connection.secure-ok is truncated"),
        (b"\x00\x0a\x00\x15\x00\x00\x00", "connection.secure-ok is truncated"),
        (
            b"\x00\x32\x00\x0a\x00\x00\x00\x00\x00\x00\x00\x03\x01kZ",
            "queue.declare: field table contains a value of unknown type 'Z'",
        ),
    ],
)
def test_what_is_wrong_is_said(payload: bytes, complaint: str) -> None:
    with pytest.raises(FrameError, match=complaint):
        decode_method(payload)


@pytest.mark.parametrize("ids", [(60, 41), (61, 10), (0, 0), (65535, 65535)])
def test_unknown_methods(ids: tuple[int, int]) -> None:
    with pytest.raises(CommandInvalidError, match=f"unknown method {ids[1]} of class {ids[0]}"):
        decode_method(struct.pack(">HH", *ids) + b"anything")


@pytest.mark.parametrize(
    ("method", "complaint"),
    [
        (BasicNack(-1), "basic.nack, delivery_tag: -1 is not an unsigned integer of 64 bits"),
        (
            BasicQos(2**32),
            "basic.qos, prefetch_size: 4294967296 is not an unsigned integer of 32 bits",
        ),
        (BasicQos(0, 2**16), "basic.qos, prefetch_count"),
        (
            ConnectionClose(200, "é" * 128),
            "connection.close, reply_text: a short string is limited to 255",
        ),
        (BasicReturn(312, "no\ud800"), "basic.return, reply_text: .*surrogates not allowed"),
        (QueueBind(arguments={"k": 2**64}), "queue.bind, arguments: .*does not fit"),
    ],
)
def test_a_local_caller_is_told_what_does_not_fit(method: Method, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        encode_method(method)


def test_a_key_that_is_not_utf_8_is_passed_on_by_brokers_and_refused_by_ours() -> None:
    key = b"\xff.new".decode(errors="surrogateescape")
    for told in (BasicDeliver("c", 1, False, "e", key), BasicReturn(312, "NO_ROUTE", "e", key)):
        encoded = encode_method(told)
        assert b"\x05\xff.new" in encoded
        assert decode_method(encoded) == told
    published = encode_method(BasicPublish("e", "k.new")).replace(b"k.new", b"\xff.new")
    with pytest.raises(FrameError, match="not UTF-8"):
        decode_method(published)
