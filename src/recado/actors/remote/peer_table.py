"""The ways to other nodes: who they are, and on which links they are reached.

W1  There are no more peers than the limit: of those that nothing binds to us, the longest known is forgotten.
W2  The link on which a node spoke is the way back to it, unless we have made one ourselves, and it lasts.
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
        self.by_incarnation: dict[bytes, Peer] = {}  # by the incarnation under which they speak
        self._by_own_incarnation: dict[bytes, Peer] = {}

    def peer(self, name: str) -> Peer:
        """Raises Full."""
        found = self.peers.get(name)
        if found is None:
            if len(self.peers) >= self._max_peers:
                self._evict_unused()
            found = self.peers[name] = Peer(
                name, FrameSigner(self._authenticator, os.urandom(16)), self._now()
            )
            self._by_own_incarnation[found.signer.incarnation] = found
        return found

    def _evict_unused(self) -> None:
        for peer in self.peers.values():
            if not self._is_in_use(peer):
                del self.peers[peer.name]
                self.by_incarnation.pop(peer.incarnation, None)
                del self._by_own_incarnation[peer.signer.incarnation]
                return
        raise LimitExceededError(f"{self._max_peers} nodes are known already")

    def set_incarnation(self, peer: Peer, incarnation: bytes) -> None:
        """It speaks under another incarnation."""
        self.by_incarnation.pop(peer.incarnation, None)
        peer.incarnation = incarnation
        peer.past_incarnations.pop(incarnation, None)
        self.by_incarnation[incarnation] = peer

    def find_by_own_incarnation(self, incarnation: bytes) -> Peer | None:
        """To whom we speak under this incarnation."""
        return self._by_own_incarnation.get(incarnation)

    def peers_on(self, link: PeerLink) -> list[Peer]:
        return [peer for peer in self.peers.values() if peer.link is link]

    def link_to(self, peer: Peer) -> PeerLink:
        """Raises NoWay, Gone."""
        link = peer.link
        if link is None:
            link = peer.link = self._transport.connect(peer.name)
            peer.connected_by_us = True
        return link

    def adopt_link(self, peer: Peer, link: PeerLink) -> None:
        """It spoke on this link (W2)."""
        if link is not peer.link and not peer.connected_by_us:
            peer.link = link

    def detach_link(self, link: PeerLink) -> None:
        for peer in self.peers_on(link):
            peer.link = None
            peer.connected_by_us = False

    def send(self, peer: Peer, envelope: bytes) -> None:
        """Seal it and send it. Raises CannotSerialise, NoWay, Gone, Full."""
        frame = peer.signer.sign(envelope)
        try:
            (peer.link or self.link_to(peer)).post(frame)
        except LinkClosedError:
            peer.link = None
            peer.connected_by_us = False
            self.link_to(peer).post(frame)
