"""Bridges: what a node sends and receives through a broker, and what outlives the actors that do it.

    server bridge of N   makes the exchange of N, reads what is for N, writes to clients of N
    client bridge to N   reads what N writes to this client, writes to N

    Bridge ◄── ConnectionActor          supervised: when one fails it is restarted with what is kept here,
            ├── ReadChannelActor        and makes all on the broker anew that it had
            └── WriteChannelActor

The actors own the connection and its channels; what is posted while the channel is there is written by the
bridge itself, because a turn through a mailbox would cost more than the writing.

BR1  A frame that was taken is given to every new channel until the broker has confirmed or returned it.
BR2  Whoever watches hears `lost` and `healed` in turns, and `gone` at most once, at last. In between it hears
     `down` every `report_interval` while the bridge is lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import msgspec

from recado.actors.remote.faults import Gone
from recado.amqp.properties import Properties, encode_properties
from recado.client import (
    Address,
    CannotConnect,
    Channel,
    Connection,
    ConnectionClosed,
    NotWelcome,
    Returned,
)

from . import naming
from .attempts import Attempts
from .handler import MessageHandler, ReportingWatcher
from .objects import Binding, Exchange, Object, Queue
from .outbox import Entry, Outbox
from .parcel import TOGETHER
from .receipts import Checkpoints, Confirms, Receipts
from .settings import AmqpSettings
from .storage import EXCHANGES, QUEUES, Sharing, Storage

REFUSED: Final = "the broker refused it"


class Plan(msgspec.Struct, frozen=True):
    """What a bridge has on the broker."""

    name: str
    exchange: str
    reads: tuple[Object, ...]
    queue: str
    writes: tuple[Object, ...]
    probe: str | None
    """The key under which somebody must be found before anything is written."""


def server_plan(node: str, storage: Storage) -> Plan:
    exchange = Exchange(naming.exchange_in(node), EXCHANGES[storage])
    queue = Queue(naming.queue_in(node), QUEUES[storage])
    binding = Binding(queue.name, exchange.name, naming.key_to_server(node))
    # Both channels need the exchange, and neither knows which of them comes first.
    return Plan(
        name=f"server {node}",
        exchange=exchange.name,
        reads=(exchange, queue, binding),
        queue=queue.name,
        writes=(exchange,),
        probe=None,
    )


def client_plan(node: str, client: str, storage: Storage) -> Plan:
    queue = Queue(naming.queue_out(node, client), QUEUES[storage])
    exchange = naming.exchange_in(node)
    return Plan(
        name=f"client {client} of {node}",
        exchange=exchange,
        reads=(queue, Binding(queue.name, exchange, naming.key_to_client(node, client))),
        queue=queue.name,
        writes=(),
        probe=naming.key_to_server(node),
    )


class Bridge:
    def __init__(
        self,
        plan: Plan,
        address: Address,
        sharing: Sharing,
        settings: AmqpSettings,
        handler: MessageHandler,
        watcher: ReportingWatcher,
        *,
        frame_limit: int,
        client: str | None = None,
    ) -> None:
        self.plan = plan
        self.address = address
        self.sharing = sharing
        self.settings = settings
        self.handler = handler
        self.frame_limit = frame_limit
        self.connecting = Attempts(settings.backoff)
        # The server bridge does not depend on another node.
        search = settings.backoff if plan.probe is None else settings.search_backoff
        self.reading = Attempts(search)
        self.writing = Attempts(search)
        self.outbox = Outbox(settings.hold_limit)
        self.connections: list[Connection] = []
        self.interrupt: Callable[[], object] | None = None  # an attempt to connect
        self.end: str | None = None
        self.error: Exception | None = None  # the last one, while it is not up
        self.up_once = asyncio.get_running_loop().create_future()
        self._watcher = watcher
        self._loop = asyncio.get_running_loop()
        self._reads = False
        self._out: Receipts | None = None  # on a channel, while there is one
        self._was_up = False
        self._was_lost = False
        self._lost_at = 0.0
        self._reporting: asyncio.TimerHandle | None = None  # while it is lost
        self._absent_since: float | None = None
        self._waiters: list[asyncio.Future[None]] = []
        # One message came, and nothing was posted since: what is next is its answer, or what had to wait for
        # it, and goes out at once. All else goes together with what is posted in the same turn, up to TOGETHER.
        self.is_quiet = True
        self._called = False
        self.lasts = settings.persistent and settings.storage is Storage.DURABLE
        mode = 2 if self.lasts else 1
        self._properties = encode_properties(Properties(reply_to=client, delivery_mode=mode))

    # ── out ───────────────────────────────────────────────────────────────────────────────────────────────

    def post(self, key: str, frame: bytes) -> None:
        """Take it (BR1). Raises `Full` if too much waits, `Gone` if there is nothing to wait for."""
        if self.end is not None:
            raise Gone(self.end)
        self.outbox.put(key, frame)
        if self._out is None:
            return
        if self.is_quiet or self.outbox.waits >= TOGETHER:
            self.is_quiet = False
            self._send()
        elif not self._called:
            self._called = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._called = False
        self._send()

    def _send(self) -> None:
        """All that waits, now."""
        if self._out is not None and self.outbox.waits:
            self._out.channel.wire.write_at_once(self._publish, self._out)

    def _publish(self, out: Receipts) -> None:
        outbox = self.outbox
        while outbox.waits:
            sent = outbox.next()
            number = out.publish(self.plan.exchange, sent.key, sent.body, self._properties)
            outbox.out(number, sent)

    async def room(self) -> None:
        while not self.outbox.has_room:
            if self._out is not None:
                self._out.ask()
            await self._change()
        if self.end is not None:
            raise Gone(self.end)

    async def emptied(self) -> None:
        """Wait until all is confirmed or came back; also for a channel, unless there will be none."""
        while not self.outbox.is_empty and not isinstance(self.error, NotWelcome):
            if self._out is not None:
                self._out.ask()
            await self._change()

    async def _change(self) -> None:
        waiter = self._loop.create_future()
        self._waiters.append(waiter)
        await waiter

    def _changed(self) -> None:
        if self._waiters:
            waiters, self._waiters = self._waiters, []
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)

    def _confirmed(self, numbers: range, ok: bool) -> None:
        settled = self.outbox.settled(numbers)
        if not ok:
            for sent in settled:
                self._rejected(sent.entries(), REFUSED)
        self._changed()

    def _returned(self, message: Returned) -> None:
        found = self.outbox.returned(message.routing_key, message.body)
        if found is not None and self._out is not None:
            number, sent = found
            self._out.returned(number)
            self._rejected(sent.entries(), f"no route: {message.text}")
            self._changed()

    def _rejected(self, entries: list[Entry], reason: str) -> None:
        for key, frame in entries:
            self.handler.rejected(key, frame, reason)

    def absent(self, reason: str) -> None:
        """The broker is there, and nobody that this bridge leads to. Who was there until now may return."""
        now = self._loop.time()
        if self._absent_since is None:
            self._absent_since = now
        if not self._was_up or now - self._absent_since >= self.settings.absence:
            self._give_back(reason)

    def _give_back(self, reason: str) -> None:
        self._rejected(self.outbox.drop(), reason)
        self._changed()

    # ── what the actors tell ──────────────────────────────────────────────────────────────────────────────

    def reads(self) -> None:
        self._reads = True
        self._look()

    def writes(self, channel: Channel) -> None:
        """Everything that waits goes out on this one, and all that comes."""
        channel.on_return = self._returned
        kind = Confirms if self.lasts else Checkpoints
        self._out = kind(channel, self._confirmed)
        self._send()
        self._absent_since = None
        self._look()

    def _look(self) -> None:
        if not self._reads or self._out is None:
            return
        self.error = None
        self._was_up = True
        if not self.up_once.done():
            self.up_once.set_result(None)
        if self._was_lost:
            self._was_lost = False
            self._stop_reporting()
            self._watcher.healed()

    def no_longer_reads(self, error: Exception) -> None:
        self._reads = False
        self._lost(error)

    def no_longer_writes(self, error: Exception) -> None:
        self._out = None
        self.outbox.lost()
        self._lost(error)
        self._changed()

    def failed(self, error: Exception) -> None:
        """An attempt did. Who waits for the first one to succeed need not, if the next would fail as well."""
        self._lost(error)
        if isinstance(error, NotWelcome):
            self._never_up(error)
        self._changed()

    def _never_up(self, error: Exception) -> None:
        if not self.up_once.done():
            self.up_once.set_exception(error)
            self.up_once.exception()  # or asyncio would complain where nobody waits for it

    def _lost(self, error: Exception) -> None:
        self.error = error
        if not self._was_lost and self.end is None:
            self._was_lost = True
            self._lost_at = self._loop.time()
            self._report_later()
            self._watcher.lost(str(error))

    def _report_later(self) -> None:
        self._reporting = self._loop.call_later(self.settings.report_interval, self._report)

    def _report(self) -> None:
        self._report_later()
        self._watcher.down(self._loop.time() - self._lost_at, str(self.error))

    def _stop_reporting(self) -> None:
        if self._reporting is not None:
            self._reporting.cancel()

    def gave_up(self, error: BaseException) -> None:
        if self.end is None:
            reason = str(error)
            self.finish(reason)
            self._watcher.gone(reason)

    def finish(self, reason: str) -> None:
        """Nothing is taken any more, what was not sent comes back, and no silent broker is waited for."""
        self.end = reason
        self._never_up(CannotConnect(f"no bridge for {self.plan.name}: {reason}"))
        self._stop_reporting()
        is_up, self._out = self._out is not None and self._reads, None
        self._give_back(reason)
        if self.interrupt is not None:
            self.interrupt()
        if not is_up:
            for connection in self.connections:
                connection.abort(ConnectionClosed())
