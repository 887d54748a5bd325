"""Messages made of batches, by column; and that nothing a publisher sends stops a subscriber."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recado.amqp.properties import Properties, encode_properties
from recado.amqp.values import encode_table
from recado.feeds.block import Block
from recado.feeds.boundary import MessageBatch
from recado.feeds.message import decode_messages
from recado.feeds.selector_fields import compile_selector
from recado.feeds.subscription import DeliveredBatch
from recado.feeds.views import NO_VIEW, Certainty
from recado.selector import SelectorError

PUBLISHER = bytes(range(16))


def batch(bodies: list[bytes], *, first: int = 1, **columns: Any) -> MessageBatch:
    return MessageBatch(PUBLISHER, first, Block.build(bodies, **columns))


def test_what_is_given_once_and_what_each_has() -> None:
    table, about = encode_table({"venue": "B3"}), encode_properties(Properties(priority=3))
    made = decode_messages(
        "quotes",
        batch(
            [b"a", b"b"],
            first=7,
            timestamps=[0, 1_500_000],
            keys=b"PETR4",
            message_ids=[b"one", b""],
            headers=[b"", table],
            properties=about,
        ),
    )
    assert [(each.sequence, each.body, each.key) for each in made] == [
        (7, b"a", "PETR4"),
        (8, b"b", "PETR4"),
    ]
    assert [each.message_id for each in made] == ["one", ""]
    assert [dict(each.headers) for each in made] == [{}, {"venue": "B3"}]
    assert [each.properties for each in made] == [Properties(priority=3)] * 2
    assert made[1].time == datetime(1970, 1, 1, 0, 0, 1, 500_000, UTC)
    assert (made[0].feed, made[0].publisher) == ("quotes", PUBLISHER)
    assert (made[0].view, made[0].certainty) == (NO_VIEW, Certainty.LIVE)


@given(*[st.binary(max_size=30)] * 4)
def test_whatever_is_in_the_columns(key: bytes, name: bytes, headers: bytes, about: bytes) -> None:
    for each in (lambda value: value, lambda value: [value, b""]):
        columns: dict[str, Any] = {
            "keys": each(key),
            "message_ids": each(name),
            "headers": each(headers),
            "properties": each(about),
        }
        made = decode_messages("quotes", batch([b"a", b"b"], **columns))
        assert [message.body for message in made] == [b"a", b"b"]


def test_a_selector_sees_a_message_as_an_archive_does() -> None:
    about = encode_properties(Properties(content_type="text/plain", priority=3))
    (message,) = decode_messages(
        "quotes",
        batch(
            [b'{"price": 11}'],
            timestamps=1_500_000,
            keys=b"PETR4",
            message_ids=b"m",
            headers=encode_table({"venue": "B3", "desk": {"floor": 2}}),
            properties=about,
        ),
    )
    (bare,) = decode_messages("quotes", batch([b"x"]))
    for text in (
        "key = 'PETR4' AND routing_key LIKE 'PETR%'",
        "headers.venue = 'B3' AND headers.desk.floor = 2 AND json.price > 10",
        "content_type = 'text/plain' AND priority = 3",
        "message_id = 'm' AND timestamp = 1.5 AND sequence = 1",
        f"exchange = 'feed.quotes' AND publisher = '{PUBLISHER.hex()}'",
        "reply_to IS NULL",
    ):
        assert compile_selector(text, "quotes")(message), text
    assert compile_selector("message_id IS NULL AND priority IS NULL", "quotes")(bare)


def test_a_selector_of_live_messages_cannot_name_the_offset() -> None:
    with pytest.raises(SelectorError, match="messages of a feed have no offset") as refused:
        compile_selector("key = 'PETR4' AND\n(sequence > 3 OR -offset < 3)", "quotes")
    assert (refused.value.line, refused.value.column) == (2, 19)


def test_a_batch_is_a_sequence_of_what_is_wanted() -> None:
    whole = batch([b"a", b"b", b"c"])
    everything = DeliveredBatch("quotes", whole)
    assert (len(everything), everything[1].body) == (3, b"b")
    some = DeliveredBatch("quotes", whole, lambda message: message.body != b"b")
    assert [message.body for message in some] == [b"a", b"c"]
    assert (len(some), [message.body for message in some[1:]]) == (2, [b"c"])
