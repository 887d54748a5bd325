"""Publishes the status of an actor system, for the management API of a node of recado.

    async with ActorSystem("exchange") as system, publish_status(system, "amqp://localhost"):
        ...

Every few seconds the system publishes one record (`recado.status.record`) on a connection of its own: how many
actors there are, their mailboxes, restarts and failures, and the supervision tree as far as it fits. Reading a
hundred thousand actors is divided into slices, between which the event loop runs.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import islice
from typing import TYPE_CHECKING, Final, Literal

from recado.status.publisher import StatusPublisher
from recado.status.record import (
    ACTORS_MAX_COUNT,
    DEPTH_MAX_COUNT,
    ERROR_MAX_COUNT,
    FAILURES_MAX_COUNT,
    INTERVAL_DEFAULT_S,
    INTERVAL_MAX_S,
    INTERVAL_MIN_S,
    PEERS_MAX_COUNT,
    ActorsStatus,
    ActorStatus,
    FailureStatus,
    PeerStatus,
    clip,
)

from .actor_events import GivenUp, Restarted, Stopped
from .runtime.state import CellState

if TYPE_CHECKING:
    from .ref import ActorRef
    from .runtime.cell import Cell
    from .system import ActorSystem

SLICE_CELLS_COUNT: Final = 500

# Every other state is "started".
_STATE_TEXTS: Final[dict[CellState, Literal["new", "suspended", "stopped"]]] = {
    CellState.STARTING: "new",
    CellState.SUSPENDED: "suspended",
    CellState.STOPPED: "stopped",
}


@asynccontextmanager
async def publish_status(
    system: ActorSystem, url: str, *, interval: float = INTERVAL_DEFAULT_S
) -> AsyncIterator[None]:
    """Publish the status of an open system every `interval` seconds, until the context ends.

    `url` is that of an AMQP broker, whose exchange `recado.status` gets the records. An error of the broker is
    logged once and never raised. Raises `ValueError` for a wrong URL or interval, or if the name of the system
    is longer than 240 bytes.
    """
    if not INTERVAL_MIN_S <= interval <= INTERVAL_MAX_S:
        raise ValueError(
            f"interval: {interval:g} s is not between {INTERVAL_MIN_S:g} and {INTERVAL_MAX_S:g} s"
        )
    reader = SystemStatusReader(system, interval)
    publisher = StatusPublisher(url, system.name, reader.read, interval)
    system._listeners.append(reader.record_event)
    try:
        publisher.start()
        yield
    finally:
        reader.is_closed = True
        await publisher.close()
        system._listeners.remove(reader.record_event)


class SystemStatusReader:
    """Reads the status of one system, and remembers its last failures."""

    def __init__(self, system: ActorSystem, interval: float) -> None:
        self.is_closed = False
        self._system = system
        self._interval = interval
        self._started_at = now_ms()
        self._failures: deque[FailureStatus] = deque(maxlen=FAILURES_MAX_COUNT)

    def record_event(self, event: object) -> None:
        """Remember a failure; a listener of the system."""
        match event:
            case Restarted(ref, reason):
                self._add_failure(ref, "restarted", reason)
            case GivenUp(ref, reason):
                # It stops, too: one failure, whichever event is first.
                if self._is_newest(ref, "stopped"):
                    self._failures.popleft()
                self._add_failure(ref, "given_up", reason)
            case Stopped(ref, BaseException() as reason):
                if not self._is_newest(ref, "given_up"):
                    self._add_failure(ref, "stopped", reason)
            case _:
                pass

    def _is_newest(self, ref: ActorRef[object], outcome: str) -> bool:
        newest = next(iter(self._failures), None)
        return newest is not None and (newest.actor, newest.outcome) == (name_of(ref), outcome)

    def _add_failure(
        self,
        ref: ActorRef[object],
        outcome: Literal["restarted", "stopped", "given_up"],
        reason: BaseException,
    ) -> None:
        self._failures.appendleft(
            FailureStatus(now_ms(), name_of(ref), outcome, describe_error(reason))
        )

    async def read(self) -> ActorsStatus:
        system = self._system
        cells = system.registry.cells()
        waiting = restarts = 0
        handled = system._handled_by_stopped
        for first in range(0, len(cells), SLICE_CELLS_COUNT):
            for cell in cells[first : first + SLICE_CELLS_COUNT]:
                waiting += cell.mailbox.qsize()
                restarts += cell.restarts
                if cell.state is not CellState.STOPPED:  # else it is part of `_handled_by_stopped`
                    handled += cell.handled
            await asyncio.sleep(0)
        listed = self._list_actors(cells)
        peers = () if system._remote is None else islice(system._remote.peers(), PEERS_MAX_COUNT)
        return ActorsStatus(
            name=system.name,
            at=now_ms(),
            started_at=self._started_at,
            interval=self._interval,
            state="closed" if self.is_closed else "running",
            actor_count=len(cells),
            waiting=waiting,
            restarts=restarts,
            handled=handled,
            dead_letters=system.dead_letter_count,
            peers=tuple(PeerStatus(clip(name), unreachable) for name, unreachable in peers),
            failures=tuple(self._failures),
            actors=tuple(listed),
            omitted=max(len(cells) - len(listed), 0),
        )

    def _list_actors(self, cells: list[Cell]) -> list[ActorStatus]:
        """Return the first actors of the supervision tree, level by level."""
        system = self._system
        roots = (
            cell
            for cell in cells
            if cell.supervisor is None or cell.supervisor.address.node != system.name
        )
        found: list[ActorStatus] = []
        level: list[tuple[Cell, int | None]] = [
            (cell, None) for cell in islice(roots, ACTORS_MAX_COUNT)
        ]
        for depth in range(DEPTH_MAX_COUNT + 1):
            below: list[tuple[Cell, int | None]] = []
            for cell, supervisor in level:
                if len(found) == ACTORS_MAX_COUNT:
                    return found
                found.append(describe_actor(cell, supervisor, depth))
                left = ACTORS_MAX_COUNT - len(found) - len(below)
                for child in islice(cell.children, max(left, 0)):
                    child_cell = system.registry.find_cell(child.address)
                    if child_cell is not None and child.address.node == system.name:
                        below.append((child_cell, cell.ref.address.uid))
            level = below
        return found


def describe_actor(cell: Cell, supervisor: int | None, depth: int) -> ActorStatus:
    address = cell.ref.address
    return ActorStatus(
        uid=address.uid,
        name=clip(address.name),
        type=clip(type(cell.actor).__name__) if cell.actor is not None else "",
        state=_STATE_TEXTS.get(cell.state, "started"),
        waiting=cell.mailbox.qsize(),
        restarts=cell.restarts,
        handled=cell.handled,
        supervisor=supervisor,
        depth=depth,
    )


def name_of(ref: ActorRef[object]) -> str:
    return clip(ref.address.name or f"#{ref.address.uid}")


def describe_error(error: BaseException) -> str:
    """Return type and text of an exception; its own `str` may fail."""
    try:
        text = str(error)
    except Exception as failure:  # noqa: BLE001  any code of the application
        text = f"({type(failure).__name__} in __str__)"
    return clip(
        f"{type(error).__name__}: {text}" if text else type(error).__name__, ERROR_MAX_COUNT
    )


def now_ms() -> int:
    return time.time_ns() // 1_000_000
