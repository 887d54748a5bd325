"""Acknowledgements of many deliveries at once, with a channel that checks each as a broker does."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest

from recado.apps.chat.acks import AckWindow
from recado.client import Delivery


class FakeChannel:
    """Knows which tags are not acknowledged; an ack of another tag is an error, as on a broker."""

    is_open = True

    def __init__(self, count: int) -> None:
        self.unacked = set(range(1, count + 1))
        self.acks_count = 0

    def ack(self, delivery: Delivery, *, multiple: bool = False) -> bool:
        assert delivery.delivery_tag in self.unacked, "unknown delivery tag"
        self.acks_count += 1
        if multiple:
            self.unacked = {tag for tag in self.unacked if tag > delivery.delivery_tag}
        else:
            self.unacked.discard(delivery.delivery_tag)
        return True

    def nack(self, delivery: Delivery, *, multiple: bool = False, requeue: bool = True) -> bool:
        self.unacked.discard(delivery.delivery_tag)
        return True


class Source:
    def __init__(self, channel: FakeChannel) -> None:
        self.channel = channel


def make_deliveries(channel: FakeChannel) -> list[Delivery]:
    source: Any = Source(channel)
    return [Delivery(source, tag, b"", b"") for tag in sorted(channel.unacked)]


async def turn() -> None:
    """Let the callbacks of a turn of the event loop run."""
    for _ in range(3):
        await asyncio.sleep(0)


def test_the_deliveries_of_a_turn_take_one_ack() -> None:
    async def work() -> None:
        channel, window = FakeChannel(500), AckWindow()
        for delivery in make_deliveries(channel):
            window.add(delivery)
        await turn()
        assert (channel.unacked, channel.acks_count) == (set(), 1)

    asyncio.run(work())


@pytest.mark.parametrize("seed", range(20))
def test_each_is_acknowledged_once_and_never_before_it_was_handled(seed: int) -> None:
    """Deliveries are handled in any order, and some are rejected by the client because a consumer was cancelled.

    The channel fails if one is acknowledged that is settled already.
    """

    async def work() -> None:
        random = Random(seed)
        channel, window = FakeChannel(60), AckWindow()
        deliveries = make_deliveries(channel)
        handled: set[int] = set()
        rejected: set[int] = set()
        random.shuffle(deliveries)
        for delivery in deliveries:
            if random.random() < 0.1:
                rejected.add(delivery.delivery_tag)
                delivery.nack()
            elif delivery.delivery_tag in channel.unacked:
                handled.add(delivery.delivery_tag)
                window.add(delivery)
            settled = set(range(1, 61)) - channel.unacked
            assert settled <= handled | rejected, "acknowledged before it was handled"
            if random.random() < 0.3:
                await turn()
        await turn()
        while window._stuck_timer is not None:  # as if the time of each had passed (AC2)
            window._stuck_timer.cancel()
            window._skip_unhandled(window._next_tag)
        assert channel.unacked == set()

    asyncio.run(work())


def test_tags_begin_again_on_the_next_connection() -> None:
    async def work() -> None:
        window, old, new = AckWindow(), FakeChannel(5), FakeChannel(3)
        stale = make_deliveries(old)
        for delivery in stale[:2]:
            window.add(delivery)
        await turn()
        old.is_open = False
        for delivery in make_deliveries(new):
            window.add(delivery)
        window.add(stale[2])  # taken by a task before the connection was lost
        await turn()
        assert (new.unacked, old.unacked) == (set(), {3, 4, 5})

    asyncio.run(work())
