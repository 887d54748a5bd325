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
from recado.actors.ref import ActorRef, Reply, current_cell
from recado.actors.serialization.serializers import Serializers

from .errors import LinkClosedError, RemoteError, SerializationError
from .options import RemoteOptions
from .peer import Peer
from .peer_table import PeerTable
from .pending_asks import PendingAsks
from .wire.compression import Compressor
from .wire.controls import CONTROL_MANIFEST, Control, encode_control
from .wire.envelope import EnvelopeWriter
from .wire.envelope_pb2 import MSGPACK, PLAIN
from .wire.failures import encode_exception

if TYPE_CHECKING:
    from recado.actors.runtime.clock import Timer
    from recado.actors.system import ActorSystem

log = logging.getLogger("recado.actors")

SWEEP_INTERVAL_S: Final = 1.0  # seconds between two looks for asks that nobody waits for
MAX_CACHED_SENDERS: Final = 10_000


class DeliveryReceipt(Message[None]):
    """Declares the type of the answer to a message that was sent with `receipt`."""


class Outbound:
    def __init__(
        self,
        system: ActorSystem,
        peer_table: PeerTable,
        serializers: Serializers,
        options: RemoteOptions,
    ) -> None:
        self._system = system
        self._peer_table = peer_table
        self._serializers = serializers
        self._writer = EnvelopeWriter(system.name, options.client_id, options.metadata)
        self._compressor = Compressor(options.compression, options.compression_level)
        self._is_compressing = options.compression != "none"
        self._max_decompressed_bytes = options.max_decompressed_bytes
        self._sender_texts: dict[int, str] = {}
        # From a random number on: an answer to the last life of this node must not fit an ask of this one.
        self._last_id = int.from_bytes(os.urandom(8)) >> 2
        self._sweep_timer: Timer | None = None
        self.on_loop = system._call_on_loop
        self.loop_thread = system._thread_id  # the loop's thread
        self.pending_asks = PendingAsks(options.max_pending_asks)

    def close(self, reason: str) -> None:
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        self.pending_asks.fail_all(None, lambda: LinkClosedError(reason))

    # ── messages ──────────────────────────────────────────────────────────────────────────────────────────

    def send(
        self,
        recipient: ActorRef[Any],
        address_text: str,
        message: Any,
        sender: ActorRef[Any] | None,
        reply: Reply | None,
        *,
        receipt: bool = False,
    ) -> None:
        """`text` is the recipient's address. With `receipt` the other node completes `reply` when the mailbox
        has taken the message. A message that cannot be sent is a dead letter, and fails `reply`."""
        message_id = self._last_id = self._last_id + 1
        peer_table, node = self._peer_table, recipient.address.node
        try:
            peer = peer_table.peers.get(node) or peer_table.peer(node)
            format_id, manifest, body = self._serializers.serialize(message)
            compression = 0
            if self._is_compressing:
                compression, body = self._compress(body)
            envelope = self._writer.write_message(
                message_id,
                address_text,
                "" if sender is None else self._sender_text(sender),
                None if reply is None else _timeout_ms(reply),
                format_id,
                manifest,
                compression,
                body,
                receipt=receipt,
            )
            if reply is not None:
                self._register_ask(
                    message_id, reply, peer, DeliveryReceipt if receipt else type(message)
                )
            peer_table.send(peer, envelope)
        except RemoteError as error:
            self.pending_asks.discard(message_id)
            self.report_undeliverable(recipient, message, sender, reply, error)

    def _compress(self, body: bytes) -> tuple[int, bytes]:
        """Raises CannotSerialise for a body that the other node would not expand."""
        if len(body) > self._max_decompressed_bytes:
            raise SerializationError(
                f"a message of {len(body)} bytes is more than the {self._max_decompressed_bytes} of expanded_limit",
                "Raise it on both nodes, or send less at a time",
            )
        return self._compressor.compress(body)

    def report_undeliverable(
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
        self._system._dead_letter((message, sender, None), recipient, str(error))

    def _sender_text(self, sender: ActorRef[Any]) -> str:
        uid = sender.address.uid
        text = self._sender_texts.get(uid)
        if text is None:
            if len(self._sender_texts) >= MAX_CACHED_SENDERS:
                self._sender_texts.clear()
            text = str(sender.address)
            if uid:
                self._sender_texts[uid] = text
        return text

    # ── asks ──────────────────────────────────────────────────────────────────────────────────────────────

    def _register_ask(self, ask_id: int, reply: Reply, peer: Peer, message_type: type) -> None:
        if self._sweep_timer is None:
            self._sweep_timer = self._system._clock.call_later(SWEEP_INTERVAL_S, self._sweep)
        self.pending_asks.add(ask_id, (reply, peer, peer.signer.sequence + 1, message_type))

    def _sweep(self) -> None:
        clock = self._system._clock
        self.pending_asks.sweep(clock.time())
        self._sweep_timer = (
            clock.call_later(SWEEP_INTERVAL_S, self._sweep) if self.pending_asks else None
        )

    def send_answer(
        self, peer: Peer, incarnation: bytes, ask_id: int, value: Any, reply_type: Any = None
    ) -> None:
        """To the ask of this number that an incarnation of the peer made (O4). `declared` is the type of the
        reply that the message declares, if that is known."""
        if incarnation != peer.incarnation and self._is_stale(peer, incarnation):
            return
        message_id = self._last_id = self._last_id + 1
        try:
            format_id, manifest, body = self._serializers.serialize_reply(value, reply_type)
            compression = 0
            if self._is_compressing:
                compression, body = self._compress(body)
            self._peer_table.send(
                peer,
                self._writer.write_answer(
                    message_id, ask_id, peer.name, format_id, manifest, compression, body
                ),
            )
        except SerializationError as error:
            self.send_error(peer, incarnation, ask_id, error)
        except RemoteError as error:
            log.info("an answer to %s is lost: %s", peer.name, error)

    def send_error(self, peer: Peer, incarnation: bytes, ask_id: int, error: BaseException) -> None:
        if incarnation != peer.incarnation and self._is_stale(peer, incarnation):
            return
        message_id = self._last_id = self._last_id + 1
        failing = current_cell.get()
        cell = None if failing is None else self._system._find_cell(failing.ref.address)
        supervisor = "" if cell is None or cell.supervisor is None else str(cell.supervisor)
        envelope = self._writer.write_error(
            message_id, ask_id, peer.name, encode_exception(error), supervisor
        )
        try:
            self._peer_table.send(peer, envelope)
        except RemoteError as lost:
            log.info("an answer to %s is lost: %s", peer.name, lost)

    def _is_stale(self, peer: Peer, incarnation: bytes) -> bool:
        """Whether the peer is known to have begun another life since. A broker may deliver frames of the last
        life behind the first of the next one: there the asker decides, to which the number is unknown."""
        if not peer.incarnation or (peer.link is not None and peer.link.is_durable):
            return False
        log.info(
            "dropping an answer: the asker is gone (node=%s incarnation=%s)",
            peer.name,
            incarnation.hex(),
        )
        return True

    # ── what nodes say to each other ──────────────────────────────────────────────────────────────────────

    def send_control(self, peer: Peer, control: Control, target: str = "") -> None:
        """To the node, or about one of its actors. Raises NoWay, Full."""
        self._post_control(peer, target or peer.name, control, one_way=True)

    async def request(
        self,
        node: str,
        control: Control,
        timeout: float,
        on_answer: Callable[[Any], Any] | None = None,
    ) -> Any:
        """Have another node do something, and wait for its answer, or for what `arrived` makes of it. Raises
        what they raise."""
        peer = self._peer_table.peer(node)
        target = self._system.ref(Address(node, "node"))
        future = self._system._open_asks.open(target, timeout)
        reply = future if on_answer is None else CallbackReply(future, on_answer)
        self._register_ask(self._last_id + 1, reply, peer, type(control))
        try:
            self._post_control(peer, node, control, one_way=False)
        except RemoteError as error:
            future.fail(error)
        return await future

    def _post_control(self, peer: Peer, target: str, control: Control, *, one_way: bool) -> None:
        message_id = self._last_id = self._last_id + 1
        self._peer_table.send(
            peer,
            self._writer.write_message(
                message_id,
                target,
                "",
                None if one_way else 0,
                MSGPACK,
                CONTROL_MANIFEST,
                PLAIN,
                encode_control(control),
                control=True,
            ),
        )


class CallbackReply(Reply):
    """The Reply of a request whose answer has an effect as soon as it comes: what came together with it is
    processed before whoever waits goes on."""

    def __init__(self, future: Future[Any], on_answer: Callable[[Any], Any]) -> None:
        self._future = future
        self._on_answer = on_answer

    @property
    def timeout(self) -> float | None:
        return self._future.timeout

    def done(self) -> bool:
        return self._future.done()

    def fail(self, error: BaseException) -> None:
        self._future.fail(error)

    def complete(self, value: Any) -> None:
        if not self.done():
            try:
                self._future.complete(self._on_answer(value))
            except Exception as error:  # noqa: BLE001  it is the answer of who waits
                self.fail(error)


def _timeout_ms(reply: Reply) -> int:
    """How long its asker waits; 0 if it does not say."""
    timeout = reply.timeout
    return 0 if timeout is None else min(int(timeout * 1000), 0xFFFFFFFF)
