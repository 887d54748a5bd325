"""A program that does not take what comes: what waits for it is bounded, on a broker and without one."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from .loop import in_the_loop, until
from .town import FAST, bodies, linking, stored, take

SIZE = 10_000
COUNT = 300
WAITING = 200_000
"""Bytes that may wait, in these tests."""


@pytest.mark.parametrize("kind", ["udp", "amqp"])
@in_the_loop
async def test_what_waits_for_a_slow_program_is_bounded_and_comes_when_it_asks(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("recado.feeds.subscription.INBOX_LIMIT_BYTES", WAITING)
    monkeypatch.setattr("recado.feeds.transport.amqp.PREFETCH_COUNTS", dict.fromkeys((1, 2), 16))
    sent = [b"%9d" % number + bytes(SIZE) for number in range(COUNT)]
    async with linking(kind) as linked, linked() as connection, linked() as other:
        feed = connection.feed("quotes", batch_bytes=5 * SIZE)
        async with (
            connection.archive("quotes", tmp_path) as archive,
            (other.feed("quotes")).subscribe("slow") as messages,
        ):
            await feed.publish_many(sent)
            await stored(archive, feed)
            await until(lambda: messages.buffered_bytes >= WAITING)
            await asyncio.sleep(
                20 * FAST.retry_interval
            )  # archives tell what there is; nobody asks for it
            assert messages.buffered_bytes < WAITING + 17 * 6 * SIZE
            assert bodies(await take(messages, COUNT)) == sent
            assert not messages.lost
