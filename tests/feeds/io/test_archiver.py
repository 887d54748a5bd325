"""Archives at work: what they keep, whom they help, and how they come back."""

from __future__ import annotations

import asyncio
import errno
import os
import re
import threading
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import recado.feeds
from recado.feeds.archive.archive import Archive
from recado.feeds.archive.store import ArchiveStore
from recado.feeds.archiver import ArchiveOptions, Archiver
from recado.feeds.boundary import ArchiveQuery
from recado.feeds.connection import FeedConnection
from recado.feeds.errors import ArchiveStoppedError, FeedError, JoinError
from recado.feeds.feed import Feed
from recado.feeds.subscription import Recovery
from recado.feeds.transport.memory import MemoryEndpoint, MemoryFeedTransport
from recado.feeds.vector import Vector
from recado.feeds.views import Certainty, LostRange

from .loop import in_the_loop, until
from .town import CARRIERS, FAST, bodies, linking, stored, take


@in_the_loop
async def test_an_archive_without_room_names_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    async with linking("memory") as linked, linked() as connection:
        feed = connection.feed("quotes")
        async with connection.archive("quotes", tmp_path) as archive:
            with monkeypatch.context() as full:
                full.setattr(os, "pwritev", refuse)
                await feed.publish(b"x")
                with pytest.raises(ArchiveStoppedError) as stopped:
                    await archive.run()
    assert "cannot write: [Errno 28] No space left on device: " in str(stopped.value)
    assert str(tmp_path / "journal") in str(stopped.value)


def documented_limits() -> tuple[int, int]:
    """Bytes of the largest message and of the longest key, as docs/feeds.md says."""
    text = (Path(__file__).parents[3] / "docs" / "feeds.md").read_text()
    found = re.search(
        r"at most ([\d,]+) bytes \(15 MiB\).*?key at most (\d+) bytes", text, re.DOTALL
    )
    assert found is not None
    return int(found[1].replace(",", "")), int(found[2])


@pytest.mark.parametrize("kind", ["memory", "amqp"])
@in_the_loop
async def test_a_message_has_at_most_the_documented_size(kind: str, tmp_path: Path) -> None:
    largest, longest_key = documented_limits()
    key = "k" * longest_key
    body = bytes(largest - longest_key)
    async with linking(kind) as linked, linked() as connection:
        feed = connection.feed("quotes")
        async with connection.archive("quotes", tmp_path) as archive:
            async with feed.subscribe("live") as messages:
                await feed.publish(body, key=key)
                (live,) = await take(messages, 1)
            await stored(archive, feed)
            async with feed.subscribe("late", recovery=Vector()) as messages:
                (archived,) = await take(messages, 1)
        assert (live.key, live.body) == (archived.key, archived.body) == (key, body)
        with pytest.raises(
            ValueError, match=f"{largest + 1:,} bytes exceeds the limit of {largest:,}"
        ):
            await feed.publish(body + b"x", key=key)
        with pytest.raises(ValueError, match=f"exceeds the limit of {longest_key}"):
            await feed.publish(b"", key=key + "k")


@pytest.mark.parametrize("kind", CARRIERS)
@in_the_loop
async def test_a_latecomer_gets_everything_from_the_beginning(kind: str, tmp_path: Path) -> None:
    async with linking(kind) as linked, linked() as connection, linked() as other:
        feed = connection.feed("quotes")
        async with other.archive("quotes", tmp_path, name="archive-1") as archive:
            await feed.publish_many([b"%d" % number for number in range(1_000)])
            await stored(archive, feed)
            async with feed.subscribe("late", recovery=Vector()) as messages:
                await feed.publish(b"live")
                found = await take(messages, 1_001)
            assert bodies(found) == [*(b"%d" % number for number in range(1_000)), b"live"]
            assert [message.sequence for message in found] == list(range(1, 1_002))


