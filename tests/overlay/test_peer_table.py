"""The table merges updates in any order, and keeps to its bounds."""

from itertools import permutations

from hypothesis import given
from hypothesis import strategies as st

from recado.overlay.identifier import NodeId, node_id
from recado.overlay.membership_messages import Alive, Left, Suspected, Update
from recado.overlay.packet import Admission, Refusal
from recado.overlay.peer_address import Incarnation, NetworkId, PeerAddress
from recado.overlay.peer_table import DEPARTED_NODES_MAX, LEFT_MEMORY_S, MemberTable

NETWORK = NetworkId(7)


def peer(number: int, incarnation: int = 1, network: NetworkId = NETWORK) -> PeerAddress:
    address = f"n{number}:1"
    return PeerAddress(node_id(b"", address), Incarnation(incarnation), network, address)


def new_table() -> MemberTable:
    return MemberTable(peer(0), Admission(b""))


def apply(table: MemberTable, update: Update) -> None:
    match update:
        case Alive():
            table.hear_alive(update)
        case Left():
            table.hear_left(update, 0.0)
        case Suspected():
            if table.is_current(update):
                table.evict(update, 0.0)


NUMBERS = st.integers(1, 2)
UPDATES = st.one_of(
    st.builds(Alive, st.builds(peer, NUMBERS, st.integers(1, 3)), st.integers(0, 2)),
    st.builds(
        lambda number, incarnation, refutation: Suspected(
            peer(number).node_id, Incarnation(incarnation), refutation, ()
        ),
        NUMBERS,
        st.integers(1, 3),
        st.integers(0, 2),
    ),
)


@given(st.lists(UPDATES, max_size=5))
def test_evictions_and_refutations_merge_in_any_order(updates: list[Update]) -> None:
    """OPT1, OPT2: told often enough, every order of the same updates leads to the same view."""
    results = set()
    for order in permutations(updates):
        table = new_table()
        for update in order * 6:
            apply(table, update)
        results.add(tuple(table.view.peers()))
    assert len(results) == 1


def test_only_a_higher_refutation_number_revives_an_evicted_node() -> None:
    """OPT2"""
    table = new_table()
    table.hear_alive(Alive(peer(1)))
    table.evict(Suspected(peer(1).node_id, Incarnation(1), 0, ()), 0.0)
    assert table.hear_alive(Alive(peer(1))) is None
    assert table.hear_alive(Alive(peer(1), 1))
    assert peer(1).node_id in table.view


def test_a_node_that_left_returns_only_in_a_later_incarnation() -> None:
    """PT3"""
    table = new_table()
    table.hear_alive(Alive(peer(1)))
    assert table.hear_left(Left(peer(1).node_id, Incarnation(1)), 0.0)
    assert table.hear_alive(Alive(peer(1), 5)) is None
    assert table.hear_alive(Alive(peer(1, incarnation=2)))


def test_a_node_refutes_only_what_is_said_about_it_now() -> None:
    """PT4"""
    table = new_table()
    own = table.own.node_id
    assert not table.refute(Suspected(own, Incarnation(0), 0, ()))
    assert table.refute(Suspected(own, Incarnation(1), 0, ()))
    assert table.refutation == 1
    assert not table.refute(Suspected(own, Incarnation(1), 0, ()))


def test_departed_nodes_are_remembered_within_bounds() -> None:
    """PT5"""
    table = new_table()
    for number in range(1, DEPARTED_NODES_MAX + 50):
        table.hear_alive(Alive(peer(number)))
        table.hear_left(Left(peer(number).node_id, Incarnation(1)), 0.0)
    assert len(table.departed) == DEPARTED_NODES_MAX
    table.forget_departed(LEFT_MEMORY_S + 1)
    assert not table.departed


def test_equal_views_have_equal_digests_and_different_ones_do_not() -> None:
    one, other = new_table(), MemberTable(peer(1), Admission(b""))
    assert one.digest() != other.digest()
    one.hear_alive(Alive(peer(1)))
    other.hear_alive(Alive(peer(0)))
    assert one.digest() == other.digest()
    one.hear_alive(Alive(peer(1, incarnation=2)))
    assert one.digest() != other.digest()


def test_claims_about_other_networks_and_with_wrong_ids_are_refused_and_counted() -> None:
    admission = Admission(b"")
    table = MemberTable(peer(0), admission)
    assert table.hear_alive(Alive(peer(1, network=NetworkId(8)))) is None
    forged = PeerAddress(NodeId(1), Incarnation(1), NETWORK, "n1:1")
    assert table.hear_alive(Alive(forged)) is None
    assert table.hear_alive(Alive(PeerAddress(NodeId(1), Incarnation(1), NETWORK, "N1:1"))) is None
    assert admission.refused == {Refusal.NETWORK: 1, Refusal.FORGED_ID: 2}
    assert len(table.view) == 1
