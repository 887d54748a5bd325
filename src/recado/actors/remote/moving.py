"""Actors that move to another node between two messages, and what stays behind: somebody who forwards.

    old place                                  new place
    hold, snapshot ──── Settle(state) ───────► new instance, restore
    forwards to it ◄─── its new address ──────

An actor that can move has `snapshot()`, which gives its state as something that travels, and
`restore(state)`. Its class is offered on the new node, and made there without arguments.

MO1  What was told to the old reference, before, during or after the move, arrives in order.
MO2  At most one of the two places handles messages. If the move fails the actor goes on where it was.
MO3  Who watches the old reference hears of the death of the moved actor, which its new node supervises.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import OrderedDict
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, cast, runtime_checkable

from recado.actors.actor import Actor
from recado.actors.bonds import monitor
from recado.actors.errors import ActorError, ActorStopped
from recado.actors.lifecycle import end_instance, resolve
from recado.actors.ref import ActorRef, Reply
from recado.actors.signals import Down, Exhausted, Signal, Stop
from recado.actors.supervision import PERMANENT, TEMPORARY, Lifecycle

from .controls import Abandon, Settle
from .faults import NotOffered, RemoteFault
from .peer import Peer

if TYPE_CHECKING:
    from recado.actors.cell import Cell

    from .node import Node

log = logging.getLogger("recado.actors")

TOKENS_MOST: Final = 1000  # moves of others that may still be taken back


class CannotMove(ActorError):
    """It is not of the kind that can, or not in a state in which it could."""


@runtime_checkable
class Movable(Protocol):
    def snapshot(self) -> Any: ...

    def restore(self, state: Any) -> None: ...


class Forwarder(Actor[Any]):
    """What is left of an actor that has moved. It lives until that one is down."""

    def __init__(self, moved: ActorRef[Any]) -> None:
        self._moved = moved

    def receive(self, message: Any) -> None:
        self.forward(self._moved)

    def on_signal(self, signal: Signal) -> None:
        match signal:
            case Down(_, reason):
                self.ref.signal(Stop(reason))
            case Exhausted():
                pass  # it supervises nobody


class Moving:
    def __init__(self, node: Node) -> None:
        self._node = node
        self._system = node.system
        self._taken: OrderedDict[tuple[str, str], ActorRef[Any]] = OrderedDict()

    # ── away ──────────────────────────────────────────────────────────────────────────────────────────────

    async def move(self, ref: ActorRef[Any], to: str) -> ActorRef[Any]:
        """Move an actor of ours to another node, as soon as it handles nothing; its new reference. The old one
        goes on to reach it, as long as this node lives. Raises CannotMove, and what the other node says."""
        cell = self._system.cell(ref.address)
        if cell is None:
            raise ActorStopped(f"{ref} is not here, or not any more")
        _check(cell)
        if not await _held(cell):
            raise ActorStopped(f"{ref} has stopped")
        try:
            moved = await self._hand_over(cell, to)
        except BaseException:
            cell.rest()
            raise
        end_instance(cell)
        forwarder = Forwarder(moved)
        forwarder._cell = cell
        cell.actor, cell.behaviour = forwarder, forwarder.receive
        cell.factory = partial(Forwarder, moved)
        cell.awaits = False
        cell.bonds().behaviours.clear()
        monitor(cell, moved)
        cell.rest()
        return moved

    async def _hand_over(self, cell: Cell, to: str) -> ActorRef[Any]:
        assert cell.actor is not None
        actor = cast(Movable, cell.actor)  # that it is one was checked
        serialisation, manifest, state = self._node.serialisers.write(actor.snapshot())
        token = secrets.token_hex(16)
        wanted = Settle(
            token,
            self._node.creation.kind(type(cell.actor)),
            cell.ref.address.name,
            serialisation,
            manifest,
            state,
            cell.lifecycle is Lifecycle.TEMPORARY,
        )
        try:
            address = await self._node.outbound.request(
                to, wanted, self._node.options.create_timeout
            )
            return self._node.new_ref(to, address)
        except BaseException:
            # Perhaps it is there, and only the word of it was lost (MO2).
            self._take_back(to, token)
            raise

    def _take_back(self, node: str, token: str) -> None:
        try:
            self._node.outbound.say(self._node.ways.peer(node), Abandon(token))
        except RemoteFault as error:
            log.warning("%s cannot be told that an actor did not move: %s", node, error)

    # ── here ──────────────────────────────────────────────────────────────────────────────────────────────

    async def serve(self, peer: Peer, wanted: Settle, reply: Reply) -> None:
        try:
            cls = self._node.creation.offered(wanted.kind)
            if not issubclass(cls, Movable):
                raise NotOffered(f"{wanted.kind} has no snapshot and restore")
            state = self._node.serialisers.read(wanted.serialisation, wanted.manifest, wanted.state)
            ref = await self._node.creation.start(
                partial(_restored, cls, state),
                wanted.name,
                TEMPORARY if wanted.temporary else PERMANENT,
            )
        except Exception as error:  # noqa: BLE001  as with creation: whatever it is, the other node must hear
            reply.fail(error)
            return
        self._taken[peer.name, wanted.token] = ref
        if len(self._taken) > TOKENS_MOST:
            self._taken.popitem(last=False)
        reply.complete(str(ref.address))

    def abandon(self, peer: Peer, token: str) -> None:
        ref = self._taken.pop((peer.name, token), None)
        if ref is not None:
            ref.stop()


def _restored(cls: type[Actor[Any]], state: Any) -> Actor[Any]:
    actor = cls()
    cast(Movable, actor).restore(state)
    return actor


def _check(cell: Cell) -> None:
    actor: object = cell.actor
    if not isinstance(actor, Movable):
        raise CannotMove(f"{cell.ref} has no snapshot and restore")
    if cell.suspended or cell.doomed:
        raise CannotMove(f"{cell.ref} has failed, or is about to stop")
    if cell.lasting is not None:
        raise CannotMove(f"{cell.ref} has a durable mailbox, which stays where its disk is")
    if cell.bound is not None and cell.bound.family.children:
        raise CannotMove(f"{cell.ref} supervises others")


async def _held(cell: Cell) -> bool:
    """Wait until no handler of it runs, and keep it so; False if it has stopped meanwhile."""
    holding: asyncio.Future[bool] = cell.system.loop.create_future()
    cell.at_stop(partial(resolve, holding, False))
    cell.hold(partial(resolve, holding, True))
    return await holding
