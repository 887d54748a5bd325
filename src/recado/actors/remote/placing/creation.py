"""Actors that others start here, and that we start on other nodes.

CN1  Only classes that this node offers can be created from outside, and no more at a time than the limit.
CN2  If it cannot be started, who wanted it is told why, and nothing of it is left.
     So too if who wanted it did not wait until it was told.
CN3  An actor whose supervisor is on another node is supervised there from its first moment.
"""

from __future__ import annotations

import asyncio
import secrets
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, overload

from recado.actors.actor import Actor
from recado.actors.address import Address
from recado.actors.errors import ActorError, ActorStopped, AskTimeout
from recado.actors.failing.bonds import link
from recado.actors.failing.supervision import PERMANENT, TEMPORARY, Lifecycle, Supervision
from recado.actors.ref import ActorRef, Reply
from recado.actors.remote.faults import BadEnvelope, Cut, Full, NotOffered
from recado.actors.remote.peer import Peer
from recado.actors.remote.sealed.controls import Create

from .unheard import Unheard, take_back

if TYPE_CHECKING:
    from recado.actors.remote.node import Node

M = TypeVar("M")


def kind_of(cls: type[Actor[Any]]) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


class Creation:
    def __init__(self, node: Node) -> None:
        self._node = node
        self._system = node.system
        self._offered: dict[str, type[Actor[Any]]] = {}
        self._living = 0
        self.unheard = Unheard()

    def offer(self, cls: type[Actor[Any]], kind: str = "") -> None:
        """Let other nodes start actors of this class here, and move them here."""
        kind = kind or kind_of(cls)
        if self._offered.setdefault(kind, cls) is not cls:
            raise ValueError(f"another class is offered as {kind}")

    def offered(self, kind: str) -> type[Actor[Any]]:
        """Raises NotOffered."""
        cls = self._offered.get(kind)
        if cls is None:
            raise NotOffered(f"{self._node.name} offers no {kind}", "Call offer(…) on that node")
        return cls

    def kind(self, cls: type[Actor[Any]]) -> str:
        """As we offer it ourselves; nodes that run the same program do so too."""
        for kind, offered in self._offered.items():
            if offered is cls:
                return kind
        return kind_of(cls)

    # ── for others ────────────────────────────────────────────────────────────────────────────────────────

    async def serve(self, peer: Peer, wanted: Create, reply: Reply) -> None:
        try:
            cls = self.offered(wanted.kind)
            arguments = self._node.serialisers.read(wanted.serialisation, "", wanted.arguments)
            if not isinstance(arguments, list):
                raise BadEnvelope("arguments that are no list")
            supervisor = self._supervisor(peer, wanted.supervisor)
            ref = await self.start(
                partial(cls, *arguments),
                wanted.name,
                TEMPORARY if wanted.temporary else PERMANENT,
                supervisor,
            )
        except Exception as error:  # noqa: BLE001  constructors are anybody's, and who wanted it must hear (CN2)
            reply.fail(error)
        else:
            self.unheard.started(peer, wanted.token, ref)
            reply.complete(str(ref.address))

    def _supervisor(self, peer: Peer, text: str) -> ActorRef[Any] | None:
        if not text:
            return None
        address = Address.parse(text)
        if address.node != peer.name:
            raise BadEnvelope(f"{peer.name} wants {text} to supervise")
        return self._node.ref(address)

    async def start(
        self,
        factory: Any,
        name: str,
        lifecycle: Lifecycle,
        supervisor: ActorRef[Any] | None = None,
    ) -> ActorRef[Any]:
        """Start it for somebody else, within the limit."""
        if self._living >= self._node.options.created_limit:
            raise Full(f"{self._living} actors were started here by others already")
        self._living += 1
        try:
            ref: ActorRef[Any] = await self._system.spawn(
                factory, name=name, lifecycle=lifecycle, supervisor=supervisor
            )
        except BaseException:
            self._living -= 1
            raise
        cell = self._system.cell(ref.address)
        if cell is None:  # it has stopped meanwhile
            self._ended()
        else:
            cell.at_stop(self._ended)
            if supervisor is not None:
                try:
                    self._node.presence.supervised(ref, supervisor)
                except Full:
                    await self._system.stop(ref)
                    raise
        return ref

    def _ended(self) -> None:
        self._living -= 1

    # ── by us ─────────────────────────────────────────────────────────────────────────────────────────────

    @overload
    async def create(
        self, node: str, kind: type[Actor[M]], *arguments: Any, name: str = ...,
        supervisor: ActorRef[Any] | None = ..., supervision: Supervision | None = ...,
        lifecycle: Lifecycle = ...,
    ) -> ActorRef[M]: ...  # fmt: skip

    @overload
    async def create(
        self, node: str, kind: str, *arguments: Any, name: str = ...,
        supervisor: ActorRef[Any] | None = ..., supervision: Supervision | None = ...,
        lifecycle: Lifecycle = ...,
    ) -> ActorRef[Any]: ...  # fmt: skip

    async def create(
        self,
        node: str,
        kind: type[Actor[Any]] | str,
        *arguments: Any,
        name: str = "",
        supervisor: ActorRef[Any] | None = None,
        supervision: Supervision | None = None,
        lifecycle: Lifecycle = PERMANENT,
    ) -> ActorRef[Any]:
        """Start an actor on another node, of a class that it offers. Raises what its constructor raises
        there, and AskTimeout: then it is stopped as soon as it is there."""
        above = None if supervisor is None else self._system.cell(supervisor.address)
        if supervisor is not None and above is None:
            raise ActorError(f"{supervisor} is not here, or not any more")
        serialisation, _, body = self._node.serialisers.write(list(arguments))
        token = secrets.token_hex(16)
        wanted = Create(
            kind if isinstance(kind, str) else self.kind(kind),
            name,
            serialisation,
            body,
            "" if supervisor is None else str(supervisor),
            lifecycle is TEMPORARY,
            token,
        )
        timeout = self._node.options.create_timeout

        def started(address: object) -> ActorRef[Any]:
            """It may have failed by now, and the word of it be next (CN3)."""
            ref = self._node.new_ref(node, address)
            if above is not None:
                if above.doomed:
                    raise ActorStopped(f"{supervisor} has stopped, and supervises nobody any more")
                link(above, ref, supervision)
            return ref

        try:
            ref: ActorRef[Any] = await self._node.outbound.request(node, wanted, timeout, started)
        except (asyncio.CancelledError, AskTimeout, Cut, ActorStopped):
            take_back(self._node, node, token)
            raise
        return ref
