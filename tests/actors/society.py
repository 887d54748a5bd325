"""Actors that supervise, monitor and tie each other as a script says, and a record of everything that happened
to them."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any, ClassVar

from recado.actors import Actor, ActorRef, ActorSystem, DeadLetter, Down, Message, Signal
from recado.actors.supervision.strategy import (
    PERMANENT,
    TEMPORARY,
    AllForOne,
    OneForOne,
    SupervisorStrategy,
)

from .stories import BrokenError

STRATEGIES: tuple[SupervisorStrategy, ...] = (
    OneForOne(max_restarts=None),
    OneForOne(1, within=2.0),
    OneForOne(max_restarts=0),
    OneForOne(3, within=1.0, trap=(BrokenError,)),
    AllForOne(max_restarts=None),
    AllForOne(2, within=2.0),
)


GOSSIP = 1_000  # the numbers of orders that are not of the script are from here on


class Order(Message[str]):
    """One step of a script: what an actor is to do with another one."""

    by_reference: ClassVar[bool] = True

    number: int
    what: str
    other: ActorRef[Any] | None = None
    strategy: int = 0
    pause: float | None = None


class Ledger:
    def __init__(self, system: ActorSystem) -> None:
        self.system = system
        self.refs: list[ActorRef[Any]] = []
        self.begun: Counter[ActorRef[Any]] = Counter()
        """Instances that were started."""
        self.ended: Counter[ActorRef[Any]] = Counter()
        """Instances that were told of their end."""
        self.inside: Counter[ActorRef[Any]] = Counter()
        self.crowded: list[ActorRef[Any]] = []
        self.handled: Counter[int] = Counter()
        self.dead: Counter[int] = Counter()
        self.last: dict[ActorRef[Any], int] = {}
        self.disorder: list[tuple[ActorRef[Any], int]] = []
        self.downs: Counter[tuple[ActorRef[Any], ActorRef[Any]]] = Counter()
        self.watches: set[tuple[ActorRef[Any], ActorRef[Any]]] = set()
        system._listeners.append(self._listen)

    def _listen(self, event: object) -> None:
        if isinstance(event, DeadLetter) and isinstance(event.message, Order):
            self.dead[event.message.number] += 1

    def enter(self, ref: ActorRef[Any]) -> None:
        self.inside[ref] += 1
        if self.inside[ref] > 1:
            self.crowded.append(ref)

    def leave(self, ref: ActorRef[Any]) -> None:
        self.inside[ref] -= 1

    def handles(self, ref: ActorRef[Any], number: int) -> None:
        self.handled[number] += 1
        if number < GOSSIP:
            if number <= self.last.get(ref, -1):
                self.disorder.append((ref, number))
            self.last[ref] = number


HOOKS = ("made", "started", "pre_restart", "post_restart", "stopped")
FLAWS: tuple[tuple[str, type[BaseException]], ...] = (
    *[("none", BrokenError)] * 3,
    *[(where, kind) for where in HOOKS for kind in (BrokenError, asyncio.CancelledError)],
)


class Character:
    """What stays the same in all lives of a citizen. Its flaw shows in every second one, from the second on."""

    def __init__(
        self,
        ledger: Ledger,
        pause: float | None = None,
        flaw: tuple[str, type[BaseException]] = FLAWS[0],
    ) -> None:
        self.ledger = ledger
        self.pause = pause
        self.flaw, self.breaks_by = flaw
        self.lives = 0

    def make(self) -> Citizen:
        self.lives += 1
        self.show("made")
        return Citizen(self)

    def show(self, where: str) -> None:
        if self.flaw == where and self.lives % 2 == 0:
            raise self.breaks_by(where)


class Citizen(Actor[Order | str]):
    def __init__(self, character: Character) -> None:
        self.character = character
        self.ledger = character.ledger

    async def hook(self) -> None:
        self.ledger.enter(self.ref)
        try:
            if self.character.pause is not None:
                await asyncio.sleep(self.character.pause)
        finally:
            self.ledger.leave(self.ref)

    async def pre_start(self) -> None:
        self.ledger.begun[self.ref] += 1
        await self.hook()
        self.character.show("started")

    async def post_stop(self) -> None:
        self.ledger.ended[self.ref] += 1
        await self.hook()
        self.character.show("stopped")

    async def pre_restart(self, reason: BaseException, message: Any) -> None:
        await self.post_stop()
        self.character.show("pre_restart")

    async def post_restart(self, reason: BaseException) -> None:
        await self.hook()
        self.character.show("post_restart")

    def receive(self, message: Order | str) -> Any:
        if isinstance(message, str):  # what somebody answered to gossip
            return None
        self.ledger.handles(self.ref, message.number)
        self.ledger.enter(self.ref)
        try:
            if message.pause is None and message.what != "child":
                self.obey(message)
                return None
        finally:
            self.ledger.leave(self.ref)
        return self.obey_slowly(message)

    async def obey_slowly(self, message: Order) -> None:
        self.ledger.enter(self.ref)
        try:
            await asyncio.sleep(message.pause or 0)
            if message.what == "child":
                await self.child(message)
            self.obey(message)
        finally:
            self.ledger.leave(self.ref)

    async def child(self, message: Order) -> None:
        if len(self.ledger.refs) < 12:
            pause, flaw = message.pause and 0.01, FLAWS[message.number % len(FLAWS)]
            self.ledger.refs.append(
                await self.start_link(
                    Character(self.ledger, pause, flaw).make,
                    capacity=message.number % 3,
                    supervisor_strategy=STRATEGIES[message.strategy],
                    restart_type=TEMPORARY if message.number % 5 == 4 else PERMANENT,
                )
            )

    def obey(self, message: Order) -> None:
        other = message.other
        match message.what:
            case "fail":
                raise BrokenError(str(message.number))
            case "fail otherwise":
                raise KeyError(message.number)
            case "stop":
                self.stop()
            case "stop other" if other is not None:
                other.stop()
            case "gossip" if other is not None and other != self.ref:
                for number in range(3):
                    other.tell(Order(message.number + GOSSIP * (number + 1), "nothing"))
            case "monitor" if other is not None and other != self.ref:
                self.monitor(other)
                self.ledger.watches.add((self.ref, other))
            case "tie" if other is not None and other != self.ref:
                self.tie(other)
            case "untie" if other is not None:
                self.untie(other)
            case "unlink" if other is not None and other in self.children:
                self.unlink(other)
            case "link" if other is not None and other not in self.above():
                self.link(other, supervisor_strategy=STRATEGIES[message.strategy])
            case _:
                pass
        self.reply_if_asked("done")

    def above(self) -> list[ActorRef[Any]]:
        """Itself, and those that supervise it: to supervise one of them would make a circle."""
        found: list[ActorRef[Any]] = [self.ref]
        while found[-1] is not None:
            cell = self.system._find_cell(found[-1].address)
            if cell is None or cell.supervisor is None:
                break
            found.append(cell.supervisor)
        return found

    def on_signal(self, signal: Signal) -> Any:
        match signal:
            case Down(ref, _):
                self.ledger.downs[self.ref, ref] += 1
                self.ledger.watches.discard((self.ref, ref))
                return None
            case _:
                return super().on_signal(signal)
