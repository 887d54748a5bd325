"""Iteration that is left and gone on with, and that another task puts an end to."""

from __future__ import annotations

import asyncio
from pathlib import Path

from recado.feeds.subscription import Subscription
from recado.feeds.vector import Vector
from recado.feeds.views import Certainty

from .loop import in_the_loop, until
from .town import bodies, linking, stored, take


@in_the_loop
async def test_it_goes_on_where_it_was_left() -> None:
    async with linking("memory") as linked, linked() as connection:
        feed = connection.feed("quotes")
        async with feed.subscribe("desk") as messages:
            await feed.publish_many([b"1", b"2", b"3", b"4", b"5"])
            for number in (1, 2):
                (message,) = await take(messages, 1)
                assert message.sequence == number
                assert messages.vector == {feed.publisher: number}
            rest = await messages.next_batch()
            assert rest is not None
            assert bodies(list(rest)) == [b"3", b"4", b"5"]
            await feed.publish(b"6")
            assert bodies(await take(messages, 1)) == [b"6"]


@in_the_loop
async def test_it_goes_on_behind_what_the_selector_does_not_want() -> None:
    async with linking("memory") as linked, linked() as connection:
        feed = connection.feed("quotes")
        async with feed.subscribe("desk", selector="key = 'x'") as messages:
            await feed.publish_many([b"1", b"2", b"3", b"4"], keys=["", "x", "", ""])
            assert bodies(await take(messages, 1)) == [b"2"]
            await feed.publish_many([b"5", b"6"], keys=["x", "x"])
            assert bodies(await take(messages, 2)) == [b"5", b"6"]


@in_the_loop
async def test_what_is_given_after_another_task_has_closed_is_not_missed(tmp_path: Path) -> None:
    """Nothing is given then, so that what comes again was never given."""
    async with (
        linking("memory") as linked,
        linked() as connection,
        connection.archive("quotes", tmp_path) as archive,
    ):
        feed = connection.feed("quotes")
        reading, closed = asyncio.Event(), asyncio.Event()
        given: list[bytes] = []

        async def read(messages: Subscription) -> None:
            async for message in messages:
                given.append(message.body)
                reading.set()
                await closed.wait()

        async with feed.subscribe("desk", recovery="pessimistic") as messages:
            reader = asyncio.create_task(read(messages))
            await feed.publish_many([b"1", b"2"])
            await reading.wait()
            await feed.publish(b"3")
            await until(lambda: messages.buffered_bytes > 0)
            await messages.close()
            assert messages.vector == {feed.publisher: 1}
            closed.set()
            await reader
        assert given == [b"1"]
        assert messages.vector == {feed.publisher: 1}
        await stored(archive, feed)
        async with feed.subscribe("desk", recovery="pessimistic") as messages:
            again = await take(messages, 2)
        assert bodies(again) == [b"2", b"3"]
        assert {message.certainty for message in again} == {Certainty.MISSED}
        assert messages.vector == Vector({feed.publisher: 3})
