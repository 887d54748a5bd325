"""What an archive settles: all that it has stored, and all that nobody ever will. One packet that it forgot
would keep back everything behind it, and at last the broker would give it nothing more."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from recado.feeds.block import Block
from recado.feeds.connection import FeedConnection
from recado.feeds.naming import new_member_id
from recado.feeds.packet import Data
from recado.feeds.transport.memory import MemoryFeedTransport, MemoryHub
from recado.feeds.wire import encode

from .loop import in_the_loop, until
from .town import FAST, linking, stored

ORDERED = "DISPATCH:SYNC:ARCHIVER:TOTAL:PULL:FRAG:FIFO:NAK:MEMBERSHIP:AMQP"


@in_the_loop
async def test_places_in_a_total_order_are_settled(tmp_path: Path) -> None:
    hub = MemoryHub()
    async with FeedConnection.over_transport(MemoryFeedTransport(hub), options=FAST) as connection:
        feed = connection.feed("quotes", stack=ORDERED)
        async with connection.archive("quotes", tmp_path, stack=ORDERED) as archive:
            for number in range(20):
                await feed.publish(b"%d" % number)
                await asyncio.sleep(0)  # a packet for each
            await stored(archive, feed)
            await until(lambda: not hub.archive_queues["quotes", "archive"])


@in_the_loop
async def test_the_order_of_another_view_is_settled(tmp_path: Path) -> None:
    hub = MemoryHub()
    stranger = new_member_id("stranger")
    async with (
        FeedConnection.over_transport(MemoryFeedTransport(hub), options=FAST) as connection,
        connection.archive("quotes", tmp_path),
    ):
        hub.broadcast(
            "quotes", stranger, encode(Data(b"order" + bytes(11), 1, Block.build([b"?"])))
        )
        await until(lambda: not hub.archive_queues["quotes", "archive"])


@in_the_loop
async def test_what_waits_for_an_archive_without_its_folder_is_stored_anew(tmp_path: Path) -> None:
    hub = MemoryHub()
    async with FeedConnection.over_transport(MemoryFeedTransport(hub), options=FAST) as connection:
        async with connection.archive("quotes", tmp_path / "old"):
            pass  # its queue stays
        once = connection.feed("quotes")
        await once.publish(b"by one who is gone")
        await once.close()
        assert hub.archive_queues["quotes", "archive"]
        feed = connection.feed("quotes")
        async with connection.archive("quotes", tmp_path / "new") as archive:
            await feed.publish(b"now")
            await stored(archive, feed)
            await until(lambda: not hub.archive_queues["quotes", "archive"])
            assert archive.vector == {once.publisher: 1, feed.publisher: 1}


@in_the_loop
async def test_what_is_for_an_archive_that_has_begun_is_stored_before(tmp_path: Path) -> None:
    hub = MemoryHub()
    async with FeedConnection.over_transport(MemoryFeedTransport(hub), options=FAST) as connection:
        feed = connection.feed("quotes")
        async with connection.archive("quotes", tmp_path) as archive:
            await feed.publish(b"one")
            await stored(archive, feed)
        await feed.publish(b"two")
        await feed.flush()
        async with connection.archive("quotes", tmp_path) as archive:
            await until(lambda: not hub.archive_queues["quotes", "archive"])
            assert archive.vector.last_of(feed.publisher) == 2


@pytest.mark.parametrize("stack", [None, ORDERED])
@in_the_loop
async def test_a_broker_gives_more_than_it_gives_at_once(
    stack: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "recado.feeds.transport.amqp.PREFETCH_COUNTS", dict.fromkeys((1, 2), 16)
    )  # by role
    async with linking("amqp") as linked, linked() as connection:
        feed = connection.feed("quotes", stack=stack)
        async with connection.archive("quotes", tmp_path, stack=stack) as archive:
            for number in range(200):
                await feed.publish(b"%d" % number)
                await asyncio.sleep(0)
            await stored(archive, feed)


@in_the_loop
async def test_what_is_of_one_publisher_too_many_is_settled_and_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("recado.feeds.member.max_publishers", lambda options: 2)
    hub = MemoryHub()
    async with FeedConnection.over_transport(MemoryFeedTransport(hub), options=FAST) as connection:
        one, two, three = [connection.feed("quotes") for _ in range(3)]
        async with connection.archive("quotes", tmp_path) as archive:
            for feed in (one, two, three, one):
                await feed.publish(b"x")
                await feed.flush()
            await stored(archive, one)
            await until(lambda: not hub.archive_queues["quotes", "archive"])
            await until(lambda: "(member=archive limit=2)" in caplog.text)
            assert archive.vector == {one.publisher: 2, two.publisher: 1}


@in_the_loop
async def test_a_malformed_packet_to_members_settles_nothing_of_others(tmp_path: Path) -> None:
    hub = MemoryHub()
    async with FeedConnection.over_transport(MemoryFeedTransport(hub), options=FAST) as connection:
        feed = connection.feed("quotes")
        async with connection.archive("quotes", tmp_path) as archive:
            await feed.publish(b"first")
            await stored(archive, feed)
            await until(lambda: not hub.archive_queues["quotes", "archive"])
            # A disk that takes its time.
            archive._opened_store.sync = lambda: None  # type: ignore[method-assign]
            hub.send("quotes", new_member_id("stranger"), "members", b"?")
            await feed.publish(b"second")
            await feed.flush()
            assert archive._listener.driver.member.malformed_count == 1
            assert hub.archive_queues["quotes", "archive"], "it is on no disk yet"
            del archive._opened_store.sync
            await feed.publish(b"third")
            await stored(archive, feed)
