"""Asks that wait for answers of other nodes.

PD1  An answer completes the ask whose id it names, once, and only if it comes from the node that was asked.
PD2  What nobody waits for any more is forgotten within one sweep; there are never more than the limit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from recado.actors.ref import Reply

from .errors import LimitExceededError
from .peer import Peer

ASK_EXPIRY_S: Final = 600.0  # seconds after which an ask is forgotten of whose end nobody told us

PendingAsk: TypeAlias = tuple[Reply, Peer, int, type]
"""Where the answer goes, who was asked, the sequence of the frame that did, and the class of the message."""


class PendingAsks:
    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._asks: dict[int, PendingAsk] = {}
        self._expires_at: dict[int, float] = {}  # of those that the last sweep saw

    def __len__(self) -> int:
        return len(self._asks)

    def add(self, ask_id: int, ask: PendingAsk) -> None:
        """Raises Full."""
        if len(self._asks) >= self._limit:
            raise LimitExceededError(f"{self._limit} asks wait for other nodes already")
        self._asks[ask_id] = ask

    def take(self, ask_id: int, peer: Peer) -> PendingAsk | None:
        ask = self._asks.get(ask_id)
        if ask is None or ask[1] is not peer:
            return None
        del self._asks[ask_id]
        return ask

    def discard(self, ask_id: int) -> None:
        self._asks.pop(ask_id, None)

    def take_by_sequence(self, peer: Peer, sequence: int) -> PendingAsk | None:
        """The ask that went out in this frame. It looks at all of them: for what happens seldom."""
        for ask_id, ask in self._asks.items():
            if ask[1] is peer and ask[2] == sequence:
                del self._asks[ask_id]
                return ask
        return None

    def has_asks_to(self, peer: Peer) -> bool:
        return any(waiting[1] is peer for waiting in self._asks.values())

    def fail_all(self, peer: Peer | None, make_error: Callable[[], Exception]) -> None:
        """All that wait for this node, or for any; each with an error of its own."""
        failed = [number for number, waiting in self._asks.items() if peer in (None, waiting[1])]
        for number in failed:
            # What is raised in several places gathers all their traces.
            self._asks.pop(number)[0].fail(make_error())

    def sweep(self, now: float) -> None:
        """Forget those that nobody waits for. To ask each of them now and then is cheaper than to be told."""
        previous, self._expires_at = self._expires_at, {}
        for ask_id, (reply, _, _, _) in list(self._asks.items()):
            expires_at = previous.get(ask_id) or now + (reply.timeout or ASK_EXPIRY_S)
            if expires_at <= now or reply.done():
                del self._asks[ask_id]
            else:
                self._expires_at[ask_id] = expires_at
