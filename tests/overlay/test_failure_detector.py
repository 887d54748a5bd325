"""Single rules of the failure detector, message by message; whole networks are in membership_sim."""

from __future__ import annotations

from random import Random

import pytest

from recado.overlay.effects import SendTo, TimerExpired
from recado.overlay.failure_detector import SwimDetector
from recado.overlay.identifier import NodeId, node_id
from recado.overlay.membership import TIMER, Membership, MembershipEffect, MessageReceived, Start
from recado.overlay.membership_messages import (
    Ack,
    Alive,
    DetectorPing,
    Gossip,
    Left,
    MembershipMessage,
    Suspected,
)
from recado.overlay.packet import Packet, Refusal
from recado.overlay.peer_address import Incarnation, NetworkId, PeerAddress
from recado.overlay.peer_view import Departure, PeerRemoved

NETWORK = NetworkId(7)
ONE = Incarnation(1)


def peer(number: int) -> PeerAddress:
    address = f"n{number}:1"
    return PeerAddress(node_id(b"", address), ONE, NETWORK, address)


class Node:
    """Node 0 of a network of silent peers; the test speaks for them."""

    def __init__(self, peers: int, silent: frozenset[int] = frozenset()) -> None:
        self.now = 0.0
        self.silent = silent
        self.core = Membership("n0:1", ONE, Random(1).random, 0.0)
        self.core.handle(Start(NETWORK), 0.0)
        for number in range(1, peers + 1):
            self.hear(1, Gossip((Alive(peer(number)),)))

    def hear(self, number: int, message: MembershipMessage) -> list[MembershipEffect]:
        own = self.core.own.node_id
        packet: Packet[MembershipMessage] = Packet(1, peer(number), own, ONE, message)
        return self.answer(self.core.handle(MessageReceived(packet), self.now))

    def answer(self, effects: list[MembershipEffect]) -> list[MembershipEffect]:
        """Answer the pings among the effects, and return all effects."""
        found = list(effects)
        for effect in effects:
            if isinstance(effect, SendTo) and isinstance(effect.message, DetectorPing):
                at = int(effect.to.address[1:].partition(":")[0])
                if at not in self.silent:
                    found += self.hear(at, Ack(effect.message.number, 0))
        return found

    def run(self, seconds: float) -> list[MembershipEffect]:
        """Let time pass; all peers answer pings but the silent ones, and none refutes anything."""
        found: list[MembershipEffect] = []
        until = self.now + seconds
        while self.now < until:
            self.now += 0.05
            found += self.answer(self.core.handle(TimerExpired(TIMER), self.now))
        return found


def evicted(effects: list[MembershipEffect]) -> list[PeerAddress]:
    return [
        effect.peer
        for effect in effects
        if isinstance(effect, PeerRemoved) and effect.departure is Departure.FAILED
    ]


def suspicion(target: int, *voters: int) -> Suspected:
    return Suspected(peer(target).node_id, ONE, 0, tuple(peer(each).node_id for each in voters))


def test_three_votes_evict_a_node_that_does_not_refute() -> None:
    """OFD1"""
    node = Node(8)
    node.hear(1, Gossip((suspicion(5, 1, 2, 3),)))
    assert evicted(node.run(0.5)) == []
    assert evicted(node.run(0.3)) == [peer(5)]


def test_two_votes_do_not() -> None:
    """OFD1"""
    node = Node(8)
    node.hear(1, Gossip((suspicion(5, 1, 2),)))
    assert evicted(node.run(5.0)) == []


def test_the_neighbours_of_a_suspected_node_probe_it_at_once() -> None:
    """With five peers every node is one of the six verifiers."""
    node = Node(5)
    effects = node.hear(1, Gossip((suspicion(5, 1),)))
    pinged = [
        each.to
        for each in effects
        if isinstance(each, SendTo) and isinstance(each.message, DetectorPing)
    ]
    assert pinged == [peer(5)]


