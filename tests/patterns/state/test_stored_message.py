"""Messages in a store keep their properties and headers."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from recado.patterns.destination import LogStream, PointToPoint, PublishSubscribe
from recado.patterns.message import DeliveryInfo, Message
from recado.patterns.state.stored_message import MessageCodec
from recado.patterns.step import Send


class Order(msgspec.Struct):
    number: int
    items: list[str] = []


FULL: Message[Any] = Message(
    body={"a": [1, 2.5, None, "x"], "b": b"raw"},
    key="orders.new",
    headers={"n": 1, "t": {"deep": [True]}, "b": b"\xff"},
    content_type="application/xml",
    content_encoding="gzip",
    correlation_id="c",
    reply_to="r",
    message_id="m",
    type="t",
    app_id="app",
    priority=3,
    expiration=1.5,
    timestamp=datetime(2026, 1, 2, tzinfo=UTC),
    persistent=False,
)


def test_all_properties_are_stored() -> None:
    codec = MessageCodec()
    delivery = DeliveryInfo(exchange="e", queue="q", redelivered=True, raw_body=b"")
    stored = codec.encode(FULL.replace(delivery=delivery, attempt=3))
    assert codec.decode(stored) == FULL


def test_a_message_without_properties_is_stored() -> None:
    codec = MessageCodec()
    assert codec.decode(codec.encode(Message(body="x"))) == Message(body="x")


def test_bodies_have_the_type_of_the_codec() -> None:
    message = Message(body=Order(1, ["x"]))
    assert MessageCodec(Order).decode(MessageCodec(Order).encode(message)) == message
    assert MessageCodec().decode(MessageCodec().encode(message)).body == {
        "number": 1,
        "items": ["x"],
    }


@pytest.mark.parametrize(
    "to",
    [
        PointToPoint("q", queue_type="classic", arguments={"x-max-length": 3}),
        PublishSubscribe("e", type="fanout"),
        LogStream("s"),
    ],
)
def test_outputs_are_stored_with_their_destination(to: Any) -> None:
    codec = MessageCodec()
    assert codec.decode_send(codec.encode_send(Send(to, FULL))) == Send(to, FULL)


def test_the_destination_of_an_output_may_be_a_name() -> None:
    codec = MessageCodec()
    assert codec.decode_send(codec.encode_send(Send("q", FULL))).to == PointToPoint("q")
