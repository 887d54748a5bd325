"""The inspector: the actor of each node that describes its actors and peers, for `recado actors` and other
programs.

A node may have a hundred thousand actors, and the size of a frame is limited. So actors are listed by page, in
the order in which they were started. The field names are part of the protocol.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import islice, starmap
from typing import TYPE_CHECKING, ClassVar, Final

import msgspec

from .actor import Actor
from .errors import UnhandledMessageError
from .message import Message
from .runtime.state import CellState

if TYPE_CHECKING:
    from .runtime.cell import Cell

INSPECTOR_NAME: Final = "recado.inspector"
PAGE_ACTORS_MAX: Final = 500

# Every other state is "started".
_STATE_TEXTS: Final = {CellState.STARTING: "new", CellState.STOPPED: "stopped"}


class ActorInfo(msgspec.Struct, frozen=True):
    """An actor at the moment of the inspection."""

    uid: int
    name: str
    kind: str
    """The name of its class."""
    state: str
    """new, started or stopped."""
    waiting: int
    """The number of messages in its mailbox."""
    restarts: int
    supervisor: str
    """The address of its supervisor; empty if that is the system."""
    internal: bool
    """Whether it is one of the system's own actors."""


class PeerInfo(msgspec.Struct, frozen=True):
    """Another node that this one communicates with."""

    node: str
    unreachable: bool


class Inspection(Message[None]):
    """One page of the actors of a node."""

    node: str
    actors: int
    """The number of actors on all pages."""
    dead_letters: int
    """The number of dead letters so far."""
    nodes: tuple[PeerInfo, ...]
    """At most PAGE_ACTORS_MAX peers."""
    seen: tuple[ActorInfo, ...]
    """The actors of this page. The next page begins after the uid of the last one."""


class Inspect(Message[Inspection]):
    """Ask for the page of actors that begins after the uid `after`; 0 is the first page. With `internals`, the
    system's own actors are listed instead of the application's."""

    after: int = 0
    internals: bool = False


class Inspector(Actor[Inspect]):
    # Every node may send it any message.
    expected_errors: ClassVar[tuple[type[BaseException], ...]] = (UnhandledMessageError,)

    def receive(self, message: Inspect) -> None:
        system = self.system
        registry = system._internal_registry if message.internals else system.registry
        cells = registry.cells()  # in the order of their uids, as they were added
        first = bisect_right(cells, message.after, key=lambda cell: cell.ref.address.uid)
        page = tuple(map(describe_cell, cells[first : first + PAGE_ACTORS_MAX]))
        self.reply(
            Inspection(system.name, len(cells), system.dead_letter_count, self._peers(), page)
        )

    def _peers(self) -> tuple[PeerInfo, ...]:
        remote = self.system._remote
        if remote is None:
            return ()
        return tuple(starmap(PeerInfo, islice(remote.peers(), PAGE_ACTORS_MAX)))


def describe_cell(cell: Cell) -> ActorInfo:
    address = cell.ref.address
    return ActorInfo(
        uid=address.uid,
        name=address.name,
        kind=type(cell.actor).__name__ if cell.actor is not None else "",
        state=_STATE_TEXTS.get(cell.state, "started"),
        waiting=cell.mailbox.qsize(),
        restarts=cell.restarts,
        supervisor=str(cell.supervisor) if cell.supervisor is not None else "",
        internal=cell.is_internal,
    )
