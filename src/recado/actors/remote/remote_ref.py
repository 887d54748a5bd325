"""Delivery to actors of other nodes, and replies to the asks of those actors.

`RemoteDelivery` and `RemoteReply` may be used from any thread, and do their work on the thread of the loop. Only
`deliver_wait` must be awaited on that loop.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from threading import get_ident
from typing import TYPE_CHECKING, Any, Final

from recado.actors.address import Address
from recado.actors.ref import ActorRef, Reply
from recado.actors.remote_port import Asker
from recado.actors.supervision.signals import CellSignal

if TYPE_CHECKING:
    from .node import Node
    from .outbound import Outbound
    from .peer import Peer


class RemoteDelivery:
    """The DeliveryTarget of one address on another node."""

    __slots__ = ("_address_text", "_node", "_ref")

    def __init__(self, node: Node, address: Address) -> None:
        self._node = node
        self._ref: ActorRef[Any] = ActorRef(address, self, node.system)
        self._address_text = str(address)  # takes 2 µs, and is in every envelope

    @property
    def ref(self) -> ActorRef[Any]:
        return self._ref

    def deliver(
        self, address: Address, message: Any, sender: ActorRef[Any] | None, reply: Reply | None
    ) -> None:
        node = self._node
        if get_ident() == node.system._thread_id:
            node.outbound.send(self._ref, self._address_text, message, sender, reply)
        else:
            node.system._call_on_loop(
                node.outbound.send, self._ref, self._address_text, message, sender, reply
            )

    async def deliver_wait(
        self,
        address: Address,
        message: Any,
        sender: ActorRef[Any] | None,
        timeout: float | None,  # noqa: ASYNC109  all asks share the timers of OpenAsks
    ) -> None:
        """Send a message, and return when the other node reports that the mailbox has accepted it.

        Raises AskTimeoutError, LinkLostError and NotDeliveredError as an ask does, ActorStoppedError if the
        other node has no such actor, and SerializationError.
        """
        node = self._node
        receipt = node.system._open_asks.open(self._ref, timeout)
        try:
            with suppress(TimeoutError):  # then the receipt times out as well
                async with asyncio.timeout(receipt.timeout):
                    await node.drain(address.node)
        except BaseException:
            receipt.cancel()  # otherwise asyncio logs that its AskTimeoutError was never retrieved
            raise
        if not receipt.done():
            node.outbound.send(
                self._ref, self._address_text, message, sender, receipt, receipt=True
            )
        await receipt

    def deliver_signal(self, address: Address, signal: CellSignal) -> None:
        node = self._node
        node.system._call_on_loop(
            node.remote_watcher.send_signal, address, self._address_text, signal
        )


class RemoteReply(Reply):
    """The Reply to an ask of another node.

    `timeout` is how many seconds the asker waits, if known.
    """

    __slots__ = (
        "_ask_id", "_done", "_incarnation", "_outbound", "_peer", "_reply_type", "is_untrusted",
        "timeout",
    )  # fmt: skip

    timeout: float | None
    is_untrusted: bool

    def __init__(
        self,
        outbound: Outbound,
        peer: Peer,
        ask_id: int,
        timeout: float | None = None,
        *,
        is_untrusted: bool = False,
        incarnation: bytes | None = None,
        reply_type: Any = None,
    ) -> None:
        """`incarnation` is that of the asker, by default the present one of the peer; `reply_type` is the type
        of reply that the message declares, if known."""
        self.timeout = timeout
        self.is_untrusted = is_untrusted
        self._outbound = outbound
        self._peer = peer
        self._ask_id = ask_id
        self._incarnation = peer.incarnation if incarnation is None else incarnation
        self._reply_type = reply_type
        self._done = False

    @property
    def asker(self) -> Asker:
        """The address of the asker, with which a later incarnation of this node can answer."""
        peer = self._peer
        # Over a link that we opened the asker is reached by its node name, also by a later incarnation.
        client_id = "" if peer.link is None or peer.connected_by_us else peer.link.peer
        return Asker(peer.name, client_id, self._incarnation, self._ask_id)

    def done(self) -> bool:
        return self._done

    def complete(self, value: Any) -> None:
        if not self._done:
            self._done = True
            outbound = self._outbound
            if get_ident() == outbound.loop_thread:
                outbound.send_answer(
                    self._peer, self._incarnation, self._ask_id, value, self._reply_type
                )
            else:
                outbound.on_loop(
                    outbound.send_answer,
                    self._peer, self._incarnation, self._ask_id, value, self._reply_type,
                )  # fmt: skip

    def fail(self, error: BaseException) -> None:
        if not self._done:
            self._done = True
            outbound = self._outbound
            outbound.on_loop(
                outbound.send_error, self._peer, self._incarnation, self._ask_id, error
            )


class DiscardReply(Reply):
    """Ignores replies to a one-way message of an untrusted peer, so that an actor can reply without failing."""

    @property
    def is_untrusted(self) -> bool:
        return True

    def complete(self, value: Any) -> None:
        pass

    def fail(self, error: BaseException) -> None:
        pass


DISCARD_REPLY: Final = DiscardReply()
