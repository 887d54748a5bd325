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
from recado.actors.errors import SystemClosed, not_there
from recado.actors.remote.faults import (
    BadEnvelope,
    BadFrame,
    Full,
    Refusal,
    RemoteFault,
    Replaced,
    Unacceptable,
)
from recado.actors.remote.peer import Peer
from recado.actors.remote.remote_ref import UNASKED, RemoteReply
from recado.actors.remote.sealed.compression import expand
from recado.actors.remote.sealed.envelope import read_envelope
from recado.actors.remote.sealed.envelope_pb2 import ANSWER, CONTROL, MESSAGE, Envelope, Payload
from recado.actors.remote.sealed.failures import read_failure
from recado.actors.remote.sealed.frame import (
    HEAD,
    INCARNATION,
    Seal,
    WrongSeal,
    is_refusal,
    open_refusal,
)
from recado.actors.remote.transport import Link, Settle
from recado.actors.remote.watching.presence import RENAME_HINT
from recado.actors.running.cell import Cell
from recado.actors.running.mailbox import Letter, Origin, Then
from recado.actors.running.pressure import when_room
from recado.actors.running.state import State
from recado.actors.serialising.catalogue import reply_type

from .controls import Controls, NotForUs, Untrusted
from .early import Early
from .refusals import Refusals
from .replay import NEW, Replay, Standing
from .slowing import Slowing
from .storing import Storing

if TYPE_CHECKING:
    from recado.actors.remote.node import Node

log = logging.getLogger("recado.actors")

ADDRESSES_MOST: Final = 10_000


