"""The port through which a system reaches other nodes; implemented by recado.actors.remote.

ActorSystem  ── join ──►  TransportProvider (Tcp, Amqp)  ── returns ──►  RemoteLayer
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
    """The identity of an ask from another node. It is stored with the message, so that a later incarnation of
    this process can reply.

    `client_id` is the id under which the transport reaches the asking node; empty if that is the node's name.
    `incarnation` is the one that sent the ask: a later incarnation of that node does not wait for the reply.
    """

    node: str
    client_id: str
    incarnation: bytes
    ask_id: int


class ReceivedSequences(Protocol):
    """The sequence numbers that this node has received from one sender, for any recipient.

    A number is settled when its message was processed, and will not be accepted again. It is unsettled while
    its message is being processed, or may be redelivered.
    """

    def settled_ranges(self) -> Sequence[tuple[int, int]]:
        """Return ranges, lowest first, that contain the settled numbers, and no others but those of `unsettled()`."""

    def highest(self) -> int:
        """Return the highest number received. Each lower number is settled, lost, or one of `unsettled()`."""

    def unsettled(self) -> Collection[int]:
        """Return the unsettled numbers, of which some may lie within `settled_ranges()`."""


class RemoteLayer(Protocol):
    async def open(self) -> None:
        """Connect: from now on other nodes reach this one."""

    def quiesce(self) -> None:
        """Prepare for the stop of all actors: leave messages that are not delivered yet to the broker or sender
        that still holds them."""

    async def close(self) -> None: ...

    def ref(self, address: Address) -> ActorRef[Any]:
        """Return a reference to an actor of another node."""

    def peers(self) -> Iterator[tuple[str, bool]]:
        """Return the names of the nodes that this one communicates with, and whether each is unreachable."""

    def received_from(self, incarnation: bytes) -> ReceivedSequences | None:
        """Return the sequence numbers received from one sender by this incarnation. On the loop's thread."""

    def restore_reply(self, asker: Asker | None) -> Reply | None:
        """Return the Reply of a message that an earlier incarnation of this node has received; `asker` is None
        if the message was told. On the loop's thread."""


class TransportProvider(Protocol[Options_contra]):
    """The `transport` of a system. The type of its options is its own."""

    def join(self, system: ActorSystem, options: Options_contra | None) -> RemoteLayer: ...
