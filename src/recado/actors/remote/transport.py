"""The port between a node and the transports that carry its frames.

    Transport           one for each node: a listening socket, a connection to a broker
    PeerLink            the path to one peer and back, opened by `connect` or by the peer
    TransportListener   the callbacks of a transport; the node implements it

TR1  A frame arrives whole or not at all, with the link on which an answer returns to its sender.
TR2  Frames posted on a link arrive in the order of posting; duplicates of a frame may arrive later.
TR3  A frame accepted by a durable link is repeated until it has arrived or is returned. A frame accepted by
     another link may be lost when the link is.
TR4  A frame received with `settle` that is not settled is redelivered, to this incarnation of the node or to
     the next one. Frames that were sent together with it may be redelivered, too.
TR5  A listener is always called in the thread of the loop, and not from within a call to its transport or link.
     Only `close` may call `frame_returned` before it returns.
TR6  A lost link reconnects by itself, until its transport gives up and reports it as closed. A link opened by
     the peer is closed when it is lost, unless it is durable.
TR7  The buffer of a link is bounded: `post` raises LimitExceededError for a frame that does not fit.

A transport does not look into frames: it knows neither whether they are authentic nor for whom they are. It may
distinguish frames from other data by their first byte and their minimal size (wire/frame.py). memory.py has an
in-memory twin for tests.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from .events import LinkEvent

if TYPE_CHECKING:
    from recado.actors.remote_port import RemoteLayer
    from recado.actors.system import ActorSystem

    from .options import RemoteOptions

Settle = Callable[[bool], None]
"""True: the frame was accepted. False: it was rejected. In both cases it is not redelivered."""


class PeerLink(Protocol):
    @property
    def peer(self) -> str:
        """The name of the peer, as far as the transport knows it without authentication.

        If we opened the link by `connect`, it is the name of the node. If the peer opened the link, it is the
        client id that the transport reports (AMQP), or empty (TCP).
        """

    @property
    def is_durable(self) -> bool:
        """Whether accepted frames survive the loss of the link."""

    @property
    def is_up(self) -> bool:
        """Whether the peer is connected now, as far as the transport knows."""

    def post(self, frame: bytes) -> None:
        """Send a frame, without waiting; it is buffered while the link is not connected.

        Raises LimitExceededError if the buffer is full, LinkClosedError if the link is closed.
        """

    async def drain(self) -> None:
        """Wait until the buffer is at most half full. Raises LinkClosedError if the link was closed."""

    def pause_reading(self) -> None:
        """Stop reading from the peer. Links whose frames have `settle` ignore it: prefetch bounds those."""

    def resume_reading(self) -> None:
        """Undo `pause_reading`."""

    def close(self) -> None:
        """Close the link; posted frames are still sent as far as that needs no waiting."""


class TransportListener(Protocol):
    def frame_received(self, link: PeerLink, frame: bytes, settle: Settle | None) -> None:
        """Handle a frame. `settle` is None if the transport does not redeliver. Raises nothing."""

    def frames_received(
        self, link: PeerLink, frames: list[bytes], settles: Sequence[Settle] | None = None
    ) -> None:
        """Frames of one read; `settles` has one callback per frame, if they are to be settled."""

    def unauthenticated_frames_received(self, link: PeerLink, frames: list[bytes]) -> None:
        """Frames of a peer that did not prove that it has the cookie."""

    def frame_returned(self, link: PeerLink, frame: bytes, reason: str) -> None:
        """A posted frame certainly did not arrive: the peer is absent, or the link was lost before."""

    def link_lost(self, link: PeerLink, reason: str) -> None:
        """The peer cannot be reached now; the link reconnects."""

    def link_restored(self, link: PeerLink) -> None:
        """The link is connected again."""

    def link_closed(self, link: PeerLink, reason: str) -> None:
        """The link does not reconnect. `connect` opens a new one, if the peer has an address."""

    def make_proof(self, text: bytes) -> bytes:
        """Return a proof over `text` that only a node with our cookie can make, for handshakes."""

    def accepted_proofs(self, text: bytes) -> list[bytes]:
        """Return the valid proofs over `text`: the one with our cookie, and, unless the cookie is required, the
        one of a node that has no cookie."""

    def publish_event(self, event: LinkEvent) -> None:
        """Publish an event to the application."""


class Transport(Protocol):
    def join(self, system: ActorSystem, options: RemoteOptions | None) -> RemoteLayer:
        """Create the node of a system that was given this transport; `TransportMixin` implements it."""

    async def open(
        self, node: str, client_id: str, max_frame_bytes: int, listener: TransportListener
    ) -> None:
        """Open the transport for the node `node`. When it returns, other nodes can reach us.

        `client_id` identifies this node to the nodes to which it connects. Frames larger than
        `max_frame_bytes` are not received.
        """

    def connect(self, node: str) -> PeerLink:
        """Return the link to a node; there is one for each, which connects by itself.

        Raises NoRouteError for an unknown node, LinkClosedError if the transport has given up.
        """

    def link_to_client(self, client_id: str) -> PeerLink:
        """Return the link to a client of this node, even if it has not connected since we started.

        Raises NoRouteError if only the client can open the link, or this node serves no clients.
        """

    async def close(self) -> None:
        """Close all links, after sending the posted frames for a limited time. Idempotent."""
