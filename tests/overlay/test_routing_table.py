"""The routing table against a dictionary of all nodes by their places."""

from hypothesis import given
from hypothesis import strategies as st

from recado.overlay.identifier import NodeId, shared_digits
from recado.overlay.routing_table import RoutingTable

# Ids with few different digits share long prefixes.
DIGITS = st.text("01f", min_size=32, max_size=32)
IDS = st.one_of(DIGITS.map(lambda text: int(text, 16)), st.integers(0, 2**128 - 1)).map(NodeId)


@given(IDS, st.lists(st.tuples(st.booleans(), IDS), max_size=40))
def test_each_place_has_the_most_similar_node(
    own: NodeId, steps: list[tuple[bool, NodeId]]
) -> None:
    """RT1, RT2"""
    table, model = RoutingTable(own), dict[tuple[int, int], NodeId]()
    for is_added, node in steps:
        text = f"{node:032x}"
        row = next((at for at in range(32) if text[at] != f"{own:032x}"[at]), 32)
        place = (row, int(text[row], 16)) if row < 32 else (32, 0)
        if is_added:
            better = min(model.get(place, node), node, key=lambda each: each ^ own)
            is_new = node != own and model.get(place) != better
            assert table.add(node) == is_new
            if node != own:
                model[place] = better
        elif model.get(place) == node:
            assert table.remove(node) == place
            del model[place]
        else:
            assert table.remove(node) is None
        assert {place: table.get(*place) for place in model} == model
        assert len(table) == len(model)
    for row in range(33):
        assert table.row(row) == [model[place] for place in sorted(model) if place[0] == row]


@given(IDS, st.lists(IDS, max_size=30), IDS)
def test_a_lookup_finds_a_longer_common_prefix(
    own: NodeId, nodes: list[NodeId], key: NodeId
) -> None:
    table = RoutingTable(own)
    for node in nodes:
        table.add(node)
    found = table.lookup(key)
    own_shared = shared_digits(own, key)
    longer = [node for node in nodes if shared_digits(node, key) > own_shared]
    if found is None:
        assert not longer or key == own
    else:
        assert found in longer
