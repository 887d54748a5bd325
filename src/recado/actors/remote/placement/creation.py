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
from recado.actors.errors import ActorError, ActorStoppedError, AskTimeoutError
from recado.actors.ref import ActorRef, Reply
from recado.actors.remote.errors import (
    ClassNotOfferedError,
    InvalidEnvelopeError,
    LimitExceededError,
    LinkLostError,
)
from recado.actors.remote.peer import Peer
from recado.actors.remote.wire.controls import CreateActor
from recado.actors.supervision.links import link
from recado.actors.supervision.strategy import PERMANENT, TEMPORARY, RestartType, SupervisorStrategy

from .tokens import PlacementTokens, abandon_remote

if TYPE_CHECKING:
    from recado.actors.remote.node import Node

M = TypeVar("M")


def qualified_name(cls: type[Actor[Any]]) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


class Creation:
    def __init__(self, node: Node) -> None:
        self._node = node
        self._system = node.system
        self._offered_classes: dict[str, type[Actor[Any]]] = {}
        self._live_count = 0
        self.tokens = PlacementTokens()

    def offer(self, cls: type[Actor[Any]], kind: str = "") -> None:
        """Let other nodes start actors of this class here, and move them here."""
        kind = kind or qualified_name(cls)
        if self._offered_classes.setdefault(kind, cls) is not cls:
            raise ValueError(f"another class is offered as {kind}")

    def offered_class(self, class_name: str) -> type[Actor[Any]]:
        """Raises NotOffered."""
        cls = self._offered_classes.get(class_name)
        if cls is None:
            raise ClassNotOfferedError(
                f"{self._node.name} offers no {class_name}", "Call offer(…) on that node"
            )
        return cls

    def class_name_of(self, cls: type[Actor[Any]]) -> str:
        """As we offer it ourselves; nodes that run the same program do so too."""
        for class_name, offered in self._offered_classes.items():
            if offered is cls:
                return class_name
        return qualified_name(cls)

    # ── for others ────────────────────────────────────────────────────────────────────────────────────────

    async def handle_create(self, peer: Peer, request: CreateActor, reply: Reply) -> None:
        try:
            cls = self.offered_class(request.class_name)
            arguments = self._node.serializers.deserialize(request.format_id, "", request.arguments)
            if not isinstance(arguments, list):
                raise InvalidEnvelopeError("arguments that are no list")
            supervisor = self._parse_supervisor(peer, request.supervisor)
            ref = await self.start_for_peer(
                partial(cls, *arguments),
                request.name,
                TEMPORARY if request.temporary else PERMANENT,
                supervisor,
            )
        except Exception as error:  # noqa: BLE001  constructors are anybody's, and who wanted it must hear (CN2)
            reply.fail(error)
        else:
            self.tokens.record_started(peer, request.token, ref)
            reply.complete(str(ref.address))

    def _parse_supervisor(self, peer: Peer, text: str) -> ActorRef[Any] | None:
        if not text:
            return None
        address = Address.parse(text)
        if address.node != peer.name:
            raise InvalidEnvelopeError(f"{peer.name} wants {text} to supervise")
        return self._node.ref(address)

    async def start_for_peer(
        self,
        factory: Any,
        name: str,
        lifecycle: RestartType,
        supervisor: ActorRef[Any] | None = None,
    ) -> ActorRef[Any]:
        """Start it for somebody else, within the limit."""
        if self._live_count >= self._node.options.max_remote_actors:
            raise LimitExceededError(
                f"{self._live_count} actors were started here by others already"
            )
        self._live_count += 1
        try:
            ref: ActorRef[Any] = await self._system.spawn(
                factory, name=name, restart_type=lifecycle, supervisor=supervisor
            )
        except BaseException:
            self._live_count -= 1
            raise
        cell = self._system._find_cell(ref.address)
        if cell is None:  # it has stopped meanwhile
            self._actor_stopped()
        else:
            cell.on_stop(self._actor_stopped)
            if supervisor is not None:
                try:
                    self._node.remote_watcher.add_supervised_child(ref, supervisor)
                except LimitExceededError:
                    await self._system.stop(ref)
                    raise
        return ref

    def _actor_stopped(self) -> None:
        self._live_count -= 1

    # ── by us ─────────────────────────────────────────────────────────────────────────────────────────────

    @overload
    async def create(
        self, node: str, kind: type[Actor[M]], *arguments: Any, name: str = ...,
        supervisor: ActorRef[Any] | None = ..., supervision: SupervisorStrategy | None = ...,
        lifecycle: RestartType = ...,
    ) -> ActorRef[M]: ...  # fmt: skip

    @overload
    async def create(
        self, node: str, kind: str, *arguments: Any, name: str = ...,
        supervisor: ActorRef[Any] | None = ..., supervision: SupervisorStrategy | None = ...,
        lifecycle: RestartType = ...,
    ) -> ActorRef[Any]: ...  # fmt: skip

    async def create(
        self,
        node: str,
        kind: type[Actor[Any]] | str,
        *arguments: Any,
        name: str = "",
        supervisor: ActorRef[Any] | None = None,
        supervision: SupervisorStrategy | None = None,
        lifecycle: RestartType = PERMANENT,
    ) -> ActorRef[Any]:
        """Start an actor on another node, of a class that it offers. Raises what its constructor raises
        there, and AskTimeout: then it is stopped as soon as it is there."""
        above = None if supervisor is None else self._system._find_cell(supervisor.address)
        if supervisor is not None and above is None:
            raise ActorError(f"{supervisor} is not here, or not any more")
        serialisation, _, body = self._node.serializers.serialize(list(arguments))
        token = secrets.token_hex(16)
        wanted = CreateActor(
            kind if isinstance(kind, str) else self.class_name_of(kind),
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
            ref = self._node.resolve_created_ref(node, address)
            if above is not None:
                if above.is_stopping:
                    raise ActorStoppedError(
                        f"{supervisor} has stopped, and supervises nobody any more"
                    )
                link(above, ref, supervision)
            return ref

        try:
            ref: ActorRef[Any] = await self._node.outbound.request(node, wanted, timeout, started)
        except (asyncio.CancelledError, AskTimeoutError, LinkLostError, ActorStoppedError):
            abandon_remote(self._node, node, token)
            raise
        return ref
