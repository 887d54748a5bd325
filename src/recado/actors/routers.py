"""Routers: one reference for several actors; each message is forwarded to one of them, or to all.

    workers = await system.spawn(pool(Worker, 4, ROUND_ROBIN), name="workers")
    readers = await system.spawn(group([a, b, c], BROADCAST))
    ack = await workers.ask(Work(1))

A router is an actor: it has a name, other nodes may send to it, and it adds one hop. It forwards, so a routee
sees the original sender and replies to it directly.

RO1  ROUND_ROBIN: of n messages in a row each of n routees gets one, in the order in which they were added.
RO2  SMALLEST_MAILBOX: the routee with the fewest pending messages gets the message; of several, the next in
     turn. The mailboxes of actors on other nodes are unknown here, and count as empty.
RO3  BROADCAST: every routee gets the message; the first reply counts.
RO4  Messages of one sender to the same routee stay in order.
RO5  A routee gets no more messages once the router was notified that it has stopped. Without routees, messages
     are dead letters.

A pool creates its routees and supervises them: one that fails is restarted and keeps its position. If the
strategy gives a routee up, the failure escalates: the router is restarted, too, and starts another routee.
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
    """Created by `pool` or `group`."""

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
                first, count = self._next_index, len(routees)
                index = min(
                    (position % count for position in range(first, first + count)),
                    key=lambda position: _pending_count(routees[position]),
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
                super().on_signal(signal)  # escalates

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
    """Return a factory, for `spawn`, of a router that creates and supervises `size` routees."""
    return lambda: _PoolRouter(factory, size, logic, supervisor_strategy)


def group(
    refs: Iterable[ActorRef[M]], logic: RoutingLogic = ROUND_ROBIN
) -> Callable[[], Router[M]]:
    """Return a factory, for `spawn`, of a router for existing actors, on this node or others."""
    known = tuple(refs)
    return lambda: _GroupRouter(known, logic)


def _pending_count(ref: ActorRef[Any]) -> int:
    """Return the number of messages that wait for an actor, plus the one that it handles."""
    target = ref._target
    return target.mailbox.qsize() + target.is_claimed if isinstance(target, Cell) else 0
