"""Asks that wait for answers of other nodes.

PD1  An answer completes the ask whose id it names, once, and only if it comes from the node that was asked.
PD2  What nobody waits for any more is forgotten within one sweep; there are never more than the limit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from recado.actors.ref import Reply

from .faults import Full
from .peer import Peer

FORGET: Final = 600.0  # seconds after which an ask is forgotten of whose end nobody told us

Waiting: TypeAlias = tuple[Reply, Peer, int, type]
"""Where the answer goes, who was asked, the sequence of the frame that did, and the class of the message."""


class Pending:
    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._asks: dict[int, Waiting] = {}
        self._until: dict[int, float] = {}  # of those that the last sweep saw

    def __len__(self) -> int:
        return len(self._asks)

    def add(self, number: int, waiting: Waiting) -> None:
        """Raises Full."""
        if len(self._asks) >= self._limit:
            raise Full(f"{self._limit} asks wait for other nodes already")
        self._asks[number] = waiting

    def take(self, number: int, peer: Peer) -> Waiting | None:
        waiting = self._asks.get(number)
        if waiting is None or waiting[1] is not peer:
            return None
        del self._asks[number]
        return waiting

    def discard(self, number: int) -> None:
        self._asks.pop(number, None)

    def take_sequence(self, peer: Peer, sequence: int) -> Waiting | None:
        """The ask that went out in this frame. It looks at all of them: for what happens seldom."""
        for number, waiting in self._asks.items():
            if waiting[1] is peer and waiting[2] == sequence:
                del self._asks[number]
                return waiting
        return None

    def waits_for(self, peer: Peer) -> bool:
        return any(waiting[1] is peer for waiting in self._asks.values())

    def fail(self, peer: Peer | None, make: Callable[[], Exception]) -> None:
        """All that wait for this node, or for any; each with an error of its own."""
        lost = [number for number, waiting in self._asks.items() if peer in (None, waiting[1])]
        for number in lost:
            # What is raised in several places gathers all their traces.
            self._asks.pop(number)[0].fail(make())

    def sweep(self, now: float) -> None:
        """Forget those that nobody waits for. To ask each of them now and then is cheaper than to be told."""
        before, self._until = self._until, {}
        for number, (reply, _, _, _) in list(self._asks.items()):
            until = before.get(number) or now + (getattr(reply, "patience", None) or FORGET)
            if until <= now or _is_done(reply):
                del self._asks[number]
            else:
                self._until[number] = until


def _is_done(reply: Reply) -> bool:
    """Futures know; of others nobody does, so they stay until their time is over."""
    done = getattr(reply, "done", None)
    return done is not None and bool(done())
