"""Streams after the broker was killed: what was confirmed is at its offset, and new ones go on from there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from .durable_broker import durable_broker
from .streams import STREAM
from .traffic import Inbox, put


@contextmanager
def killed_afterwards(folder: Path) -> Iterator[BlockingChannel]:
    with durable_broker(folder) as channel:
        channel.basic_qos(prefetch_count=1000)
        yield channel


def read(channel: BlockingChannel, stream: str, count: int) -> list[tuple[int, bytes]]:
    inbox = Inbox(channel, stream, arguments={"x-stream-offset": "first"})
    found = [
        (int(each.properties.headers["x-stream-offset"]), each.body) for each in inbox.wait(count)
    ]
    channel.basic_cancel(inbox.tag)
    return found


def test_what_was_confirmed_is_at_its_offset(tmp_path: Path) -> None:
    sent: list[bytes] = []
    for turn in range(3):
        with killed_afterwards(tmp_path / "data") as channel:
            channel.queue_declare("s", durable=True, arguments=STREAM)
            assert read(channel, "s", len(sent)) == list(enumerate(sent))
            more = [b"%d-%d" % (turn, i) for i in range(50)]
            put(channel, "s", *more)
            sent += more
            assert read(channel, "s", len(sent)) == list(enumerate(sent))


def test_what_was_deleted_stays_away(tmp_path: Path) -> None:
    with killed_afterwards(tmp_path / "data") as channel:
        for name in ("kept", "gone"):
            channel.queue_declare(name, durable=True, arguments=STREAM)
            put(channel, name, b"1")
        channel.queue_delete("gone")
    with killed_afterwards(tmp_path / "data") as channel:
        with pytest.raises(pika.exceptions.ChannelClosedByBroker):
            channel.connection.channel().queue_declare("gone", passive=True)
        assert read(channel, "kept", 1) == [(0, b"1")]
        channel.queue_declare("gone", durable=True, arguments=STREAM)
        put(channel, "gone", b"2")
        assert read(channel, "gone", 1) == [(0, b"2")]
    assert len(list((tmp_path / "data" / "streams").iterdir())) == 2
