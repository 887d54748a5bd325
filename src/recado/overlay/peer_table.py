"""What a node knows about its peers: those alive, and those that have departed.

The table merges updates; their order and repetition do not matter.

OPT1  A later incarnation replaces an earlier one; nothing about an earlier incarnation has an effect any more.
OPT2  Within an incarnation, `Alive` with a higher refutation number disproves a suspicion and revives a failed node;
      with the same or a lower number it does neither.
PT3  A node that has left is not revived in the same incarnation.
PT4  Only a node itself raises its refutation number, and only if it is suspected at its present number.
PT5  At most `DEPARTED_NODES_MAX` departed nodes are remembered, those that left on purpose for `LEFT_MEMORY_S`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from .identifier import NodeId
from .membership_messages import Alive, Left, Suspected, Update
from .packet import Admission, Refusal
from .peer_address import Incarnation, PeerAddress
from .peer_view import Departure, PeerView, ViewChange

DEPARTED_NODES_MAX: Final = 512
LEFT_MEMORY_S: Final = 120.0
"""Longer than any message is on its way."""


class DepartedPeer(Struct, frozen=True):
    peer: PeerAddress
    departure: Departure
    time: float
    evidence: Suspected | Left

    @property
    def refutation(self) -> int:
        return self.evidence.refutation if isinstance(self.evidence, Suspected) else 0


class MemberTable:
    def __init__(self, own: PeerAddress, admission: Admission) -> None:
        self.view = PeerView(own)
        self.refutation = 0
        """This node's own."""
        self.departed: dict[NodeId, DepartedPeer] = {}
        self._refutations: dict[NodeId, int] = {}
        self._admission = admission

    @property
    def own(self) -> PeerAddress:
        return self.view.own

    def own_update(self) -> Alive:
        return Alive(self.own, self.refutation)

    def refutation_of(self, node: NodeId) -> int:
        return self._refutations.get(node, 0)

    def incarnation_of(self, node: NodeId) -> Incarnation | None:
        """Return the highest known incarnation of a node, alive or departed."""
        known = self.view.get(node)
        if known is not None:
            return known.incarnation
        departed = self.departed.get(node)
        return departed.peer.incarnation if departed else None

    # ── merging ───────────────────────────────────────────────────────────────────────────────────

    def hear_alive(self, update: Alive) -> list[ViewChange] | None:
        """Return the changes of the view; None if the update is not news."""
        peer = update.peer
        if peer.node_id == self.own.node_id:
            return None
        if peer.network_id != self.own.network_id:
            self._admission.refuse(Refusal.NETWORK)
            return None
        if not self._admission.is_genuine(peer) or not self._is_newer(peer, update.refutation):
            return None
        self.departed.pop(peer.node_id, None)
        self._refutations[peer.node_id] = update.refutation
        return self.view.add(peer)

    def _is_newer(self, peer: PeerAddress, refutation: int) -> bool:
        known = self.view.get(peer.node_id)
        if known is not None:
            number = (known.incarnation, self.refutation_of(peer.node_id))
            return (peer.incarnation, refutation) > number
        departed = self.departed.get(peer.node_id)
        if departed is None or peer.incarnation > departed.peer.incarnation:
            return True
        is_refuted = refutation > departed.refutation and departed.departure is Departure.FAILED
        return peer.incarnation == departed.peer.incarnation and is_refuted

    def hear_left(self, update: Left, now: float) -> list[ViewChange] | None:
        known = self.view.get(update.node_id)
        if known is None or known == self.own or known.incarnation > update.incarnation:
            return None
        return self._depart(known, Departure.LEFT, now, update)

    def is_current(self, update: Suspected) -> bool:
        """Whether a suspicion is about the present incarnation of a peer in the view, and not yet refuted."""
        known = self.view.get(update.node_id)
        if known is None or known == self.own or known.incarnation != update.incarnation:
            return False
        return update.refutation >= self.refutation_of(update.node_id)

    def evict(self, evidence: Suspected, now: float) -> list[ViewChange]:
        """Move a suspected peer to the departed ones."""
        known = self.view.get(evidence.node_id)
        return self._depart(known, Departure.FAILED, now, evidence) if known else []

    def refute(self, update: Suspected) -> bool:
        """Raise the own refutation number if the suspicion is about this node as it is now."""
        if update.incarnation != self.own.incarnation or update.refutation < self.refutation:
            return False
        self.refutation = update.refutation + 1
        return True

    def _depart(
        self, peer: PeerAddress, departure: Departure, now: float, evidence: Suspected | Left
    ) -> list[ViewChange]:
        self._refutations.pop(peer.node_id, None)
        self.departed.pop(peer.node_id, None)
        self.departed[peer.node_id] = DepartedPeer(peer, departure, now, evidence)
        if len(self.departed) > DEPARTED_NODES_MAX:
            del self.departed[next(iter(self.departed))]
        return self.view.remove(peer.node_id, departure)

    def forget_departed(self, now: float) -> None:
        """Forget nodes that left on purpose long ago; failed ones stay, to be looked for."""
        gone = [
            node
            for node, departed in self.departed.items()
            if departed.departure is Departure.LEFT and now - departed.time > LEFT_MEMORY_S
        ]
        for node in gone:
            del self.departed[node]

    # ── the whole state ───────────────────────────────────────────────────────────────────────────

    def digest(self) -> int:
        """Return a number that is equal on nodes with the same view."""
        number = 0
        for peer in self.view.peers():
            number ^= _mix(peer.node_id ^ peer.incarnation)
        return number

    def state(self) -> Iterator[Update]:
        """Yield all that a peer needs to reach the same view."""
        for peer in self.view.peers():
            is_own = peer.node_id == self.own.node_id
            yield self.own_update() if is_own else Alive(peer, self.refutation_of(peer.node_id))
        for departed in self.departed.values():
            yield departed.evidence


def _mix(number: int) -> int:
    """Spread a number over 63 bits, so that sums of sets of them are unlikely to be equal."""
    number = (number ^ number >> 64) & ((1 << 64) - 1)
    number = (number ^ number >> 33) * 0xFF51AFD7ED558CCD & ((1 << 64) - 1)
    number = (number ^ number >> 33) * 0xC4CEB9FE1A85EC53 & ((1 << 64) - 1)
    return (number ^ number >> 33) >> 1
