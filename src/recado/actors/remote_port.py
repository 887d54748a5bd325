"""Other nodes, as far as a system has to know of them; recado.actors.remote has what is behind these.

system  ──join──►  Carrier, a transport   makes   Others, this node among them
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from msgspec import Struct

if TYPE_CHECKING:
    from .address import Address
    from .ref import ActorRef, Reply
    from .system import ActorSystem

Options_contra = TypeVar("Options_contra", contravariant=True)


class Asker(Struct, array_like=True, frozen=True):
    """Where the answer to an ask of another node goes, as a value that outlives this process.

    `client` is the id under which the transport reaches the asking node; empty if it is the node's name.
    `incarnation` is the one under which that node sent the ask: a later life of it does not wait for the
    answer. `number` is that of the ask.
    """

    node: str
    client_id: str
    incarnation: bytes
    ask_id: int


class ReceivedSequences(Protocol):
    """What came to this node of one sender, to whomever here. Each has a number, counted by the sender."""

    def settled_ranges(self) -> Sequence[tuple[int, int]]:
        """The settled ones, as ranges, lowest first."""

    def highest(self) -> int:
        """The highest that came. Those below it that are neither are settled, or gone."""

    def unsettled(self) -> Collection[int]:
        """Those that came and may come again, though they may be within these ranges."""


class RemoteLayer(Protocol):
    async def open(self) -> None:
        """From now on others reach us."""

    def quiesce(self) -> None:
        """The actors are about to stop. What others keep for us and is not handed on yet is left to them."""

    async def close(self) -> None: ...

    def ref(self, address: Address) -> ActorRef[Any]:
        """A reference to an actor of another node."""

    def peers(self) -> Iterator[tuple[str, bool]]:
        """The nodes that we talk with, and whether each is unreachable."""

    def received_from(self, incarnation: bytes) -> ReceivedSequences | None:
        """What came of one sender, in this life. In the loop's thread."""

    def restore_reply(self, asker: Asker | None) -> Reply | None:
        """The Reply of a message that another node sent to an earlier life of this one; `asker` is None if it
        was told. In the loop's thread."""


class TransportProvider(Protocol[Options_contra]):
    """What a system is given to reach others. Its options are its own matter."""

    def join(self, system: ActorSystem, options: Options_contra | None) -> RemoteLayer: ...