@pytest.mark.parametrize("recovery", ["pessimistic", "archive"])
@in_the_loop
async def test_the_archive_knows_what_was_missed(recovery: Recovery, tmp_path: Path) -> None:
    async with linking("memory") as linked, linked() as connection:
        feed = connection.feed("quotes")
        async with connection.archive("quotes", tmp_path) as archive:
            async with feed.subscribe("desk", recovery=recovery) as messages:
                await feed.publish_many([b"1", b"2"])
                assert bodies(await take(messages, 2)) == [b"1", b"2"]
            await feed.publish_many([b"3", b"4"])
            await stored(archive, feed)
            async with feed.subscribe("desk", recovery=recovery) as messages:
                await feed.publish(b"5")
                found = await take(messages, 3)
            # It left in order, so there is no doubt about what it had.
            assert bodies(found) == [b"3", b"4", b"5"]
            assert [message.certainty for message in found[:2]] == [Certainty.MISSED] * 2


@in_the_loop
async def test_an_optimist_gets_nothing_again(tmp_path: Path) -> None:
    async with linking("memory") as linked, linked() as connection:
        feed = connection.feed("quotes")
        async with connection.archive("quotes", tmp_path) as archive:
            await feed.publish(b"before")
            await stored(archive, feed)
            async with feed.subscribe("desk", recovery="optimistic") as messages:
                await feed.publish(b"now")
                assert bodies(await take(messages, 1)) == [b"now"]


async def fail_at_two(feed: Feed) -> None:
    async with feed.subscribe("desk", recovery="pessimistic") as messages:
        await feed.publish_many([b"1", b"2", b"3"])
        async for message in messages:
            if message.body == b"2":
                raise ZeroDivisionError


@in_the_loop
async def test_what_was_not_finished_comes_again(tmp_path: Path) -> None:
    async with linking("memory") as linked, linked() as connection:
        feed = connection.feed("quotes")
        async with connection.archive("quotes", tmp_path) as archive:
            with pytest.raises(ZeroDivisionError):
                await fail_at_two(feed)
            await stored(archive, feed)
            async with feed.subscribe("desk", recovery="pessimistic") as messages:
                assert bodies(await take(messages, 2)) == [b"2", b"3"]


@pytest.mark.parametrize("kind", ["memory", "amqp"])
@in_the_loop
async def test_an_archive_that_returns_goes_on(kind: str, tmp_path: Path) -> None:
    async with linking(kind) as linked, linked() as connection:
        feed = connection.feed("quotes")
        async with linked() as other, other.archive("quotes", tmp_path) as archive:
            await feed.publish(b"one")
            await stored(archive, feed)
        await feed.publish(b"two")  # it waits in the queue of the archive
        await feed.flush()
        async with linked() as other, other.archive("quotes", tmp_path) as archive:
            await stored(archive, feed)
            await feed.publish(b"three")
            await stored(archive, feed)
    with Archive.open(tmp_path) as kept:
        assert bodies(list(kept.messages())) == [b"one", b"two", b"three"]


@pytest.mark.parametrize("kind", CARRIERS)
@in_the_loop
async def test_archives_repair_each_other(kind: str, tmp_path: Path) -> None:
    async with linking(kind) as linked, linked() as connection:
        feed = connection.feed("quotes")
        async with connection.archive("quotes", tmp_path / "1", name="archive-1") as first:
            await feed.publish_many([b"%d" % number for number in range(100)])
            await stored(first, feed)
            async with connection.archive("quotes", tmp_path / "2", name="archive-2") as second:
                await stored(second, feed)
                await feed.publish(b"both")
                await stored(first, feed)
                await stored(second, feed)
    with Archive.open(tmp_path / "1") as one, Archive.open(tmp_path / "2") as two:
        assert bodies(list(one.messages())) == bodies(list(two.messages()))


@in_the_loop
async def test_rows_are_sealed_beside_the_loop(tmp_path: Path) -> None:
    async with linking("memory") as linked, linked() as connection:
        feed = connection.feed("quotes")
        upkeep = ArchiveOptions(seal_rows=100)
        async with connection.archive("quotes", tmp_path, archive_options=upkeep) as archive:
            await feed.publish_many([b"%d" % number for number in range(250)])
            await stored(archive, feed)
            await until(lambda: list(tmp_path.glob("data/*/*.parquet")))
    with Archive.open(tmp_path) as kept:
        assert len(list(kept.messages())) == 250