def test_a_refutation_ends_a_suspicion() -> None:
    node = Node(8)
    node.hear(1, Gossip((suspicion(5, 1, 2, 3),)))
    node.run(0.4)
    node.hear(5, Gossip((Alive(peer(5), 1),)))
    assert not node.core.suspects
    assert evicted(node.run(5.0)) == []
    # What is repeated of the old suspicion has no effect.
    node.hear(1, Gossip((suspicion(5, 1, 2, 3),)))
    assert not node.core.suspects


def test_votes_of_evicted_and_suspected_nodes_do_not_count() -> None:
    """FD3: as when a partition heals, and the other side brings its old suspicions."""
    node = Node(8)
    for gone in (1, 2, 3):
        node.hear(4, Gossip((suspicion(gone, 4, 5, 6),)))
    assert len(evicted(node.run(1.0))) == 3
    node.hear(4, Gossip((suspicion(5, 1, 2, 3),)))
    assert evicted(node.run(1.0)) == []


def test_without_that_rule_they_would(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test before depends on the rule."""

    def count_all(self: SwimDetector, target: NodeId, votes: tuple[NodeId, ...]) -> list[NodeId]:
        return list(votes)

    monkeypatch.setattr(SwimDetector, "_counted", count_all)
    with pytest.raises(AssertionError):
        test_votes_of_evicted_and_suspected_nodes_do_not_count()


def test_the_last_node_notices_that_it_is_alone() -> None:
    """OFD2"""
    gone = evicted(Node(3, silent=frozenset({1, 2, 3})).run(20.0))
    assert sorted(each.address for each in gone) == ["n1:1", "n2:1", "n3:1"]


def test_a_node_that_suspects_a_departed_one_is_told_why_it_departed() -> None:
    node = Node(4)
    left = Left(peer(2).node_id, ONE)
    node.hear(2, Gossip((left,)))
    effects = node.hear(1, Gossip((suspicion(2, 1),)))
    assert SendTo(peer(1), Gossip((left,))) in effects


def test_a_suspected_node_is_told_and_refutes() -> None:
    node = Node(4)
    own = node.core.own
    effects = node.hear(1, DetectorPing(9, (Suspected(own.node_id, ONE, 0, (peer(1).node_id,)),)))
    answers = [each.message for each in effects if isinstance(each, SendTo)]
    assert [(each.number, each.refutation) for each in answers if isinstance(each, Ack)] == [(9, 1)]
    assert node.core.refutation == 1


def test_packets_for_others_and_from_former_starts_are_refused_and_counted() -> None:
    """OMB1"""
    node = Node(2)
    own = node.core.own
    late = PeerAddress(peer(1).node_id, Incarnation(0), NETWORK, peer(1).address)
    foreign = PeerAddress(peer(1).node_id, ONE, NetworkId(8), peer(1).address)
    packets: dict[Refusal, Packet[MembershipMessage]] = {
        Refusal.VERSION: Packet(2, peer(1), own.node_id, ONE, DetectorPing(1)),
        Refusal.NETWORK: Packet(1, foreign, own.node_id, ONE, DetectorPing(1)),
        Refusal.OTHER_TARGET: Packet(1, peer(1), own.node_id, Incarnation(9), DetectorPing(1)),
        Refusal.STALE_SOURCE: Packet(1, late, own.node_id, ONE, DetectorPing(1)),
        Refusal.UNEXPECTED: Packet(
            1,
            PeerAddress(peer(1).node_id, ONE, NetworkId(0), "n1:1"),
            own.node_id,
            ONE,
            DetectorPing(1),
        ),
        Refusal.FORGED_ID: Packet(
            1, PeerAddress(NodeId(1), ONE, NETWORK, "n1:1"), own.node_id, ONE, DetectorPing(1)
        ),
    }
    for reason, packet in packets.items():
        assert node.core.handle(MessageReceived(packet), 0.0) == []
        assert node.core.admission.refused[reason] == 1
