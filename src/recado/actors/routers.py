"""Routers: one reference for several actors, which gives each message to one of them, or to all.

    workers = await system.spawn(pool(Worker, 4, ROUND_ROBIN), name="workers")
    readers = await system.spawn(group([a, b, c], BROADCAST))
    ack = await workers.ask(Work(1))

A router is an actor: it has a name, other nodes may send to it, and it adds one hop. It forwards, so who gets a
message sees who sent it, and answers directly.

RO1  ROUND_ROBIN: of n messages in a row, each of n actors gets one, in the order in which they were added.
RO2  SMALLEST_MAILBOX: the actor gets it that has least to do; among equals, the one whose turn comes first.
     What waits for actors on other nodes is not known here, and counts as nothing.
RO3  BROADCAST: each gets it; the first answer counts.
RO4  Messages of one sender that go to the same actor stay in order.
RO5  Who has stopped gets nothing more. What comes when nobody is left is a dead letter.

A pool makes its actors, and is their supervisor: one that fails is restarted in its place.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, TypeVar, assert_never

from .actor import Actor
from .failing.signals import Down, Exhausted, Signal
from .failing.supervision import DEFAULT, Supervision
from .ref import ActorRef
from .running.cell import Cell

M = TypeVar("M")


class Routing(enum.Enum):
    ROUND_ROBIN = "round robin"
    SMALLEST_MAILBOX = "smallest mailbox"
    BROADCAST = "broadcast"


ROUND_ROBIN = Routing.ROUND_ROBIN
SMALLEST_MAILBOX = Routing.SMALLEST_MAILBOX
BROADCAST = Routing.BROADCAST


class Router(Actor[M]):
    """Use `pool` or `group`."""

    keeps_children: ClassVar[bool] = True

    def __init__(self, routing: Routing) -> None:
        self.routees: list[ActorRef[M]] = []
        self._routing = routing
        self._turn = 0

    def receive(self, message: M) -> None:
        for ref in self._chosen():
            self.forward(ref)
        if not self.routees:
            self.system.bury(self._cell.keep(), self.ref)

    def _chosen(self) -> Iterable[ActorRef[M]]:
        routees = self.routees
        if not routees:
            return ()
        match self._routing:
            case Routing.BROADCAST:
                return routees
            case Routing.ROUND_ROBIN:
                at = self._turn % len(routees)
            case Routing.SMALLEST_MAILBOX:
                turn, count = self._turn, len(routees)
                at = min(
                    (place % count for place in range(turn, turn + count)),
                    key=lambda place: _to_do(routees[place]),
                )
            case never:
                assert_never(never)
        self._turn = (at + 1) % len(routees)
        return (routees[at],)

    def on_signal(self, signal: Signal) -> None:
        match signal:
            case Down(ref, _):
                self._without(ref)
            case Exhausted(ref, _):
                self._without(ref)
                super().on_signal(signal)

    def _without(self, ref: ActorRef[Any]) -> None:
        if ref in self.routees:
            at = self.routees.index(ref)
            del self.routees[at]
            self._turn -= at < self._turn


class _Pool(Router[M]):
    def __init__(
        self,
        make: Callable[[], Actor[M]],
        size: int,
        routing: Routing,
        supervision: Supervision,
    ) -> None:
        super().__init__(routing)
        self._make = make
        self._size = size
        self._supervision = supervision

    async def started(self) -> None:
        self.routees = list(self.children)
        while len(self.routees) < self._size:
            ref = await self.start_link(self._make, supervision=self._supervision)
            self.routees.append(ref)
        for ref in self.routees:
            self.monitor(ref)


class _Group(Router[M]):
    def __init__(self, refs: Iterable[ActorRef[M]], routing: Routing) -> None:
        super().__init__(routing)
        self.routees = list(refs)

    def started(self) -> None:
        for ref in self.routees:
            self.monitor(ref)


def pool(
    make: Callable[[], Actor[M]],
    size: int,
    routing: Routing = ROUND_ROBIN,
    *,
    supervision: Supervision = DEFAULT,
) -> Callable[[], Router[M]]:
    """For `spawn`: a router, and so many actors for it to send to."""
    return lambda: _Pool(make, size, routing, supervision)


def group(refs: Iterable[ActorRef[M]], routing: Routing = ROUND_ROBIN) -> Callable[[], Router[M]]:
    """For `spawn`: a router for actors that are there already, wherever they live."""
    known = tuple(refs)
    return lambda: _Group(known, routing)


def _to_do(ref: ActorRef[Any]) -> int:
    """What waits for an actor, and what it has begun."""
    post = ref._post
    return post.mailbox.qsize() + post.busy if isinstance(post, Cell) else 0
