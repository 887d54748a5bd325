"""Who other nodes are, and on which links they are reached."""

from __future__ import annotations

import pytest

from recado.actors import Address
from recado.actors.failing.signals import Stop
from recado.actors.remote.faults import Full, Gone, NoWay
from recado.actors.remote.node import Joining
from recado.actors.remote.peer import SIGNALS_MOST, Peer
from recado.actors.remote.sealed.frame import Seal, Sealer
from recado.actors.remote.transport import Receiver
from recado.actors.remote.ways import Ways


class FakeLink:
    lasting = False
    is_up = True

    def __init__(self, peer: str) -> None:
        self.peer = peer
        self.posted: list[bytes] = []
        self.ended = False

    def post(self, frame: bytes) -> None:
        if self.ended:
            raise Gone("ended")
        self.posted.append(frame)

    async def room(self) -> None: ...

    def close(self) -> None: ...


class FakeTransport(Joining):
    def __init__(self) -> None:
        self.links: list[FakeLink] = []
        self.known = {"server"}

    async def open(self, node: str, client: str, frame_limit: int, receiver: Receiver) -> None: ...

    def connect(self, node: str) -> FakeLink:
        if node not in self.known:
            raise NoWay(node)
        self.links.append(FakeLink(node))
        return self.links[-1]

    def link_back(self, client: str) -> FakeLink:
        raise NoWay(client)

    async def close(self) -> None: ...


def ways(most: int = 10, used: tuple[str, ...] = ()) -> tuple[Ways, FakeTransport]:
    transport = FakeTransport()
    return Ways(transport, Seal(), lambda: 0.0, lambda peer: peer.name in used, most), transport


def test_a_peer_is_made_once_and_found_by_our_incarnation() -> None:
    it, _ = ways()
    peer = it.peer("server")
    assert it.peer("server") is peer
    assert it.of_incarnation(peer.sealer.incarnation) is peer
    assert it.of_incarnation(bytes(16)) is None


def test_a_peer_is_found_by_the_life_under_which_it_speaks() -> None:
    it, _ = ways(most=1)
    peer = it.peer("server")
    it.begins(peer, b"one")
    it.begins(peer, b"two")
    assert it.lives == {b"two": peer}
    it.peer("another")
    assert it.lives == {}


def test_we_go_to_those_whom_we_know_and_again_when_the_link_has_ended() -> None:
    it, transport = ways()
    peer = it.peer("server")
    it.post(peer, b"one")
    it.post(peer, b"two")
    assert [len(link.posted) for link in transport.links] == [2]
    transport.links[0].ended = True
    it.post(peer, b"three")
    assert [len(link.posted) for link in transport.links] == [2, 1]
    with pytest.raises(NoWay):
        it.post(it.peer("stranger"), b"x")


def test_who_spoke_is_answered_where_it_spoke() -> None:
    it, _ = ways()
    peer = it.peer("stranger")
    first, second = FakeLink(""), FakeLink("")
    it.spoke(peer, first)
    it.spoke(peer, second)
    it.post(peer, b"x")
    assert (len(first.posted), len(second.posted)) == (0, 1)
    assert it.of_link(second) == [peer]
    it.ended(second)
    with pytest.raises(NoWay):
        it.post(peer, b"x")


def test_a_link_that_we_made_is_kept() -> None:
    it, transport = ways()
    peer = it.peer("server")
    it.post(peer, b"x")
    it.spoke(peer, FakeLink(""))
    it.post(peer, b"y")
    assert len(transport.links[0].posted) == 2


def test_peers_are_bounded_and_those_in_use_are_kept() -> None:
    it, _ = ways(most=2, used=("first",))
    it.peer("first")
    it.peer("second")
    it.peer("third")
    assert list(it.peers) == ["first", "third"]
    it, _ = ways(most=1, used=("first",))
    it.peer("first")
    with pytest.raises(Full):
        it.peer("second")


def test_signals_under_way_are_bounded() -> None:
    peer = Peer("server", Sealer(Seal(), bytes(16)), 0.0)
    for number in range(SIGNALS_MOST + 5):
        peer.note_signal(Address("server", "a"), Stop(None))
        peer.sealer.sequence = number + 1
    assert len(peer.signals) == SIGNALS_MOST
