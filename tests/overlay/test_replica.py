"""What a replica takes over, and from whom: the clauses that the random walks do not reach."""

from __future__ import annotations

from itertools import pairwise
from typing import Final

from recado.overlay.command import CommandId, CreateTopic, SetField, TopicCommand
from recado.overlay.configuration import WHOLE_RING, Arc, Configuration
from recado.overlay.identifier import NodeId, TopicKey, topic_key
from recado.overlay.messages import Accept, Append, Ballot, Decision, Outvoted, PrepareBallot
from recado.overlay.peer_address import Incarnation, NetworkId, PeerAddress
from recado.overlay.placement import Ring, desired_successors, failover_successors
from recado.overlay.range_map import RangeMap
from recado.overlay.range_state import CommandEntry, Entry, RangeState
from recado.overlay.replica import Replica, ReplicaPhase

NODES: Final = tuple(
    PeerAddress(NodeId(number << 124), Incarnation(1), NetworkId(1), f"n{number}:1")
    for number in range(1, 8)
)
FIRST: Final = Configuration(WHOLE_RING, 1, NODES[:3], NODES[0])


def _entry(number: int) -> Entry:
    operation = CreateTopic() if number == 1 else SetField("f", b"%d" % number)
    return CommandEntry(TopicCommand(CommandId(NODES[0], number), "t", topic_key("t"), operation))


def _append(first: int, count: int, committed: int = 0) -> Append:
    entries = tuple(_entry(first + at + 1) for at in range(count))
    return Append(FIRST.range_id, first, entries, committed, 0)


def _replica(entries: int = 0, committed: int = 0) -> Replica:
    replica = Replica(FIRST, NODES[1], RangeState())
    replica.store(_append(0, entries, committed))
    replica.execute(100)
    return replica


def test_a_gap_is_not_stored() -> None:
    replica = _replica(2)
    stored = replica.store(_append(3, 2))
    assert stored is not None
    assert stored.end == 2
    stored = replica.store(_append(1, 4))
    assert stored is not None
    assert stored.end == 5


def test_an_older_state_is_not_installed() -> None:
    """The owner may have counted what this replica has stored."""
    replica = _replica(5, committed=2)
    assert not replica.install(RangeState(3), ())
    assert replica.log.end == 5
    assert not replica.install(RangeState(1), tuple(map(_entry, range(2, 9)))), (
        "it has executed more"
    )
    assert replica.install(RangeState(3), tuple(map(_entry, range(4, 9))))
    assert replica.log.end == 8


def test_a_replica_without_state_neither_stores_nor_promises() -> None:
    replica = Replica(FIRST, NODES[1])
    assert replica.phase is ReplicaPhase.AWAITING_STATE
    assert replica.store(_append(0, 1)) is None
    assert replica.prepare(PrepareBallot(FIRST, Ballot(1, NODES[2].node_id))) is None
    decision = Decision(0, ())
    assert replica.accept(Accept(FIRST, Ballot(1, NODES[2].node_id), decision, 0, ())) is None


def test_a_start_that_is_no_member_has_no_vote() -> None:
    """Also not if an earlier start of the node is a member."""
    restarted = PeerAddress(NODES[1].node_id, Incarnation(2), NetworkId(1), NODES[1].address)
    replica = Replica(FIRST, restarted, RangeState())
    assert replica.store(_append(0, 1)) is not None, "it follows the log"
    assert replica.prepare(PrepareBallot(FIRST, Ballot(1, NODES[2].node_id))) is None


def test_a_sealed_replica_stores_nothing_and_obeys_the_highest_ballot() -> None:
    replica = _replica(2)
    low, high = Ballot(1, NODES[2].node_id), Ballot(2, NODES[0].node_id)
    assert replica.prepare(PrepareBallot(FIRST, high)) is not None
    assert replica.phase is ReplicaPhase.SEALED
    assert replica.store(_append(2, 1)) is None
    assert replica.prepare(PrepareBallot(FIRST, low)) == Outvoted(FIRST.range_id, high)
    accept = Accept(FIRST, low, Decision(2, ()), 2, ())
    assert replica.accept(accept) == Outvoted(FIRST.range_id, high)


def test_what_a_decision_leaves_out_is_discarded_and_what_is_in_it_executed() -> None:
    replica = _replica(5, committed=2)
    replica.learn(Decision(4, ()), 4, ())
    assert replica.is_final
    assert replica.state is not None
    assert replica.state.topics["t"].fields == {"f": b"4"}


def test_copies_of_a_state_do_not_share_changes() -> None:
    state = RangeState()
    state.apply(_entry(1))
    copy = state.copy(Arc(TopicKey(0), WHOLE_RING.last))
    state.apply(_entry(2))
    copy.apply(_entry(3))
    assert state.topics["t"].fields == {"f": b"2"}
    assert copy.topics["t"].fields == {"f": b"3"}


def test_a_map_never_goes_back_to_an_earlier_epoch() -> None:
    known = RangeMap()
    middle = Arc(TopicKey(1 << 126), TopicKey((1 << 127) - 1))
    later = Configuration(middle, 2, NODES[:3], NODES[1])
    assert known.learn(later)
    assert known.learn(FIRST), "the rest of the ring was not known"
    assert not known.learn(FIRST)
    assert known.find(1 << 126) == later
    assert known.find(0) == known.find(1 << 127) == FIRST
    assert known.is_superseded(FIRST)
    assert not known.is_superseded(later)
    assert [arc.first for arc, _ in known] == [0, 1 << 126, 1 << 127]
    whole = Configuration(WHOLE_RING, 3, NODES[:3], NODES[2])
    assert known.learn(whole)
    assert list(known) == [(WHOLE_RING, whole)]


def test_the_desired_placement_divides_the_ring_among_the_nearest_nodes() -> None:
    ring = Ring(NODES)
    successors = desired_successors(FIRST, ring, 2)
    assert successors[0].arc.first == 0
    assert successors[-1].arc.last == WHOLE_RING.last
    for one, next_one in pairwise(successors):
        assert one.arc.is_followed_by(next_one.arc)
    for each in successors:
        for key in (each.arc.first, each.arc.last):
            assert ring.nearest(key) == each.owner
        at = NODES.index(each.owner)
        neighbours = {NODES[at - 1], NODES[(at + 1) % len(NODES)]}
        assert set(each.members) == {each.owner, *neighbours}


def test_in_a_failover_those_with_the_state_own_all_and_have_a_majority() -> None:
    ring = Ring(NODES[1:])
    for each in failover_successors(FIRST, ring, 2, NODES[1:3]):
        assert each.owner in NODES[1:3]
        assert sum(member in NODES[1:3] for member in each.members) >= each.majority
        assert len(each.members) == 3
    (alone,) = failover_successors(FIRST, ring, 2, NODES[1:2])
    assert alone.members == NODES[1:2]
