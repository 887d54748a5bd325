"""Encoded publishes: the reader decodes what was encoded."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recado.amqp.events import InterleavedPublished, Published
from recado.amqp.frames import encode_content, encode_method_frame
from recado.amqp.methods import BasicPublish
from recado.amqp.properties import Properties, encode_properties
from recado.client.publish_encoding import (
    encode_optional_properties,
    encode_publish,
    encode_publishes,
)

FRAME_MAX = 4096
SIZES = st.sampled_from((0, 1, 2, 3, FRAME_MAX - 8, FRAME_MAX - 7, 3 * FRAME_MAX))
PROPERTIES = st.sampled_from(
    (b"\0\0", encode_properties(Properties(delivery_mode=2, headers={"n": "x" * 600})))
)


def plainly(channel: int, mandatory: bool, properties: bytes, body: bytes) -> bytes:
    method = encode_method_frame(channel, BasicPublish("x", "key", mandatory))
    return method + encode_content(channel, properties, body, FRAME_MAX)


@given(st.integers(1, 3), st.booleans(), PROPERTIES, st.lists(SIZES, max_size=8))
def test_it_is_what_plain_rendering_gives(
    channel: int, mandatory: bool, properties: bytes, sizes: list[int]
) -> None:
    bodies = [bytes([i % 256]) * size for i, size in enumerate(sizes)]
    expected = b"".join(plainly(channel, mandatory, properties, body) for body in bodies)
    route = (channel, "x", "key")
    rest = (properties, mandatory, FRAME_MAX)
    assert b"".join(encode_publishes(*route, bodies, *rest)) == expected
    assert b"".join(encode_publish(*route, body, *rest) for body in bodies) == expected


def test_properties_are_given_in_any_form() -> None:
    properties = Properties(message_id="7")
    assert encode_optional_properties(None) == b"\0\0"
    assert encode_optional_properties(properties) == encode_properties(properties)
    assert encode_optional_properties(b"\0\0") == b"\0\0"


def test_a_key_that_is_too_long_is_refused_before_anything_is_sent() -> None:
    with pytest.raises(
        ValueError, match=r"basic.publish, routing_key: a short string is limited to 255"
    ):
        encode_publish(1, "x", "k" * 256, b"", b"\0\0", False, FRAME_MAX)


def test_properties_that_do_not_fit_into_a_frame_are_refused() -> None:
    fitting = bytes(FRAME_MAX - 20)
    assert len(encode_publish(1, "x", "k", b"", fitting, False, FRAME_MAX)) > FRAME_MAX
    larger, error = (
        fitting + b"\0",
        f"have {FRAME_MAX - 19} bytes, but at most {FRAME_MAX - 20} fit",
    )
    with pytest.raises(ValueError, match=error):
        encode_publish(1, "x", "k", b"", larger, False, FRAME_MAX)
    with pytest.raises(ValueError, match=error):
        encode_publishes(1, "x", "k", [b"a"], larger, False, FRAME_MAX)


def test_a_broker_reads_them_as_a_run() -> None:
    from recado.amqp.reader import FrameReader

    data = b"".join(encode_publishes(1, "x", "k", [b"abc"] * 100, b"\0\0", False, FRAME_MAX))
    (run,) = FrameReader().feed(data)
    assert isinstance(run, Published | InterleavedPublished)
    assert len(run.payloads) == 100
