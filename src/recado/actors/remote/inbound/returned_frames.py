"""Frames of ours that certainly did not arrive: whoever sent what was in them learns of it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from recado.actors.address import Address
from recado.actors.remote.errors import NotDeliveredError, RemoteError
from recado.actors.remote.transport import PeerLink
from recado.actors.remote.wire.compression import decompress
from recado.actors.remote.wire.envelope import read_envelope
from recado.actors.remote.wire.envelope_pb2 import MESSAGE
from recado.actors.remote.wire.frame import HEADER_BYTES, INCARNATION_BYTES, OVERHEAD_BYTES

if TYPE_CHECKING:
    from recado.actors.remote.node import Node

log = logging.getLogger("recado.actors")


class ReturnedFrames:
    def __init__(self, node: Node) -> None:
        self._node = node

    def handle(self, link: PeerLink, frame: bytes, reason: str) -> None:
        """Asks fail, signals are as if their actor were gone, and messages are dead letters."""
        peer = self._node.peer_table.find_by_own_incarnation(frame[1 : 1 + INCARNATION_BYTES])
        if peer is None:  # a refusal, or what we sent to the last life of a peer
            return
        sequence = int.from_bytes(frame[1 + INCARNATION_BYTES : HEADER_BYTES])
        signal = peer.sent_signals.pop(sequence, None)
        if signal is not None:
            self._node.remote_watcher.signal_undelivered(*signal, reason)
            return
        ask = self._node.outbound.pending_asks.take_by_sequence(peer, sequence)
        if ask is not None:
            ask[0].fail(NotDeliveredError(f"nobody took it to {peer.name}: {reason}"))
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
            message = node.serializers.deserialize(payload.serialisation, payload.manifest, body)
        except RemoteError as error:  # a class that only the others know
            log.info("a message was returned (%s), and cannot be read: %s", reason, error)
            return
        sender = node.resolve_ref(envelope.sender) if envelope.sender else None
        node.system._dead_letter((message, sender, None), node.ref(Address.parse(envelope.target)))
