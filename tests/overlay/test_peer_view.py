"""The view against a list that is searched from one end to the other."""

from hypothesis import given
from hypothesis import strategies as st

from recado.overlay.identifier import RING_MODULUS, NodeId, boundary, clockwise, closeness
from recado.overlay.peer_address import Incarnation, NetworkId, PeerAddress
from recado.overlay.peer_view import Departure, PeerAdded, PeerRemoved, PeerView

# Positions close to each other and to both ends, so that ties and wrapping around occur.
POSITIONS = st.one_of(
    st.integers(0, 20),
    st.integers(RING_MODULUS - 20, RING_MODULUS - 1),
    st.integers(RING_MODULUS // 2 - 10, RING_MODULUS // 2 + 10),
    st.integers(0, RING_MODULUS - 1),
)
IDS = st.lists(POSITIONS, min_size=1, max_size=12, unique=True)


def peer(position: int, incarnation: int = 1) -> PeerAddress:
    return PeerAddress(NodeId(position), Incarnation(incarnation), NetworkId(1), f"n{position:x}:1")


def view_of(ids: list[int]) -> PeerView:
    view = PeerView(peer(ids[0]))
    for node in ids[1:]:
        view.add(peer(node))
    return view


@given(IDS, POSITIONS)
def test_the_nearest_node_is_that_of_a_full_search(ids: list[int], key: int) -> None:
    """ID1"""
    assert view_of(ids).nearest(key) == min(ids, key=lambda node: closeness(key, node))


@given(IDS, POSITIONS, st.integers(0, 14))
def test_neighbours_are_those_of_a_full_search(ids: list[int], position: int, count: int) -> None:
    others = sorted(
        (node for node in ids if node != position), key=lambda node: closeness(position, node)
    )
    assert view_of(ids).neighbours(position, count) == others[:count]


@given(IDS)
def test_each_node_owns_the_keys_between_its_boundaries(ids: list[int]) -> None:
    """ID2"""
    view = view_of(ids)
    for node in view:
        first = boundary(view.predecessor(node), node)
        end = boundary(node, view.successor(node))
        keys = {
            first,
            node,
            (end - 1) % RING_MODULUS,
            (first + clockwise(first, end) // 2) % RING_MODULUS,
        }
        assert {view.nearest(key) for key in keys} == {node}


@given(IDS, POSITIONS)
def test_successor_and_predecessor_are_the_next_nodes_in_both_directions(
    ids: list[int], position: int
) -> None:
    view = view_of(ids)
    others = [node for node in ids if node != position] or ids
    assert view.successor(NodeId(position)) == min(
        others, key=lambda node: clockwise(position, node)
    )
    assert view.predecessor(NodeId(position)) == min(
        others, key=lambda node: clockwise(node, position)
    )


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 5), st.integers(1, 3))))
def test_changes_are_reported_once(steps: list[tuple[bool, int, int]]) -> None:
    """Replaying the reported changes gives the view; nothing unchanged is reported."""
    view, reported = PeerView(peer(0)), {NodeId(0): peer(0)}
    for is_added, position, incarnation in steps:
        before = view.peers()
        changes = (
            view.add(peer(position, incarnation))
            if is_added
            else view.remove(NodeId(position), Departure.FAILED)
        )
        assert bool(changes) == (view.peers() != before)
        for change in changes:
            match change:
                case PeerAdded(added):
                    assert added.node_id not in reported
                    reported[added.node_id] = added
                case PeerRemoved(removed):
                    assert reported.pop(removed.node_id) == removed
        assert sorted(reported) == list(view)
        assert view.peers() == [reported[node] for node in view]
        assert NodeId(0) in view
        assert view.own == reported[NodeId(0)]


def test_a_later_incarnation_replaces_the_earlier_one() -> None:
    view = view_of([1, 2])
    assert view.add(peer(2, incarnation=2)) == [
        PeerRemoved(peer(2), Departure.RESTARTED),
        PeerAdded(peer(2, incarnation=2)),
    ]
    assert view.add(peer(2)) == []
    assert view.get(NodeId(2)) == peer(2, incarnation=2)
