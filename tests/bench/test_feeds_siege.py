"""The siege of feeds in short: some seconds on each transport, of ten minutes in `./dev bench feeds-siege`."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from pathlib import Path

import pytest

from bench import feeds_siege
from bench.aims import load_aims
from bench.book import Book
from bench.feeds_siege.judge import Kind, Verdict, Violation
from bench.feeds_siege.partition import LossyCarrier, cut_file
from bench.feeds_siege.programs import ROLES
from bench.feeds_siege.proxy import Proxy
from bench.feeds_siege.schedule import QUICK, Fault, FaultKind
from bench.feeds_siege.siege import PROGRAMS, RECOVERY, TRANSPORTS, Outcome, besiege
from bench.scenario import Side
from recado.feeds.boundary import PacketRoute, Target
from recado.feeds.transport.endpoint import PacketListener
from recado.feeds.views import MemberId, Role
from workshop.peers import HOST

SEED = 7
SECONDS = 4.0


@pytest.mark.searching
@pytest.mark.timeout(300)
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_the_guarantees_hold_under_siege(transport: str, tmp_path: Path) -> None:
    outcome = besiege(transport, tmp_path, SEED, SECONDS, intensity=QUICK)
    assert outcome.problems[:20] == []
    assert sum(outcome.counts[kind] for kind in ("kills", "stops", "cuts")) > 3
    assert outcome.counts["confirmed"] > 100


@pytest.mark.timeout(300)
def test_a_subscriber_that_discards_recovered_messages_is_found(tmp_path: Path) -> None:
    """The control: the judge must see that a mechanism does not work."""
    subscribers = {"sound": "pessimistic", "faulty": "discard"}
    programs = {"archive-1": "archive", **subscribers, "publisher-1": "publish"}
    kills = [Fault(1.0, name, FaultKind.KILL, 0.5) for name in subscribers]
    outcome = besiege("recado", tmp_path, SEED, 2.0, programs=programs, schedule=kills)
    found = {(each.kind, each.who) for each in outcome.verdict.violations}
    assert (Kind.LOST, "faulty") in found
    assert (Kind.LOST, "sound") not in found


def test_a_violation_on_one_transport_is_one_of_all() -> None:
    fine = Outcome("recado", 1, Verdict(), [], Counter(confirmed=10))
    violations = [Violation(Kind.LOST, "desk", "messages 1–3", 3)]
    bad = Outcome("udp", 2, Verdict(violations), ["desk ended"], Counter())
    book = Book()
    feeds_siege.enter([fine, bad, fine], 3, book)
    for name, expected in (("lost", 3), ("faults", 1), ("twice", 0)):
        assert [each.value for each in book.samples(name, Side.RECADO)] == [expected] * 3
    assert feeds_siege.summary(fine) == "recado, seed 1: held; 10 confirmed"
    assert feeds_siege.summary(bad).startswith("udp, seed 2: VIOLATED (3 lost, 1 faults)")


def test_every_rule_has_its_limit() -> None:
    aims = load_aims("feeds-siege", feeds_siege.SCENARIOS)
    assert aims == {each.name: 0 for each in feeds_siege.SCENARIOS}
    assert set(feeds_siege.VIOLATIONS) == set(Kind)
    assert set(PROGRAMS.values()) | {"discard"} == set(ROLES)
    assert set(RECOVERY) == set(ROLES) - {"archive", "publish"}


def test_the_proxy_cuts_one_program_and_not_the_others() -> None:
    with socket.create_server((HOST, 0)) as server, Proxy(server.getsockname()[1]) as proxy:
        ports = {name: proxy.listen(name) for name in ("one", "two")}

        def connect(name: str) -> tuple[socket.socket, socket.socket]:
            client = socket.create_connection((HOST, ports[name]), timeout=30)
            return client, server.accept()[0]

        def passes(client: socket.socket, there: socket.socket) -> bool:
            client.sendall(b"ping")
            return there.recv(4) == b"ping"

        one, two = connect("one"), connect("two")
        assert passes(*one)
        proxy.cut("one")
        assert closed(one[0])
        assert passes(*two)
        refused = socket.create_connection((HOST, ports["one"]), timeout=30)
        assert closed(refused)
        proxy.mend("one")
        again = connect("one")
        assert passes(*again)
        for each in (*one, *two, *again, refused):
            each.close()


class Network:
    """A carrier, its port and the listener above, which note what passes."""

    layer_name, max_packet_bytes, is_connected = "UDP", 1000, True

    def __init__(self) -> None:
        self.passed: list[object] = []

    async def join(
        self, _feed: str, _me: MemberId, _role: Role, listener: PacketListener
    ) -> Network:
        self.below = listener
        return self

    def broadcast(self, packet: bytes, _key: str, last_sequence: int) -> None:
        self.passed.append(("cast", packet))

    def send(self, _to: Target, packet: bytes) -> None:
        self.passed.append(("send", packet))

    def listen_to_coordinators(self, *, enabled: bool) -> None: ...

    def settle(self, last_tag: int) -> None: ...

    def packet_received(
        self, _channel: PacketRoute, _sender: MemberId, packet: bytes, _tag: int
    ) -> None:
        self.passed.append(("arrived", packet))

    def broadcasts_confirmed(self, last_sequence: int) -> None:
        self.passed.append(("confirmed", last_sequence))

    def transport_lost(self, error: Exception) -> None: ...

    async def close(self) -> None:
        self.passed.append("closed")


def test_a_program_on_udp_is_cut_off_while_its_file_exists(tmp_path: Path) -> None:
    network, me, file = Network(), MemberId("desk", bytes(16)), cut_file(tmp_path, "desk")

    async def pass_all() -> list[object]:
        network.passed = []
        port = await LossyCarrier(network, file).join("quotes", me, Role.PUBLISHER, network)
        port.broadcast(b"one", "", 1)
        port.send("members", b"two")
        network.below.packet_received(PacketRoute.BROADCAST, me, b"three", 0)
        await asyncio.sleep(0)
        await port.close()
        return network.passed

    assert asyncio.run(pass_all()) == [
        *(("cast", b"one"), ("send", b"two"), ("arrived", b"three")),
        "closed",
    ]
    file.touch()
    assert asyncio.run(pass_all()) == [("confirmed", 1), "closed"]


def closed(connection: socket.socket) -> bool:
    """By the peer, in order or by a reset."""
    try:
        return connection.recv(1) == b""
    except OSError:
        return True
