"""Sending to other nodes: messages, answers, signals and requests.

OUT1  A message that cannot be sent becomes a dead letter, and fails its ask. The sender neither waits nor
      fails.
OUT2  An ask ends in an answer, an error, or its timeout, also when the link is lost.
OUT3  Messages of one sender to one actor leave in the order in which they were sent.
OUT4  An answer completes an ask of the incarnation that asked, and of no other: ask ids begin at a random
      number.
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

SWEEP_INTERVAL_S: Final = 1.0  # between two removals of asks whose caller no longer waits
MAX_CACHED_SENDERS: Final = 10_000


class DeliveryReceipt(Message[None]):
    """Declares the type of the answer to a message sent with `receipt`."""


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
        # Random, so that an answer to the last incarnation of this node fits no ask of this one (OUT4).
        self._last_id = int.from_bytes(os.urandom(8)) >> 2
        self._sweep_timer: Timer | None = None
        self.on_loop = system._call_on_loop
        self.loop_thread = system._thread_id
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
        """Send a message to a remote actor; `address_text` is the address of the recipient as text.

        `reply` gets the answer to an ask. With `receipt` it is completed when the mailbox has accepted the
        message. A message that cannot be sent becomes a dead letter, and fails `reply`.
        """
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
                message_type = DeliveryReceipt if receipt else type(message)
                self._register_ask(message_id, reply, peer, message_type)
            peer_table.send(peer, envelope)
        except RemoteError as error:
            self.pending_asks.discard(message_id)
            self._report_undeliverable(recipient, message, sender, reply, error)

    def _compress(self, body: bytes) -> tuple[int, bytes]:
        """Return the compression and the body.

        Raises SerializationError for a body that the other node would refuse to decompress.
        """
        if len(body) > self._max_decompressed_bytes:
            raise SerializationError(
                f"the message has {len(body)} bytes, above max_decompressed_bytes="
                f"{self._max_decompressed_bytes}",
                "Raise it on both nodes, or send smaller messages",
            )
        return self._compressor.compress(body)

    def _report_undeliverable(
        self,
        recipient: ActorRef[Any],
        message: Any,
        sender: ActorRef[Any] | None,
        reply: Reply | None,
        error: Exception,
    ) -> None:
        log.info("message not sent (recipient=%s): %s", recipient, error)
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

    # ── asks and answers ──────────────────────────────────────────────────────────────────────────────────

    def _register_ask(self, ask_id: int, reply: Reply, peer: Peer, message_type: type) -> None:
        """Register the ask that the next frame to the peer will carry."""
        if self._sweep_timer is None:
            self._sweep_timer = self._system._clock.call_later(SWEEP_INTERVAL_S, self._sweep)
        self.pending_asks.add(ask_id, (reply, peer, peer.signer.sequence + 1, message_type))

    def _sweep(self) -> None:
        clock = self._system._clock
        self.pending_asks.sweep(clock.time())
        self._sweep_timer = None
        if self.pending_asks:
            self._sweep_timer = clock.call_later(SWEEP_INTERVAL_S, self._sweep)

    def send_answer(
        self, peer: Peer, incarnation: bytes, ask_id: int, value: Any, reply_type: Any = None
    ) -> None:
        """Answer an ask of this incarnation of the peer (OUT4).

        `reply_type` is the type of reply that the message declares, if known.
        """
        if incarnation != peer.incarnation and self._is_stale(peer, incarnation):
            return
        message_id = self._last_id = self._last_id + 1
        try:
            format_id, manifest, body = self._serializers.serialize_reply(value, reply_type)
            compression = 0
            if self._is_compressing:
                compression, body = self._compress(body)
            envelope = self._writer.write_answer(
                message_id, ask_id, peer.name, format_id, manifest, compression, body
            )
            self._peer_table.send(peer, envelope)
        except SerializationError as error:
            self.send_error(peer, incarnation, ask_id, error)
        except RemoteError as error:
            log.info("answer not sent (node=%s): %s", peer.name, error)

    def send_error(self, peer: Peer, incarnation: bytes, ask_id: int, error: BaseException) -> None:
        """Answer an ask by an exception."""
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
        except RemoteError as send_error:
            log.info("answer not sent (node=%s): %s", peer.name, send_error)

    def _is_stale(self, peer: Peer, incarnation: bytes) -> bool:
        """Whether the asker is known to be gone, replaced by another incarnation of its node.

        A broker may deliver frames of the last incarnation after the first one of the next: on a durable link
        the answer is sent, and a later incarnation drops it because it does not know the ask id.
        """
        if not peer.incarnation or (peer.link is not None and peer.link.is_durable):
            return False
        log.info(
            "dropping an answer: the asker is gone (node=%s incarnation=%s)",
            peer.name,
            incarnation.hex(),
        )
        return True

    # ── control messages ──────────────────────────────────────────────────────────────────────────────────

    def send_control(self, peer: Peer, control: Control, target: str = "") -> None:
        """Send a one-way control message to a node, or to one of its actors (`target`).

        Raises NoRouteError, LinkClosedError, LimitExceededError.
        """
        self._post_control(peer, target or peer.name, control, one_way=True)

    async def request(
        self,
        node: str,
        control: Control,
        timeout: float,  # noqa: ASYNC109  all asks share the timers of OpenAsks
        on_answer: Callable[[Any], Any] | None = None,
    ) -> Any:
        """Send a request to another node, and return its answer.

        `on_answer` converts the answer as soon as it arrives, before the next frame is processed. Raises the
        errors of the other node and of `on_answer`, and AskTimeoutError.
        """
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
        envelope = self._writer.write_message(
            message_id,
            target,
            "",
            None if one_way else 0,
            MSGPACK,
            CONTROL_MANIFEST,
            PLAIN,
            encode_control(control),
            control=True,
        )
        self._peer_table.send(peer, envelope)


class CallbackReply(Reply):
    """The Reply of a request whose answer takes effect before the next frame is processed.

    The task that awaits the future continues only in a later turn of the loop.
    """

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
            except Exception as error:  # noqa: BLE001  the requester gets it
                self.fail(error)


def _timeout_ms(reply: Reply) -> int:
    """Return how long the asker waits; 0 if unknown."""
    timeout = reply.timeout
    return 0 if timeout is None else min(int(timeout * 1000), 0xFFFFFFFF)
