"""Networks of nodes with partial knowledge: joins, routes and repair, against the definition of the owner."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import pairwise
from math import log
from random import Random

import pytest

from recado.overlay.effects import SendTo
from recado.overlay.identifier import NodeId, closeness, node_id, shared_digits
from recado.overlay.peer_address import Incarnation, NetworkId, PeerAddress
from recado.overlay.prefix_routing import (
    ArrivalAnnouncement,
    CompareLeaves,
    EntryRequest,
    JoinNetwork,
    JoinThrough,
    PeerFailed,
    Peers,
    PrefixRouting,
    RoutingEffect,
    RoutingMessageReceived,
)


def peer(number: int) -> PeerAddress:
    address = f"n{number}:4000"
    return PeerAddress(node_id(b"", address), Incarnation(1), NetworkId(1), address)


class Network:
    """Nodes whose messages arrive at once, in the order of sending; those to failed nodes are lost."""

    def __init__(self, size: int, seed: int = 1) -> None:
        self.random = Random(seed)
        self.nodes: dict[NodeId, PrefixRouting] = {}
        for number in range(size):
            self.join(peer(number))

    def join(self, newcomer: PeerAddress) -> None:
        contacts = [node.own for node in self.nodes.values()]
        node = self.nodes[newcomer.node_id] = PrefixRouting(newcomer)
        if contacts:
            contact = self.random.choice(contacts)
            self.deliver(newcomer, node.handle(JoinNetwork(contact), 0.0))

    def deliver(self, source: PeerAddress, effects: Iterable[RoutingEffect]) -> None:
        waiting = deque((source, effect) for effect in effects)
        while waiting:
            sender, effect = waiting.popleft()
            node = self.nodes.get(effect.to.node_id)
            if node is not None:
                answers = node.handle(RoutingMessageReceived(sender, effect.message), 0.0)
                waiting.extend((effect.to, answer) for answer in answers)

    def fail(self, count: int) -> None:
        """Let nodes fail at once, and the others notice and compare until nothing changes."""
        failed = self.random.sample(sorted(self.nodes), count)
        for gone in failed:
            del self.nodes[gone]
        for _ in range(4):
            for node in list(self.nodes.values()):
                for known in node.known():
                    if known.node_id not in self.nodes:
                        effects = node.handle(PeerFailed(known.node_id), 0.0)
                        self.deliver(node.own, effects)
            for node in list(self.nodes.values()):
                self.deliver(node.own, node.handle(CompareLeaves(), 0.0))

    def route(self, key: int, start: NodeId) -> list[NodeId]:
        path = [start]
        while (step := self.nodes[path[-1]].next_hop(key)) is not None:
            path.append(step)
            assert len(path) < 40, "a route without end"
        return path

    def check_leaves(self) -> None:
        ids = sorted(self.nodes)
        side = min(8, len(ids) - 1)
        for at, own in enumerate(ids):
            after = [ids[(at + step) % len(ids)] for step in range(1, side + 1)]
            before = [ids[(at - step) % len(ids)] for step in range(1, side + 1)]
            assert self.nodes[own].leaf_set.after()[:side] == after
            assert self.nodes[own].leaf_set.before()[:side] == before

    def check_routes(self, count: int) -> float:
        """Route to random keys; return the mean number of hops. OPR1, OPR2"""
        ids = sorted(self.nodes)
        hops = 0
        for _ in range(count):
            key = self.random.getrandbits(128)
            path = self.route(key, self.random.choice(ids))
            assert path[-1] == min(ids, key=lambda node: closeness(key, node))
            for one, other in pairwise(path):
                is_nearer = closeness(key, other) < closeness(key, one)
                assert is_nearer or shared_digits(other, key) > shared_digits(one, key)
            hops += len(path) - 1
        return hops / count


@pytest.mark.parametrize("size", [1, 2, 5, 17, 40, 300])
def test_every_key_is_routed_to_its_owner(size: int) -> None:
    network = Network(size)
    network.check_leaves()
    assert network.check_routes(200) <= log(size, 16) + 0.5


@pytest.mark.parametrize("size", [3, 20, 200])
def test_leaf_sets_and_routes_are_repaired_after_failures(size: int) -> None:
    network = Network(size)
    network.fail(max(1, size // 5))
    network.check_leaves()
    assert network.check_routes(200) <= log(size, 16) + 0.6


def test_a_network_grows_again_after_failures() -> None:
    network = Network(60)
    network.fail(20)
    for number in range(100, 140):
        network.join(peer(number))
    network.check_leaves()
    network.check_routes(200)


def test_state_and_messages_stay_small() -> None:
    network = Network(300)
    for node in network.nodes.values():
        assert len(node.known()) <= 16 + 15 * 4
        assert len(node.handle(CompareLeaves(), 0.0)) <= 2


def test_a_failed_node_is_not_brought_back_by_others() -> None:
    node = PrefixRouting(peer(0))
    told = RoutingMessageReceived(peer(2), Peers((peer(1),)))
    node.handle(told, 0.0)
    assert peer(1) in node.known()
    node.handle(PeerFailed(peer(1).node_id), 0.0)
    node.handle(told, 0.0)
    assert peer(1) not in node.known()
    node.handle(RoutingMessageReceived(peer(1), ArrivalAnnouncement(peer(1))), 0.0)
    assert peer(1) in node.known()


def test_a_join_request_does_not_travel_forever() -> None:
    node = PrefixRouting(peer(0))
    node.handle(RoutingMessageReceived(peer(1), ArrivalAnnouncement(peer(1))), 0.0)
    source = RoutingMessageReceived(peer(1), JoinThrough(peer(2), 1_000))
    assert node.handle(source, 0.0) == []


def test_an_impossible_place_of_a_table_is_ignored() -> None:
    node = PrefixRouting(peer(0))
    for row, column in ((-1, 0), (32, 0), (0, 16), (0, -1)):
        request = EntryRequest(peer(1).node_id, row, column)
        assert node.handle(RoutingMessageReceived(peer(1), request), 0.0) == []


def test_a_place_is_filled_by_a_node_that_fits() -> None:
    node, asking = PrefixRouting(peer(0)), peer(1)
    row = shared_digits(asking.node_id, node.own.node_id)
    column = node.own.node_id >> (124 - 4 * row) & 15
    request = EntryRequest(asking.node_id, row, column)
    effects = node.handle(RoutingMessageReceived(asking, request), 0.0)
    assert effects == [SendTo(asking, Peers((node.own,)))]
