"""What goes out to other nodes: messages, answers, signals and requests.

O1  What cannot be sent is a dead letter, and the failure of who asked. Nobody who sends waits for it, or fails.
O2  An ask ends in an answer, an error, or its time-out, also when the link is cut.
O3  Messages of one sender to one actor leave in the order in which they were sent.
O4  An answer completes an ask of the incarnation that asked, and of no other: ask numbers begin at random.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from recado.actors.address import Address
from recado.actors.future import Future
from recado.actors.message import Message
from recado.actors.ref import ActorRef, Reply, current
from recado.actors.serialising.serialisers import Serialisers

from .faults import CannotSerialise, Gone, RemoteFault
from .options import Options
from .peer import Peer
from .pending import Pending
from .sealed.compression import Compressor
from .sealed.controls import MANIFEST, Control, encode_control
from .sealed.envelope import EnvelopeWriter
from .sealed.envelope_pb2 import MSGPACK, PLAIN
from .sealed.failures import write_failure
from .ways import Ways

if TYPE_CHECKING:
    from recado.actors.running.clock import Timer
    from recado.actors.system import ActorSystem

log = logging.getLogger("recado.actors")

SWEEP: Final = 1.0  # seconds between two looks for asks that nobody waits for
TEXTS_MOST: Final = 10_000


class Receipt(Message[None]):
    """Declares the type of the answer to a message that was sent with `receipt`."""


class Outbound:
    def __init__(
        self, system: ActorSystem, ways: Ways, serialisers: Serialisers, options: Options
    ) -> None:
        self._system = system
        self._ways = ways
        self._serialisers = serialisers
        self._writer = EnvelopeWriter(system.name, options.client_id, options.metadata)
        self._compressor = Compressor(options.compression, options.compression_level)
        self._compresses = options.compression != "none"
        self._expanded_limit = options.expanded_limit
        self._sender_texts: dict[int, str] = {}
        # From a random number on: an answer to the last life of this node must not fit an ask of this one.
        self._number = int.from_bytes(os.urandom(8)) >> 2
        self._sweeping: Timer | None = None
        self.on_loop = system.on_loop
        self.home = system.home  # the loop's thread
        self.pending = Pending(options.asks_limit)

    def close(self, why: str) -> None:
        if self._sweeping is not None:
            self._sweeping.cancel()
        self.pending.fail(None, lambda: Gone(why))

    # ── messages ──────────────────────────────────────────────────────────────────────────────────────────

    def send(
        self,
        recipient: ActorRef[Any],
        text: str,
        message: Any,
        sender: ActorRef[Any] | None,
        reply: Reply | None,
        *,
        receipt: bool = False,
    ) -> None:
        """`text` is the recipient's address. With `receipt` the other node completes `reply` when the mailbox
        has taken the message. A message that cannot be sent is a dead letter, and fails `reply`."""
        number = self._number = self._number + 1
        ways, node = self._ways, recipient.address.node
        try:
            peer = ways.peers.get(node) or ways.peer(node)
            serialisation, manifest, body = self._serialisers.write(message)
            compression = 0
            if self._compresses:
                compression, body = self._compress(body)
            envelope = self._writer.message(
                number,
                text,
                "" if sender is None else self._text_of(sender),
                None if reply is None else _milliseconds(reply),
                serialisation,
                manifest,
                compression,
                body,
                receipt=receipt,
            )
            if reply is not None:
                self._await_answer(number, reply, peer, Receipt if receipt else type(message))
            ways.post(peer, envelope)
        except RemoteFault as error:
            self.pending.discard(number)
            self.undeliverable(recipient, message, sender, reply, error)

    def _compress(self, body: bytes) -> tuple[int, bytes]:
        """Raises CannotSerialise for a body that the other node would not expand."""
        if len(body) > self._expanded_limit:
            raise CannotSerialise(
                f"a message of {len(body)} bytes is more than the {self._expanded_limit} of expanded_limit",
                "Raise it on both nodes, or send less at a time",
            )
        return self._compressor.compress(body)

    def undeliverable(
        self,
        recipient: ActorRef[Any],
        message: Any,
        sender: ActorRef[Any] | None,
        reply: Reply | None,
        error: Exception,
    ) -> None:
        log.info("a message for %s is lost: %s", recipient, error)
        if reply is not None:
            reply.fail(error)
        self._system.bury((message, sender, None), recipient, str(error))

    def _text_of(self, sender: ActorRef[Any]) -> str:
        uid = sender.address.uid
        text = self._sender_texts.get(uid)
        if text is None:
            if len(self._sender_texts) >= TEXTS_MOST:
                self._sender_texts.clear()
            text = str(sender.address)
            if uid:
                self._sender_texts[uid] = text
        return text

    # ── asks ──────────────────────────────────────────────────────────────────────────────────────────────

    def _await_answer(self, number: int, reply: Reply, peer: Peer, kind: type) -> None:
        if self._sweeping is None:
            self._sweeping = self._system.clock.call_later(SWEEP, self._sweep)
        self.pending.add(number, (reply, peer, peer.sealer.sequence + 1, kind))

    def _sweep(self) -> None:
        clock = self._system.clock
        self.pending.sweep(clock.time())
        self._sweeping = clock.call_later(SWEEP, self._sweep) if self.pending else None

    def answer(self, peer: Peer, life: bytes, asked: int, value: Any, declared: Any = None) -> None:
        """To the ask of this number that an incarnation of the peer made (O4). `declared` is the type of the
        reply that the message declares, if that is known."""
        if life != peer.life and self._is_over(peer, life):
            return
        number = self._number = self._number + 1
        try:
            serialisation, manifest, body = self._serialisers.write_answer(value, declared)
            compression = 0
            if self._compresses:
                compression, body = self._compress(body)
            self._ways.post(
                peer,
                self._writer.answer(
                    number, asked, peer.name, serialisation, manifest, compression, body
                ),
            )
        except CannotSerialise as error:
            self.answer_error(peer, life, asked, error)
        except RemoteFault as error:
            log.info("an answer to %s is lost: %s", peer.name, error)

    def answer_error(self, peer: Peer, life: bytes, asked: int, error: BaseException) -> None:
        if life != peer.life and self._is_over(peer, life):
            return
        number = self._number = self._number + 1
        failing = current.get()
        cell = None if failing is None else self._system.cell(failing.ref.address)
        supervisor = "" if cell is None or cell.supervisor is None else str(cell.supervisor)
        envelope = self._writer.failure(number, asked, peer.name, write_failure(error), supervisor)
        try:
            self._ways.post(peer, envelope)
        except RemoteFault as lost:
            log.info("an answer to %s is lost: %s", peer.name, lost)

    def _is_over(self, peer: Peer, life: bytes) -> bool:
        """Whether the peer is known to have begun another life since. A broker may deliver frames of the last
        life behind the first of the next one: there the asker decides, to which the number is unknown."""
        if not peer.life or (peer.link is not None and peer.link.lasting):
            return False
        log.info(
            "dropping an answer: the asker is gone (node=%s incarnation=%s)", peer.name, life.hex()
        )
        return True

    # ── what nodes say to each other ──────────────────────────────────────────────────────────────────────

    def say(self, peer: Peer, control: Control, target: str = "") -> None:
        """To the node, or about one of its actors. Raises NoWay, Full."""
        self._post_control(peer, target or peer.name, control, one_way=True)

    async def request(
        self,
        node: str,
        control: Control,
        patience: float,
        arrived: Callable[[Any], Any] | None = None,
    ) -> Any:
        """Have another node do something, and wait for its answer, or for what `arrived` makes of it. Raises
        what they raise."""
        peer = self._ways.peer(node)
        asked = self._system.ref(Address(node, "node"))
        future = self._system.asks.open(asked, patience)
        reply = future if arrived is None else Arriving(future, arrived)
        self._await_answer(self._number + 1, reply, peer, type(control))
        try:
            self._post_control(peer, node, control, one_way=False)
        except RemoteFault as error:
            future.fail(error)
        return await future

    def _post_control(self, peer: Peer, target: str, control: Control, *, one_way: bool) -> None:
        number = self._number = self._number + 1
        self._ways.post(
            peer,
            self._writer.message(
                number,
                target,
                "",
                None if one_way else 0,
                MSGPACK,
                MANIFEST,
                PLAIN,
                encode_control(control),
                control=True,
            ),
        )


class Arriving:
    """The Reply of a request whose answer has an effect as soon as it comes: what came together with it is
    processed before whoever waits goes on."""

    def __init__(self, future: Future[Any], arrived: Callable[[Any], Any]) -> None:
        self._future = future
        self._arrived = arrived
        self.patience = future.patience
        self.done = future.done
        self.fail = future.fail

    def complete(self, value: Any) -> None:
        if not self.done():
            try:
                self._future.complete(self._arrived(value))
            except Exception as error:  # noqa: BLE001  it is the answer of who waits
                self.fail(error)


def _milliseconds(reply: Reply) -> int:
    """How long its asker waits; 0 if it does not say."""
    patience: float | None = getattr(reply, "patience", None)
    return 0 if patience is None else min(int(patience * 1000), 0xFFFFFFFF)
