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
from .errors import Unhandled
from .message import Message

if TYPE_CHECKING:
    from .running.cell import Cell

INSPECTOR: Final = "recado.inspector"
PAGE: Final = 500


class Seen(msgspec.Struct, frozen=True):
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


class Known(msgspec.Struct, frozen=True):
    """Another node that it talks with."""

    node: str
    unreachable: bool


class Inspection(Message[None]):
    node: str
    actors: int
    dead_letters: int
    nodes: tuple[Known, ...]
    """Not more than a page of them."""
    seen: tuple[Seen, ...]
    """Those of this page; the next one begins behind the last."""


class Inspect(Message[Inspection]):
    """A page: the actors behind that of this uid; with `internals`, the system's own."""

    after: int = 0
    internals: bool = False


class Inspector(Actor[Inspect]):
    # Anybody may send it anything.
    expected: ClassVar[tuple[type[BaseException], ...]] = (Unhandled,)

    def receive(self, message: Inspect) -> None:
        system = self.system
        registry = system.internals if message.internals else system.registry
        cells = registry.cells()  # by uid: that is how they were added
        first = bisect_right(cells, message.after, key=lambda cell: cell.ref.address.uid)
        page = tuple(map(seen, cells[first : first + PAGE]))
        self.reply(Inspection(system.name, len(cells), system.dead_letters, self._nodes(), page))

    def _nodes(self) -> tuple[Known, ...]:
        node = self.system.node
        return () if node is None else tuple(starmap(Known, islice(node.known(), PAGE)))


def seen(cell: Cell) -> Seen:
    address = cell.ref.address
    return Seen(
        address.uid,
        address.name,
        type(cell.actor).__name__ if cell.actor is not None else "",
        cell.state.value,
        cell.mailbox.qsize(),
        cell.restarts,
        str(cell.supervisor) if cell.supervisor is not None else "",
        cell.internal,
    )
