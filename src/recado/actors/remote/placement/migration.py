"""Actors that move to another node between two messages, and what stays behind: somebody who forwards.

    old place                                  new place
    hold, snapshot ──── Move(state) ─────────► new instance, restore
    forwards to it ◄─── its new address ──────

An actor that can move has `snapshot()`, which gives its state as something that travels, and
`restore(state)`. Its class is offered on the new node, and made there without arguments.

MO1  What was told to the old reference, before, during or after the move, arrives in order.
MO2  At most one of the two places handles messages. If the move fails the actor goes on where it was.
     (What was made there is taken back by a word that can be lost: then its node goes on to have it.)
MO3  Who watches the old reference hears of the death of the moved actor, which its new node supervises.
MO4  The instance that was here is told its end (`stopped`) when the new one is there. What it monitored is not
     monitored any more, unless the new one does.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, cast, runtime_checkable

from recado.actors.actor import Actor
from recado.actors.errors import ActorError, ActorStoppedError, NodeUnreachableError
from recado.actors.ref import ActorRef, Reply, current_cell
from recado.actors.remote.errors import ClassNotOfferedError
from recado.actors.remote.peer import Peer
from recado.actors.remote.wire.controls import MoveActor
from recado.actors.supervision.lifecycle import (
    STOP_GRACE_S,
    resolve_once,
    run_instance_end_callbacks,
    stop_callback,
)
from recado.actors.supervision.links import monitor, unmonitor
from recado.actors.supervision.signals import ChildFailed, Down, Signal, Stop
from recado.actors.supervision.strategy import PERMANENT, TEMPORARY, RestartType

from .tokens import abandon_remote

if TYPE_CHECKING:
    from recado.actors.remote.node import Node
    from recado.actors.runtime.cell import Cell

log = logging.getLogger("recado.actors")

REMONITOR_DELAY_S: Final = 5.0  # seconds after the node of the moved actor was out of reach


class NotMovableError(ActorError):
    """It is not of the kind that can, or not in a state in which it could."""


@runtime_checkable
class Movable(Protocol):
    def snapshot(self) -> Any: ...

    def restore(self, state: Any) -> None: ...


class Forwarder(Actor[Any]):
    """What is left of an actor that has moved. It lives until that one is down: also while the node of that
    one is out of reach, since it may come back."""

    def __init__(self, moved: ActorRef[Any]) -> None:
        self._moved = moved

    def receive(self, message: Any) -> None:
        self.forward(self._moved)

    def on_signal(self, signal: Signal) -> None:
        match signal:
            case Down(ref, reason) if ref == self._moved:
                if isinstance(reason, NodeUnreachableError):
                    clock = self.system._clock
                    again = clock.call_later(REMONITOR_DELAY_S, partial(self.monitor, ref))
                    self._cell.on_instance_end(again.cancel)
                else:
                    self.ref._send_signal(Stop(reason))
            case Down() | ChildFailed():
                pass  # what the actor watched before it moved; and it supervises nobody


class Migration:
    def __init__(self, node: Node) -> None:
        self._node = node
        self._system = node.system

    # ── away ──────────────────────────────────────────────────────────────────────────────────────────────

    async def move(self, ref: ActorRef[Any], to: str) -> ActorRef[Any]:
        """Move an actor of ours to another node, as soon as it handles nothing; its new reference. The old one
        goes on to reach it, as long as this node lives. Raises CannotMove, and what the other node says."""
        cell = self._system._find_cell(ref.address)
        if cell is None:
            raise ActorStoppedError(f"{ref} is not here, or not any more")
        _check_movable(cell)
        if not await _hold_cell(cell):
            raise ActorStoppedError(f"{ref} has stopped")
        try:
            moved = await self._transfer(cell, to)
        except BaseException:
            cell.release()
            raise
        try:
            await _end_local_instance(cell)
        finally:
            forwarder = Forwarder(moved)
            forwarder._cell = cell
            cell.actor = forwarder
            cell.become(forwarder.receive)
            cell.factory = partial(Forwarder, moved)
            cell.runs_as_task = False
            cell.ensure_links().behaviour_stack.clear()
            monitor(cell, moved)
            cell.release()
        return moved

    async def _transfer(self, cell: Cell, to: str) -> ActorRef[Any]:
        assert cell.actor is not None
        actor = cast(Movable, cell.actor)  # that it is one was checked
        serialisation, manifest, state = self._node.serializers.serialize(actor.snapshot())
        token = secrets.token_hex(16)
        request = MoveActor(
            token,
            self._node.creation.class_name_of(type(cell.actor)),
            cell.ref.address.name,
            serialisation,
            manifest,
            state,
            cell.restart_type is RestartType.TEMPORARY,
        )
        try:
            address = await self._node.outbound.request(
                to, request, self._node.options.create_timeout
            )
            moved = self._node.resolve_created_ref(to, address)
            if cell.is_stopping:
                raise ActorStoppedError(f"{cell.ref} was to stop while it moved")
            return moved
        except BaseException:
            abandon_remote(self._node, to, token)  # MO2
            raise

    # ── here ──────────────────────────────────────────────────────────────────────────────────────────────

    async def handle_move(self, peer: Peer, request: MoveActor, reply: Reply) -> None:
        try:
            cls = self._node.creation.offered_class(request.class_name)
            if not issubclass(cls, Movable):
                raise ClassNotOfferedError(f"{request.class_name} has no snapshot and restore")
            state = self._node.serializers.deserialize(
                request.format_id, request.manifest, request.state
            )
            ref = await self._node.creation.start_for_peer(
                partial(_restore_actor, cls, state),
                request.name,
                TEMPORARY if request.temporary else PERMANENT,
            )
        except Exception as error:  # noqa: BLE001  as with creation: whatever it is, the other node must hear
            reply.fail(error)
            return
        self._node.creation.tokens.record_started(peer, request.token, ref)
        reply.complete(str(ref.address))


def _restore_actor(cls: type[Actor[Any]], state: Any) -> Actor[Any]:
    actor = cls()
    cast(Movable, actor).restore(state)
    return actor


def _check_movable(cell: Cell) -> None:
    actor: object = cell.actor
    if not isinstance(actor, Movable):
        raise NotMovableError(f"{cell.ref} has no snapshot and restore")
    if cell.is_suspended or cell.is_stopping:
        raise NotMovableError(f"{cell.ref} has failed, or is about to stop")
    if cell.durable_mailbox is not None:
        raise NotMovableError(f"{cell.ref} has a durable mailbox, which stays where its disk is")
    if cell.links is not None and cell.links.children.strategies:
        raise NotMovableError(f"{cell.ref} supervises others")


async def _hold_cell(cell: Cell) -> bool:
    """Wait until no handler of it runs, and keep it so; False if it has stopped meanwhile."""
    holding: asyncio.Future[bool] = cell.system._loop.create_future()

    def reached() -> None:
        if holding.done():  # nobody waits for it any more
            cell.release()
        else:
            holding.set_result(True)

    try:
        with stop_callback(cell, partial(resolve_once, holding, False)):
            cell.run_exclusively(reached)
            return await holding
    except asyncio.CancelledError:
        if not holding.cancelled() and holding.result():  # cancelled just when it was reached
            cell.release()
        raise


async def _end_local_instance(cell: Cell) -> None:
    """The instance that was here is told of its end, and hears of nobody any more."""
    run_instance_end_callbacks(cell)
    for watched in tuple(cell.ensure_links().watched):
        unmonitor(cell, watched)
    assert cell.actor is not None
    token = current_cell.set(cell)
    try:
        if (going := cell.actor.post_stop()) is not None:
            async with asyncio.timeout(STOP_GRACE_S):
                await going
    except Exception:
        log.exception("stopped of %s, which has moved, failed", cell.ref)
    finally:
        current_cell.reset(token)
