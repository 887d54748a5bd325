"""Sends the numbers 0, 1, …, to each queue and into the archive."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Final

from bench.pipeline_crash.routes import Layout, Source
from recado.amqp.properties import Properties
from recado.client import BlockingChannel, connect_blocking
from recado.feeds.archive.store import ArchiveStore
from recado.feeds.block import Block
from recado.feeds.boundary import MessageBatch
from recado.feeds.views import NO_VIEW

PUBLISHER: Final = bytes(16)
AT_A_TIME: Final = 10
PACE: Final = 0.2  # seconds between two groups


class Sender(Thread):
    """Runs until it is stopped."""

    def __init__(
        self,
        store: ArchiveStore,
        queues: Sequence[Source],
        channels: Mapping[str, BlockingChannel],
    ) -> None:
        super().__init__(name="sender")
        self.sent = 0
        self._store = store
        self._queues = queues
        self._channels = channels
        self._enough = Event()
        self._error: Exception | None = None

    def run(self) -> None:
        try:
            while not self._enough.wait(PACE):
                self._send(range(self.sent, self.sent + AT_A_TIME))
                self.sent += AT_A_TIME
        except Exception as error:  # noqa: BLE001 - raised where somebody waits for it
            self._error = error

    def _send(self, numbers: range) -> None:
        bodies = [b"%d" % number for number in numbers]
        self._store.append([MessageBatch(PUBLISHER, numbers[0] + 1, Block.build(bodies), NO_VIEW)])
        self._store.sync()
        for queue in self._queues:
            for number, body in zip(numbers, bodies, strict=True):
                named = f"id-{number}" if queue.ids else None
                properties = Properties(message_id=named, delivery_mode=2)
                self._channels[queue.broker].publish("", queue.name, body, properties)
        for channel in self._channels.values():
            channel.wait_for_confirms()

    def stop(self) -> None:
        self._enough.set()
        self.join()
        if self._error is not None:
            raise self._error


@contextmanager
def sending(folder: Path, layout: Layout) -> Iterator[Sender]:
    with ExitStack() as stack:
        store = stack.enter_context(ArchiveStore(folder / "archive", "numbers"))
        channels = {
            name: stack.enter_context(connect_blocking(url)).channel()
            for name, url in layout.urls.items()
        }
        sender = Sender(store, layout.queues, channels)
        sender.start()
        try:
            yield sender
        finally:
            sender._enough.set()
            sender.join()
