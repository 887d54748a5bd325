"""The port between a node and what carries its frames; it is small, and has a twin in memory.

    Transport   a way into the world, one for each node: a listening socket, a broker
    Link        a way to one peer and back, made by `connect`, or by the peer's own connecting
    Receiver    who is told what comes; the node is one

T1  A frame arrives whole or not at all, with the link on which an answer goes back to its sender.
T2  Frames posted on a link arrive in the order of posting; those that are repeated may come again later.
T3  What a lasting link has taken is repeated until it has arrived or is `returned`. What another one has
    taken may be gone when it is `lost`.
T4  What came with `settle` and was not settled comes again, if not to this life of the node then to the next;
    others that travelled with it may, too.
T5  A receiver is never called from within a call to its transport or link, and always in the loop's thread.
T6  A link that is lost heals by itself, until its transport gives up and says `gone`. An accepted link is
    gone when it is lost, unless it is lasting.
T7  What waits in a link is bounded: a frame beyond that is refused by `LimitExceededError`, and nothing is kept of it.

A transport knows nothing of what is in a frame: not whether it is authentic, nor for whom it is. It may tell
frames from what else it carries by their first byte and their least size (wire/frame.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from .errors import LimitExceededError as LimitExceededError
from .events import LinkEvent

if TYPE_CHECKING:
    from recado.actors.remote_port import RemoteLayer
    from recado.actors.system import ActorSystem

    from .options import RemoteOptions

Settle = Callable[[bool], None]
"""True: it was taken in, and need not come again. False: nobody wants it, so it must not."""


class PeerLink(Protocol):
    @property
    def peer(self) -> str:
        """Who is at the other end, as far as the transport knows: nobody has proved it.

        For a link that `connect` made it is the name that was asked for. For one that a peer made it is what
        the transport knows of it without looking into frames: a client's id, or nothing.
        """

    @property
    def is_durable(self) -> bool:
        """Whether frames that it has taken outlast a cut."""

    @property
    def is_up(self) -> bool:
        """Whether the peer is connected now, as far as the transport knows."""

    def post(self, frame: bytes) -> None:
        """Send; returns at once. While the link is lost or not yet there, it waits. Raises `LimitExceededError`, or `Gone`
        if the link has ended."""

    async def drain(self) -> None:
        """Wait until less than half of what may wait in the link does. Raises `Gone` if it ended."""

    def close(self) -> None:
        """No more of it; what was posted is still sent, as far as that needs no waiting."""


class TransportListener(Protocol):
    def frame_received(self, link: PeerLink, frame: bytes, settle: Settle | None) -> None:
        """A frame came. Without `settle` there is nothing to settle. It raises nothing."""

    def frames_received(
        self, link: PeerLink, frames: list[bytes], settles: Sequence[Settle] | None = None
    ) -> None:
        """Frames that came in one read; without `settles`, one for each, there is nothing to settle."""

    def make_proof(self, text: bytes) -> bytes:
        """What only somebody with our cookie can make of a text, for transports that ask for it."""

    def accepted_proofs(self, text: bytes) -> list[bytes]:
        """What somebody with our cookie makes of it; and anybody without one, if we do not require it."""

    def unauthenticated_frames_received(self, link: PeerLink, frames: list[bytes]) -> None:
        """Frames of somebody who could not prove that it has the cookie."""

    def frame_returned(self, link: PeerLink, frame: bytes, reason: str) -> None:
        """A frame that we posted certainly did not arrive: nobody is there, or the link was lost before."""

    def link_lost(self, link: PeerLink, reason: str) -> None:
        """There is no way to the peer now; the link tries to find one."""

    def link_restored(self, link: PeerLink) -> None:
        """There is a way again."""

    def link_closed(self, link: PeerLink, reason: str) -> None:
        """The link will not heal. A new one may be had by `connect`, if there is an address."""

    def publish_event(self, event: LinkEvent) -> None:
        """What the application may want to know."""


class Transport(Protocol):
    def join(self, system: ActorSystem, options: RemoteOptions | None) -> RemoteLayer:
        """Make a node of a system that was given this transport, as `TransportMixin` does."""

    async def open(
        self, node: str, client_id: str, max_frame_bytes: int, listener: TransportListener
    ) -> None:
        """Take part in the world as `node`; who only connects is known there as `client`.

        When it returns, others that know how reach us. No frame above `max_frame_bytes` bytes is read or kept.
        """

    def connect(self, node: str) -> PeerLink:
        """The link to this node, one for each. It comes about by itself. Raises `NoRouteError` for an unknown node,
        `Gone` if the transport has given up."""

    def link_to_client(self, client_id: str) -> PeerLink:
        """The link to a node that connects to us under this id, before it has done so in this life. Raises
        `NoRouteError` if only that node can make it."""

    async def close(self) -> None:
        """Give up every link, in order: what was posted is sent first, for a while. Twice is harmless."""
