"""Runs of deliveries, compared with a reader that handles one message at a time."""

from collections.abc import Iterable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recado.amqp.deliveries import Delivered, DeliveryRoute
from recado.amqp.errors import FrameError
from recado.amqp.events import ContentReceived, Event, MethodReceived
from recado.amqp.frames import (
    FRAME_END_CODE,
    encode_frame,
    encode_method_frame,
    extract_body,
    extract_properties,
)
from recado.amqp.methods import BasicDeliver, BasicGetEmpty
from recado.amqp.reader import FrameReader

from .traffic import FRAME_MAX, PROPERTIES, Message, bytewise

SMALL = BasicDeliver("consumer", 1, False, "x", "key")


def delivery(
    tag: int, body: bytes = b"abc", properties: bytes = PROPERTIES[0], **route: object
) -> Message:
    fields = {"consumer_tag": "consumer", "exchange": "x", "routing_key": "key", **route}
    return Message(BasicDeliver(delivery_tag=tag, **fields), properties, body)  # type: ignore[arg-type]


def frames_of(*messages: Message, channel: int = 1) -> bytes:
    return b"".join(each for message in messages for each in message.frames(channel))


def delivery_reader() -> FrameReader:
    return FrameReader(frame_max=FRAME_MAX, batch_deliveries=True)


def apart(events: Iterable[Event]) -> list[object]:
    """Single deliveries, whichever way they were read."""
    parts: list[object] = []
    for event in events:
        match event:
            case Delivered(channel, r, first, properties, bodies):
                route = (r.consumer_tag, r.redelivered, r.exchange, r.routing_key)
                each = zip(properties, bodies, strict=True)
                parts += ((channel, *route, first + i, *one) for i, one in enumerate(each))
            case ContentReceived(channel, BasicDeliver() as m, content):
                route = (m.consumer_tag, m.redelivered, m.exchange, m.routing_key)
                content_parts = (extract_properties(content), extract_body(content))
                parts.append((channel, *route, m.delivery_tag, *content_parts))
            case _:
                parts.append(event)
    return parts


def test_deliveries_alike_are_one_run() -> None:
    data = frames_of(*(delivery(tag, b"%03d" % tag) for tag in range(1, 501)))
    (run,) = delivery_reader().feed(data)
    assert run == Delivered(
        1,
        DeliveryRoute("consumer", False, "x", "key"),
        1,
        [PROPERTIES[0]] * 500,
        [b"%03d" % tag for tag in range(1, 501)],
    )


def test_so_are_those_that_differ_in_size_and_properties() -> None:
    messages = [delivery(7 + i, b"x" * i, PROPERTIES[i % 7]) for i in range(30)]
    (run,) = delivery_reader().feed(frames_of(*messages))
    assert isinstance(run, Delivered)
    assert run.first_tag == 7
    assert run.properties == [PROPERTIES[i % 7] for i in range(30)]
    assert run.bodies == [b"x" * i for i in range(30)]


def id_of(number: int) -> bytes:
    """Properties with a message id of four bytes."""
    return b"\x00\x80\x04%04d" % number


def test_so_are_those_with_ids_of_one_size() -> None:
    messages = [delivery(tag, b"%03d" % tag, id_of(tag)) for tag in range(1, 501)]
    (run,) = delivery_reader().feed(frames_of(*messages))
    assert isinstance(run, Delivered)
    assert run.properties == [id_of(tag) for tag in range(1, 501)]
    assert run.bodies == [b"%03d" % tag for tag in range(1, 501)]


def test_few_that_are_alike_do_not_end_a_run() -> None:
    sizes = [2, 2, 3, 3, 3, 2, 2, 1, 1, 3]
    messages = [delivery(tag, b"x" * size, id_of(tag)) for tag, size in enumerate(sizes, 1)]
    (run,) = delivery_reader().feed(frames_of(*messages))
    assert isinstance(run, Delivered)
    assert run.properties == [id_of(tag) for tag in range(1, 11)]
    assert [len(body) for body in run.bodies] == sizes


def test_deliveries_without_a_body_are_a_run_too() -> None:
    (run,) = delivery_reader().feed(frames_of(*(delivery(tag, b"") for tag in range(1, 41))))
    assert isinstance(run, Delivered)
    assert run.bodies == [b""] * 40


