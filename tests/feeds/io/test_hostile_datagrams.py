"""Anybody may send to a group. Whatever it is, on real sockets, publishers and subscribers go on (UD3, F10)."""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from random import Random

import pytest

from recado.feeds.boundary import PacketRoute
from recado.feeds.naming import format_target, new_member_id
from recado.feeds.packet import DurableReport, Heartbeat, PublisherStatus
from recado.feeds.transport.datagram import Datagram, encode
from recado.feeds.transport.udp import (
    MAX_DATAGRAM_BYTES,
    MAX_QUEUED_BYTES,
    MulticastGroup,
    UdpFeedTransport,
    parse_group,
)
from recado.feeds.views import NO_VIEW, MemberId, Role
from recado.feeds.wire import encode as packed

from .loop import in_the_loop, until
from .town import bodies, free_group, linking, take

ROUNDS = 30
LARGEST_OF_ALL = 65_507  # that UDP can carry


class Intruder:
    """Hears all that is said in a group, and says what it likes, to the group and to each member."""

    def __init__(
        self, group: MulticastGroup, listening: socket.socket, speaking: socket.socket
    ) -> None:
        self._group = (group.host, group.port)
        self._listening = listening
        self._speaking = speaking
        self.heard: list[bytes] = []
        self.homes: set[tuple[str, int]] = set()

    def listen(self) -> None:
        own = self._speaking.getsockname()
        while True:
            try:
                data, home = self._listening.recvfrom(LARGEST_OF_ALL)
            except BlockingIOError:
                return
            if home != own:
                self.heard.append(data)
                self.homes.add(home)

    def say(self, data: bytes) -> None:
        for address in (self._group, *sorted(self.homes)):
            with suppress(BlockingIOError):  # as much as the system takes
                self._speaking.sendto(data, address)


@contextmanager
def intruder(url: str) -> Iterator[Intruder]:
    group = parse_group(url)
    interface = socket.inet_aton(group.interface)
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listening,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as speaking,
    ):
        for each in (listening, speaking):
            each.setblocking(False)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((group.host, group.port))
        there = struct.pack("4s4s", socket.inet_aton(group.host), interface)
        listening.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, there)
        speaking.bind((group.interface, 0))
        speaking.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, interface)
        speaking.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        yield Intruder(group, listening, speaking)


def nonsense(kind: str, random: Random, heard: list[bytes]) -> list[bytes]:
    """Some datagrams of a kind."""
    me = format_target(new_member_id("intruder"))
    match kind:
        case "garbage":
            plain = [random.randbytes(random.randrange(200)) for _ in range(20)]
            packets = [b"\xfd\x01" + random.randbytes(random.randrange(99)) for _ in range(20)]
            ours = [encode(Datagram(True, "quotes", me, "members", each)) for each in packets]
            return plain + ours
        case "oversized":
            head = encode(Datagram(False, "quotes", me, "", b"\xfd\x01\x01"))
            return [head + bytes(size - len(head)) for size in (MAX_DATAGRAM_BYTES, LARGEST_OF_ALL)]
        case "truncated":
            return [data[: random.randrange(len(data))] for data in heard[-20:]]
        case "replayed":
            return random.choices(heard, k=20)
        case _:
            said = [
                packed(PublisherStatus(random.randbytes(16), random.randrange(5), 0)),
                packed(DurableReport(NO_VIEW, {random.randbytes(16): 1})),
            ]
            return [encode(Datagram(False, "quotes", me, "", each)) for each in said * 10]


@pytest.mark.parametrize("kind", ["garbage", "oversized", "truncated", "replayed", "invented"])
@in_the_loop
async def test_who_publishes_and_who_listens_go_on(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    random = Random(1)
    async with linking("udp") as make, make() as connection, make() as other:
        feed = connection.feed("quotes")
        listening = (other.feed("quotes")).subscribe("desk")
        with intruder(connection.url) as hostile:
            async with listening as messages:
                await feed.publish(b"first")
                assert bodies(await take(messages, 1)) == [b"first"]
                hostile.listen()
                assert hostile.heard
                assert hostile.homes
                for number in range(ROUNDS):
                    for data in nonsense(kind, random, hostile.heard):
                        hostile.say(data)
                    await feed.publish_many([b"%d.%d" % (number, each) for each in range(5)])
                    taken = bodies(await take(messages, 5))
                    assert taken == [b"%d.%d" % (number, each) for each in range(5)]
                    hostile.listen()
                await feed.flush()
                assert feed.publisher not in {lost.publisher for lost in messages.lost}
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


class Hearing:
    """Who is told what comes."""

    def __init__(self) -> None:
        self.packets: list[bytes] = []
        self.faults: list[Exception] = []
        self.upto = 0

    def packet_received(
        self, route: PacketRoute, sender: MemberId, packet: bytes, tag: int
    ) -> None:
        self.packets.append(packet)

    def broadcasts_confirmed(self, last_sequence: int) -> None:
        self.upto = max(self.upto, last_sequence)

    def transport_lost(self, error: Exception) -> None:
        self.faults.append(error)


@in_the_loop
async def test_who_repeats_the_words_of_another_does_not_get_its_letters() -> None:
    url = free_group()
    carrier = UdpFeedTransport(parse_group(url))
    ears = Hearing(), Hearing()
    names = new_member_id("one"), new_member_id("other")
    one = await carrier.join("quotes", names[0], Role.SUBSCRIBER, ears[0])
    other = await carrier.join("quotes", names[1], Role.SUBSCRIBER, ears[1])
    with intruder(url) as hostile:
        other.send("members", b"hello")
        await until(lambda: b"hello" in ears[0].packets)
        hostile.listen()
        for data in list(hostile.heard):
            hostile.say(data)
        await until(lambda: ears[0].packets.count(b"hello") > 1)
        one.send(names[1], b"a letter")
        await until(lambda: b"a letter" in ears[1].packets)
    await one.close()
    await other.close()


@in_the_loop
async def test_who_asks_for_everything_again_and_again_does_not_fill_the_memory() -> None:
    carrier = UdpFeedTransport(parse_group(free_group()))
    port = await carrier.join("quotes", new_member_id(), Role.PUBLISHER, confirmed := Hearing())
    kept = [number.to_bytes(2) + bytes(50_000) for number in range(1, 101)]
    for _ in range(30):  # all of it once more, for each who asks
        for number, packet in enumerate(kept, 1):
            port.broadcast(packet, "", number)
        assert port._queued_bytes <= len(kept) * MAX_DATAGRAM_BYTES
    for number in range(1_000):
        port.send("members", number.to_bytes(2) + bytes(50_000))
    assert port._queued_bytes <= MAX_QUEUED_BYTES + MAX_DATAGRAM_BYTES
    port.broadcast(b"new", "", 101)
    await until(lambda: confirmed.upto == 101)  # what was not said before is never dropped
    await port.close()


@in_the_loop
async def test_what_is_too_large_for_a_datagram_is_dropped_and_the_rest_is_sent() -> None:
    carrier = UdpFeedTransport(parse_group(free_group()))
    ears = Hearing()
    me = new_member_id("one")
    port = await carrier.join("quotes", me, Role.SUBSCRIBER, ears)
    port.send("members", bytes(70_000))
    beat = packed(Heartbeat(Role.SUBSCRIBER, NO_VIEW, 0))
    port.send("members", beat)
    await until(lambda: ears.packets)
    assert ears.packets == [beat]
    await asyncio.sleep(0)
    assert ears.faults == []
    await port.close()
