"""What a node tells of itself, to `recado actors` and to whoever else asks its inspector.

A node may have a hundred thousand actors, and a frame has a limit: they are told by the page, in the order in
which they were started.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import islice, starmap
from typing import TYPE_CHECKING, ClassVar, Final

import msgspec

from .actor import Actor
from .errors import UnhandledMessageError
from .message import Message

if TYPE_CHECKING:
    from .runtime.cell import Cell

INSPECTOR_NAME: Final = "recado.inspector"
PAGE_ACTORS_MAX: Final = 500


class ActorInfo(msgspec.Struct, frozen=True):
    """An actor, as it was at the moment."""

    uid: int
    name: str
    kind: str
    """The name of its class."""
    state: str
    waiting: int
    """Messages in its mailbox."""
    restarts: int
    supervisor: str
    """Its address; nothing if it is the system."""
    internal: bool
    """Whether it is the system's own."""


class PeerInfo(msgspec.Struct, frozen=True):
    """Another node that it talks with."""

    node: str
    unreachable: bool


class Inspection(Message[None]):
    node: str
    actors: int
    dead_letters: int
    nodes: tuple[PeerInfo, ...]
    """Not more than a page of them."""
    seen: tuple[ActorInfo, ...]
    """Those of this page; the next one begins behind the last."""


class Inspect(Message[Inspection]):
    """A page: the actors behind that of this uid; with `internals`, the system's own."""

    after: int = 0
    internals: bool = False


class Inspector(Actor[Inspect]):
    # Anybody may send it anything.
    expected_errors: ClassVar[tuple[type[BaseException], ...]] = (UnhandledMessageError,)

    def receive(self, message: Inspect) -> None:
        system = self.system
        registry = system._internal_registry if message.internals else system.registry
        cells = registry.cells()  # by uid: that is how they were added
        first = bisect_right(cells, message.after, key=lambda cell: cell.ref.address.uid)
        page = tuple(map(describe_cell, cells[first : first + PAGE_ACTORS_MAX]))
        self.reply(
            Inspection(system.name, len(cells), system.dead_letter_count, self._peers(), page)
        )

    def _peers(self) -> tuple[PeerInfo, ...]:
        node = self.system._remote
        return (
            () if node is None else tuple(starmap(PeerInfo, islice(node.peers(), PAGE_ACTORS_MAX)))
        )


def describe_cell(cell: Cell) -> ActorInfo:
    address = cell.ref.address
    return ActorInfo(
        address.uid,
        address.name,
        type(cell.actor).__name__ if cell.actor is not None else "",
        cell.state.value,
        cell.mailbox.qsize(),
        cell.restarts,
        str(cell.supervisor) if cell.supervisor is not None else "",
        cell.is_internal,
    )
