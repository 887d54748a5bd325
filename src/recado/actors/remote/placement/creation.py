"""Creating actors on other nodes, and serving such requests of other nodes.

A request has a token. Its sender may give up before the answer arrives, and then abandons the token:

    CreateActor, MoveActor (token) ────►   start the actor, answer
              AbandonActor (token) ────►   stop it, or stop it as soon as it is started

CN1  Only classes that this node offers can be created from outside, up to `max_remote_actors` at a time.
CN2  If the actor cannot be started, the requester gets the exception, and no part of the actor remains. No
     actor remains either if the requester has stopped waiting for the answer.
CN3  An actor with a supervisor on another node is supervised from its first moment.
CN4  An abandoned actor is stopped, whether it had been started by then or not.
CN5  At most MAX_TOKENS started, and as many abandoned, tokens are remembered.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import OrderedDict
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar, overload

from recado.actors.actor import Actor
from recado.actors.address import Address
from recado.actors.errors import ActorError, ActorStoppedError, AskTimeoutError
from recado.actors.ref import ActorRef, Reply
from recado.actors.remote.errors import (
    ClassNotOfferedError,
    InvalidEnvelopeError,
    LimitExceededError,
    LinkLostError,
    RemoteError,
)
from recado.actors.remote.peer import Peer
from recado.actors.remote.wire.controls import AbandonActor, CreateActor
from recado.actors.supervision.links import link
from recado.actors.supervision.strategy import (
    PERMANENT,
    TEMPORARY,
    RestartType,
    SupervisorStrategy,
)

if TYPE_CHECKING:
    from recado.actors.remote.node import Node

M = TypeVar("M")

MAX_TOKENS: Final = 1000

log = logging.getLogger("recado.actors")


def qualified_name(cls: type[Actor[Any]]) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


class PlacementTokens:
    """Actors started for other nodes, by token, and abandoned tokens whose actor is not started yet."""

    def __init__(self) -> None:
        self._started: OrderedDict[tuple[str, str], ActorRef[Any]] = OrderedDict()
        self._abandoned: OrderedDict[tuple[str, str], None] = OrderedDict()

    def record_started(self, peer: Peer, token: str, ref: ActorRef[Any]) -> None:
        """Remember an actor, or stop it if its token was abandoned."""
        key = peer.name, token
        if key in self._abandoned:
            del self._abandoned[key]
            ref.stop()
            return
        self._started[key] = ref
        if len(self._started) > MAX_TOKENS:
            self._started.popitem(last=False)

    def abandon(self, peer: Peer, token: str) -> None:
        """Stop the actor of this token, now or when it is started."""
        key = peer.name, token
        ref = self._started.pop(key, None)
        if ref is not None:
            ref.stop()
            return
        self._abandoned[key] = None
        if len(self._abandoned) > MAX_TOKENS:
            self._abandoned.popitem(last=False)


def abandon_remote(node: Node, peer_name: str, token: str) -> None:
    """Abandon a request of ours: perhaps its actor was started, and only the answer was lost."""
    try:
        node.outbound.send_control(node.peer_table.peer(peer_name), AbandonActor(token))
    except RemoteError as error:
        log.warning("cannot abandon remote actor (node=%s): %s", peer_name, error)


class Creation:
    """Creates actors on other nodes, and actors on this node for other nodes."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._system = node.system
        self._offered_classes: dict[str, type[Actor[Any]]] = {}
        self._live_count = 0  # actors started for other nodes
        self.tokens = PlacementTokens()

    def offer(self, cls: type[Actor[Any]], class_name: str = "") -> None:
        """Allow other nodes to create actors of this class here, and to move actors of it here.

        `class_name` is its name for other nodes, by default the qualified name. Raises ValueError if another
        class is offered under that name.
        """
        class_name = class_name or qualified_name(cls)
        if self._offered_classes.setdefault(class_name, cls) is not cls:
            raise ValueError(f"another class is offered as {class_name}")

    def offered_class(self, class_name: str) -> type[Actor[Any]]:
        """Return the class offered under this name. Raises ClassNotOfferedError."""
        cls = self._offered_classes.get(class_name)
        if cls is None:
            raise ClassNotOfferedError(
                f"{self._node.name} does not offer {class_name}", "Call offer(…) on that node"
            )
        return cls

    def class_name_of(self, cls: type[Actor[Any]]) -> str:
        """Return the name under which this node offers a class; nodes of the same program use the same name."""
        for class_name, offered in self._offered_classes.items():
            if offered is cls:
                return class_name
        return qualified_name(cls)

    # ── requests of other nodes ───────────────────────────────────────────────────────────────────────────

    async def handle_create(self, peer: Peer, request: CreateActor, reply: Reply) -> None:
        """Start an actor for a peer; reply with its address, or with the exception."""
        try:
            cls = self.offered_class(request.class_name)
            arguments = self._node.serializers.deserialize(request.format_id, "", request.arguments)
            if not isinstance(arguments, list):
                raise InvalidEnvelopeError("the arguments of a created actor are not a list")
            ref = await self.start_for_peer(
                partial(cls, *arguments),
                request.name,
                TEMPORARY if request.temporary else PERMANENT,
                self._parse_supervisor(peer, request.supervisor),
            )
        except Exception as error:  # noqa: BLE001  constructors may raise anything; the requester gets it (CN2)
            reply.fail(error)
        else:
            self.tokens.record_started(peer, request.token, ref)
            reply.complete(str(ref.address))

    def _parse_supervisor(self, peer: Peer, text: str) -> ActorRef[Any] | None:
        if not text:
            return None
        address = Address.parse(text)
        if address.node != peer.name:
            raise InvalidEnvelopeError(f"{peer.name} names {text} as supervisor, of another node")
        return self._node.ref(address)

    async def start_for_peer(
        self,
        factory: Any,
        name: str,
        restart_type: RestartType,
        supervisor: ActorRef[Any] | None = None,
    ) -> ActorRef[Any]:
        """Start an actor for another node. Raises LimitExceededError, and the exceptions of the factory."""
        if self._live_count >= self._node.options.max_remote_actors:
            raise LimitExceededError(
                f"{self._live_count} actors of other nodes run on {self._node.name} already",
                "Raise max_remote_actors there",
            )
        self._live_count += 1
        try:
            ref: ActorRef[Any] = await self._system.spawn(
                factory, name=name, restart_type=restart_type, supervisor=supervisor
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

    # ── our own requests ──────────────────────────────────────────────────────────────────────────────────

    @overload
    async def create(
        self, node: str, actor_class: type[Actor[M]], *arguments: Any, name: str = ...,
        supervisor: ActorRef[Any] | None = ..., supervisor_strategy: SupervisorStrategy | None = ...,
        restart_type: RestartType = ...,
    ) -> ActorRef[M]: ...  # fmt: skip

    @overload
    async def create(
        self, node: str, actor_class: str, *arguments: Any, name: str = ...,
        supervisor: ActorRef[Any] | None = ..., supervisor_strategy: SupervisorStrategy | None = ...,
        restart_type: RestartType = ...,
    ) -> ActorRef[Any]: ...  # fmt: skip

    async def create(
        self,
        node: str,
        actor_class: type[Actor[Any]] | str,
        *arguments: Any,
        name: str = "",
        supervisor: ActorRef[Any] | None = None,
        supervisor_strategy: SupervisorStrategy | None = None,
        restart_type: RestartType = PERMANENT,
    ) -> ActorRef[Any]:
        """Create an actor on another node, of a class that it offers, and return a reference to it.

        `actor_class` is the class, or the name under which it is offered; `arguments` are for its constructor.
        `supervisor` is an actor of this node, `supervisor_strategy` how it handles failures of the new one.
        Raises the exception of the constructor, ClassNotOfferedError, and AskTimeoutError after
        `create_timeout` seconds: then the actor is stopped as soon as it is started.
        """
        supervisor_cell = None
        if supervisor is not None:
            supervisor_cell = self._system._find_cell(supervisor.address)
            if supervisor_cell is None:
                raise ActorError(f"{supervisor} has stopped, or is not on this node")
        format_id, _, body = self._node.serializers.serialize(list(arguments))
        token = secrets.token_hex(16)
        request = CreateActor(
            actor_class if isinstance(actor_class, str) else self.class_name_of(actor_class),
            name,
            format_id,
            body,
            "" if supervisor is None else str(supervisor),
            restart_type is TEMPORARY,
            token,
        )

        def link_started(address: object) -> ActorRef[Any]:
            """Link the actor before the next frame is processed, which may report its failure (CN3)."""
            ref = self._node.resolve_created_ref(node, address)
            if supervisor_cell is not None:
                if supervisor_cell.is_stopping:
                    raise ActorStoppedError(f"{supervisor} has stopped, and supervises no actors")
                link(supervisor_cell, ref, supervisor_strategy)
            return ref

        try:
            ref: ActorRef[Any] = await self._node.outbound.request(
                node, request, self._node.options.create_timeout, link_started
            )
        except (asyncio.CancelledError, AskTimeoutError, LinkLostError, ActorStoppedError):
            abandon_remote(self._node, node, token)
            raise
        return ref
