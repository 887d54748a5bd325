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
from recado.actors.errors import ActorError, ActorStopped, Unreachable
from recado.actors.failing.bonds import monitor, unmonitor
from recado.actors.failing.lifecycle import GRACE, end_instance, farewell, resolve
from recado.actors.failing.signals import Down, Exhausted, Signal, Stop
from recado.actors.failing.supervision import PERMANENT, TEMPORARY, Lifecycle
from recado.actors.ref import ActorRef, Reply, current
from recado.actors.remote.faults import NotOffered
from recado.actors.remote.peer import Peer
from recado.actors.remote.sealed.controls import Move

from .unheard import take_back

if TYPE_CHECKING:
    from recado.actors.remote.node import Node
    from recado.actors.running.cell import Cell

log = logging.getLogger("recado.actors")

WATCH_AGAIN: Final = 5.0  # seconds after the node of the moved actor was out of reach


class CannotMove(ActorError):
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
                if isinstance(reason, Unreachable):
                    clock = self.system.clock
                    again = clock.call_later(WATCH_AGAIN, partial(self.monitor, ref))
                    self._cell.at_end(again.cancel)
                else:
                    self.ref.signal(Stop(reason))
            case Down() | Exhausted():
                pass  # what the actor watched before it moved; and it supervises nobody


class Moving:
    def __init__(self, node: Node) -> None:
        self._node = node
        self._system = node.system

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
        try:
            await _ended(cell)
        finally:
            forwarder = Forwarder(moved)
            forwarder._cell = cell
            cell.actor = forwarder
            cell.become(forwarder.receive)
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
        wanted = Move(
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
            moved = self._node.new_ref(to, address)
            if cell.doomed:
                raise ActorStopped(f"{cell.ref} was to stop while it moved")
            return moved
        except BaseException:
            take_back(self._node, to, token)  # MO2
            raise

    # ── here ──────────────────────────────────────────────────────────────────────────────────────────────

    async def serve(self, peer: Peer, wanted: Move, reply: Reply) -> None:
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
        self._node.creation.unheard.started(peer, wanted.token, ref)
        reply.complete(str(ref.address))


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
    if cell.bonded is not None and cell.bonded.family.children:
        raise CannotMove(f"{cell.ref} supervises others")


async def _held(cell: Cell) -> bool:
    """Wait until no handler of it runs, and keep it so; False if it has stopped meanwhile."""
    holding: asyncio.Future[bool] = cell.system.loop.create_future()

    def reached() -> None:
        if holding.done():  # nobody waits for it any more
            cell.rest()
        else:
            holding.set_result(True)

    try:
        with farewell(cell, partial(resolve, holding, False)):
            cell.hold(reached)
            return await holding
    except asyncio.CancelledError:
        if not holding.cancelled() and holding.result():  # cancelled just when it was reached
            cell.rest()
        raise


async def _ended(cell: Cell) -> None:
    """The instance that was here is told of its end, and hears of nobody any more."""
    end_instance(cell)
    for watched in tuple(cell.bonds().watched):
        unmonitor(cell, watched)
    assert cell.actor is not None
    token = current.set(cell)
    try:
        if (going := cell.actor.stopped()) is not None:
            async with asyncio.timeout(GRACE):
                await going
    except Exception:
        log.exception("stopped of %s, which has moved, failed", cell.ref)
    finally:
        current.reset(token)
