"""Publishers, each with its own window, rate and route through the broker.

A publisher outlives the broker: it continues its numbers in the next incarnation. It never sends a message twice;
whether an unconfirmed message arrived is left open.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Final

from bench.crash import history as h
from bench.crash import message
from bench.crash.client import Client, Incarnation, connect, properties, publish
from bench.crash.history import History, Message
from bench.crash.topology import ASTRAY, BOOKS, NEWS, ORDER, Route, direct
from recado.amqp import methods as m


@dataclass(frozen=True)
class Habit:
    name: str
    routes: tuple[Route, ...]
    window: int
    """How many may be without a confirm; of these half at most are sent at a time."""
    priorities: int = 0
    astray: float = 0.0
    """The share that is unroutable, and has to be returned."""
    transient: float = 0.0
    transactions: bool = False
    """Up to `window` messages each, instead of confirms."""


HABITS: Final = (
    Habit("serial", (ORDER,), 1),
    Habit("windowed", (ORDER,), 20, astray=0.05, transient=0.05),
    Habit("bursts", (direct("bulk"),), 400),
    Habit("herald", (NEWS,), 40),
    Habit("ranked", (direct("ranked"),), 30, priorities=5),
    Habit("raft", (direct("quorum"),), 30),
    Habit("picked", (direct("picked"),), 30),
    Habit("brief", (direct("brief"),), 20),
    Habit("narrow", (direct("narrow"),), 60),
    Habit("books", BOOKS, 8, transactions=True),
)
PACE_S: Final = 0.004
COMMITTED_SHARE: Final = 0.8


class Mail:
    """Sends numbered messages, and records their outcomes.

    Consumers use it for their receipts; `on_kept` is called with each confirmed message.
    """

    def __init__(self, name: str, history: History, rng: Random) -> None:
        self.name = name
        self._history = history
        self._rng = rng
        self._number = 0
        self.on_kept: Callable[[int], None] = lambda number: None

    async def begin(self, client: Client) -> None:
        """In a new connection, with confirms."""
        self._client = client
        self._tag = 0
        self._waiting: dict[int, Message] = {}
        client.on_confirm = self._confirmed
        client.on_return = self._returned
        await client.call(m.ConfirmSelect())

    def send(
        self, routes: list[Route], *, priorities: int = 0, transient: float = 0.0
    ) -> list[Message]:
        sent = []
        frames = []
        incarnation = self._client.incarnation
        for route in routes:
            event, frame = self.prepare(
                incarnation, route, priorities=priorities, transient=transient
            )
            self._tag += 1
            self._waiting[self._tag] = event.message
            self._history.add(event)
            sent.append(event.message)
            frames.append(frame)
        self._client.write(b"".join(frames))
        return sent

    def prepare(
        self,
        incarnation: Incarnation,
        route: Route,
        *,
        priorities: int = 0,
        transient: float = 0.0,
        transaction: int | None = None,
    ) -> tuple[h.Sent, bytes]:
        """Return the next message: its record for the history, and its frames."""
        rng = self._rng
        self._number += 1
        number: Message = (self.name, self._number)
        priority = rng.randint(0, priorities)
        persistent = rng.random() >= transient
        event = h.Sent(incarnation.number, number, route.queues, priority, persistent, transaction)
        body = message.make(number, message.size(rng, large=incarnation.large))
        about = properties(persistent=persistent, priority=priority)
        mandatory = not route.queues
        return event, publish(route.exchange, route.key, body, about, mandatory=mandatory)

    async def room(self, most: int) -> None:
        """Wait until at most so many messages are unconfirmed."""
        await self._client.until(lambda: len(self._waiting) <= most)

    def _confirmed(self, tag: int, multiple: bool, kept: bool) -> None:
        tags = [each for each in self._waiting if each <= tag] if multiple else [tag]
        for each in tags:
            told = self._waiting.pop(each)
            self._history.add(h.Confirmed(told) if kept else h.Refused(told))
            if kept:
                self.on_kept(told[1])

    def _returned(self, body: bytes) -> None:
        which = message.parse(body)
        self._history.add(
            h.Damaged("(returned)", repr(body[:80])) if which is None else h.Returned(which)
        )


class Publisher:
    def __init__(self, habit: Habit, history: History, rng: Random) -> None:
        self.name = habit.name
        self._habit = habit
        self._history = history
        self._rng = rng
        self._mail = Mail(habit.name, history, rng)
        self._transaction = 0

    async def live(self, incarnation: Incarnation) -> None:
        """Publish until the broker is gone."""
        client = await connect(incarnation)
        if self._habit.transactions:
            await self._transact(client)
        await self._mail.begin(client)
        habit, rng = self._habit, self._rng
        while True:
            count = rng.randint(1, max(habit.window // 2, 1))
            await self._mail.room(habit.window - count)
            routes = [self._route() for _ in range(count)]
            self._mail.send(routes, priorities=habit.priorities, transient=habit.transient)
            await asyncio.sleep(rng.random() * PACE_S)

    def _route(self) -> Route:
        if self._rng.random() < self._habit.astray:
            return ASTRAY
        return self._rng.choice(self._habit.routes)

    async def _transact(self, client: Client) -> None:
        add, rng, incarnation = self._history.add, self._rng, client.incarnation
        await client.call(m.TxSelect())
        while True:
            self._transaction += 1
            number = self._transaction
            for _ in range(rng.randint(1, self._habit.window)):
                event, frames = self._mail.prepare(incarnation, self._route(), transaction=number)
                add(event)
                client.write(frames)
            if rng.random() < COMMITTED_SHARE:
                add(h.CommitAsked(self.name, number))
                await client.call(m.TxCommit())
                add(h.Committed(self.name, number))
            else:
                add(h.RolledBack(self.name, number))
                await client.call(m.TxRollback())
            await asyncio.sleep(rng.random() * PACE_S)
