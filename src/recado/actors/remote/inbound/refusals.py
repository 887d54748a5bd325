"""Frames that are refused: who sent them is told; and what we do when we are told so.

RF1  The sender of a refused frame is told, by no more frames in a second than the limit. If the frame had the
     seal it is told why as well; if not, by fewer bytes than it sent.
RF2  A link on which too many came is closed.
RF3  An ask that was refused fails with the reason, and with what the other node says about it. A signal that
     was to bind two actors does not, as if nobody were there. Of all else, the listeners to the system's
     events are told.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

from recado.actors.remote.errors import MessageRefusedError, RefusalReason, RemoteError
from recado.actors.remote.events import FrameRefused, MessageRefused
from recado.actors.remote.transport import PeerLink
from recado.actors.remote.wire.frame import ALL_FRAMES_ID, RefusalFrame, encode_refusal

if TYPE_CHECKING:
    from recado.actors.remote.node import Node

log = logging.getLogger("recado.actors")

MAX_STRIKES: Final = 64  # refused frames after which a link is closed
REFUSALS_PER_SECOND: Final = 1000  # that are told in one second, to whomever


class Refusals:
    def __init__(self, node: Node) -> None:
        self._node = node
        self._system = node.system
        self._strikes: WeakKeyDictionary[PeerLink, int] = WeakKeyDictionary()
        self._sent_this_second = 0  # in this second
        self._second_ends_at = 0.0

    def refuse(
        self,
        link: PeerLink,
        incarnation: bytes,
        sequence: int,
        reason: RefusalReason,
        detail: str = "",
    ) -> None:
        """`why` is told to the sender: only of frames that have the seal (RF1)."""
        description = detail or reason.name.lower()
        if reason is not RefusalReason.REPLACED:  # not its fault, and each ask needs its answer
            self.add_strike(link, description)
        self._system._publish_event(FrameRefused(link.peer, reason))
        now = self._system._clock.time()
        if now >= self._second_ends_at:
            self._sent_this_second, self._second_ends_at = 0, now + 1.0
        self._sent_this_second += 1
        if self._sent_this_second > REFUSALS_PER_SECOND:
            return
        log.warning("a frame from %s is refused: %s", link.peer or "somebody", description)
        try:
            link.post(encode_refusal(incarnation, sequence, reason, detail))
        except RemoteError as error:
            log.debug("a refusal cannot be told: %s", error)

    def add_strike(self, link: PeerLink, description: str) -> None:
        strikes = self._strikes[link] = self._strikes.get(link, 0) + 1
        if strikes == MAX_STRIKES:
            log.warning(
                "a link to %s is closed: %s, and others", link.peer or "somebody", description
            )
            self._system._loop.call_soon(link.close)

    def handle_refusal(self, refusal: RefusalFrame) -> None:
        """A frame of ours was refused, as it says. Its incarnation is known only to whom we sent the frame."""
        peer = self._node.peer_table.find_by_own_incarnation(refusal.incarnation)
        if peer is None:
            return
        if refusal.reason is RefusalReason.REPLACED and refusal.sequence == ALL_FRAMES_ID:
            self._node.remote_watcher.handle_own_replacement(peer)
            return
        ask = self._node.outbound.pending_asks.take_by_sequence(peer, refusal.sequence)
        error = MessageRefusedError(refusal.reason, refusal.detail)
        if ask is not None:
            ask[0].fail(error)
            return
        log.warning("%s: %s", peer.name, error)
        self._system._publish_event(MessageRefused(peer.name, refusal.reason, refusal.detail))
        signal = peer.sent_signals.pop(refusal.sequence, None)
        if signal is not None:
            self._node.remote_watcher.signal_refused(*signal, error)
