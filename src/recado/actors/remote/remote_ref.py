"""How references to actors of other nodes deliver, and where answers to other nodes go.

Both are called by any thread, and go on in the loop's.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from threading import get_ident
from typing import TYPE_CHECKING, Any, Final

from recado.actors.address import Address
from recado.actors.failing.signals import CellSignal
from recado.actors.others import Asker
from recado.actors.ref import ActorRef, Reply

if TYPE_CHECKING:
    from .node import Node
    from .outbound import Outbound
    from .peer import Peer


class RemotePost:
    """The Post of one address on another node."""

    __slots__ = ("_node", "_ref", "_text")

    def __init__(self, node: Node, address: Address) -> None:
        self._node = node
        self._ref: ActorRef[Any] = ActorRef(address, self, node.system)
        self._text = str(address)  # 2 µs, and it is in every envelope

    @property
    def ref(self) -> ActorRef[Any]:
        return self._ref

    def post(
        self, target: Address, message: Any, sender: ActorRef[Any] | None, reply: Reply | None
    ) -> None:
        node = self._node
        if get_ident() == node.system.home:
            node.outbound.send(self._ref, self._text, message, sender, reply)
        else:
            node.system.on_loop(node.outbound.send, self._ref, self._text, message, sender, reply)

    async def post_wait(
        self,
        target: Address,
        message: Any,
        sender: ActorRef[Any] | None,
        timeout: float | None,  # noqa: ASYNC109  all asks share the timers of Asks
    ) -> None:
        """Return when the other node says that the mailbox has taken the message. Raises AskTimeout, Cut and
        Undelivered as an ask does, ActorStopped if the other node has no such actor, and CannotSerialise."""
        node = self._node
        receipt = node.system.asks.open(self._ref, timeout)
        try:
            with suppress(TimeoutError):  # then the receipt is overdue as well
                async with asyncio.timeout(receipt.patience):
                    await node.room(target.node)
        except BaseException:
            receipt.cancel()  # otherwise asyncio reports its timeout, which is never retrieved
            raise
        if not receipt.done():
            node.outbound.send(self._ref, self._text, message, sender, receipt, receipt=True)
        await receipt

    def signal(self, target: Address, signal: CellSignal) -> None:
        node = self._node
        node.system.on_loop(node.presence.send, target, self._text, signal)


class RemoteReply:
    """The Reply of an ask from another node, made by the incarnation under which that speaks.

    `patience` is for how many seconds it waits, if it said so; `declared` the type of the reply that the
    message declares, if that is known."""

    __slots__ = (
        "_declared", "_done", "_life", "_number", "_outbound", "_peer", "patience", "stranger"
    )  # fmt: skip

    def __init__(
        self,
        outbound: Outbound,
        peer: Peer,
        number: int,
        patience: float | None = None,
        *,
        stranger: bool = False,
        life: bytes | None = None,
        declared: Any = None,
    ) -> None:
        """`life` is the incarnation that asked, if it is not the present one of the peer."""
        self.patience = patience
        self.stranger = stranger
        self._outbound = outbound
        self._peer = peer
        self._number = number
        self._life = peer.life if life is None else life
        self._declared = declared
        self._done = False

    @property
    def asker(self) -> Asker:
        """For a later life of this node."""
        peer = self._peer
        # Over a link that we made we reach the node by its name, as that life will.
        client = "" if peer.link is None or peer.made else peer.link.peer
        return Asker(peer.name, client, self._life, self._number)

    def done(self) -> bool:
        return self._done

    def complete(self, value: Any) -> None:
        if not self._done:
            self._done = True
            outbound = self._outbound
            if get_ident() == outbound.home:
                outbound.answer(self._peer, self._life, self._number, value, self._declared)
            else:
                outbound.on_loop(
                    outbound.answer, self._peer, self._life, self._number, value, self._declared
                )

    def fail(self, error: BaseException) -> None:
        if not self._done:
            self._done = True
            outbound = self._outbound
            outbound.on_loop(outbound.answer_error, self._peer, self._life, self._number, error)


class Unasked:
    """The Reply of a stranger's message that is no ask: by one to which the actor replies it would fail."""

    stranger: Final = True

    def complete(self, value: Any) -> None:
        pass

    def fail(self, error: BaseException) -> None:
        pass


UNASKED: Final = Unasked()
