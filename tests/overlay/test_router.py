"""One interface for both ways of routing."""

from recado.overlay.identifier import topic_key
from recado.overlay.peer_view import PeerView
from recado.overlay.prefix_routing import PrefixRouting
from recado.overlay.router import (
    FULL_MEMBERSHIP_NODES_MAX,
    OneHopRouter,
    OverlayRouter,
    choose_router,
)

from .test_prefix_routing import Network, peer


def test_both_routers_agree_on_the_owner() -> None:
    network = Network(40)
    views = {node: PeerView(routing.own) for node, routing in network.nodes.items()}
    for view in views.values():
        for number in range(40):
            view.add(peer(number))
    for number in range(50):
        key = topic_key(f"topic {number}")
        for node, routing in network.nodes.items():
            full: OverlayRouter = OneHopRouter(views[node])
            prefix: OverlayRouter = routing
            owner = full.next_hop(key)
            assert network.route(key, node)[-1] == (node if owner is None else owner)
            assert (prefix.next_hop(key) is None) == (owner is None)


def test_a_single_node_owns_all_keys() -> None:
    key = topic_key("any")
    assert OneHopRouter(PeerView(peer(0))).next_hop(key) is None
    assert PrefixRouting(peer(0)).next_hop(key) is None


def test_large_networks_are_routed_by_prefix() -> None:
    full, prefix = OneHopRouter(PeerView(peer(0))), PrefixRouting(peer(0))
    assert choose_router(full, prefix, FULL_MEMBERSHIP_NODES_MAX) is full
    assert choose_router(full, prefix, FULL_MEMBERSHIP_NODES_MAX + 1) is prefix
