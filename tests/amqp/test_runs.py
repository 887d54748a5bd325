"""The hot path, compared with simple implementations: scanning publishes and acks, rendering deliveries."""

import struct

from hypothesis import given
from hypothesis import strategies as st

from recado.amqp.frames import encode_content, encode_method_frame
from recado.amqp.methods import BasicAck, BasicPublish
from recado.amqp.properties import Properties, encode_properties
from recado.amqp.runs import _header_cache, render_deliveries, scan_acks, scan_publishes
from recado.amqp.traits import read_traits

from .strategies import unsigned
from .traffic import PROPERTIES, PUBLISHES, Message

NO_LIMIT = 1 << 30


def frames_of(*messages: Message) -> bytes:
    return b"".join(each for message in messages for each in message.frames(1))


def scan(data: bytes, *, most: int = NO_LIMIT, limit: int = NO_LIMIT) -> tuple[int, int] | None:
    """How many messages are found at the beginning, and where they end."""
    header_at = int.from_bytes(data[3:7], "big") + 8
    found = scan_publishes(data, 0, header_at, 1, most, limit)
    return None if found is None else (len(found[0].payloads), found[1])


SMALL = Message(PUBLISHES[0], body=b"abc")


# ── publishes ─────────────────────────────────────────────────────────────────────────────────────────────


@given(st.integers(1, 400), st.integers(1, 400), st.integers(0, 60))
def test_messages_alike_are_found_up_to_the_limit_and_the_end(
    count: int, limit: int, missing: int
) -> None:
    data = frames_of(*[SMALL] * count)
    each = len(data) // count
    whole = max((len(data) - missing) // each, 0)
    found = scan(data[: len(data) - missing], limit=limit)
    expected = min(whole, limit)
    assert found == ((expected, expected * each) if whole else None)


@given(st.integers(1, 100), st.integers(0, 100), st.sampled_from(("body", "end", "other")))
def test_messages_alike_end_where_one_differs(before: int, after: int, how: str) -> None:
    """Where only a body differs it is still alike."""
    odd = bytearray(frames_of(SMALL))
    match how:
        case "body":
            odd = bytearray(frames_of(SMALL._replace(body=b"xyz")))
        case "end":
            odd[-1] = 0
        case _:
            odd = bytearray(frames_of(Message(PUBLISHES[1], body=b"abc")))
    good = frames_of(SMALL)
    found = scan(good * before + odd + good * after)
    count = before + 1 + after if how == "body" else before
    assert found == (count, count * len(good))


@given(st.lists(st.sampled_from(PROPERTIES), min_size=1, max_size=12), st.integers(1, 20))
def test_messages_with_other_traits_end_a_run(properties: list[bytes], limit: int) -> None:
    facts = [read_traits(each) for each in properties]
    same = [each is facts[0] and not each.unbatchable for each in facts]
    messages = [Message(PUBLISHES[0], each, b"x" * i) for i, each in enumerate(properties)]
    data = frames_of(*messages)
    count = max(min([*same, False].index(False), limit), 1)
    assert scan(data, limit=limit) == (count, len(frames_of(*messages[:count])))


def test_what_is_not_here_whole_in_one_body_frame_is_left_to_the_reader() -> None:
    data = frames_of(SMALL)
    publish = len(encode_method_frame(1, PUBLISHES[0]))
    for end in (publish, publish + 18, publish + 25, len(data) - 1):
        assert scan(data[:end]) is None, end
    assert scan(frames_of(SMALL._replace(room=1))) is None
    assert scan(data, most=2) is None
    assert (
        scan(
            frames_of(SMALL._replace(properties=encode_properties(Properties(type="x" * 90)))),
            most=50,
        )
        is None
    )
    other = encode_method_frame(1, BasicPublish("", "q")) + data[publish:].replace(
        b"\x02\x00\x01", b"\x02\x00\x02"
    )
    assert scan(other) is None
    assert (
        scan(data[:publish] + encode_method_frame(2, BasicAck(1, False)) + data[publish:]) is None
    )


def test_a_body_may_be_empty() -> None:
    empty = frames_of(SMALL._replace(body=b""))
    assert scan(empty * 3) == (3, 3 * len(empty))


def test_long_headers_are_found_too() -> None:
    long = frames_of(
        SMALL._replace(properties=encode_properties(Properties(headers={"a": "x" * 600})))
    )
    assert scan(long * 3) == (3, 3 * len(long))


def test_many_different_headers_do_not_fill_the_memory() -> None:
    for i in range(5000):
        properties = encode_properties(Properties(message_id=str(i)))
        assert scan(frames_of(SMALL._replace(properties=properties))) is not None


# ── acks ──────────────────────────────────────────────────────────────────────────────────────────────────


@given(
    st.integers(0, 1000) | st.integers(2**64 - 200, 2**64 - 1),
    st.integers(1, 200),
    st.integers(1, 200),
    st.binary(max_size=30),
)
def test_acks_that_count_up_are_found(first: int, count: int, limit: int, rest: bytes) -> None:
    tags = range(first, min(first + count, 2**64))
    acks = [encode_method_frame(1, BasicAck(tag, False)) for tag in tags]
    found_first, found = scan_acks(b"".join(acks) + rest, 0, limit)
    assert found_first == first
    assert 1 <= found <= min(len(acks), limit)


@given(st.integers(1, 60), st.integers(1, 60), st.sampled_from(("tag", "multiple", "channel")))
def test_no_ack_is_found_that_is_not_one_of_them(before: int, after: int, how: str) -> None:
    acks = [BasicAck(tag, False) for tag in range(1, before + after + 2)]
    frames = [encode_method_frame(1, ack) for ack in acks]
    frames[before] = {
        "tag": encode_method_frame(1, BasicAck(999, False)),
        "multiple": encode_method_frame(1, BasicAck(before + 1, True)),
        "channel": encode_method_frame(2, BasicAck(before + 1, False)),
    }[how]
    _, found = scan_acks(b"".join(frames), 0, NO_LIMIT)
    assert 1 <= found <= before


# ── deliveries ────────────────────────────────────────────────────────────────────────────────────────────


@given(st.binary(), st.binary(), unsigned(32), st.lists(st.binary(), min_size=1))
def test_rendering(prefix: bytes, suffix: bytes, first: int, payloads: list[bytes]) -> None:
    plain = b"".join(
        prefix + struct.pack(">Q", first + i) + suffix + payload
        for i, payload in enumerate(payloads)
    )
    assert render_deliveries(prefix, suffix, first, payloads) == plain


def test_however_many_headers_come_few_are_remembered() -> None:
    method = encode_method_frame(1, BasicPublish("", "q"))
    for size in range(5000):
        data = method + encode_content(1, b"\x00\x00", b"x" * size, 1 << 20)
        assert scan(data) == (1, len(data))
    assert len(_header_cache) <= 4096
