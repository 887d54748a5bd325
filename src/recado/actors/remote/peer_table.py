"""The known peers, with their incarnations and the links on which they are reached.

PT1  The number of peers is limited: of those not in use, the one known for longest is forgotten.
PT2  Frames to a peer are sent on the link on which its last frame arrived, unless we have opened a link to it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final

from .errors import LimitExceededError, LinkClosedError
from .peer import Peer
from .transport import PeerLink, Transport
from .wire.frame import FrameAuthenticator, FrameSigner

MAX_PEERS: Final = 10_000


class PeerTable:
    def __init__(
        self,
        transport: Transport,
        authenticator: FrameAuthenticator,
        now: Callable[[], float],
        is_in_use: Callable[[Peer], bool],
        max_peers: int = MAX_PEERS,
    ) -> None:
        self._transport = transport
        self._authenticator = authenticator
        self._now = now
        self._is_in_use = is_in_use
        self._max_peers = max_peers
        self.peers: dict[str, Peer] = {}
        self.by_incarnation: dict[bytes, Peer] = {}  # of the peer
        self._by_own_incarnation: dict[bytes, Peer] = {}  # of this node towards the peer

    def peer(self, name: str) -> Peer:
        """Return the peer of this name, adding it if necessary. Raises LimitExceededError."""
        peer = self.peers.get(name)
        if peer is None:
            if len(self.peers) >= self._max_peers:
                self._evict_unused()
            signer = FrameSigner(self._authenticator, os.urandom(16))
            peer = self.peers[name] = Peer(name, signer, self._now())
            self._by_own_incarnation[signer.incarnation] = peer
        return peer

    def _evict_unused(self) -> None:
        for peer in self.peers.values():
            if not self._is_in_use(peer):
                del self.peers[peer.name]
                self.by_incarnation.pop(peer.incarnation, None)
                del self._by_own_incarnation[peer.signer.incarnation]
                return
        raise LimitExceededError(f"{self._max_peers} nodes are known and in use")

    def set_incarnation(self, peer: Peer, incarnation: bytes) -> None:
        """Record the present incarnation of a peer."""
        self.by_incarnation.pop(peer.incarnation, None)
        peer.incarnation = incarnation
        # A node that was replaced by another one of its name may return: it has a past incarnation.
        peer.past_incarnations.pop(incarnation, None)
        self.by_incarnation[incarnation] = peer

    def find_by_own_incarnation(self, incarnation: bytes) -> Peer | None:
        """Return the peer to which we send frames under this incarnation."""
        return self._by_own_incarnation.get(incarnation)

    def peers_on(self, link: PeerLink) -> list[Peer]:
        return [peer for peer in self.peers.values() if peer.link is link]

    def link_to(self, peer: Peer) -> PeerLink:
        """Return the link to a peer, connecting if necessary. Raises NoRouteError, LinkClosedError."""
        link = peer.link
        if link is None:
            link = peer.link = self._transport.connect(peer.name)
            peer.connected_by_us = True
        return link

    def adopt_link(self, peer: Peer, link: PeerLink) -> None:
        """Use a link on which the peer has sent a frame (PT2)."""
        if link is not peer.link and not peer.connected_by_us:
            peer.link = link

    def detach_link(self, link: PeerLink) -> None:
        """Forget a closed link."""
        for peer in self.peers_on(link):
            peer.link = None
            peer.connected_by_us = False

    def send(self, peer: Peer, envelope: bytes) -> None:
        """Sign an envelope and post it. Raises SerializationError, NoRouteError, LinkClosedError,
        LimitExceededError."""
        frame = peer.signer.sign(envelope)
        try:
            (peer.link or self.link_to(peer)).post(frame)
        except LinkClosedError:
            peer.link = None
            peer.connected_by_us = False
            self.link_to(peer).post(frame)
