"""The leaf set against a search of all nodes."""

from hypothesis import given
from hypothesis import strategies as st

from recado.overlay.identifier import RING_MODULUS, NodeId, clockwise, closeness
from recado.overlay.leaf_set import LeafSet

POSITIONS = st.one_of(
    st.integers(0, 30),
    st.integers(RING_MODULUS - 30, RING_MODULUS - 1),
    st.integers(0, RING_MODULUS - 1),
)
IDS = st.lists(POSITIONS, min_size=1, max_size=20, unique=True)
SIDE = 3


def leaf_set_of(ids: list[int], removed: list[int]) -> tuple[LeafSet, list[int]]:
    """Return a leaf set that was told of all, after the removal of some of them, and the others that are left."""
    leaf_set = LeafSet(NodeId(ids[0]), 2 * SIDE)
    left = [node for node in ids[1:] if node not in removed]
    for node in ids[1:]:
        leaf_set.add(NodeId(node))
    for node in removed:
        leaf_set.remove(NodeId(node))
    # As repair does: what remains is learned again.
    for node in left:
        leaf_set.add(NodeId(node))
    return leaf_set, left


@given(IDS, st.lists(st.integers(1, 19), max_size=4))
def test_the_leaves_are_the_nearest_in_both_directions(ids: list[int], chosen: list[int]) -> None:
    """LS1"""
    removed = [ids[index] for index in chosen if index < len(ids)]
    leaf_set, left = leaf_set_of(ids, removed)
    assert leaf_set.after() == sorted(left, key=lambda node: clockwise(ids[0], node))[:SIDE]
    assert leaf_set.before() == sorted(left, key=lambda node: clockwise(node, ids[0]))[:SIDE]
    assert sorted(leaf_set.nodes()) == sorted({*leaf_set.after(), *leaf_set.before()})
    assert all((node in leaf_set) == (node in leaf_set.nodes()) for node in map(NodeId, ids))


@given(IDS, POSITIONS)
def test_the_owner_of_a_covered_key_is_a_leaf_or_this_node(ids: list[int], key: int) -> None:
    """LS2"""
    leaf_set, _ = leaf_set_of(ids, [])
    if leaf_set.covers(key):
        assert leaf_set.nearest(key) == min(ids, key=lambda node: closeness(key, node))


@given(IDS)
def test_keys_near_a_node_are_covered(ids: list[int]) -> None:
    leaf_set, _ = leaf_set_of(ids, [])
    assert leaf_set.covers(ids[0])
    assert all(leaf_set.covers(node) for node in leaf_set.nodes())


@given(IDS)
def test_a_change_is_reported(ids: list[int]) -> None:
    leaf_set = LeafSet(NodeId(ids[0]), 2 * SIDE)
    for node in map(NodeId, ids):
        before = leaf_set.nodes()
        assert leaf_set.add(node) == (leaf_set.nodes() != before)
        assert not leaf_set.add(node)
    for node in leaf_set.nodes():
        assert leaf_set.remove(node)
        assert not leaf_set.remove(node)
    assert len(leaf_set) == 0
