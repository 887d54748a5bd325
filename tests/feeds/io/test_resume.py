"""A publisher that goes on as an earlier incarnation of its own: what it publishes once more is there once."""

from __future__ import annotations

from pathlib import Path

import pytest

from recado.feeds.archive.archive import Archive
from recado.feeds.feed import ResumePoint

from .loop import in_the_loop
from .town import CARRIERS, linking, stored, take


@pytest.mark.parametrize("kind", CARRIERS)
@in_the_loop
async def test_what_is_repeated_is_there_once(kind: str, tmp_path: Path) -> None:
    async with (
        linking(kind) as linked,
        linked() as archiver,
        linked() as desk,
        archiver.archive("quotes", tmp_path) as archive,
        (desk.feed("quotes")).subscribe("desk-1") as messages,
    ):
        async with linked() as first:
            feed = first.feed("quotes")
            await feed.publish_many([b"%d" % each for each in range(1, 11)])
            await feed.flush()
            me = feed.publisher
        before = await take(messages, 10)
        async with linked() as second:
            feed = second.feed("quotes", resume=ResumePoint(me, 5))
            again = range(6, 16)
            await feed.publish_encoded(
                [b"%d" % each for each in again],
                keys=[b"key-%d" % each for each in again],
                message_ids=[b"" if each % 2 else b"id" for each in again],
                headers=[b""] * 10,
                properties=[b""] * 10,
                timestamps=[1_000_000 + each for each in again],
            )
            await feed.flush()
            assert (feed.publisher, feed.last_sequence, feed.confirmed_sequence) == (me, 15, 15)
            await stored(archive, feed)
            found = before + await take(messages, 5)
        assert [message.sequence for message in found] == list(range(1, 16))
        assert [message.body for message in found] == [b"%d" % each for each in range(1, 16)]
        assert [message.key for message in found[10:]] == [f"key-{each}" for each in range(11, 16)]
        assert found[-1].timestamp == 1_000_015
        assert found[-2].message_id == "id"
    with Archive.open(tmp_path) as kept:
        assert [message.sequence for message in kept.messages()] == list(range(1, 16))


@in_the_loop
async def test_who_comes_later_gets_what_comes_later() -> None:
    async with linking("amqp") as linked, linked() as connection:
        feed = connection.feed("quotes")
        await feed.publish_many([b"%d" % each for each in range(1, 11)])
        await feed.flush()
        async with (
            linked() as other,
            linked() as again,
            (other.feed("quotes")).subscribe("desk-2") as messages,
        ):
            resumed = again.feed("quotes", resume=ResumePoint(feed.publisher, 10))
            await resumed.publish(b"11")
            (message,) = await take(messages, 1)
        assert (message.sequence, message.body) == (11, b"11")
