"""The known peers, and the links on which they are reached."""

from __future__ import annotations

import pytest

from recado.actors import Address
from recado.actors.remote.errors import LimitExceededError, LinkClosedError, NoRouteError
from recado.actors.remote.node import TransportMixin
from recado.actors.remote.peer import MAX_SENT_SIGNALS, Peer
from recado.actors.remote.peer_table import PeerTable
from recado.actors.remote.transport import TransportListener
from recado.actors.remote.wire.frame import FrameAuthenticator, FrameSigner
from recado.actors.supervision.signals import Stop


class FakeLink:
    is_durable = False
    is_up = True

    def __init__(self, peer: str) -> None:
        self.peer = peer
        self.posted: list[bytes] = []
        self.ended = False

    def post(self, frame: bytes) -> None:
        if self.ended:
            raise LinkClosedError("ended")
        self.posted.append(frame)

    async def drain(self) -> None: ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def close(self) -> None: ...


class FakeTransport(TransportMixin):
    def __init__(self) -> None:
        self.links: list[FakeLink] = []
        self.known = {"server"}

    async def open(
        self, node: str, client_id: str, max_frame_bytes: int, listener: TransportListener
    ) -> None: ...

    def connect(self, node: str) -> FakeLink:
        if node not in self.known:
            raise NoRouteError(node)
        self.links.append(FakeLink(node))
        return self.links[-1]

    def link_to_client(self, client_id: str) -> FakeLink:
        raise NoRouteError(client_id)

    async def close(self) -> None: ...


def new_peer_table(most: int = 10, used: tuple[str, ...] = ()) -> tuple[PeerTable, FakeTransport]:
    transport = FakeTransport()
    return PeerTable(
        transport, FrameAuthenticator(), lambda: 0.0, lambda peer: peer.name in used, most
    ), transport


def test_a_peer_is_made_once_and_found_by_our_incarnation() -> None:
    it, _ = new_peer_table()
    peer = it.peer("server")
    assert it.peer("server") is peer
    assert it.find_by_own_incarnation(peer.signer.incarnation) is peer
    assert it.find_by_own_incarnation(bytes(16)) is None


def test_a_peer_is_found_by_the_life_under_which_it_speaks() -> None:
    it, _ = new_peer_table(most=1)
    peer = it.peer("server")
    it.set_incarnation(peer, b"one")
    it.set_incarnation(peer, b"two")
    assert it.by_incarnation == {b"two": peer}
    it.peer("another")
    assert it.by_incarnation == {}


def test_we_go_to_those_whom_we_know_and_again_when_the_link_has_ended() -> None:
    it, transport = new_peer_table()
    peer = it.peer("server")
    it.send(peer, b"one")
    it.send(peer, b"two")
    assert [len(link.posted) for link in transport.links] == [2]
    transport.links[0].ended = True
    it.send(peer, b"three")
    assert [len(link.posted) for link in transport.links] == [2, 1]
    with pytest.raises(NoRouteError):
        it.send(it.peer("stranger"), b"x")


def test_who_spoke_is_answered_where_it_spoke() -> None:
    it, _ = new_peer_table()
    peer = it.peer("stranger")
    first, second = FakeLink(""), FakeLink("")
    it.adopt_link(peer, first)
    it.adopt_link(peer, second)
    it.send(peer, b"x")
    assert (len(first.posted), len(second.posted)) == (0, 1)
    assert it.peers_on(second) == [peer]
    it.detach_link(second)
    with pytest.raises(NoRouteError):
        it.send(peer, b"x")


def test_a_link_that_we_made_is_kept() -> None:
    it, transport = new_peer_table()
    peer = it.peer("server")
    it.send(peer, b"x")
    it.adopt_link(peer, FakeLink(""))
    it.send(peer, b"y")
    assert len(transport.links[0].posted) == 2


def test_peers_are_bounded_and_those_in_use_are_kept() -> None:
    it, _ = new_peer_table(most=2, used=("first",))
    it.peer("first")
    it.peer("second")
    it.peer("third")
    assert list(it.peers) == ["first", "third"]
    it, _ = new_peer_table(most=1, used=("first",))
    it.peer("first")
    with pytest.raises(LimitExceededError):
        it.peer("second")


def test_signals_under_way_are_bounded() -> None:
    peer = Peer("server", FrameSigner(FrameAuthenticator(), bytes(16)), 0.0)
    for number in range(MAX_SENT_SIGNALS + 5):
        peer.remember_signal(Address("server", "a"), Stop(None))
        peer.signer.sequence = number + 1
    assert len(peer.sent_signals) == MAX_SENT_SIGNALS
