"""Joining and leaving as in figures 4.4 to 4.6 of LuaPS (Publish-Subscribe layer, chapter 4).

Figure 4.4: nodes A and C are neighbours, and B joins between them. Topics 1, 2 and 3 were A's, 4 and 5 were C's; after
that 1 is A's, 2, 3 and 4 are B's, and 5 is C's. If B leaves, it is as before.
"""

from __future__ import annotations

from typing import Final

import pytest

from recado.overlay.command import (
    DONE,
    CommandRefusal,
    CreateTopic,
    FieldValue,
    GetField,
    Refused,
    SetField,
)
from recado.overlay.command_buffer import CommandBuffer
from recado.overlay.identifier import topic_key
from recado.overlay.messages import Commands, Decided, Promised, StateChunk
from recado.overlay.node import CancelLeave
from recado.overlay.peer_address import PeerAddress

from .network import TestNetwork, address

A, B, C = 4, 8, 12
"""Sixteenths of the ring; the border of A and C is at 8, those with B are at 6 and 10."""


def _topic_between(low: float, high: float) -> str:
    """Return a name whose key is between two sixteenths."""
    return next(
        name for name in map(str, range(10_000)) if low * 2**124 < topic_key(name) < high * 2**124
    )


TOPICS: Final = {
    1: _topic_between(4, 6),
    2: _topic_between(6, 7),
    3: _topic_between(7, 8),
    4: _topic_between(8, 10),
    5: _topic_between(10, 12),
}
BEFORE: Final = {1: A, 2: A, 3: A, 4: C, 5: C}
AFTER: Final = {1: A, 2: B, 3: B, 4: B, 5: C}


def _owners(network: TestNetwork) -> dict[int, int]:
    """Return the owner of each topic, in sixteenths; each has exactly one."""
    owners = {}
    for number, name in TOPICS.items():
        (owner,) = network.owners(topic_key(name))
        owners[number] = owner.node_id >> 124
    return owners


@pytest.fixture
def network() -> TestNetwork:
    network = TestNetwork()
    a, _ = network.start(A, C)
    network.run(1.5)
    for name in TOPICS.values():
        assert network.ask(a, name, CreateTopic()) == DONE
        assert network.ask(a, name, SetField("name", name.encode())) == DONE
    return network


def _read_all(network: TestNetwork, peer: PeerAddress) -> None:
    for name in TOPICS.values():
        assert network.ask(peer, name, GetField("name")) == FieldValue(name.encode())


def test_figure_4_4_topics_change_owner_when_a_node_joins_and_when_it_leaves(
    network: TestNetwork,
) -> None:
    assert _owners(network) == BEFORE
    (b,) = network.start(B)
    network.run(1.5)
    assert _owners(network) == AFTER
    _read_all(network, b)
    network.leave(b)
    network.run(3.0)
    assert network.left[:1] == [b]
    assert _owners(network) == BEFORE
    network.crash(b)
    _read_all(network, next(iter(network.nodes)))


def test_figure_4_5_a_joining_node_buffers_until_both_neighbours_have_handed_over(
    network: TestNetwork,
) -> None:
    """The newcomer has the decision of one neighbour and not the state: its commands wait and run in order."""
    a = next(iter(network.nodes))
    epoch = max(each.epoch for _, each in network.nodes[a].replication.known)
    network.is_lost = lambda envelope: any(
        isinstance(message, Decided)
        or (isinstance(message, StateChunk) and message.range_id.epoch > epoch)
        for message in envelope.messages
        if envelope.target == b
    )
    b = address(B)
    network.start(B)
    network.run(1.2)
    node = network.nodes[b]
    for number in (2, 3, 4):
        configuration = node.replication.known.find(topic_key(TOPICS[number]))
        assert configuration is not None
        assert configuration.owner == b
    assert all(replica.state is None for replica in node.replication.replicas.values())
    requests = [
        network.submit(b, TOPICS[number], SetField("name", b"new"), timeout=5.0)
        for number in (2, 3, 4)
    ]
    requests += [network.submit(b, TOPICS[number], GetField("name")) for number in (2, 3, 4)]
    network.run(0.3)
    assert not any(request in network.answers for request in requests)
    assert len(node.buffer) == 3, "of each topic the first; the others follow when it is answered"
    network.is_lost = lambda _: False
    network.run(2.0)
    assert [network.answers[request] for request in requests] == [DONE] * 3 + [
        FieldValue(b"new")
    ] * 3
    assert _owners(network) == AFTER
    assert len(node.buffer) == 0
    assert network.ask(a, TOPICS[1], GetField("name")) == FieldValue(TOPICS[1].encode())


