"""A disk that is full, and one that fails: publishers wait, nothing is lost, no promise is made in vain.

On a small file system of its own; and in this process, with files that do as they are told.
"""

from __future__ import annotations

import asyncio
import errno
import os
import re
import signal
import time
from collections.abc import Awaitable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import aio_pika
import pytest
from aio_pika.abc import AbstractChannel
from pamqp import body, commands, header

import recado
from recado.journal.disk import FolderFile
from workshop import peers
from workshop.time_limit import scale

from ..small_disk import mounted_disk
from .traffic import PATIENCE
from .wire import Wire, wire_to

T = TypeVar("T")

MIB = 1 << 20
DISK = 170 * MIB
OTHERS = 64 * MIB  # what else is on the disk: with it there is room for one segment and a half
ONE_FILE = 48 * MIB  # for the ballast, and for half of a segment
SIZE = MIB
WINDOW = 3
A_MOMENT = 0.3

NO_LIMIT = "[broker]\ndisk_free_min_bytes = 0\n"
QUEUE = "q"


# ── a small file system ───────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with mounted_disk(tmp_path / "disk", DISK) as folder:
        yield folder


class Publisher:
    """Publishes large messages with confirms, a few at a time."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self.sent = 0
        self.confirmed = 0
        self.blocked: str | None = None
        wire.send(commands.Channel.Open(), channel=1)
        wire.send(commands.Queue.Declare(queue=QUEUE, durable=True), channel=1)
        wire.send(commands.Confirm.Select(), channel=1)
        wire.expect(commands.Channel.OpenOk, commands.Queue.DeclareOk, commands.Confirm.SelectOk)

    def publish(self) -> None:
        content = f"{self.sent}\n".encode().ljust(SIZE, b".")
        about = commands.Basic.Properties(delivery_mode=2)
        start = [commands.Basic.Publish(routing_key=QUEUE), header.ContentHeader(0, SIZE, about)]
        pieces = [content[at : at + MIB // 16] for at in range(0, SIZE, MIB // 16)]
        self.sent += 1
        for each in (*start, *map(body.ContentBody, pieces)):
            self.wire.send(each, channel=1)  # type: ignore[arg-type]

    def hear(self) -> None:
        """One frame."""
        match self.wire.receive()[1]:
            case commands.Basic.Ack() as ack:
                self.confirmed = ack.delivery_tag
            case commands.Connection.Blocked() as blocked:
                self.blocked = blocked.reason
            case commands.Connection.Unblocked():
                self.blocked = None
            case other:
                pytest.fail(f"nobody expects {other}")

    def publish_until_blocked(self) -> None:
        self.wire.socket.settimeout(A_MOMENT)
        deadline = time.monotonic() + scale(PATIENCE)
        while self.blocked is None:
            assert time.monotonic() < deadline
            try:
                if self.sent - self.confirmed < WINDOW:
                    self.publish()
                else:
                    self.hear()
            except TimeoutError:
                self.publish()  # it is told when it publishes, not before
        self.wire.socket.settimeout(scale(PATIENCE))

    def await_confirms(self) -> None:
        while self.blocked or self.confirmed < self.sent:
            self.hear()


def take(wire: Wire) -> int | None:
    """The number of the next message, which is acked; None if there is none."""
    wire.send(commands.Basic.Get(queue=QUEUE, no_ack=True), channel=1)
    found = wire.receive()[1]
    if isinstance(found, commands.Basic.GetEmpty):
        return None
    assert isinstance(found, commands.Basic.GetOk)
    start = wire.receive()[1]
    assert isinstance(start, header.ContentHeader)
    content = b""
    while len(content) < start.body_size:
        piece = wire.receive()[1]
        assert isinstance(piece, body.ContentBody)
        content += piece.value
    return int(content.split(b"\n")[0])


def test_publishers_wait_for_room_and_nothing_is_lost(small_disk: Path) -> None:
    others = small_disk / "others"
    others.write_bytes(bytes(OTHERS))
    with (
        peers.recado(data=small_disk / "data", config=NO_LIMIT, stop=signal.SIGKILL) as server,
        wire_to(server) as wire,
    ):
        publisher = Publisher(wire)
        publisher.publish_until_blocked()
        assert publisher.blocked == "low on disk"
        before = publisher.confirmed
        assert 50 < before < publisher.sent

        with wire_to(server) as other:  # consumers go on
            other.send(commands.Channel.Open(), channel=1)
            other.expect(commands.Channel.OpenOk)
            assert take(other) == 0

        others.unlink()
        publisher.await_confirms()
        assert publisher.confirmed == publisher.sent
        publisher.publish()
        publisher.await_confirms()
        log = server.log.read_text()
        assert re.search(
            r"disk full: publishers are blocked until there is space \(path=/.*\.journal\)", log
        )
        assert "disk full: there is space again" in log

    with peers.recado(data=small_disk / "data", config=NO_LIMIT) as server, wire_to(server) as wire:
        wire.send(commands.Channel.Open(), channel=1)
        wire.expect(commands.Channel.OpenOk)
        assert list(iter(lambda: take(wire), None)) == list(range(1, publisher.sent))


def test_who_consumes_makes_room(small_disk: Path) -> None:
    (small_disk / "others").write_bytes(bytes(OTHERS))
    with (
        peers.recado(data=small_disk / "data", config=NO_LIMIT, stop=signal.SIGKILL) as server,
        wire_to(server) as wire,
        wire_to(server) as consumer,
    ):
        consumer.send(commands.Channel.Open(), channel=1)
        consumer.expect(commands.Channel.OpenOk)
        publisher = Publisher(wire)
        publisher.publish_until_blocked()
        found: list[int] = []
        while len(found) < publisher.confirmed:
            number = take(consumer)
            assert number is not None
            found.append(number)
        publisher.await_confirms()
        while (number := take(consumer)) is not None:
            found.append(number)
        assert found == list(range(publisher.sent))


def test_a_purge_makes_room_where_the_journal_is_one_file(small_disk: Path) -> None:
    (small_disk / "others").write_bytes(bytes(DISK - ONE_FILE))
    with (
        peers.recado(data=small_disk / "data", config=NO_LIMIT) as server,
        wire_to(server) as wire,
        wire_to(server) as other,
    ):
        other.send(commands.Channel.Open(), channel=1)
        other.expect(commands.Channel.OpenOk)
        publisher = Publisher(wire)
        publisher.publish_until_blocked()
        assert len(list((small_disk / "data" / "journal").glob("*.journal"))) == 1
        other.send(commands.Queue.Purge(queue=QUEUE), channel=1)
        other.expect(commands.Queue.PurgeOk)
        publisher.await_confirms()
        publisher.publish()
        publisher.await_confirms()


def test_it_can_be_stopped_and_started_while_the_disk_is_full(small_disk: Path) -> None:
    others = small_disk / "others"
    others.write_bytes(bytes(OTHERS))
    with (
        peers.recado(data=small_disk / "data", config=NO_LIMIT, stop=signal.SIGKILL) as server,
        wire_to(server) as wire,
    ):
        publisher = Publisher(wire)
        publisher.publish_until_blocked()
    for _ in range(2):
        with (
            peers.recado(data=small_disk / "data", config=NO_LIMIT) as server,
            wire_to(server) as wire,
        ):
            wire.send(commands.Channel.Open(), channel=1)
            wire.send(commands.Queue.Declare(queue=QUEUE, passive=True), channel=1)
            wire.expect(commands.Channel.OpenOk)
            found = wire.expect(commands.Queue.DeclareOk)
            assert isinstance(found, commands.Queue.DeclareOk)
            assert publisher.confirmed <= (found.message_count or 0) <= publisher.sent


def test_publishers_wait_before_the_disk_is_full(tmp_path: Path) -> None:
    scarce = "[broker]\ndisk_free_min_bytes = 1152921504606846976\n"
    with peers.recado(data=tmp_path, config=scarce) as server, wire_to(server) as wire:
        publisher = Publisher(wire)
        publisher.publish_until_blocked()
        assert publisher.blocked == "low on disk"


# ── files that do as they are told ────────────────────────────────────────────────────────────────────────


class Moods:
    """What befalls every file of this process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.write: int | None = None
        self.sync: int | None = None
        self.met = asyncio.Event()  # by somebody
        for name, mood in (("write", "write"), ("reserve", "write"), ("sync", "sync")):
            monkeypatch.setattr(FolderFile, name, self._moody(getattr(FolderFile, name), mood))

    def _moody(self, real: Any, mood: str) -> Any:
        def act(file: FolderFile, *arguments: Any) -> None:
            code = getattr(self, mood)
            if code is not None:
                self.met.set()
                raise OSError(code, os.strerror(code))
            real(file, *arguments)

        return act


