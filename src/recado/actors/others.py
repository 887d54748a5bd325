"""Other nodes, as far as a system has to know of them; recado.actors.remote has what is behind these.

system  ──join──►  Carrier, a transport   makes   Others, this node among them
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from .address import Address
    from .ref import ActorRef
    from .system import ActorSystem

Options_contra = TypeVar("Options_contra", contravariant=True)


class Others(Protocol):
    async def open(self) -> None:
        """From now on others reach us."""

    def hush(self) -> None:
        """The actors are about to stop. What others keep for us and is not handed on yet is left to them."""

    async def close(self) -> None: ...

    def ref(self, address: Address) -> ActorRef[Any]:
        """A reference to an actor of another node."""

    def known(self) -> Iterator[tuple[str, bool]]:
        """The nodes that we talk with, and whether each is unreachable."""


class Carrier(Protocol[Options_contra]):
    """What a system is given to reach others. Its options are its own matter."""

    def join(self, system: ActorSystem, options: Options_contra | None) -> Others: ...