def test_figure_4_6_a_leaving_node_hands_over_then_forwards_what_it_has_buffered(
    network: TestNetwork,
) -> None:
    a, c = network.nodes
    (b,) = network.start(B)
    network.run(1.5)
    network.is_lost = lambda envelope: (
        envelope.target == b and any(isinstance(message, Promised) for message in envelope.messages)
    )
    network.leave(b)
    network.run(0.8)
    assert not network.left
    requests = [
        network.submit(b, TOPICS[number], SetField("name", b"new"), timeout=8.0)
        for number in (2, 3, 4)
    ]
    network.run(0.2)
    assert not any(request in network.answers for request in requests)
    assert len(network.nodes[b].buffer) == 3
    network.is_lost = lambda _: False
    network.sent.clear()
    network.run(4.0)
    assert [network.answers[request] for request in requests] == [DONE] * 3
    assert network.left[:1] == [b]
    forwarded = [
        message
        for envelope in network.sent
        if envelope.sender == b
        for message in envelope.messages
        if isinstance(message, Commands)
    ]
    assert forwarded
    assert _owners(network) == BEFORE
    network.crash(b)
    for peer in (a, c):
        assert network.ask(peer, TOPICS[3], GetField("name")) == FieldValue(b"new")


def test_a_leave_can_be_cancelled(network: TestNetwork) -> None:
    (b,) = network.start(B)
    network.run(1.5)
    network.is_lost = lambda envelope: envelope.target == b
    network.leave(b)
    network.run(0.5)
    network.is_lost = lambda _: False
    network.handle(b, CancelLeave())
    network.run(3.0)
    assert not network.left
    assert _owners(network) == AFTER
    _read_all(network, b)


def test_a_hand_over_that_does_not_get_ready_is_aborted(network: TestNetwork) -> None:
    """The newcomer cannot get the state; the owners go on."""
    a = next(iter(network.nodes))
    network.is_lost = lambda envelope: any(
        isinstance(message, StateChunk) for message in envelope.messages
    )
    network.start(B)
    network.run(7.0)
    assert _owners(network) == BEFORE
    assert network.nodes[a].replication.counts["aborted"] >= 1
    _read_all(network, a)
    network.is_lost = lambda _: False
    network.run(3.0)
    assert _owners(network) == AFTER
    _read_all(network, a)


def test_what_does_not_fit_the_buffer_or_waits_too_long_is_refused(network: TestNetwork) -> None:
    a, c = network.nodes
    network.nodes[c].buffer = CommandBuffer(commands_max=2, wait_s=1.0)
    network.crash(a, is_noticed=False)  # the other member of both ranges, so there is no majority
    network.notice(a)
    network.run(0.5)
    names = [TOPICS[number] for number in (1, 2, 3)]
    requests = [network.submit(c, name, SetField("name", b"x"), timeout=3.0) for name in names]
    network.deliver()
    assert len(network.nodes[c].buffer) == 2
    network.run(3.5)
    for request in requests:
        answer = network.answers[request]
        assert isinstance(answer, Refused)
        assert answer.reason is CommandRefusal.UNAVAILABLE
