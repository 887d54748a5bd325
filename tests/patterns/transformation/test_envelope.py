"""Envelopes: what comes out is what went in."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from recado.patterns.errors import TranslationError
from recado.patterns.message import Message
from recado.patterns.transformation import EnvelopeUnwrapper, EnvelopeWrapper
from recado.patterns.translation import Translators
from tests.patterns.translation.shop import Item

NOW = datetime(2026, 11, 19, 20, 0, tzinfo=UTC)
MESSAGE = Message(
    body=Item("pen", 2),
    key="items.new",
    headers={"colour": "red", "raw": b"\xff", "at": NOW, "count": 5, "list": [1, "a", None]},
    content_type="application/xml",
    correlation_id="c-1",
    reply_to="replies",
    message_id="m-1",
    type="item",
    app_id="shop",
    user_id="guest",
    priority=5,
    expiration=60.0,
    timestamp=NOW,
    persistent=False,
)


def output(step: Any, message: Message[Any]) -> Message[Any]:
    (found,) = step.process(message)
    assert isinstance(found, Message)
    return found


@pytest.mark.parametrize(
    "content_type", ["application/msgpack", "application/json", "application/xml"]
)
def test_a_message_travels_within_another(content_type: str) -> None:
    message = MESSAGE
    if content_type != "application/msgpack":  # their headers have no other types
        message = message.replace(headers={"colour": "red"})
    wrapped = output(EnvelopeWrapper(content_type=content_type), message)
    assert wrapped.headers == {}
    assert (wrapped.key, wrapped.message_id, wrapped.priority) == ("items.new", "m-1", 5)
    assert (wrapped.type, wrapped.reply_to, wrapped.user_id) == (None, None, None)

    registry = Translators()
    body, used = registry.encode(wrapped.body, wrapped.content_type)
    assert used == content_type
    received = Message(
        body=registry.decode(body, used, Any), content_type=used, user_id="guest", persistent=False
    )
    assert output(EnvelopeUnwrapper(Item), received) == message


def test_bodies_without_a_type() -> None:
    wrapped = output(EnvelopeWrapper(), Message(body={"a": [1]}))
    unwrapped = output(EnvelopeUnwrapper(), wrapped)
    assert (unwrapped.body, unwrapped.content_type) == ({"a": [1]}, "application/json")


@pytest.mark.parametrize("body", [{}, 5, {"body": 1, "content_type": "text/plain"}, "text"])
def test_other_messages_are_invalid(body: object) -> None:
    with pytest.raises(TranslationError, match="to WrappedMessage: "):
        EnvelopeUnwrapper().process(Message(body=body))