@in_the_loop
async def test_a_disk_that_fails_stops_the_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise OSError(5, "the disk is broken")

    async with linking("memory") as linked, linked() as connection:
        feed = connection.feed("quotes")
        async with connection.archive("quotes", tmp_path) as archive:
            running = asyncio.create_task(archive.run())
            monkeypatch.setattr(archive._opened_store, "sync", fail)
            await feed.publish(b"one")
            with pytest.raises(ArchiveStoppedError, match="the disk is broken"):
                await running


@in_the_loop
async def test_a_fault_of_ours_stops_the_archive_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise ZeroDivisionError("a mistake")

    async with linking("memory") as linked, linked() as connection:
        feed = connection.feed("quotes")
        async with connection.archive("quotes", tmp_path) as archive:
            monkeypatch.setattr(archive._opened_store, "sync", fail)
            await feed.publish(b"one")
            with pytest.raises(ArchiveStoppedError, match="a mistake"):
                await archive.run()


class Closed(MemoryFeedTransport):
    async def join(self, *_: object) -> MemoryEndpoint:
        raise JoinError("nobody is let in")


@in_the_loop
async def test_an_archive_that_is_not_let_in_says_so_and_leaves_its_folder(tmp_path: Path) -> None:
    async with FeedConnection.over_transport(Closed()) as connection:
        for _ in range(2):
            with pytest.raises(JoinError, match="nobody is let in"):
                async with connection.archive("quotes", tmp_path):
                    pass


@in_the_loop
async def test_an_archive_that_nobody_waits_for_any_more_leaves_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opens, goes_on = threading.Event(), threading.Event()

    class Slow(ArchiveStore):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            opens.set()
            goes_on.wait(10)

    async with linking("memory") as linked, linked() as connection:
        with monkeypatch.context() as patched:
            patched.setattr("recado.feeds.archiver.ArchiveStore", Slow)
            entering = asyncio.create_task(connection.archive("quotes", tmp_path).__aenter__())
            await asyncio.to_thread(opens.wait)
            entering.cancel()
            await asyncio.sleep(0)
            goes_on.set()
            with pytest.raises(asyncio.CancelledError):
                await entering
        async with connection.archive("quotes", tmp_path):
            pass


@in_the_loop
async def test_a_folder_that_is_not_free_is_told(tmp_path: Path) -> None:
    async with linking("memory") as linked, linked() as connection:
        async with connection.archive("quotes", tmp_path, name="a") as archive:
            with pytest.raises(ArchiveStoppedError, match="is in use"):
                async with connection.archive("quotes", tmp_path, name="b"):
                    pass
            with pytest.raises(RuntimeError, match="entered only once"):
                await archive.__aenter__()
        with pytest.raises(FeedError, match="contains the archive of the feed 'quotes'"):
            async with connection.archive("other", tmp_path, name="a"):
                pass


@pytest.mark.parametrize("kind", CARRIERS)
@in_the_loop
async def test_a_stack_with_more_layers(kind: str, tmp_path: Path) -> None:
    """In one order for all, and nothing that no archive has. On a busy machine nobody may be taken for failed:
    a member that others leave out of their view has an order of its own until it is back."""
    patient = replace(FAST, failure_timeout=60.0, view_change_timeout=30.0)
    transport = "UDP" if kind == "udp" else "AMQP"
    stack = f"DISPATCH:SYNC:ARCHIVER:UNIFORM:TOTAL:PULL:FRAG:FIFO:NAK:MEMBERSHIP:{transport}"
    async with linking(kind, patient) as linked, linked() as connection, linked() as other:
        one, two = connection.feed("quotes", stack=stack), other.feed("quotes", stack=stack)
        async with (
            connection.archive("quotes", tmp_path, stack=stack) as archive,
            one.subscribe("a") as a,
            two.subscribe("b") as b,
        ):
            for number in range(50):
                await one.publish(b"1-%d" % number)
                await two.publish(b"2-%d" % number)
                await asyncio.sleep(0)
            first = await take(a, 100)
            assert bodies(first) == bodies(await take(b, 100))
            assert archive.vector.covers(a.vector)


