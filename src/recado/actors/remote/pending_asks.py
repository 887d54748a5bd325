"""Asks that wait for answers of other nodes.

PD1  An answer completes the ask whose id it has, once, and only if it comes from the node that was asked.
PD2  An ask whose caller no longer waits is removed by the next sweep; the number of asks is limited.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from recado.actors.ref import Reply

from .errors import LimitExceededError
from .peer import Peer

ASK_EXPIRY_S: Final = 600.0  # for asks whose timeout is not known

PendingAsk: TypeAlias = tuple[Reply, Peer, int, type]
"""Where the answer goes, the peer that was asked, the sequence of the frame, and the class of the message."""


class PendingAsks:
    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._asks: dict[int, PendingAsk] = {}
        self._expires_at: dict[int, float] = {}  # of the asks that the last sweep has seen

    def __len__(self) -> int:
        return len(self._asks)

    def add(self, ask_id: int, ask: PendingAsk) -> None:
        """Raises LimitExceededError."""
        if len(self._asks) >= self._limit:
            raise LimitExceededError(
                f"{self._limit} asks wait for other nodes", "Raise max_pending_asks"
            )
        self._asks[ask_id] = ask

    def take(self, ask_id: int, peer: Peer) -> PendingAsk | None:
        """Remove and return the ask that a peer has answered (PD1)."""
        ask = self._asks.get(ask_id)
        if ask is None or ask[1] is not peer:
            return None
        del self._asks[ask_id]
        return ask

    def discard(self, ask_id: int) -> None:
        self._asks.pop(ask_id, None)

    def take_by_sequence(self, peer: Peer, sequence: int) -> PendingAsk | None:
        """Remove and return the ask sent in this frame. A linear search: only for refused and returned
        frames."""
        for ask_id, ask in self._asks.items():
            if ask[1] is peer and ask[2] == sequence:
                del self._asks[ask_id]
                return ask
        return None

    def has_asks_to(self, peer: Peer) -> bool:
        return any(ask[1] is peer for ask in self._asks.values())

    def fail_all(self, peer: Peer | None, make_error: Callable[[], Exception]) -> None:
        """Fail all asks to this peer, or to any if it is None."""
        failed = [ask_id for ask_id, ask in self._asks.items() if peer in (None, ask[1])]
        for ask_id in failed:
            # Each gets its own error: an exception raised in several places collects all their tracebacks.
            self._asks.pop(ask_id)[0].fail(make_error())

    def sweep(self, now: float) -> None:
        """Remove asks that are done or expired. Polling them is cheaper than a callback on each."""
        previous, self._expires_at = self._expires_at, {}
        for ask_id, (reply, _, _, _) in list(self._asks.items()):
            expires_at = previous.get(ask_id) or now + (reply.timeout or ASK_EXPIRY_S)
            if expires_at <= now or reply.done():
                del self._asks[ask_id]
            else:
                self._expires_at[ask_id] = expires_at
