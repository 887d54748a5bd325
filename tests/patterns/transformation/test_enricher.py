"""Enrichers, synchronous and async."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest

from recado.patterns.errors import CompositionError
from recado.patterns.message import Message
from recado.patterns.transformation import (
    ContentEnricher,
    apply_enrichers,
    to_enricher,
)


class AddUser:
    """The enricher of the chat in the laboratory report: the name and id of the sender."""

    def __init__(self, id: str, name: str) -> None:  # noqa: A002
        self.id = id
        self.name = name

    def should_apply(self, message: Message[Any]) -> bool:
        return "user_id" not in message.headers

    def apply(self, message: Message[Any]) -> Message[Any]:
        return message.with_headers(user_id=self.id, user_name=self.name)


class FetchPrice:
    def should_apply(self, message: Message[Any]) -> bool:
        return "price" not in message.body

    async def apply(self, message: Message[Any]) -> Message[Any]:
        await asyncio.sleep(0)
        return message.with_body({**message.body, "price": 5})


def double(message: Message[Any]) -> Message[Any]:
    return message.with_body({**message.body, "price": message.body["price"] * 2})


async def triple(message: Message[Any]) -> Message[Any]:
    return message.with_body({**message.body, "price": message.body["price"] * 3})


def test_it_applies_if_it_should() -> None:
    enrichers = [to_enricher(AddUser("7", "Ana"))]
    enriched = apply_enrichers(Message(body="hello"), enrichers)
    assert isinstance(enriched, Message)
    assert enriched.headers == {"user_id": "7", "user_name": "Ana"}
    again = apply_enrichers(enriched, [to_enricher(AddUser("8", "Ion"))])
    assert again is enriched


def test_without_enrichers_the_message_is_the_same() -> None:
    message = Message(body=1)
    assert apply_enrichers(message, []) is message


def test_they_apply_in_order_and_see_what_others_added() -> None:
    step = ContentEnricher(AddUser("7", "Ana"), double, AddUser("8", "Ion"))
    outputs = step.process(Message(body={"price": 5}))
    assert isinstance(outputs, tuple)
    (enriched,) = outputs
    assert (enriched.body, enriched.headers["user_id"]) == ({"price": 10}, "7")


def test_one_of_them_may_be_async() -> None:
    async def main() -> None:
        outputs = ContentEnricher(
            FetchPrice(), double, triple, double, AddUser("7", "Ana")
        ).process(Message(body={}))
        assert isinstance(outputs, Awaitable)
        (enriched,) = await outputs
        assert isinstance(enriched, Message)
        assert (enriched.body, enriched.headers["user_id"]) == ({"price": 60}, "7")
        same = ContentEnricher(FetchPrice()).process(Message(body={"price": 1}))
        assert same == (Message(body={"price": 1}),)

    asyncio.run(main())


def test_results_must_be_messages() -> None:
    forgets: Any = lambda message: None  # noqa: E731
    with pytest.raises(TypeError, match="returned NoneType, not a Message"):
        apply_enrichers(Message(body=1), [to_enricher(forgets)])

    async def forgets_too(message: Message[Any]) -> Any:
        return message.body

    async def main() -> None:
        enriched = apply_enrichers(Message(body=1), [to_enricher(forgets_too)])
        assert isinstance(enriched, Awaitable)
        with pytest.raises(TypeError, match=r"forgets_too.* returned int, not a Message"):
            await enriched

    asyncio.run(main())


def test_other_objects_are_no_enrichers() -> None:
    class AsyncDecision:
        async def should_apply(self, message: Message[Any]) -> bool:
            return True

        def apply(self, message: Message[Any]) -> Message[Any]:
            return message

    wrong: Any
    for wrong, text in ((AsyncDecision(), "only apply may be"), (5, "not 5"), (None, "not None")):
        with pytest.raises(CompositionError, match=text):
            ContentEnricher(wrong)