@pytest.fixture
def moods(monkeypatch: pytest.MonkeyPatch) -> Moods:
    return Moods(monkeypatch)


def run(main: Awaitable[T]) -> T:
    async def within_patience() -> T:
        async with asyncio.timeout(scale(PATIENCE)):
            return await main

    return asyncio.run(within_patience())


async def publish(channel: AbstractChannel, content: str) -> None:
    message = aio_pika.Message(content.encode(), delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
    await channel.default_exchange.publish(message, QUEUE)


async def found_in(folder: Path) -> list[str]:
    """All that is in the queue after a restart."""
    async with (
        recado.Broker(data=folder) as broker,
        await aio_pika.connect(broker.url) as connection,
    ):
        channel = await connection.channel()
        queue = await channel.get_queue(QUEUE)
        found = []
        while (message := await queue.get(no_ack=True, fail=False)) is not None:
            found.append(message.body.decode())
        return found


def test_what_does_not_fit_is_written_later(
    moods: Moods, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with (
            recado.Broker(data=tmp_path) as broker,
            await aio_pika.connect(broker.url) as connection,
        ):
            channel = await connection.channel()
            await channel.declare_queue(QUEUE, durable=True)
            await publish(channel, "1")
            moods.write = errno.ENOSPC
            waiting = [asyncio.ensure_future(publish(channel, each)) for each in ("2", "3")]
            await moods.met.wait()
            assert not any(each.done() for each in waiting)
            moods.write = None
            await asyncio.gather(*waiting)
            await publish(channel, "4")
        assert "disk full: publishers are blocked" in caplog.text
        assert await found_in(tmp_path) == ["1", "2", "3", "4"]

    run(main())


@pytest.mark.parametrize(
    ("mood", "told"), [("sync", "cannot be synced"), ("write", "cannot be written")]
)
def test_after_an_error_of_the_disk_nothing_more_is_promised(
    moods: Moods, tmp_path: Path, mood: str, told: str
) -> None:
    async def main() -> None:
        async with recado.Broker(data=tmp_path) as broker:
            connection = await aio_pika.connect(broker.url)
            channel = await connection.channel()
            await channel.declare_queue(QUEUE, durable=True)
            await publish(channel, "1")
            setattr(moods, mood, errno.EIO)
            waiting = asyncio.ensure_future(publish(channel, "2"))
            reason = await broker.failure
            assert told in reason
            assert os.strerror(errno.EIO) in reason
            with pytest.raises((aio_pika.exceptions.AMQPError, ConnectionError)):
                await waiting
            setattr(moods, mood, None)
        assert await found_in(tmp_path) in (["1"], ["1", "2"])

    run(main())