@in_the_loop
async def test_a_slow_latecomer_is_not_given_everything_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("recado.feeds.subscription.INBOX_LIMIT_BYTES", 1 << 20)
    sent = [bytes(50_000) + b"%d" % number for number in range(400)]
    async with linking("memory") as linked, linked() as connection:
        feed = connection.feed("quotes")
        async with connection.archive("quotes", tmp_path) as archive:
            await feed.publish_many(sent)
            await stored(archive, feed)
            async with feed.subscribe("late", recovery=recado.feeds.Vector()) as messages:
                await asyncio.sleep(10 * FAST.retry_interval)  # whatever would come in this time
                assert messages.buffered_bytes < 8 << 20  # one answer of an archive, and not all
                assert bodies(await take(messages, 400)) == sent


TEN_ROWS = ArchiveOptions(seal_rows=10)


async def publish_in_files(feed: Feed, archive: Archiver, count: int) -> None:
    """Publish batches of ten messages; the archive has each in a Parquet file of its own."""
    for number in range(count):
        await feed.publish_many([b"%d" % each for each in range(10 * number, 10 * number + 10)])
        await stored(archive, feed)
        await asyncio.to_thread(archive._opened_store.seal)


def damage(archive: Archiver, number: int) -> Path:
    """Flip a bit of the last column, which has the bodies, in a Parquet file of the archive."""
    path = Path(archive.folder, archive._opened_store.files[number].path)
    content = bytearray(path.read_bytes())
    footer_bytes = int.from_bytes(content[-8:-4], "little") + 8
    content[-footer_bytes - 3] ^= 1
    path.write_bytes(content)
    return path


@in_the_loop
async def test_an_archive_with_a_damaged_file_serves_the_rest_and_reports_the_hole(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with linking("memory") as linked, linked() as connection:
        feed = connection.feed("quotes")
        async with connection.archive("quotes", tmp_path, archive_options=TEN_ROWS) as archive:
            await publish_in_files(feed, archive, 3)
            path = damage(archive, 1)
            for name in ("late", "later"):
                async with feed.subscribe(name, recovery=Vector()) as messages:
                    found = await take(messages, 20)
                    assert [message.sequence for message in found] == [
                        *range(1, 11),
                        *range(21, 31),
                    ]
                    assert messages.lost == [LostRange(feed.publisher, 11, 20)]
                    assert messages.vector.holes == {feed.publisher: ((11, 20),)}
            await feed.publish(b"goes on")
            await stored(archive, feed)
            assert archive._opened_store.archive_state().lost == (
                LostRange(feed.publisher, 11, 20),
            )
    reports = [record.getMessage() for record in caplog.records if "damaged" in record.message]
    assert len(reports) == 1
    assert reports[0].startswith(
        "archive file damaged (archive=archive rows=10-19 messages_lost=10 "
        f"error={path} is damaged at row group 0"
    )


@in_the_loop
async def test_a_damaged_file_is_made_good_by_another_archive(tmp_path: Path) -> None:
    async with linking("memory") as linked, linked() as connection, linked() as other:
        feed = connection.feed("quotes")
        async with connection.archive(
            "quotes", tmp_path / "1", name="1", archive_options=TEN_ROWS
        ) as archive:
            async with other.archive("quotes", tmp_path / "2", name="2") as second:
                await publish_in_files(feed, archive, 3)
                await stored(second, feed)
                damage(archive, 1)
                async with feed.subscribe("late", recovery=Vector()) as messages:
                    assert [each.sequence for each in await take(messages, 30)] == [*range(1, 31)]
                    assert messages.lost == []
                # The subscriber may have asked the other archive.
                archive._listener.read_archive(0, ArchiveQuery(Vector()))
                await until(lambda: archive._opened_store.next_offset == 40)
            async with feed.subscribe("alone", recovery=Vector()) as messages:
                assert [each.sequence for each in await take(messages, 30)] == [*range(1, 31)]
                assert messages.lost == []
