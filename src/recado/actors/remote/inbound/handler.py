"""What comes in from other nodes: checked in the order in which it is cheapest to refuse.

    size ─► seal ─► replay ─► envelope ─► target ─► serialisation ─► body ─► actor

I1  Nothing of a frame is decoded before its seal is checked; nothing of a settled one is processed again.
I2  Whatever comes, `received` raises nothing. Who sent a frame that was refused is told so (refusals.py).
I3  What can be settled is settled once: when it is where it stays until it is handled, or when it was refused.
I4  While the actors of a node that is closed stop, no message that can be settled is delivered or buried: it
    stays unsettled, and comes to the next life.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from recado.actors.address import Address
from recado.actors.errors import SystemClosedError, actor_stopped_error
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

from .backpressure import LinkBackpressure
from .controls import ControlHandler, UntrustedControlError, WrongNodeError
from .deduplication import NEW, Deduplicator, FrameStatus
from .refusals import Refusals
from .store_retry import StoreRetries
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
        # Of what is being processed, one for each time that it came: a link that was not sure repeats it, and
        # the broker has both. To settle what came on a channel that is gone is harmless.
        self._pending_settles: dict[Origin, list[Settle]] = {}
        self._backpressure = LinkBackpressure(node.system)
        self._store_retries = StoreRetries(node.system)
        self._is_quiescing = False
        self._discard_reply = DISCARD_REPLY if node.options.untrusted else None
        self.warmup = WarmupBuffer(self._system._clock, self._has_actor)
        self._refusals = Refusals(node)
        self._controls = ControlHandler(node, self._parse_target, self._make_reply)

    # ── the seal, and replay ──────────────────────────────────────────────────────────────────────────────

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
                self._refusals.refuse(link, incarnation, sequence, RefusalReason.REPLAY)
                return
        elif (
            status := (history := self.deduplicator.history_of(incarnation)).status_of(sequence)
        ) is not NEW:
            if (
                status is FrameStatus.SETTLED
            ):  # repeated by a link that was not sure: nobody's fault
                settle(True)
            elif (settles := self._pending_settles.get((incarnation, sequence))) is not None:
                settles.append(settle)
            return
        try:
            envelope = read_envelope(data)
            accepted = self._process(link, envelope, (incarnation, sequence), settle)
        except RemoteError as error:
            self._refusals.refuse(link, incarnation, sequence, _refusal_reason(error), str(error))
            accepted = False
        except Exception:
            log.exception("a frame from %s could not be processed", link.peer or "somebody")
            self._refusals.refuse(link, incarnation, sequence, RefusalReason.ENVELOPE)
            accepted = False
        if settle is not None and history is not None and accepted is not None:
            history.settle(sequence)
            if not accepted:  # it may have failed when it was about to be stored
                self._pending_settles.pop((incarnation, sequence), None)
            settle(accepted)

    def _handle_invalid_frame(self, link: PeerLink, frame: bytes, error: InvalidFrameError) -> None:
        if isinstance(error, FrameAuthenticationError):
            self._refusals.refuse(link, error.incarnation, error.sequence, RefusalReason.COOKIE)
            return
        if is_refusal(frame):
            try:
                self._refusals.handle_refusal(decode_refusal(frame))
                return
            except InvalidFrameError as worse:
                error = worse
        self._refusals.add_strike(link, str(error))

    def unauthenticated_frames_received(self, link: PeerLink, frames: list[bytes]) -> None:
        for frame in frames:
            if is_refusal(frame):  # it refuses us as we refuse it
                self.frame_received(link, frame, None)
            elif len(frame) >= HEADER_BYTES:
                sequence = int.from_bytes(frame[1 + INCARNATION_BYTES : HEADER_BYTES])
                self._refusals.refuse(
                    link, frame[1 : 1 + INCARNATION_BYTES], sequence, RefusalReason.COOKIE
                )

    def _defer_settle(self, origin: Origin, settle: Settle) -> StoredCallback:
        """It is settled by what this gives, in any thread."""
        self.deduplicator.mark_pending(*origin)
        self._pending_settles[origin] = [settle]
        return partial(self._system._call_on_loop, self._complete_settle, origin)

    def _complete_settle(self, origin: Origin, error: BaseException | None = None) -> None:
        settles = self._pending_settles.pop(origin, None)
        if settles is None:
            return
        if isinstance(error, SystemClosedError):  # it comes to the next life
            self.deduplicator.release(*origin)
        else:
            self.deduplicator.history_of(origin[0]).settle(origin[1])
            _settle_all(settles, error is None)

    # ── the envelope ──────────────────────────────────────────────────────────────────────────────────────

    def _process(
        self, link: PeerLink, envelope: Envelope, origin: Origin, settle: Settle | None
    ) -> bool | None:
        """True if it is where it stays. None if not: then it is settled later (I3), or never (I4)."""
        # Who speaks under this incarnation said its name when it began to.
        peer = self._peers_by_incarnation.get(origin[0])
        if peer is None or peer.link is not link or peer.is_unreachable:
            peer = self._identify_peer(link, envelope)
            if origin[0] in peer.past_incarnations and self._node.remote_watcher.is_superseded(
                peer, link
            ):
                return self._process_from_replaced(link, peer, envelope, origin)
            self._node.remote_watcher.update_peer(peer, link, origin[0])
        peer.has_spoken = True  # when, is looked at by the heartbeat: asking the clock takes 0.1 µs
        kind = envelope.kind
        if kind == ANSWER:
            self._handle_answer(peer, envelope)
        elif kind == MESSAGE:
            return self._deliver(link, peer, envelope, origin, settle)
        elif kind == CONTROL:
            self._controls.handle(peer, envelope)
        else:
            raise InvalidEnvelopeError(f"an envelope of unknown kind {kind}")
        return True

    def _process_from_replaced(
        self, link: PeerLink, peer: Peer, envelope: Envelope, origin: Origin
    ) -> bool | None:
        """Of a node that another one of its name has replaced. What it told before it could know of that is
        taken; the rest is refused, as answers would go to the other one. Raises Replaced."""
        spoke_on = peer.past_incarnations[origin[0]]
        is_told = envelope.kind == MESSAGE and envelope.one_way and not envelope.receipt
        if not is_told or spoke_on is None or spoke_on() is not link:
            raise NodeReplacedError(
                f"another node named {peer.name} has connected since. {RENAME_HINT}"
            )
        return self._deliver(link, peer, envelope, origin, None)

    def _identify_peer(self, link: PeerLink, envelope: Envelope) -> Peer:
        """Somebody whom we do not know, or not like this."""
        name = envelope.node
        if not name or name == self._system.name:
            raise InvalidEnvelopeError(f"a node that calls itself {name!r}")
        if link.peer not in ("", name, envelope.client):
            raise InvalidEnvelopeError(f"{name} speaks on a link of {link.peer}")
        return self._node.peer_table.peer(name)

    def _deliver(
        self, link: PeerLink, peer: Peer, envelope: Envelope, origin: Origin, settle: Settle | None
    ) -> bool | None:
        text = envelope.target
        target = self._addresses.get(text) or self._parse_target(text)
        message = self._decode_payload(envelope.message)
        text = envelope.sender
        sender = self._node.resolve_ref(text) if text else None
        reply_type = None if envelope.one_way else self._reply_type(type(message))
        reply = (
            self._discard_reply
            if envelope.one_way
            else self._make_reply(peer, envelope, reply_type)
        )
        letter = message, sender, reply
        receipt = self._make_receipt(peer, envelope) if envelope.receipt else None
        early = self.warmup
        # Also what is for a uid: who had it in an earlier life may have an heir of its name.
        name = target.name
        if early.is_open and settle is not None and name and early.must_hold(name):
            self._defer_settle(origin, settle)
            early.hold(name, partial(self._deliver_held, link, target, letter, origin, receipt))
            return None
        return self._deliver_to_cell(link, target, letter, origin, settle, receipt)

    def _has_actor(self, name: str) -> bool:
        return self._node.exposed_cell(Address(self._system.name, name)) is not None

    def _deliver_held(
        self,
        link: PeerLink,
        target: Address,
        letter: MessageEnvelope,
        origin: Origin,
        receipt: StoredCallback | None,
    ) -> None:
        settle = partial(_settle_all, self._pending_settles[origin])
        if self._deliver_to_cell(link, target, letter, origin, settle, receipt):
            self._complete_settle(origin)

    def _deliver_to_cell(
        self,
        link: PeerLink,
        target: Address,
        letter: MessageEnvelope,
        origin: Origin,
        settle: Settle | None,
        receipt: StoredCallback | None,
    ) -> bool | None:
        """As `_take`. `receipt` is called when it is known whether the mailbox has taken the message."""
        if self._is_quiescing and settle is not None:  # I4
            return None
        cell = self._node.exposed_cell(target) or self._system._find_durable_cell(target)
        if cell is None:
            recipient = self._system.ref(target)
            self._system._dead_letter(letter, recipient)
            if receipt is not None:
                receipt(actor_stopped_error(recipient))
            return True
        if cell.durable_mailbox is None and not cell.capacity:
            cell.deliver(target, *letter)
            if receipt is not None:
                receipt(None)
            return True
        if receipt is not None and cell.durable_mailbox is None:
            receipt = partial(_fail_if_stopped, cell, receipt)
        settled = None if settle is None else self._defer_settle(origin, settle)
        self._enqueue(cell, target, letter, origin, _call_both(settled, receipt))
        if cell.capacity and settle is None:
            self._backpressure.pause_if_full(link, cell)
        return None

    def _enqueue(
        self,
        cell: Cell,
        target: Address,
        letter: MessageEnvelope,
        origin: Origin,
        settled: StoredCallback | None,
    ) -> None:
        """It is settled when it is stored, and when there is room."""
        if cell.durable_mailbox is not None:
            then = (
                None
                if settled is None
                else partial(self._store_retries.handle_stored, cell, settled)
            )
            cell.put_durably(letter, origin, then)
        else:
            cell.deliver(target, *letter)
            if settled is not None:
                call_when_space(cell, partial(self._settle_after_room, cell, settled))

    def _settle_after_room(self, cell: Cell, settled: StoredCallback) -> None:
        if not (self._is_quiescing and cell.state is CellState.STOPPED):  # there it was buried (I4)
            settled(None)

    def quiesce(self) -> None:
        self._is_quiescing = True

    def close(self) -> None:
        self.warmup.close()
        self._store_retries.close()

    def _make_reply(self, peer: Peer, envelope: Envelope, reply_type: Any = None) -> RemoteReply:
        milliseconds = envelope.patience
        timeout = milliseconds / 1000 if milliseconds else None
        is_untrusted = self._options.untrusted
        return RemoteReply(
            self._outbound,
            peer,
            envelope.id,
            timeout,
            is_untrusted=is_untrusted,
            reply_type=reply_type,
        )

    def _make_receipt(self, peer: Peer, envelope: Envelope) -> StoredCallback:
        """Tells the sender that the mailbox has taken its message, or why not. Raises BadEnvelope for an ask,
        whose frame would get two answers."""
        if not envelope.one_way:
            raise InvalidEnvelopeError("an ask that asks for a receipt")
        reply = self._make_reply(peer, envelope)

        def taken(error: BaseException | None) -> None:
            if error is None:
                reply.complete(None)
            elif not isinstance(
                error, SystemClosedError
            ):  # the message comes to the next life, which answers
                reply.fail(error)

        return taken

    def _reply_type(self, kind: type) -> Any:
        try:
            return self._reply_types[kind]
        except KeyError:
            declared = self._reply_types[kind] = reply_type_of(kind)
            return declared

    def _parse_target(self, text: str) -> Address:
        try:
            address = Address.parse(text)
        except ValueError as error:
            raise InvalidEnvelopeError(str(error)) from None
        if address.node != self._system.name:
            raise WrongNodeError(f"a message for {text}")
        if len(self._addresses) >= MAX_CACHED_ADDRESSES:
            self._addresses.clear()
        self._addresses[text] = address
        return address

    def _decode_payload(self, payload: Payload, reply_type: Any = None) -> object:
        body = payload.body
        if payload.compression:
            self._serializers.check_readable(payload.serialisation, payload.manifest, reply_type)
            body = decompress(payload.compression, body, self._options.max_decompressed_bytes)
        return self._serializers.deserialize(
            payload.serialisation, payload.manifest, body, reply_type
        )

    def _handle_answer(self, peer: Peer, envelope: Envelope) -> None:
        if envelope.target != self._system.name:
            raise WrongNodeError(f"an answer for {envelope.target}")
        waiting = self._pending_asks.take(envelope.answers, peer)
        if waiting is None:
            log.debug("an answer of %s that nobody waits for", peer.name)
            return
        reply, _, _, kind = waiting
        if envelope.HasField("exception"):
            reply.fail(decode_exception(envelope.exception))
            return
        try:
            value = self._decode_payload(envelope.message, self._reply_type(kind))
        except RemoteError as error:
            reply.fail(error)
        else:
            reply.complete(value)


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
    """There is room in a bounded mailbox, or its actor has stopped, which leaves dead letters."""
    receipt(actor_stopped_error(cell.ref) if cell.state is CellState.STOPPED else error)


def _settle_all(settles: list[Settle], accepted: bool) -> None:
    for settle in settles:
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
