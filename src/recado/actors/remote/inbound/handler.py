"""The path of a frame from a transport to a mailbox: cheap checks first.

    size ─► MAC ─► duplicate? ─► envelope ─► target ─► format ─► body ─► mailbox

A frame may come with a `settle` callback, from a transport that redelivers unsettled frames (AMQP). It is
settled as accepted when its message is stored or in a mailbox with space, and as rejected when the frame is
refused. If that takes time, the frame is *pending* in the deduplicator; copies that the broker delivers
meanwhile add their `settle` to those of the first one.

INB1  Nothing of a frame is decoded before its MAC was verified, except of a refusal, which has no MAC. No settled
      frame is processed again.
INB2  `frame_received` raises nothing, whatever the frame contains. The sender of a refused frame is told
      (refusals.py).
INB3  A frame with `settle` is settled once: when its message is stored or in a mailbox with space, or when it
      is refused.
INB4  While the actors of a closing node stop, no message with `settle` is delivered or becomes a dead letter:
      it stays unsettled, and is redelivered to the next incarnation of the node.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from recado.actors.address import Address
from recado.actors.errors import SystemClosedError, actor_stopped_error
from recado.actors.ref import Reply
from recado.actors.remote.errors import (
    InvalidEnvelopeError,
    InvalidFrameError,
    LimitExceededError,
    NodeReplacedError,
    RefusalReason,
    RemoteError,
    UnacceptableMessageError,
)
from recado.actors.remote.monitoring.remote_watcher import RENAME_HINT
from recado.actors.remote.peer import Peer
from recado.actors.remote.remote_ref import DISCARD_REPLY, RemoteReply
from recado.actors.remote.transport import PeerLink, Settle
from recado.actors.remote.wire.compression import decompress
from recado.actors.remote.wire.envelope import read_envelope
from recado.actors.remote.wire.envelope_pb2 import ANSWER, CONTROL, MESSAGE, Envelope, Payload
from recado.actors.remote.wire.failures import decode_exception
from recado.actors.remote.wire.frame import (
    HEADER_BYTES,
    INCARNATION_BYTES,
    FrameAuthenticationError,
    FrameAuthenticator,
    decode_refusal,
    is_refusal,
)
from recado.actors.runtime.backpressure import call_when_space
from recado.actors.runtime.cell import Cell
from recado.actors.runtime.mailbox import MessageEnvelope, Origin, StoredCallback
from recado.actors.runtime.state import CellState
from recado.actors.serialization.class_registry import reply_type_of

from .backpressure import LinkBackpressure, StoreRetries
from .controls import ControlHandler, UntrustedControlError, WrongNodeError
from .deduplication import NEW, Deduplicator, FrameStatus
from .refusals import Refusals
from .warmup import WarmupBuffer

if TYPE_CHECKING:
    from recado.actors.remote.node import Node

log = logging.getLogger("recado.actors")

MAX_CACHED_ADDRESSES: Final = 10_000


class InboundHandler:
    def __init__(self, node: Node, authenticator: FrameAuthenticator) -> None:
        self._node = node
        self._system = node.system
        self._authenticator = authenticator
        self._options = node.options
        self.deduplicator = Deduplicator()
        self._peers_by_incarnation = node.peer_table.by_incarnation
        self._outbound = node.outbound
        self._pending_asks = node.outbound.pending_asks
        self._serializers = node.serializers
        self._addresses: dict[str, Address] = {}
        self._reply_types: dict[type, Any] = {}
        # The `settle` callbacks of each pending frame, one per delivery. There can be several: a sender that
        # got no confirm publishes the frame again, and the broker then has two copies. Settling a delivery on
        # a closed channel is harmless.
        self._pending_settles: dict[Origin, list[Settle]] = {}
        self._backpressure = LinkBackpressure(node.system)
        self._store_retries = StoreRetries(node.system)
        self._is_quiescing = False
        # Only a reply tells a cell that a message is of an untrusted node, so one-way messages have one, too.
        self._one_way_reply = DISCARD_REPLY if node.options.untrusted else None
        self.warmup = WarmupBuffer(self._system._clock, self._has_actor)
        self.refusals = Refusals(node)
        self._controls = ControlHandler(node, self)

    def quiesce(self) -> None:
        """The actors are about to stop (INB4)."""
        self._is_quiescing = True

    def close(self) -> None:
        self.warmup.close()
        self._store_retries.close()

    # ── MAC and deduplication ─────────────────────────────────────────────────────────────────────────────

    def frame_received(self, link: PeerLink, frame: bytes, settle: Settle | None) -> None:
        try:
            incarnation, sequence, data = self._authenticator.verify(frame)
        except InvalidFrameError as error:
            self._handle_invalid_frame(link, frame, error)
            if settle is not None:
                settle(False)
            return
        history = None
        if settle is None:
            if not self.deduplicator.accept_once(incarnation, sequence):
                self.refusals.refuse(link, incarnation, sequence, RefusalReason.REPLAY)
                return
        else:
            history = self.deduplicator.history_of(incarnation)
            if (status := history.status_of(sequence)) is not NEW:
                if status is FrameStatus.SETTLED:
                    # Not a replay attack: a sender that got no confirm has published the frame again.
                    settle(True)
                elif (callbacks := self._pending_settles.get((incarnation, sequence))) is not None:
                    callbacks.append(settle)
                return
        try:
            envelope = read_envelope(data)
            accepted = self._process(link, envelope, (incarnation, sequence), settle)
        except RemoteError as error:
            reason = _refusal_reason(error)
            self.refusals.refuse(link, incarnation, sequence, reason, str(error))
            accepted = False
        except Exception:
            log.exception("error while processing frame (peer=%s)", link.peer or "unknown")
            self.refusals.refuse(link, incarnation, sequence, RefusalReason.ENVELOPE)
            accepted = False
        if settle is not None and history is not None and accepted is not None:
            history.settle(sequence)
            if not accepted:  # storing may have begun before the failure
                self._pending_settles.pop((incarnation, sequence), None)
            settle(accepted)

    def _handle_invalid_frame(self, link: PeerLink, frame: bytes, error: InvalidFrameError) -> None:
        if isinstance(error, FrameAuthenticationError):
            self.refusals.refuse(link, error.incarnation, error.sequence, RefusalReason.COOKIE)
            return
        if is_refusal(frame):
            try:
                self.refusals.handle_refusal(decode_refusal(frame))
                return
            except InvalidFrameError as invalid_refusal:
                error = invalid_refusal
        self.refusals.add_strike(link, str(error))

    def unauthenticated_frames_received(self, link: PeerLink, frames: list[bytes]) -> None:
        for frame in frames:
            if is_refusal(frame):  # the peer does not accept our cookie either
                self.frame_received(link, frame, None)
            elif len(frame) >= HEADER_BYTES:
                incarnation = frame[1 : 1 + INCARNATION_BYTES]
                sequence = int.from_bytes(frame[1 + INCARNATION_BYTES : HEADER_BYTES])
                self.refusals.refuse(link, incarnation, sequence, RefusalReason.COOKIE)

    def _defer_settle(self, origin: Origin, settle: Settle) -> StoredCallback:
        """Mark a frame as pending. Returns the callback that settles it, to be called from any thread."""
        self.deduplicator.mark_pending(*origin)
        self._pending_settles[origin] = [settle]
        return partial(self._system._call_on_loop, self._complete_settle, origin)

    def _complete_settle(self, origin: Origin, error: BaseException | None = None) -> None:
        callbacks = self._pending_settles.pop(origin, None)
        if callbacks is None:
            return
        if isinstance(error, SystemClosedError):  # redelivered to the next incarnation (INB4)
            self.deduplicator.release(*origin)
        else:
            self.deduplicator.history_of(origin[0]).settle(origin[1])
            _settle_all(callbacks, error is None)

    # ── envelope ──────────────────────────────────────────────────────────────────────────────────────────

    def _process(
        self, link: PeerLink, envelope: Envelope, origin: Origin, settle: Settle | None
    ) -> bool | None:
        """Process an authentic, new frame. Raises RemoteError to refuse it.

        Returns True if the frame can be settled now, None if it is settled later (INB3) or not at all (INB4).
        """
        # The peer is known by its incarnation, whose first frame stated the name of the node.
        peer = self._peers_by_incarnation.get(origin[0])
        if peer is None or peer.link is not link or peer.is_unreachable:
            peer = self._identify_peer(link, envelope)
            watcher = self._node.remote_watcher
            if origin[0] in peer.past_incarnations and watcher.is_superseded(peer, link):
                return self._process_from_replaced(link, peer, envelope, origin)
            watcher.update_peer(peer, link, origin[0])
        peer.has_spoken = True  # the heartbeat notes the time: reading the clock here takes 0.1 µs
        kind = envelope.kind
        if kind == ANSWER:
            self._handle_answer(peer, envelope)
        elif kind == MESSAGE:
            return self._deliver(link, peer, envelope, origin, settle)
        elif kind == CONTROL:
            self._controls.handle(peer, envelope)
        else:
            raise InvalidEnvelopeError(f"unknown envelope kind {kind}")
        return True

    def _process_from_replaced(
        self, link: PeerLink, peer: Peer, envelope: Envelope, origin: Origin
    ) -> bool | None:
        """Process a frame of a node that another one of its name has replaced.

        One-way messages on its own link are accepted: it may have sent them before it knew. Other frames are
        refused, because their answers would go to the other node. Raises NodeReplacedError.
        """
        its_link = peer.past_incarnations[origin[0]]
        is_tell = envelope.kind == MESSAGE and envelope.one_way and not envelope.receipt
        if not is_tell or its_link is None or its_link() is not link:
            raise NodeReplacedError(
                f"another node named {peer.name} has connected since. {RENAME_HINT}"
            )
        return self._deliver(link, peer, envelope, origin, None)

    def _identify_peer(self, link: PeerLink, envelope: Envelope) -> Peer:
        """Return the peer named in the envelope, which is new, or known on another link or incarnation."""
        name = envelope.node
        if not name or name == self._system.name:
            raise InvalidEnvelopeError(f"invalid name of the sending node: {name!r}")
        if link.peer not in ("", name, envelope.client):
            raise InvalidEnvelopeError(f"frame of {name} on a link of {link.peer}")
        return self._node.peer_table.peer(name)

    def _handle_answer(self, peer: Peer, envelope: Envelope) -> None:
        if envelope.target != self._system.name:
            raise WrongNodeError(f"answer for node {envelope.target}")
        ask = self._pending_asks.take(envelope.answers, peer)
        if ask is None:
            log.debug("dropping answer: no pending ask (node=%s)", peer.name)
            return
        reply, _, _, message_type = ask
        if envelope.HasField("exception"):
            reply.fail(decode_exception(envelope.exception))
            return
        try:
            value = self._decode_payload(envelope.message, self._reply_type(message_type))
        except RemoteError as error:
            reply.fail(error)
        else:
            reply.complete(value)

    # ── delivery to a mailbox ─────────────────────────────────────────────────────────────────────────────

    def _deliver(
        self,
        link: PeerLink,
        peer: Peer,
        envelope: Envelope,
        origin: Origin,
        settle: Settle | None,
    ) -> bool | None:
        """Deliver a message, or hold it during the warm-up. Returns as `_process` does."""
        text = envelope.target
        target = self._addresses.get(text) or self.parse_target(text)
        message = self._decode_payload(envelope.message)
        text = envelope.sender
        sender = self._node.resolve_ref(text) if text else None
        reply: Reply | None
        if envelope.one_way:
            reply = self._one_way_reply
        else:
            reply = self.make_reply(peer, envelope, self._reply_type(type(message)))
        delivered = message, sender, reply
        receipt = self._make_receipt(peer, envelope) if envelope.receipt else None
        warmup = self.warmup
        # By name, even if the target has a uid: an actor of this name may replace that of the last incarnation.
        name = target.name
        if warmup.is_open and settle is not None and name and warmup.must_hold(name):
            self._defer_settle(origin, settle)
            warmup.hold(name, partial(self._deliver_held, link, target, delivered, origin, receipt))
            return None
        return self._deliver_to_cell(link, target, delivered, origin, settle, receipt)

    def _has_actor(self, name: str) -> bool:
        return self._node.exposed_cell(Address(self._system.name, name)) is not None

    def _deliver_held(
        self,
        link: PeerLink,
        target: Address,
        delivered: MessageEnvelope,
        origin: Origin,
        receipt: StoredCallback | None,
    ) -> None:
        # It settles all copies that were received during the warm-up. Later copies are collected again if the
        # mailbox defers the settling once more.
        settle = partial(_settle_all, self._pending_settles[origin])
        if self._deliver_to_cell(link, target, delivered, origin, settle, receipt):
            self._complete_settle(origin)

    def _deliver_to_cell(
        self,
        link: PeerLink,
        target: Address,
        delivered: MessageEnvelope,
        origin: Origin,
        settle: Settle | None,
        receipt: StoredCallback | None,
    ) -> bool | None:
        """Put a message into its mailbox. Returns as `_process` does.

        `receipt` is called when it is known whether the mailbox has accepted the message.
        """
        if self._is_quiescing and settle is not None:  # INB4
            return None
        cell = self._node.exposed_cell(target) or self._system._find_durable_cell(target)
        if cell is None:
            recipient = self._system.ref(target)
            self._system._dead_letter(delivered, recipient)
            if receipt is not None:
                receipt(actor_stopped_error(recipient))
            return True
        if cell.durable_mailbox is None and not cell.capacity:
            cell.deliver(target, *delivered)
            if receipt is not None:
                receipt(None)
            return True
        if receipt is not None and cell.durable_mailbox is None:
            receipt = partial(_fail_if_stopped, cell, receipt)
        on_accepted = None if settle is None else self._defer_settle(origin, settle)
        self._enqueue(cell, target, delivered, origin, _call_both(on_accepted, receipt))
        if cell.capacity and settle is None:
            self._backpressure.pause_if_full(link, cell)
        return None

    def _enqueue(
        self,
        cell: Cell,
        target: Address,
        delivered: MessageEnvelope,
        origin: Origin,
        on_accepted: StoredCallback | None,
    ) -> None:
        """Put a message into a durable or bounded mailbox.

        `on_accepted` is called when the message is stored and the mailbox has space.
        """
        if cell.durable_mailbox is not None:
            on_stored = None
            if on_accepted is not None:
                on_stored = partial(self._store_retries.handle_stored, cell, on_accepted)
            cell.put_durably(delivered, origin, on_stored)
        else:
            cell.deliver(target, *delivered)
            if on_accepted is not None:
                call_when_space(cell, partial(self._accept_after_space, cell, on_accepted))

    def _accept_after_space(self, cell: Cell, on_accepted: StoredCallback) -> None:
        # In a stopped cell of a closing node the message is a dead letter: left unsettled (INB4).
        if not (self._is_quiescing and cell.state is CellState.STOPPED):
            on_accepted(None)

    # ── parts of an envelope ──────────────────────────────────────────────────────────────────────────────

    def make_reply(self, peer: Peer, envelope: Envelope, reply_type: Any = None) -> RemoteReply:
        timeout_ms = envelope.timeout_ms
        return RemoteReply(
            self._outbound,
            peer,
            envelope.id,
            timeout_ms / 1000 if timeout_ms else None,
            is_untrusted=self._options.untrusted,
            reply_type=reply_type,
        )

    def _make_receipt(self, peer: Peer, envelope: Envelope) -> StoredCallback:
        """Return a callback that answers whether the mailbox has accepted the message. Raises
        InvalidEnvelopeError for an ask, whose frame would get two answers."""
        if not envelope.one_way:
            raise InvalidEnvelopeError("an ask cannot request a delivery receipt")
        reply = self.make_reply(peer, envelope)

        def answer(error: BaseException | None) -> None:
            if error is None:
                reply.complete(None)
            elif not isinstance(error, SystemClosedError):  # then the next incarnation answers
                reply.fail(error)

        return answer

    def _reply_type(self, message_type: type) -> Any:
        try:
            return self._reply_types[message_type]
        except KeyError:
            reply_type = self._reply_types[message_type] = reply_type_of(message_type)
            return reply_type

    def parse_target(self, text: str) -> Address:
        """Return an address of this node. Raises WrongNodeError, InvalidEnvelopeError."""
        try:
            address = Address.parse(text)
        except ValueError as error:
            raise InvalidEnvelopeError(str(error)) from None
        if address.node != self._system.name:
            raise WrongNodeError(f"message for {text}, which is on another node")
        if len(self._addresses) >= MAX_CACHED_ADDRESSES:
            self._addresses.clear()
        self._addresses[text] = address
        return address

    def _decode_payload(self, payload: Payload, reply_type: Any = None) -> object:
        body = payload.body
        format_id, manifest = payload.format_id, payload.manifest
        if payload.compression:
            self._serializers.check_readable(format_id, manifest, reply_type)
            body = decompress(payload.compression, body, self._options.max_decompressed_bytes)
        return self._serializers.deserialize(format_id, manifest, body, reply_type)


def _call_both(
    first: StoredCallback | None, second: StoredCallback | None
) -> StoredCallback | None:
    if first is None or second is None:
        return first or second

    def both(error: BaseException | None) -> None:
        first(error)
        second(error)

    return both


def _fail_if_stopped(cell: Cell, receipt: StoredCallback, error: BaseException | None) -> None:
    """Called when a bounded mailbox has space or its actor has stopped; then the message is a dead letter."""
    receipt(actor_stopped_error(cell.ref) if cell.state is CellState.STOPPED else error)


def _settle_all(callbacks: list[Settle], accepted: bool) -> None:
    for settle in callbacks:
        settle(accepted)


def _refusal_reason(error: RemoteError) -> RefusalReason:
    match error:
        case UnacceptableMessageError():
            return RefusalReason.SERIALIZATION
        case UntrustedControlError():
            return RefusalReason.UNTRUSTED
        case LimitExceededError():
            return RefusalReason.BUSY
        case NodeReplacedError():
            return RefusalReason.REPLACED
        case _:
            return RefusalReason.ENVELOPE
