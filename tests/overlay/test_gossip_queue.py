"""Gossip is passed on a bounded number of times, in messages of bounded size."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from recado.overlay.gossip_queue import GossipQueue
from recado.overlay.identifier import NodeId, encode_identifier
from recado.overlay.membership_messages import (
    MESSAGE_BYTES_MAX,
    UPDATES_BYTES_MAX,
    UPDATES_MAX,
    VOTES_MAX,
    Alive,
    Left,
    MembershipMessage,
    PingRequest,
    Suspected,
    Update,
    size_bytes,
)
from recado.overlay.packet import Packet
from recado.overlay.peer_address import Incarnation, NetworkId, PeerAddress

LARGEST = 2**63 - 1
PEERS = st.builds(
    PeerAddress,
    st.integers(0, 2**128 - 1).map(NodeId),
    st.integers(0, LARGEST).map(Incarnation),
    st.integers(0, LARGEST).map(NetworkId),
    st.text("abc", min_size=3, max_size=255),
)
VOTES = st.lists(st.integers(0, 2**128 - 1).map(NodeId), max_size=VOTES_MAX).map(tuple)
NUMBERS = st.integers(0, LARGEST)
IDS = st.integers(0, 2**128 - 1).map(NodeId)
INCARNATIONS = NUMBERS.map(Incarnation)
UPDATES = st.one_of(
    st.builds(Alive, PEERS, NUMBERS),
    st.builds(Suspected, IDS, INCARNATIONS, NUMBERS, VOTES, st.booleans()),
    st.builds(Left, IDS, INCARNATIONS),
)


@given(UPDATES)
def test_the_size_of_an_update_is_not_underestimated(update: Update) -> None:
    assert len(msgspec.msgpack.encode(update, enc_hook=encode_identifier)) <= size_bytes(update)


@given(st.lists(UPDATES, max_size=40), UPDATES, PEERS, PEERS)
def test_a_message_with_gossip_fits_a_datagram(
    updates: list[Update], first: Update, source: PeerAddress, target: PeerAddress
) -> None:
    queue = GossipQueue()
    for update in updates:
        queue.add(update)
    taken = queue.take(300, first)
    assert len(taken) <= UPDATES_MAX
    assert sum(map(size_bytes, taken)) <= UPDATES_BYTES_MAX
    message: MembershipMessage = PingRequest(LARGEST, target, taken)
    packet = Packet(1, source, source.node_id, source.incarnation, message)
    assert len(msgspec.msgpack.encode(packet, enc_hook=encode_identifier)) <= MESSAGE_BYTES_MAX


def left(node: int) -> Left:
    return Left(NodeId(node), Incarnation(1))


def test_an_update_is_passed_on_a_bounded_number_of_times() -> None:
    queue = GossipQueue()
    queue.add(left(1))
    sent = 0
    while queue.take(300):
        sent += 1
    assert sent == GossipQueue.TRANSMISSIONS_PER_BIT * ((300).bit_length() + 1)
    assert not queue


def test_a_newer_update_about_a_node_replaces_the_older_one() -> None:
    queue = GossipQueue()
    queue.add(left(1))
    newer = Left(NodeId(1), Incarnation(2))
    queue.add(newer)
    assert queue.take(10) == (newer,)


def test_what_was_passed_on_least_often_goes_first() -> None:
    queue = GossipQueue()
    for node in range(100):
        queue.add(left(node))
    first, second = queue.take(300), queue.take(300)
    assert not set(first) & set(second)


def test_the_first_update_is_not_repeated() -> None:
    queue = GossipQueue()
    queue.add(left(1))
    accusation = Left(NodeId(1), Incarnation(9))
    assert queue.take(10, first=accusation) == (accusation,)
