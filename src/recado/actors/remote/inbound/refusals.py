"""Frames that are not processed: refusals that we send, refusals of our frames, and returned frames of ours.

RF1  The sender of a refused frame is told, with at most REFUSALS_PER_SECOND refusals per second in total. If
     the frame was authentic the refusal has a detail text; otherwise it is smaller than the refused frame (no
     amplification).
RF2  A link on which too many frames were refused is closed.
RF3  A refused ask fails with the reason and the detail of the other node. All other refusals are published as
     events. A refused signal that would create a relation, or report a failure, also has the effect of an absent
     actor.
RF4  A returned frame certainly did not arrive: its ask fails, its signal has the effect of an absent actor, and
     its message becomes a dead letter.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

from recado.actors.address import Address
from recado.actors.remote.errors import (
    MessageRefusedError,
    NotDeliveredError,
    RefusalReason,
    RemoteError,
)
from recado.actors.remote.events import FrameRefused, MessageRefused
from recado.actors.remote.transport import PeerLink
from recado.actors.remote.wire.compression import decompress
from recado.actors.remote.wire.envelope import read_envelope
from recado.actors.remote.wire.envelope_pb2 import MESSAGE
from recado.actors.remote.wire.frame import (
    ALL_FRAMES_ID,
    HEADER_BYTES,
    INCARNATION_BYTES,
    OVERHEAD_BYTES,
    RefusalFrame,
    encode_refusal,
)

if TYPE_CHECKING:
    from recado.actors.remote.node import Node

log = logging.getLogger("recado.actors")

MAX_STRIKES: Final = 64  # refused frames after which a link is closed
REFUSALS_PER_SECOND: Final = 1000


class Refusals:
    """Refuses frames of other nodes, and handles refusals of our own."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._system = node.system
        self._strikes: WeakKeyDictionary[PeerLink, int] = WeakKeyDictionary()
        self._sent_this_second = 0
        self._second_ends_at = 0.0

    def refuse(
        self,
        link: PeerLink,
        incarnation: bytes,
        sequence: int,
        reason: RefusalReason,
        detail: str = "",
    ) -> None:
        """Refuse a frame. Pass `detail`, which is sent, for authentic frames only (RF1)."""
        description = detail or reason.name.lower()
        # A replaced node does nothing wrong, and each of its asks needs an answer.
        if reason is not RefusalReason.REPLACED:
            self.add_strike(link, description)
        self._system._publish_event(FrameRefused(link.peer, reason))
        now = self._system._clock.time()
        if now >= self._second_ends_at:
            self._sent_this_second, self._second_ends_at = 0, now + 1.0
        self._sent_this_second += 1
        if self._sent_this_second > REFUSALS_PER_SECOND:
            return
        log.warning(
            "refusing frame (peer=%s reason=%s): %s",
            link.peer or "unknown",
            reason.name.lower(),
            description,
        )
        try:
            link.post(encode_refusal(incarnation, sequence, reason, detail))
        except RemoteError as error:
            log.debug("cannot send refusal (peer=%s): %s", link.peer or "unknown", error)

    def add_strike(self, link: PeerLink, description: str) -> None:
        """Count a refused frame; close the link at the limit (RF2)."""
        strikes = self._strikes[link] = self._strikes.get(link, 0) + 1
        if strikes == MAX_STRIKES:
            log.warning(
                "closing link: too many refused frames (peer=%s frames=%d): %s",
                link.peer or "unknown",
                strikes,
                description,
            )
            self._system._loop.call_soon(link.close)

    def handle_refusal(self, refusal: RefusalFrame) -> None:
        """A peer refuses a frame of ours. Only the peer to which we sent it knows our incarnation."""
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
        log.warning("message refused (node=%s): %s", peer.name, error)
        self._system._publish_event(MessageRefused(peer.name, refusal.reason, refusal.detail))
        signal = peer.sent_signals.pop(refusal.sequence, None)
        if signal is not None:
            self._node.remote_watcher.signal_refused(*signal, error)

    # ── returned frames ───────────────────────────────────────────────────────────────────────────────────

    def handle_returned(self, frame: bytes, reason: str) -> None:
        """The transport returns a frame of ours (RF4)."""
        peer = self._node.peer_table.find_by_own_incarnation(frame[1 : 1 + INCARNATION_BYTES])
        if peer is None:  # a refusal, or a frame to a peer that was evicted from the table
            return
        sequence = int.from_bytes(frame[1 + INCARNATION_BYTES : HEADER_BYTES])
        signal = peer.sent_signals.pop(sequence, None)
        if signal is not None:
            self._node.remote_watcher.signal_undelivered(*signal, reason)
            return
        ask = self._node.outbound.pending_asks.take_by_sequence(peer, sequence)
        if ask is not None:
            ask[0].fail(NotDeliveredError(f"not delivered to {peer.name}: {reason}"))
        self._dead_letter(frame, reason)

    def _dead_letter(self, frame: bytes, reason: str) -> None:
        node = self._node
        try:
            envelope = read_envelope(frame[OVERHEAD_BYTES:])
            if envelope.kind != MESSAGE:
                return
            payload = envelope.message
            body = decompress(
                payload.compression, payload.body, node.options.max_decompressed_bytes
            )
            message = node.serializers.deserialize(payload.format_id, payload.manifest, body)
        except RemoteError as error:  # for instance a class that only the other node knows
            log.info("returned message cannot be decoded (reason=%s): %s", reason, error)
            return
        sender = node.resolve_ref(envelope.sender) if envelope.sender else None
        recipient = node.ref(Address.parse(envelope.target))
        self._system._dead_letter((message, sender, None), recipient)
