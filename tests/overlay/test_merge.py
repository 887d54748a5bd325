"""Neighbouring ranges of one owner become one, or go on apart if the owner fails in between."""

from __future__ import annotations

from typing import Final

import pytest

from recado.overlay.command import DONE, CreateTopic, FieldValue, GetField, SetField
from recado.overlay.identifier import topic_key
from recado.overlay.messages import Canvass
from recado.overlay.peer_address import PeerAddress

from .network import Envelope, TestNetwork

TOPICS: Final = [f"topic {number}" for number in range(40)]


def start_network() -> TestNetwork:
    network = TestNetwork()
    nodes = network.start(2, 5, 8, 11, 14)
    network.run(3.0)
    for name in TOPICS:
        assert network.ask(nodes[0], name, CreateTopic()) == DONE
        assert network.ask(nodes[0], name, SetField("name", name.encode())) == DONE
    return network


@pytest.fixture
def network() -> TestNetwork:
    return start_network()


def _ranges(network: TestNetwork) -> int:
    node = next(iter(network.nodes.values()))
    return len({configuration.range_id for _, configuration in node.replication.known})


def _read_all(network: TestNetwork) -> None:
    peer = next(iter(network.nodes))
    for name in TOPICS:
        assert network.ask(peer, name, GetField("name")) == FieldValue(name.encode())
        assert len(network.owners(topic_key(name))) == 1


def _ended_for_a_merge(network: TestNetwork, peer: PeerAddress) -> bool:
    return any(
        replica.decision is not None and replica.decision.merges_into is not None
        for replica in network.nodes[peer].replication.replicas.values()
    )


def test_ranges_that_a_departure_has_left_are_merged(network: TestNetwork) -> None:
    nodes = list(network.nodes)
    before = _ranges(network)
    network.leave(nodes[2])
    network.run(2.0)
    network.crash(nodes[2])
    network.run(3.0)
    _read_all(network)
    assert before == 5
    assert [len(node.replication.owners) for node in network.nodes.values()] == [1] * 4
    assert _ranges(network) == 4
    assert not any(_ended_for_a_merge(network, peer) for peer in network.nodes)


def test_commands_wait_while_ranges_are_merged_and_are_executed_once(network: TestNetwork) -> None:
    nodes = list(network.nodes)
    network.is_lost = lambda envelope: _asks_while_merging(network, envelope)
    network.leave(nodes[2])
    network.run(4.0)
    assert any(_ended_for_a_merge(network, peer) for peer in nodes)
    requests = [network.submit(nodes[0], name, SetField("name", b"new")) for name in TOPICS]
    network.run(0.4)
    assert any(request not in network.answers for request in requests)
    network.is_lost = lambda _: False
    network.run(3.0)
    assert {network.answers[request] for request in requests} == {DONE}
    for name in TOPICS:
        assert network.ask(nodes[0], name, GetField("name")) == FieldValue(b"new")


def test_the_upper_range_goes_on_alone_if_the_owner_fails_in_between(network: TestNetwork) -> None:
    nodes = list(network.nodes)
    network.is_lost = lambda envelope: _asks_while_merging(network, envelope)
    network.leave(nodes[2])
    network.run(4.0)
    owner = next(
        peer
        for peer in nodes
        if any(
            each.is_owned and each.decision is not None and each.decision.merges_into is not None
            for each in network.nodes[peer].replication.replicas.values()
        )
    )
    network.is_lost = lambda _: False
    network.crash(owner)
    network.run(6.0)
    _read_all(network)
    assert not any(_ended_for_a_merge(network, peer) for peer in network.nodes)


def _asks_while_merging(network: TestNetwork, envelope: Envelope) -> bool:
    """Whether an owner asks to end the lower range after the upper one has ended."""
    lowers = [
        replica.decision.merges_into
        for replica in network.nodes[envelope.sender].replication.replicas.values()
        if replica.decision is not None
    ]
    return any(
        isinstance(message, Canvass) and message.configuration.range_id in lowers
        for message in envelope.messages
    )