class Inbound:
    def __init__(self, node: Node, seal: Seal) -> None:
        self._node = node
        self._system = node.system
        self._seal = seal
        self._options = node.options
        self.replay = Replay()
        self._lives = node.ways.lives
        self._outbound = node.outbound
        self._pending = node.outbound.pending
        self._serialisers = node.serialisers
        self._addresses: dict[str, Address] = {}
        self._reply_types: dict[type, Any] = {}
        # Of what is being processed, one for each time that it came: a link that was not sure repeats it, and
        # the broker has both. To settle what came on a channel that is gone is harmless.
        self._settles: dict[Origin, list[Settle]] = {}
        self._slowing = Slowing(node.system)
        self._storing = Storing(node.system)
        self._hushed = False
        self._unasked = UNASKED if node.options.untrusted else None
        self.early = Early(self._system.clock, self._has)
        self._refusals = Refusals(node)
        self._controls = Controls(node, self._address, self._reply)

    # ── the seal, and replay ──────────────────────────────────────────────────────────────────────────────

    def received(self, link: Link, frame: bytes, settle: Settle | None) -> None:
        try:
            incarnation, sequence, data = self._seal.open(frame)
        except BadFrame as error:
            self._no_frame(link, frame, error)
            if settle is not None:
                settle(False)
            return
        known = None
        if settle is None:
            if not self.replay.once(incarnation, sequence):
                self._refusals.refuse(link, incarnation, sequence, Refusal.REPLAY)
                return
        elif (seen := (known := self.replay.of(incarnation)).look(sequence)) is not NEW:
            if seen is Standing.SETTLED:  # repeated by a link that was not sure: nobody's fault
                settle(True)
            elif (settles := self._settles.get((incarnation, sequence))) is not None:
                settles.append(settle)
            return
        try:
            envelope = read_envelope(data)
            taken = self._take(link, envelope, (incarnation, sequence), settle)
        except RemoteFault as error:
            self._refusals.refuse(link, incarnation, sequence, _reason(error), str(error))
            taken = False
        except Exception:
            log.exception("a frame from %s could not be processed", link.peer or "somebody")
            self._refusals.refuse(link, incarnation, sequence, Refusal.ENVELOPE)
            taken = False
        if settle is not None and known is not None and taken is not None:
            known.settle(sequence)
            if not taken:  # it may have failed when it was about to be stored
                self._settles.pop((incarnation, sequence), None)
            settle(taken)

    def _no_frame(self, link: Link, frame: bytes, error: BadFrame) -> None:
        if isinstance(error, WrongSeal):
            self._refusals.refuse(link, error.incarnation, error.sequence, Refusal.COOKIE)
            return
        if is_refusal(frame):
            try:
                self._refusals.heard(open_refusal(frame))
                return
            except BadFrame as worse:
                error = worse
        self._refusals.strike(link, str(error))

    def received_unproved(self, link: Link, frames: list[bytes]) -> None:
        for frame in frames:
            if is_refusal(frame):  # it refuses us as we refuse it
                self.received(link, frame, None)
            elif len(frame) >= HEAD:
                sequence = int.from_bytes(frame[1 + INCARNATION : HEAD])
                self._refusals.refuse(link, frame[1 : 1 + INCARNATION], sequence, Refusal.COOKIE)

    def _pend(self, origin: Origin, settle: Settle) -> Then:
        """It is settled by what this gives, in any thread."""
        self.replay.pend(*origin)
        self._settles[origin] = [settle]
        return partial(self._system.on_loop, self._settled, origin)

    def _settled(self, origin: Origin, error: BaseException | None = None) -> None:
        settles = self._settles.pop(origin, None)
        if settles is None:
            return
        if isinstance(error, SystemClosed):  # it comes to the next life
            self.replay.forget(*origin)
        else:
            self.replay.of(origin[0]).settle(origin[1])
            _settle_each(settles, error is None)

    # ── the envelope ──────────────────────────────────────────────────────────────────────────────────────

    def _take(
        self, link: Link, envelope: Envelope, origin: Origin, settle: Settle | None
    ) -> bool | None:
        """True if it is where it stays. None if not: then it is settled later (I3), or never (I4)."""
        # Who speaks under this incarnation said its name when it began to.
        peer = self._lives.get(origin[0])
        if peer is None or peer.link is not link or peer.unreachable:
            peer = self._introduced(link, envelope)
            if origin[0] in peer.past and self._node.presence.is_late(peer, link):
                return self._take_late(link, peer, envelope, origin)
            self._node.presence.met(peer, link, origin[0])
        peer.spoke = True  # when, is looked at by the heartbeat: asking the clock takes 0.1 µs
        kind = envelope.kind
        if kind == ANSWER:
            self._answered(peer, envelope)
        elif kind == MESSAGE:
            return self._deliver(link, peer, envelope, origin, settle)
        elif kind == CONTROL:
            self._controls.handle(peer, envelope)
        else:
            raise BadEnvelope(f"an envelope of unknown kind {kind}")
        return True

    def _take_late(self, link: Link, peer: Peer, envelope: Envelope, origin: Origin) -> bool | None:
        """Of a node that another one of its name has replaced. What it told before it could know of that is
        taken; the rest is refused, as answers would go to the other one. Raises Replaced."""
        spoke_on = peer.past[origin[0]]
        is_told = envelope.kind == MESSAGE and envelope.one_way and not envelope.receipt
        if not is_told or spoke_on is None or spoke_on() is not link:
            raise Replaced(f"another node named {peer.name} has connected since. {RENAME_HINT}")
        return self._deliver(link, peer, envelope, origin, None)

    def _introduced(self, link: Link, envelope: Envelope) -> Peer:
        """Somebody whom we do not know, or not like this."""
        name = envelope.node
        if not name or name == self._system.name:
            raise BadEnvelope(f"a node that calls itself {name!r}")
        if link.peer not in ("", name, envelope.client):
            raise BadEnvelope(f"{name} speaks on a link of {link.peer}")
        return self._node.ways.peer(name)

    def _deliver(
        self, link: Link, peer: Peer, envelope: Envelope, origin: Origin, settle: Settle | None
    ) -> bool | None:
        text = envelope.target
        target = self._addresses.get(text) or self._address(text)
        message = self._read(envelope.message)
        text = envelope.sender
        sender = self._node.ref_of(text) if text else None
        declared = None if envelope.one_way else self._reply_type(type(message))
        reply = self._unasked if envelope.one_way else self._reply(peer, envelope, declared)
        letter = message, sender, reply
        receipt = self._receipt(peer, envelope) if envelope.receipt else None
        early = self.early
        # Also what is for a uid: who had it in an earlier life may have an heir of its name.
        name = target.name
        if early.is_open and settle is not None and name and early.is_early(name):
            self._pend(origin, settle)
            early.hold(name, partial(self._place_held, link, target, letter, origin, receipt))
            return None
        return self._place(link, target, letter, origin, settle, receipt)

    def _has(self, name: str) -> bool:
        return self._node.reachable(Address(self._system.name, name)) is not None

    def _place_held(
        self, link: Link, target: Address, letter: Letter, origin: Origin, receipt: Then | None
    ) -> None:
        settle = partial(_settle_each, self._settles[origin])
        if self._place(link, target, letter, origin, settle, receipt):
            self._settled(origin)

    def _place(
        self,
        link: Link,
        target: Address,
        letter: Letter,
        origin: Origin,
        settle: Settle | None,
        receipt: Then | None,
    ) -> bool | None:
        """As `_take`. `receipt` is called when it is known whether the mailbox has taken the message."""
        if self._hushed and settle is not None:  # I4
            return None
        cell = self._node.reachable(target) or self._system.heir(target)
        if cell is None:
            recipient = self._system.ref(target)
            self._system.bury(letter, recipient)
            if receipt is not None:
                receipt(not_there(recipient))
            return True
        if cell.lasting is None and not cell.capacity:
            cell.post(target, *letter)
            if receipt is not None:
                receipt(None)
            return True
        if receipt is not None and cell.lasting is None:
            receipt = partial(_if_running, cell, receipt)
        settled = None if settle is None else self._pend(origin, settle)
        self._put(cell, target, letter, origin, _both(settled, receipt))
        if cell.capacity and settle is None:
            self._slowing.after(link, cell)
        return None

    def _put(
        self, cell: Cell, target: Address, letter: Letter, origin: Origin, settled: Then | None
    ) -> None:
        """It is settled when it is stored, and when there is room."""
        if cell.lasting is not None:
            then = None if settled is None else partial(self._storing.stored, cell, settled)
            cell.put_from(letter, origin, then)
        else:
            cell.post(target, *letter)
            if settled is not None:
                when_room(cell, partial(self._roomy, cell, settled))

    def _roomy(self, cell: Cell, settled: Then) -> None:
        if not (self._hushed and cell.state is State.STOPPED):  # there it was buried (I4)
            settled(None)

    def hush(self) -> None:
        self._hushed = True

    def close(self) -> None:
        self.early.close()
        self._storing.close()

    def _reply(self, peer: Peer, envelope: Envelope, declared: Any = None) -> RemoteReply:
        milliseconds = envelope.patience
        patience = milliseconds / 1000 if milliseconds else None
        stranger = self._options.untrusted
        return RemoteReply(
            self._outbound, peer, envelope.id, patience, stranger=stranger, declared=declared
        )

    def _receipt(self, peer: Peer, envelope: Envelope) -> Then:
        """Tells the sender that the mailbox has taken its message, or why not. Raises BadEnvelope for an ask,
        whose frame would get two answers."""
        if not envelope.one_way:
            raise BadEnvelope("an ask that asks for a receipt")
        reply = self._reply(peer, envelope)

        def taken(error: BaseException | None) -> None:
            if error is None:
                reply.complete(None)
            elif not isinstance(
                error, SystemClosed
            ):  # the message comes to the next life, which answers
                reply.fail(error)

        return taken

    def _reply_type(self, kind: type) -> Any:
        try:
            return self._reply_types[kind]
        except KeyError:
            declared = self._reply_types[kind] = reply_type(kind)
            return declared

    def _address(self, text: str) -> Address:
        try:
            address = Address.parse(text)
        except ValueError as error:
            raise BadEnvelope(str(error)) from None
        if address.node != self._system.name:
            raise NotForUs(f"a message for {text}")
        if len(self._addresses) >= ADDRESSES_MOST:
            self._addresses.clear()
        self._addresses[text] = address
        return address

    def _read(self, payload: Payload, reply: Any = None) -> object:
        body = payload.body
        if payload.compression:
            self._serialisers.check(payload.serialisation, payload.manifest, reply)
            body = expand(payload.compression, body, self._options.expanded_limit)
        return self._serialisers.read(payload.serialisation, payload.manifest, body, reply)

    def _answered(self, peer: Peer, envelope: Envelope) -> None:
        if envelope.target != self._system.name:
            raise NotForUs(f"an answer for {envelope.target}")
        waiting = self._pending.take(envelope.answers, peer)
        if waiting is None:
            log.debug("an answer of %s that nobody waits for", peer.name)
            return
        reply, _, _, kind = waiting
        if envelope.HasField("exception"):
            reply.fail(read_failure(envelope.exception))
            return
        try:
            value = self._read(envelope.message, self._reply_type(kind))
        except RemoteFault as error:
            reply.fail(error)
        else:
            reply.complete(value)


def _both(first: Then | None, second: Then | None) -> Then | None:
    if first is None or second is None:
        return first or second

    def both(error: BaseException | None) -> None:
        first(error)
        second(error)

    return both


def _if_running(cell: Cell, receipt: Then, error: BaseException | None) -> None:
    """There is room in a bounded mailbox, or its actor has stopped, which leaves dead letters."""
    receipt(not_there(cell.ref) if cell.state is State.STOPPED else error)


def _settle_each(settles: list[Settle], taken: bool) -> None:
    for settle in settles:
        settle(taken)


def _reason(error: RemoteFault) -> Refusal:
    match error:
        case Unacceptable():
            return Refusal.SERIALISATION
        case Untrusted():
            return Refusal.UNTRUSTED
        case Full():
            return Refusal.BUSY
        case Replaced():
            return Refusal.REPLACED
        case _:
            return Refusal.ENVELOPE
