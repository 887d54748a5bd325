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

from recado.actors.remote.faults import Refusal, Refused, RemoteFault
from recado.actors.remote.occurrences import FrameRefused, MessageRefused
from recado.actors.remote.sealed.frame import ALL_FRAMES, RefusedFrame, refuse
from recado.actors.remote.transport import Link

if TYPE_CHECKING:
    from recado.actors.remote.node import Node

log = logging.getLogger("recado.actors")

STRIKES_MOST: Final = 64  # refused frames after which a link is closed
REFUSALS_MOST: Final = 1000  # that are told in one second, to whomever


class Refusals:
    def __init__(self, node: Node) -> None:
        self._node = node
        self._system = node.system
        self._strikes: WeakKeyDictionary[Link, int] = WeakKeyDictionary()
        self._told = 0  # in this second
        self._told_until = 0.0

    def refuse(
        self, link: Link, incarnation: bytes, sequence: int, reason: Refusal, why: str = ""
    ) -> None:
        """`why` is told to the sender: only of frames that have the seal (RF1)."""
        told = why or reason.name.lower()
        if reason is not Refusal.REPLACED:  # not its fault, and each ask needs its answer
            self.strike(link, told)
        self._system.publish(FrameRefused(link.peer, reason))
        now = self._system.clock.time()
        if now >= self._told_until:
            self._told, self._told_until = 0, now + 1.0
        self._told += 1
        if self._told > REFUSALS_MOST:
            return
        log.warning("a frame from %s is refused: %s", link.peer or "somebody", told)
        try:
            link.post(refuse(incarnation, sequence, reason, why))
        except RemoteFault as error:
            log.debug("a refusal cannot be told: %s", error)

    def strike(self, link: Link, what: str) -> None:
        strikes = self._strikes[link] = self._strikes.get(link, 0) + 1
        if strikes == STRIKES_MOST:
            log.warning("a link to %s is closed: %s, and others", link.peer or "somebody", what)
            self._system.loop.call_soon(link.close)

    def heard(self, refused: RefusedFrame) -> None:
        """A frame of ours was refused, as it says. Its incarnation is known only to whom we sent the frame."""
        peer = self._node.ways.of_incarnation(refused.incarnation)
        if peer is None:
            return
        if refused.reason is Refusal.REPLACED and refused.sequence == ALL_FRAMES:
            self._node.presence.replaced(peer)
            return
        waiting = self._node.outbound.pending.take_sequence(peer, refused.sequence)
        fault = Refused(refused.reason, refused.why)
        if waiting is not None:
            waiting[0].fail(fault)
            return
        log.warning("%s: %s", peer.name, fault)
        self._system.publish(MessageRefused(peer.name, refused.reason, refused.why))
        signal = peer.signals.pop(refused.sequence, None)
        if signal is not None:
            self._node.presence.refused(*signal, fault)
