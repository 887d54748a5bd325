"""How a bridge learns that the broker has what it was sent: by confirms, or by asking now and then.

    Confirms      the broker says it of each message, when it is where it stays: on disk, if it is to last
    Checkpoints   an empty question on the same channel, now and then while there is something to ask

A broker does what a channel says in its order. So when it answers a question it has done all before it: routed
each message, and given back those that had nowhere to go. A confirm says no more than that of a message which
lasts no longer than the broker itself, and costs it as much as the message.

RC1  Numbers are given from 1 on, and told as settled once, in ranges; none after the channel has ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Protocol, TypeAlias

from recado.client import Channel, ClientError

INTERVAL: Final = 0.1
"""Seconds between two questions: each wakes both sides. What is not answered is kept, so that it can be sent
again, and whoever waits for room asks at once."""

Settled: TypeAlias = Callable[[range, bool], None]
"""These numbers are settled, and whether the broker took them."""


class Receipts(Protocol):
    @property
    def channel(self) -> Channel: ...

    def publish(self, exchange: str, key: str, body: bytes, properties: bytes) -> int:
        """The message's number."""

    def ask(self) -> None:
        """Somebody waits: do not put it off."""

    def returned(self, number: int) -> None:
        """The broker gave this one back, and settled it by that."""


class Confirms:
    def __init__(self, channel: Channel, settled: Settled) -> None:
        self.channel = channel
        channel.on_confirm = settled

    def publish(self, exchange: str, key: str, body: bytes, properties: bytes) -> int:
        return self.channel.publish(exchange, key, body, properties, mandatory=True)

    def ask(self) -> None:
        """It answers by itself."""

    def returned(self, number: int) -> None:
        """It answers for the others by itself, too."""


class Checkpoints:
    def __init__(self, channel: Channel, settled: Settled) -> None:
        self.channel = channel
        self._settled = settled
        self._loop = asyncio.get_running_loop()
        self._published = 0
        self._answered = 0
        self._timer: asyncio.TimerHandle | None = None
        self._question: asyncio.Task[None] | None = None

    def publish(self, exchange: str, key: str, body: bytes, properties: bytes) -> int:
        self.channel.publish(exchange, key, body, properties, mandatory=True)
        self._published += 1
        if self._timer is None:
            self._timer = self._loop.call_later(INTERVAL, self.ask)
        return self._published

    def ask(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._question is None and self.channel.is_open:
            self._question = self._loop.create_task(self._ask(self._published))

    async def _ask(self, upto: int) -> None:
        try:
            await self.channel.qos(0)
        except ClientError:
            return
        if self.channel.is_open:
            self._question = self._timer = None
            if self._published > upto:
                self._timer = self._loop.call_later(INTERVAL, self.ask)
            self._done(upto)

    def returned(self, number: int) -> None:
        """As good as an answer: what was before it has been routed."""
        self._done(number)

    def _done(self, upto: int) -> None:
        first = self._answered + 1
        if first <= upto:
            self._answered = upto
            self._settled(range(first, upto + 1), True)