@pytest.mark.parametrize("ids", [False, True])
@pytest.mark.parametrize("before", [1, 2, 15, 16, 17, 100])
@pytest.mark.parametrize(
    "odd",
    [
        delivery(9999),
        delivery(0, redelivered=True),
        delivery(0, consumer_tag="another"),
        delivery(0, exchange="y"),
        delivery(0, routing_key="yek"),
        delivery(0, body=b"abcd"),
        delivery(0, properties=PROPERTIES[1]),
        delivery(0, body=b"x" * (FRAME_MAX + 1)),
        Message(BasicDeliver("consumer", 0, False, "x", "key"), PROPERTIES[0], b"abc", room=2),
    ],
    ids=["tag", "redelivered", "consumer", "exchange", "key", "size", "properties", "large", "cut"],
)
def test_a_run_goes_on_behind_one_that_is_odd(before: int, odd: Message, ids: bool) -> None:
    assert isinstance(odd.method, BasicDeliver)
    m = odd.method
    tag = m.delivery_tag or before + 1
    odd = odd._replace(
        method=BasicDeliver(m.consumer_tag, tag, m.redelivered, m.exchange, m.routing_key)
    )

    def usual(number: int) -> bytes:
        return id_of(number) if ids else PROPERTIES[0]

    data = frames_of(
        *(delivery(each, properties=usual(each)) for each in range(1, before + 1)),
        odd,
        *(delivery(each, properties=usual(each)) for each in range(before + 2, before + 20)),
    )
    expected = apart(FrameReader(frame_max=FRAME_MAX).feed(data))
    assert apart(delivery_reader().feed(data)) == expected
    assert len(expected) == before + 19


MESSAGES = st.lists(
    st.builds(
        lambda body, properties, room, key, again: (body, properties, room, key, again),
        st.sampled_from((b"", b"a", b"bb", b"cc", b"x" * 5000)),
        st.sampled_from((*PROPERTIES, None)),
        st.sampled_from((FRAME_MAX - 8, FRAME_MAX - 8, 900)),
        st.sampled_from(("key", "key", "yek", "longer")),
        st.integers(1, 40),
    ),
    max_size=6,
)


@given(MESSAGES, st.lists(st.integers(1, 3000), max_size=5), st.integers(1, 50))
def test_runs_say_what_single_messages_say(
    kinds: list[tuple[bytes, bytes | None, int, str, int]], cuts: list[int], limit: int
) -> None:
    """Where there are no properties to repeat, each message has an id of its own."""
    messages: list[Message] = []
    for body, properties, room, key, again in kinds:
        for _ in range(again):
            method = BasicDeliver("c", len(messages) + 1, False, "x", key)
            messages.append(Message(method, properties or id_of(len(messages)), body, room))
    data = frames_of(*messages)
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    pieces = [data[a:b] for a, b in pairwise(places)]
    expected = apart(FrameReader(frame_max=FRAME_MAX).feed(data))
    reader = FrameReader(frame_max=FRAME_MAX, batch_deliveries=True, run_limit=limit)
    assert apart(event for piece in pieces for event in reader.feed(piece)) == expected


def test_byte_by_byte() -> None:
    data = frames_of(delivery(1), delivery(2, b""), delivery(3, b"x" * 5000))
    expected = apart(FrameReader(frame_max=FRAME_MAX).feed(data))
    reader = delivery_reader()
    assert apart(event for byte in bytewise([data]) for event in reader.feed(byte)) == expected


def test_an_answer_between_deliveries_keeps_its_place() -> None:
    data = frames_of(delivery(1)) + encode_method_frame(1, BasicGetEmpty()) + frames_of(delivery(2))
    first, answer, second = delivery_reader().feed(data)
    assert isinstance(first, Delivered)
    assert answer == MethodReceived(1, BasicGetEmpty())
    assert isinstance(second, Delivered)


def test_a_delivery_may_come_while_another_channel_is_in_the_midst_of_one() -> None:
    long = delivery(1, b"y" * 6000).frames(2)
    data = b"".join((*long[:-1], frames_of(delivery(1)), long[-1]))
    events = list(delivery_reader().feed(data))
    assert [event.channel for event in events if isinstance(event, Delivered)] == [1, 2]


@pytest.mark.parametrize("ids", [False, True])
@pytest.mark.parametrize("from_the_end", [1, 1 + 3 + 7 + 1], ids=["body", "header"])
def test_a_frame_that_does_not_end_is_refused_in_a_run_too(from_the_end: int, ids: bool) -> None:
    messages = [delivery(tag, properties=id_of(tag if ids else 1)) for tag in range(1, 41)]
    before, behind = frames_of(*messages[:30]), frames_of(*messages[30:])
    odd = bytearray(before)
    assert odd[-from_the_end] == FRAME_END_CODE
    odd[-from_the_end] = 0
    for reader in (delivery_reader(), FrameReader(frame_max=FRAME_MAX)):
        with pytest.raises(FrameError):
            list(reader.feed(bytes(odd) + behind))


def test_a_delivery_that_is_not_well_formed_is_refused() -> None:
    payload = b"\x00\x3c\x00\x3c\x03abc" + bytes(8) + b"\x00\x09x"
    data = (
        encode_frame(1, 1, payload) + frames_of(delivery(1))[len(encode_method_frame(1, SMALL)) :]
    )
    with pytest.raises(FrameError, match=r"basic\.deliver is truncated"):
        list(delivery_reader().feed(data))


def test_a_consumer_tag_that_is_longer_than_its_frame_is_refused() -> None:
    data = (
        encode_frame(1, 1, b"\x00\x3c\x00\x3c\xffabc")
        + frames_of(delivery(1))[len(encode_method_frame(1, SMALL)) :]
    )
    with pytest.raises(FrameError, match=r"basic\.deliver is truncated"):
        list(delivery_reader().feed(data))
