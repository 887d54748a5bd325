"""What every carrier does (port.py), on each of them: AMQP on a broker of our own, UDP on loopback, memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

import recado
from recado.client import ChannelClosedByBrokerError
from recado.feeds.block import Block
from recado.feeds.boundary import ARCHIVES, COORDINATORS, MEMBERS, PacketRoute
from recado.feeds.errors import JoinError
from recado.feeds.naming import new_member_id
from recado.feeds.packet import Data, Heartbeat
from recado.feeds.transport.endpoint import NO_TAG, FeedTransport
from recado.feeds.transport.factory import open_transport
from recado.feeds.transport.memory import MemoryFeedTransport, MemoryHub
from recado.feeds.views import NO_VIEW, MemberId, Role
from recado.feeds.wire import encode

from .loop import in_the_loop, until
from .town import CARRIERS, free_group

BEAT = encode(Heartbeat(Role.SUBSCRIBER, NO_VIEW, 0))


def data(publisher: MemberId, first: int, *bodies: bytes) -> bytes:
    return encode(Data(publisher.incarnation, first, Block.build(bodies)))


class Ear:
    """A listener that notes what it heard."""

    def __init__(self) -> None:
        self.heard: list[tuple[PacketRoute, MemberId, bytes]] = []
        self.tags: list[int] = []
        self.confirmations: list[int] = []
        self.errors: list[Exception] = []

    def packet_received(
        self, route: PacketRoute, sender: MemberId, packet: bytes, tag: int
    ) -> None:
        self.heard.append((route, sender, packet))
        if tag != NO_TAG:
            self.tags.append(tag)

    def broadcasts_confirmed(self, last_sequence: int) -> None:
        self.confirmations.append(last_sequence)

    def transport_lost(self, error: Exception) -> None:
        self.errors.append(error)

    def packets(self, channel: PacketRoute) -> list[bytes]:
        return [packet for where, _, packet in self.heard if where is channel]


@asynccontextmanager
async def carriers(kind: str) -> AsyncIterator[tuple[FeedTransport, FeedTransport]]:
    """Two of them, as two programs have."""
    match kind:
        case "memory":
            hub = MemoryHub()
            yield MemoryFeedTransport(hub), MemoryFeedTransport(hub)
        case "udp":
            url = free_group()
            yield await open_transport(url, None), await open_transport(url, None)
        case _:
            async with recado.Broker() as broker:
                first = await open_transport(broker.url, 5)
                second = await open_transport(broker.url, 5)
                yield first, second
                await first.close()
                await second.close()


@pytest.mark.parametrize("kind", CARRIERS)
@in_the_loop
async def test_all_members_hear_what_is_cast_and_the_sender_too(kind: str) -> None:
    async with carriers(kind) as (one, two):
        ears = [Ear() for _ in range(4)]
        ids = [new_member_id("a"), new_member_id("b"), new_member_id("archive"), new_member_id()]
        roles = [Role.SUBSCRIBER, Role.SUBSCRIBER, Role.ARCHIVE, Role.PUBLISHER]
        members = zip((one, two, two, one), ids, roles, ears, strict=True)
        ports = [await each.join("quotes", me, role, ear) for each, me, role, ear in members]
        elsewhere = Ear()
        other = await two.join("other", new_member_id("a"), Role.SUBSCRIBER, elsewhere)
        packet = data(ids[3], 1, b"x")
        ports[3].broadcast(packet, "key", 1)
        ports[0].broadcast(BEAT, "", 0)
        await until(lambda: [len(ear.heard) for ear in ears[:3]] == [2, 2, 2])
        for ear in ears[:3]:
            assert set(ear.heard) == {
                (PacketRoute.BROADCAST, ids[3], packet),
                (PacketRoute.BROADCAST, ids[0], BEAT),
            }
        await until(lambda: ears[3].confirmations)
        assert ears[3].confirmations == [1]
        assert elsewhere.heard == []
        for port in (*ports, other):
            await port.close()


@pytest.mark.parametrize("kind", CARRIERS)
@in_the_loop
async def test_whom_a_packet_is_sent_to(kind: str) -> None:
    async with carriers(kind) as (one, two):
        ids = [new_member_id("a"), new_member_id("b"), new_member_id("archive")]
        ears = [Ear() for _ in ids]
        roles = [Role.SUBSCRIBER, Role.SUBSCRIBER, Role.ARCHIVE]
        members = zip((one, two, two), ids, roles, ears, strict=True)
        a, b, archive = [
            await each.join("quotes", me, role, ear) for each, me, role, ear in members
        ]
        last = b"\xfd\x01last"
        a.send(ids[1], b"\xfd\x01one")
        a.send(ARCHIVES, b"\xfd\x01archives")
        a.send(MEMBERS, b"\xfd\x01members")
        a.send(ids[1], last)
        a.send(ids[2], last)
        await until(lambda: all(last in ear.packets(PacketRoute.ADDRESSED) for ear in ears[1:]))
        assert set(ears[1].packets(PacketRoute.ADDRESSED)) == {
            b"\xfd\x01one",
            b"\xfd\x01members",
            last,
        }
        assert set(ears[2].packets(PacketRoute.ADDRESSED)) == {
            b"\xfd\x01archives",
            b"\xfd\x01members",
            last,
        }
        # Whoever heard of us answers us alone.
        b.send(ids[0], b"\xfd\x01answer")
        await until(lambda: b"\xfd\x01answer" in ears[0].packets(PacketRoute.ADDRESSED))
        assert {sender for _, sender, _ in ears[1].heard} == {ids[0]}
        for port in (a, b, archive):
            await port.close()


@pytest.mark.parametrize("kind", CARRIERS)
@in_the_loop
async def test_what_is_sent_to_coordinators_comes_to_those_who_listen(kind: str) -> None:
    async with carriers(kind) as (one, two):
        ids, ears = [new_member_id("a"), new_member_id("b")], [Ear(), Ear()]
        a = await one.join("quotes", ids[0], Role.SUBSCRIBER, ears[0])
        b = await two.join("quotes", ids[1], Role.SUBSCRIBER, ears[1])

        sent = 0

        async def comes() -> bool:
            """Whether what is sent to coordinators now comes to b."""
            nonlocal sent
            sent += 1
            packet, mark = b"\xfd\x01%d" % sent, b"\xfd\x01mark%d" % sent
            a.send(COORDINATORS, packet)
            a.send(ids[1], mark)
            await until(lambda: mark in ears[1].packets(PacketRoute.ADDRESSED))
            return packet in ears[1].packets(PacketRoute.ADDRESSED)

        assert not await comes()
        b.listen_to_coordinators(enabled=True)
        while not await comes():
            pass
        b.listen_to_coordinators(enabled=False)
        b.listen_to_coordinators(enabled=True)
        b.listen_to_coordinators(enabled=False)
        while await comes():
            pass
        assert ears[1].errors == []
        await a.close()
        await b.close()


@pytest.mark.parametrize("kind", ["memory", "amqp"])
@in_the_loop
async def test_what_an_archive_did_not_settle_comes_again(kind: str) -> None:
    async with carriers(kind) as (one, two):
        publisher = new_member_id()
        out = await one.join("quotes", publisher, Role.PUBLISHER, Ear())
        ear = Ear()
        archive = await two.join("quotes", new_member_id("archive"), Role.ARCHIVE, ear)
        packets = [data(publisher, number, b"x") for number in range(1, 6)]
        for number, packet in enumerate(packets, start=1):
            out.broadcast(packet, "", number)
        await until(lambda: len(ear.tags) == 5)
        archive.settle(ear.tags[1])
        await archive.close()
        packets.append(data(publisher, 6, b"while it is away"))
        out.broadcast(packets[-1], "", 6)
        again = Ear()
        archive = await two.join("quotes", new_member_id("archive"), Role.ARCHIVE, again)
        await until(lambda: len(again.tags) == 4)
        assert again.packets(PacketRoute.BROADCAST) == packets[2:]
        await archive.close()
        await out.close()


@pytest.mark.parametrize("kind", CARRIERS)
@in_the_loop
async def test_after_the_end_nothing_is_told(kind: str) -> None:
    async with carriers(kind) as (one, two):
        ear, other = Ear(), Ear()
        port = await one.join("quotes", new_member_id("a"), Role.SUBSCRIBER, ear)
        stays = await two.join("quotes", new_member_id("b"), Role.SUBSCRIBER, other)
        await port.close()
        await port.close()  # once more is no harm
        stays.broadcast(BEAT, "", 0)
        await until(lambda: other.heard)
        await stays.close()
        assert ear.heard == []
        assert ear.errors == []


@in_the_loop
async def test_many_casts_are_confirmed_in_order() -> None:
    async with carriers("udp") as (one, two):
        ear, heard = Ear(), Ear()
        publisher = new_member_id()
        out = await one.join("quotes", publisher, Role.PUBLISHER, ear)
        listening = await two.join("quotes", new_member_id("a"), Role.SUBSCRIBER, heard)
        for number in range(1, 9):
            out.broadcast(data(publisher, number, bytes(40_000)), "", number)
        await until(lambda: ear.confirmations and ear.confirmations[-1] == 8)
        assert ear.confirmations == sorted(ear.confirmations)
        assert len(ear.confirmations) > 1  # not all in one beat of the pace
        await out.close()
        await listening.close()


@in_the_loop
async def test_a_second_archive_of_the_name_waits_for_the_first() -> None:
    async with carriers("amqp") as (one, two):
        first = await one.join("quotes", new_member_id("archive"), Role.ARCHIVE, Ear())
        second = asyncio.create_task(
            two.join("quotes", new_member_id("archive"), Role.ARCHIVE, Ear())
        )
        done, _ = await asyncio.wait([second], timeout=0.2)
        assert not done
        await first.close()
        await (await second).close()


@in_the_loop
async def test_who_may_not_read_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has the code of a queue that another archive of the name holds."""

    async def refused(*_: object) -> None:
        raise ChannelClosedByBrokerError(
            403, "ACCESS_REFUSED - read access to queue 'q' refused for user 'u'"
        )

    async with carriers("amqp") as (one, _):
        monkeypatch.setattr("recado.client.robust_channel.RobustChannel.qos", refused)
        async with asyncio.timeout(5):
            with pytest.raises(JoinError, match="refused for user"):
                await one.join("quotes", new_member_id("archive"), Role.ARCHIVE, Ear())
