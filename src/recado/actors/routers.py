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
from .ref import ActorRef
from .runtime.cell import Cell
from .supervision.signals import ChildFailed, Down, Signal
from .supervision.strategy import DEFAULT_STRATEGY, SupervisorStrategy

M = TypeVar("M")


class RoutingLogic(enum.Enum):
    ROUND_ROBIN = "round robin"
    SMALLEST_MAILBOX = "smallest mailbox"
    BROADCAST = "broadcast"


ROUND_ROBIN = RoutingLogic.ROUND_ROBIN
SMALLEST_MAILBOX = RoutingLogic.SMALLEST_MAILBOX
BROADCAST = RoutingLogic.BROADCAST


class Router(Actor[M]):
    """Use `pool` or `group`."""

    keeps_children: ClassVar[bool] = True

    def __init__(self, logic: RoutingLogic) -> None:
        self.routees: list[ActorRef[M]] = []
        self._logic = logic
        self._next_index = 0

    def receive(self, message: M) -> None:
        for ref in self._select_routees():
            self.forward(ref)
        if not self.routees:
            self.system._dead_letter(self._cell.take_envelope(), self.ref)

    def _select_routees(self) -> Iterable[ActorRef[M]]:
        routees = self.routees
        if not routees:
            return ()
        match self._logic:
            case RoutingLogic.BROADCAST:
                return routees
            case RoutingLogic.ROUND_ROBIN:
                index = self._next_index % len(routees)
            case RoutingLogic.SMALLEST_MAILBOX:
                turn, count = self._next_index, len(routees)
                index = min(
                    (position % count for position in range(turn, turn + count)),
                    key=lambda place: _pending_count(routees[place]),
                )
            case never:
                assert_never(never)
        self._next_index = (index + 1) % len(routees)
        return (routees[index],)

    def on_signal(self, signal: Signal) -> None:
        match signal:
            case Down(ref, _):
                self._remove_routee(ref)
            case ChildFailed(ref, _):
                self._remove_routee(ref)
                super().on_signal(signal)

    def _remove_routee(self, ref: ActorRef[Any]) -> None:
        if ref in self.routees:
            index = self.routees.index(ref)
            del self.routees[index]
            self._next_index -= index < self._next_index


class _PoolRouter(Router[M]):
    def __init__(
        self,
        factory: Callable[[], Actor[M]],
        size: int,
        logic: RoutingLogic,
        supervisor_strategy: SupervisorStrategy,
    ) -> None:
        super().__init__(logic)
        self._factory = factory
        self._size = size
        self._supervisor_strategy = supervisor_strategy

    async def pre_start(self) -> None:
        self.routees = list(self.children)
        while len(self.routees) < self._size:
            ref = await self.start_link(
                self._factory, supervisor_strategy=self._supervisor_strategy
            )
            self.routees.append(ref)
        for ref in self.routees:
            self.monitor(ref)


class _GroupRouter(Router[M]):
    def __init__(self, refs: Iterable[ActorRef[M]], logic: RoutingLogic) -> None:
        super().__init__(logic)
        self.routees = list(refs)

    def pre_start(self) -> None:
        for ref in self.routees:
            self.monitor(ref)


def pool(
    factory: Callable[[], Actor[M]],
    size: int,
    logic: RoutingLogic = ROUND_ROBIN,
    *,
    supervisor_strategy: SupervisorStrategy = DEFAULT_STRATEGY,
) -> Callable[[], Router[M]]:
    """For `spawn`: a router, and so many actors for it to send to."""
    return lambda: _PoolRouter(factory, size, logic, supervisor_strategy)


def group(
    refs: Iterable[ActorRef[M]], logic: RoutingLogic = ROUND_ROBIN
) -> Callable[[], Router[M]]:
    """For `spawn`: a router for actors that are there already, wherever they live."""
    known = tuple(refs)
    return lambda: _GroupRouter(known, logic)


def _pending_count(ref: ActorRef[Any]) -> int:
    """What waits for an actor, and what it has begun."""
    post = ref._target
    return post.mailbox.qsize() + post.is_claimed if isinstance(post, Cell) else 0
