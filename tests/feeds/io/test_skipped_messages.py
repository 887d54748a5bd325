"""A subscription whose vector has holes: messages out of them count one by one, as others do."""

from __future__ import annotations

from recado.feeds.block import Block
from recado.feeds.boundary import MessageBatch
from recado.feeds.driver import Driver, MemberListener
from recado.feeds.subscription import Subscription
from recado.feeds.vector import Vector
from recado.feeds.views import LostRange

from .loop import in_the_loop

P = bytes([7]) * 16
START = Vector({P: 20}, {P: [(11, 14)]})


async def nowhere(_: Subscription, listener: MemberListener) -> Driver:
    raise AssertionError("it is not entered")


def subscribed(start: Vector = START) -> Subscription:
    return Subscription("quotes", "desk-1", nowhere, start=start)


def batch(first: int, last: int) -> MessageBatch:
    return MessageBatch(P, first, Block.build([b"x"] * (last - first + 1)))


@in_the_loop
async def test_messages_out_of_a_hole_count_one_by_one() -> None:
    messages = subscribed()
    messages._listener.deliver(batch(11, 13))
    messages._listener.deliver(batch(21, 22))
    walk = aiter(messages)
    assert (await anext(walk)).sequence == 11
    assert messages.vector == Vector({P: 20}, {P: [(12, 14)]})
    assert (await anext(walk)).sequence == 12
    again = aiter(messages)
    assert [(await anext(again)).sequence for _ in range(3)] == [13, 21, 22]
    assert messages.vector == Vector({P: 22}, {P: [(14, 14)]})


@in_the_loop
async def test_batches_out_of_a_hole_count_whole() -> None:
    messages = subscribed()
    messages._listener.deliver(batch(11, 14))
    messages._listener.deliver(batch(21, 22))
    (first, second) = await messages.next_batches()
    assert [message.sequence for message in (*first, *second)] == [11, 12, 13, 14, 21, 22]
    assert messages.vector == {P: 22}
    messages.mark_finished(first[1])
    assert messages.vector == Vector({P: 20}, {P: [(13, 14)]})


@in_the_loop
async def test_what_is_lost_is_a_hole() -> None:
    messages = subscribed(Vector())
    messages._listener.deliver(batch(1, 2))
    messages._listener.messages_lost(LostRange(P, 3, 5))
    messages._listener.deliver(batch(6, 6))
    walk = aiter(messages)
    assert [(await anext(walk)).sequence for _ in range(3)] == [1, 2, 6]
    assert messages.lost == [LostRange(P, 3, 5)]
    assert messages.vector == Vector({P: 6}, {P: [(3, 5)]})
