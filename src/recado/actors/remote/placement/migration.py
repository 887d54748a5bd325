"""Moving an actor to another node between two messages. A forwarder stays at its old address.

    old node                                            new node
    hold the actor, snapshot ──── MoveActor(state) ───► new instance, restore
    become a forwarder       ◄─── its new address ─────

An actor that can move has `snapshot()`, which returns its state as a serializable value, and `restore(state)`.
Its class is offered on the new node, where it is constructed without arguments.

MO1  Messages sent to the old reference, before, during or after the move, arrive in order.
MO2  At most one of the two instances handles messages. If the move fails the actor continues where it was. (The
     new instance is abandoned by a message that can be lost: then it remains on its node.)
MO3  Actors that monitor the old reference are notified of the death of the moved actor, which its new node
     supervises.
MO4  The old instance gets `post_stop` when the new one exists. It no longer monitors the actors that it
     monitored; the new instance has to do so itself.
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
from recado.actors.supervision.strategy import PERMANENT, TEMPORARY

from .creation import abandon_remote

if TYPE_CHECKING:
    from recado.actors.remote.node import Node
    from recado.actors.runtime.cell import Cell

log = logging.getLogger("recado.actors")

REMONITOR_DELAY_S: Final = 5.0  # after the node of the moved actor became unreachable


class NotMovableError(ActorError):
    """The actor's class does not support moving, or its present state does not allow it."""


@runtime_checkable
class Movable(Protocol):
    def snapshot(self) -> Any: ...

    def restore(self, state: Any) -> None: ...


class Forwarder(Actor[Any]):
    """Replaces a moved actor at its old address.

    It stops when the moved actor is down. While the node of the moved actor is unreachable the forwarder stays,
    and monitors the actor again every REMONITOR_DELAY_S.
    """

    def __init__(self, moved: ActorRef[Any]) -> None:
        self._moved = moved

    def receive(self, message: Any) -> None:
        self.forward(self._moved)

    def on_signal(self, signal: Signal) -> None:
        match signal:
            case Down(ref, reason) if ref == self._moved:
                if isinstance(reason, NodeUnreachableError):
                    timer = self.system._clock.call_later(
                        REMONITOR_DELAY_S, partial(self.monitor, ref)
                    )
                    self._cell.on_instance_end(timer.cancel)
                else:
                    self.ref._send_signal(Stop(reason))
            case Down() | ChildFailed():
                pass  # of an actor that it monitored before the move; it supervises none


class Migration:
    def __init__(self, node: Node) -> None:
        self._node = node
        self._system = node.system

    # ── moving away ───────────────────────────────────────────────────────────────────────────────────────

    async def move(self, ref: ActorRef[Any], to: str) -> ActorRef[Any]:
        """Move a local actor to the node `to`, once it handles no message, and return its new reference.

        The old reference reaches it as long as this node runs. Raises NotMovableError, ActorStoppedError,
        AskTimeoutError after `create_timeout` seconds, and the errors of the other node.
        """
        cell = self._system._find_cell(ref.address)
        if cell is None:
            raise ActorStoppedError(f"{ref} has stopped, or is not on this node")
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
        """Start the new instance on the other node from a snapshot."""
        assert cell.actor is not None
        actor = cast(Movable, cell.actor)  # `_check_movable` has verified it
        format_id, manifest, state = self._node.serializers.serialize(actor.snapshot())
        token = secrets.token_hex(16)
        request = MoveActor(
            token,
            self._node.creation.class_name_of(type(cell.actor)),
            cell.ref.address.name,
            format_id,
            manifest,
            state,
            cell.restart_type is TEMPORARY,
        )
        try:
            address = await self._node.outbound.request(
                to, request, self._node.options.create_timeout
            )
            moved = self._node.resolve_created_ref(to, address)
            if cell.is_stopping:
                raise ActorStoppedError(f"{cell.ref} was stopped while it moved")
            return moved
        except BaseException:
            abandon_remote(self._node, to, token)  # MO2
            raise

    # ── moving here ───────────────────────────────────────────────────────────────────────────────────────

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
        except Exception as error:  # noqa: BLE001  as with creation: the other node is told of any error
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
        raise NotMovableError(f"{cell.ref} has a durable mailbox, which cannot leave its disk")
    if cell.links is not None and cell.links.children.strategies:
        raise NotMovableError(f"{cell.ref} supervises other actors")


async def _hold_cell(cell: Cell) -> bool:
    """Wait until no handler of the actor runs, and prevent the next one. Returns False if it has stopped."""
    held: asyncio.Future[bool] = cell.system._loop.create_future()

    def cell_held() -> None:
        if held.done():  # the waiting task was cancelled
            cell.release()
        else:
            held.set_result(True)

    try:
        with stop_callback(cell, partial(resolve_once, held, False)):
            cell.run_exclusively(cell_held)
            return await held
    except asyncio.CancelledError:
        if not held.cancelled() and held.result():  # cancelled just when the cell was held
            cell.release()
        raise


async def _end_local_instance(cell: Cell) -> None:
    """Run `post_stop` of the old instance, and end its monitors (MO4)."""
    run_instance_end_callbacks(cell)
    for watched in tuple(cell.ensure_links().watched):
        unmonitor(cell, watched)
    assert cell.actor is not None
    token = current_cell.set(cell)
    try:
        if (awaitable := cell.actor.post_stop()) is not None:
            async with asyncio.timeout(STOP_GRACE_S):
                await awaitable
    except Exception:
        log.exception("post_stop of a moved actor failed (actor=%s)", cell.ref)
    finally:
        current_cell.reset(token)
