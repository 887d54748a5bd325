"""The ways to other nodes: who they are, and on which links they are reached.

W1  There are no more peers than the limit: of those that nothing binds to us, the longest known is forgotten.
W2  The link on which a node spoke is the way back to it, unless we have made one ourselves, and it lasts.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final

from .faults import Full, Gone
from .peer import Peer
from .sealed.frame import Seal, Sealer
from .transport import Link, Transport

PEERS_MOST: Final = 10_000


class Ways:
    def __init__(
        self,
        transport: Transport,
        seal: Seal,
        now: Callable[[], float],
        in_use: Callable[[Peer], bool],
        most: int = PEERS_MOST,
    ) -> None:
        self._transport = transport
        self._seal = seal
        self._now = now
        self._in_use = in_use
        self._most = most
        self.peers: dict[str, Peer] = {}
        self.lives: dict[bytes, Peer] = {}  # by the incarnation under which they speak
        self._by_incarnation: dict[bytes, Peer] = {}

    def peer(self, name: str) -> Peer:
        """Raises Full."""
        found = self.peers.get(name)
        if found is None:
            if len(self.peers) >= self._most:
                self._forget_one()
            found = self.peers[name] = Peer(name, Sealer(self._seal, os.urandom(16)), self._now())
            self._by_incarnation[found.sealer.incarnation] = found
        return found

    def _forget_one(self) -> None:
        for peer in self.peers.values():
            if not self._in_use(peer):
                del self.peers[peer.name]
                self.lives.pop(peer.life, None)
                del self._by_incarnation[peer.sealer.incarnation]
                return
        raise Full(f"{self._most} nodes are known already")

    def begins(self, peer: Peer, life: bytes) -> None:
        """It speaks under another incarnation."""
        self.lives.pop(peer.life, None)
        peer.life = life
        peer.past.pop(life, None)
        self.lives[life] = peer

    def of_incarnation(self, incarnation: bytes) -> Peer | None:
        """To whom we speak under this incarnation."""
        return self._by_incarnation.get(incarnation)

    def of_link(self, link: Link) -> list[Peer]:
        return [peer for peer in self.peers.values() if peer.link is link]

    def link_to(self, peer: Peer) -> Link:
        """Raises NoWay, Gone."""
        link = peer.link
        if link is None:
            link = peer.link = self._transport.connect(peer.name)
            peer.made = True
        return link

    def spoke(self, peer: Peer, link: Link) -> None:
        """It spoke on this link (W2)."""
        if link is not peer.link and not peer.made:
            peer.link = link

    def ended(self, link: Link) -> None:
        for peer in self.of_link(link):
            peer.link = None
            peer.made = False

    def post(self, peer: Peer, envelope: bytes) -> None:
        """Seal it and send it. Raises CannotSerialise, NoWay, Gone, Full."""
        frame = peer.sealer.seal(envelope)
        try:
            (peer.link or self.link_to(peer)).post(frame)
        except Gone:
            peer.link = None
            peer.made = False
            self.link_to(peer).post(frame)
