"""Frames of ours that certainly did not arrive: whoever sent what was in them learns of it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from recado.actors.address import Address
from recado.actors.remote.faults import RemoteFault, Undelivered
from recado.actors.remote.sealed.compression import expand
from recado.actors.remote.sealed.envelope import read_envelope
from recado.actors.remote.sealed.envelope_pb2 import MESSAGE
from recado.actors.remote.sealed.frame import HEAD, INCARNATION, OVERHEAD
from recado.actors.remote.transport import Link

if TYPE_CHECKING:
    from recado.actors.remote.node import Node

log = logging.getLogger("recado.actors")


class Returned:
    def __init__(self, node: Node) -> None:
        self._node = node

    def handle(self, link: Link, frame: bytes, reason: str) -> None:
        """Asks fail, signals are as if their actor were gone, and messages are dead letters."""
        peer = self._node.ways.of_incarnation(frame[1 : 1 + INCARNATION])
        if peer is None:  # a refusal, or what we sent to the last life of a peer
            return
        sequence = int.from_bytes(frame[1 + INCARNATION : HEAD])
        signal = peer.signals.pop(sequence, None)
        if signal is not None:
            self._node.presence.undelivered(*signal, reason)
            return
        waiting = self._node.outbound.pending.take_sequence(peer, sequence)
        if waiting is not None:
            waiting[0].fail(Undelivered(f"nobody took it to {peer.name}: {reason}"))
        self._bury(frame, reason)

    def _bury(self, frame: bytes, reason: str) -> None:
        node = self._node
        try:
            envelope = read_envelope(frame[OVERHEAD:])
            if envelope.kind != MESSAGE:
                return
            payload = envelope.message
            body = expand(payload.compression, payload.body, node.options.expanded_limit)
            message = node.serialisers.read(payload.serialisation, payload.manifest, body)
        except RemoteFault as error:  # a class that only the others know
            log.info("a message was returned (%s), and cannot be read: %s", reason, error)
            return
        sender = node.ref_of(envelope.sender) if envelope.sender else None
        node.system.bury((message, sender, None), node.ref(Address.parse(envelope.target)))
