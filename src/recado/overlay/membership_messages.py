"""What nodes tell each other about who is alive. Every message fits a datagram (`MESSAGE_BYTES_MAX`)."""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta, Struct

from .identifier import NodeId
from .peer_address import Incarnation, PeerAddress

MESSAGE_BYTES_MAX: Final = 1_400
"""Of an encoded packet. It fits an Ethernet frame with the headers of IPv6 and UDP."""
UPDATES_BYTES_MAX: Final = 750
"""Of the updates in one message; the rest is for two addresses of the longest kind."""
UPDATES_MAX: Final = 64
VOTES_MAX: Final = 6
"""Voters named in one suspicion: twice the number that is needed."""

Count = Annotated[int, Meta(ge=0, lt=1 << 63)]


class Alive(Struct, frozen=True, array_like=True, tag="alive"):
    """A node is alive. With a higher refutation number than a suspicion, it disproves that; only the node raises it."""

    peer: PeerAddress
    refutation: Count = 0


class Suspected(Struct, frozen=True, array_like=True, tag="suspected"):
    """Each voter has tried in vain to reach the node, directly and through other nodes."""

    node_id: NodeId
    incarnation: Incarnation
    refutation: Count
    votes: Annotated[tuple[NodeId, ...], Meta(max_length=VOTES_MAX)]
    is_reset: bool = False
    """A voter has seen the node's connections being reset, as when its process is killed."""


class Left(Struct, frozen=True, array_like=True, tag="left"):
    """The node has left on purpose."""

    node_id: NodeId
    incarnation: Incarnation


Update = Alive | Suspected | Left
Updates = Annotated[tuple[Update, ...], Meta(max_length=UPDATES_MAX)]


class DetectorPing(Struct, frozen=True, array_like=True, tag="ping"):
    number: Count
    updates: Updates = ()


class Ack(Struct, frozen=True, array_like=True, tag="ack"):
    number: Count
    refutation: Count
    """The one of the answering node."""
    updates: Updates = ()


class PingRequest(Struct, frozen=True, array_like=True, tag="ping-request"):
    """Asks a helper to ping the target and to relay the answer."""

    number: Count
    target: PeerAddress
    updates: Updates = ()


class RelayedAck(Struct, frozen=True, array_like=True, tag="relayed-ack"):
    number: Count
    refutation: Count


class Nack(Struct, frozen=True, array_like=True, tag="nack"):
    """The helper has had no answer from the target. It shows that the requesting node itself is well connected."""

    number: Count


class Gossip(Struct, frozen=True, array_like=True, tag="gossip"):
    updates: Updates


class JoinRequest(Struct, frozen=True, array_like=True, tag="join-request"):
    pass


class JoinReply(Struct, frozen=True, array_like=True, tag="join-reply"):
    """The network of the sender, and the lowest incarnation with which the joining node is new to it."""

    incarnation: Incarnation


class SyncRequest(Struct, frozen=True, array_like=True, tag="sync-request"):
    """Asks for the state if its digest differs."""

    digest: Count


class SyncState(Struct, frozen=True, array_like=True, tag="sync-state"):
    """A part of all that a node knows about its peers."""

    part: Count
    parts: Count
    updates: Updates
    is_answer: bool
    """Otherwise the receiver sends its own state in return."""


MemberMessage = (
    DetectorPing | Ack | PingRequest | RelayedAck | Nack | Gossip | SyncRequest | SyncState
)
"""The messages between members."""
MembershipMessage = MemberMessage | JoinRequest | JoinReply


def size_bytes(update: Update) -> int:
    """Return an upper bound of the encoded size of an update."""
    match update:
        case Alive(peer):
            return 70 + len(peer.address)
        case Suspected(votes=votes):
            return 54 + 18 * len(votes)
        case Left():
            return 36
