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

from recado.actors.remote.errors import LinkClosedError
from recado.amqp.properties import Properties, encode_properties
from recado.client import (
    CannotConnectError,
    Channel,
    Connection,
    ConnectionClosedByClientError,
    ConnectionParameters,
    ConnectionRejectedError,
    ReturnedMessage,
)

from . import naming
from .confirmation import BridgePublisher, CheckpointPublisher, ConfirmPublisher
from .frame_batch import BATCH_MAX_FRAMES
from .handler import BridgeFrameHandler, ReportingBridgeListener
from .outbox import BridgeOutbox, OutboxEntry
from .retry import BridgeRetries
from .settings import AmqpSettings
from .storage import EXCHANGE_PARAMETERS, QUEUE_PARAMETERS, ConnectionSharing, Storage
from .topology import BindingSpec, ExchangeSpec, QueueSpec, TopologyObject

NACKED: Final = "the broker refused it"


class BridgeTopology(msgspec.Struct, frozen=True):
    """What a bridge has on the broker."""

    name: str
    exchange: str
    read_objects: tuple[TopologyObject, ...]
    queue: str
    write_objects: tuple[TopologyObject, ...]
    probe_key: str | None
    """The key under which somebody must be found before anything is written."""


def server_topology(node: str, storage: Storage) -> BridgeTopology:
    exchange = ExchangeSpec(naming.inbound_exchange(node), EXCHANGE_PARAMETERS[storage])
    queue = QueueSpec(naming.inbound_queue(node), QUEUE_PARAMETERS[storage])
    binding = BindingSpec(queue.name, exchange.name, naming.key_to_server(node))
    # Both channels need the exchange, and neither knows which of them comes first.
    return BridgeTopology(
        name=f"server {node}",
        exchange=exchange.name,
        read_objects=(exchange, queue, binding),
        queue=queue.name,
        write_objects=(exchange,),
        probe_key=None,
    )


def client_topology(node: str, client_id: str, storage: Storage) -> BridgeTopology:
    queue = QueueSpec(naming.outbound_queue(node, client_id), QUEUE_PARAMETERS[storage])
    exchange = naming.inbound_exchange(node)
    return BridgeTopology(
        name=f"client {client_id} of {node}",
        exchange=exchange,
        read_objects=(
            queue,
            BindingSpec(queue.name, exchange, naming.key_to_client(node, client_id)),
        ),
        queue=queue.name,
        write_objects=(),
        probe_key=naming.key_to_server(node),
    )


class Bridge:
    def __init__(
        self,
        topology: BridgeTopology,
        address: ConnectionParameters,
        sharing: ConnectionSharing,
        settings: AmqpSettings,
        handler: BridgeFrameHandler,
        listener: ReportingBridgeListener,
        *,
        max_frame_bytes: int,
        client_id: str | None = None,
    ) -> None:
        self.topology = topology
        self.address = address
        self.sharing = sharing
        self.settings = settings
        self.handler = handler
        self.max_frame_bytes = max_frame_bytes
        self.connect_retries = BridgeRetries(settings.backoff)
        # The server bridge does not depend on another node.
        search = settings.backoff if topology.probe_key is None else settings.search_backoff
        self.read_retries = BridgeRetries(search)
        self.write_retries = BridgeRetries(search)
        self.outbox = BridgeOutbox(settings.send_buffer_bytes)
        self.connections: list[Connection] = []
        self.cancel_connect: Callable[[], object] | None = None  # an attempt to connect
        self.close_reason: str | None = None
        self.last_error: Exception | None = None  # the last one, while it is not up
        self.first_up = asyncio.get_running_loop().create_future()
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self._is_reading = False
        self._publisher: BridgePublisher | None = None  # on a channel, while there is one
        self._has_been_up = False
        self._is_lost = False
        self._lost_at = 0.0
        self._report_timer: asyncio.TimerHandle | None = None  # while it is lost
        self._absent_since: float | None = None
        self._waiters: list[asyncio.Future[None]] = []
        # One message came, and nothing was posted since: what is next is its answer, or what had to wait for
        # it, and goes out at once. All else goes together with what is posted in the same turn, up to TOGETHER.
        self.send_at_once = True
        self._send_scheduled = False
        self.is_durable = settings.persistent and settings.storage is Storage.DURABLE
        mode = 2 if self.is_durable else 1
        self._properties = encode_properties(Properties(reply_to=client_id, delivery_mode=mode))

    # ── out ───────────────────────────────────────────────────────────────────────────────────────────────

    def post(self, key: str, frame: bytes) -> None:
        """Take it (BR1). Raises `LimitExceededError` if too much waits, `Gone` if there is nothing to wait for."""
        if self.close_reason is not None:
            raise LinkClosedError(self.close_reason)
        self.outbox.put(key, frame)
        if self._publisher is None:
            return
        if self.send_at_once or self.outbox.waiting_count >= BATCH_MAX_FRAMES:
            self.send_at_once = False
            self._send()
        elif not self._send_scheduled:
            self._send_scheduled = True
            self._loop.call_soon(self._send_turn)

    def _send_turn(self) -> None:
        self._send_scheduled = False
        self._send()

    def _send(self) -> None:
        """All that waits, now."""
        if self._publisher is not None and self.outbox.waiting_count:
            self._publisher.channel.protocol.call_and_flush(self._publish, self._publisher)

    def _publish(self, publisher: BridgePublisher) -> None:
        outbox = self.outbox
        while outbox.waiting_count:
            message = outbox.next_message()
            number = publisher.publish(
                self.topology.exchange, message.key, message.body, self._properties
            )
            outbox.mark_published(number, message)

    async def drain(self) -> None:
        while not self.outbox.has_room:
            if self._publisher is not None:
                self._publisher.request_confirm()
            await self._wait_for_change()
        if self.close_reason is not None:
            raise LinkClosedError(self.close_reason)

    async def wait_until_confirmed(self) -> None:
        """Wait until all is confirmed or came back; also for a channel, unless there will be none."""
        while not self.outbox.is_empty and not isinstance(self.last_error, ConnectionRejectedError):
            if self._publisher is not None:
                self._publisher.request_confirm()
            await self._wait_for_change()

    async def _wait_for_change(self) -> None:
        waiter = self._loop.create_future()
        self._waiters.append(waiter)
        await waiter

    def _notify_change(self) -> None:
        if self._waiters:
            waiters, self._waiters = self._waiters, []
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)

    def _confirmed(self, numbers: range, ok: bool) -> None:
        settled = self.outbox.mark_settled(numbers)
        if not ok:
            for sent in settled:
                self._return_entries(sent.entries(), NACKED)
        self._notify_change()

    def _returned(self, message: ReturnedMessage) -> None:
        found = self.outbox.take_returned(message.routing_key, message.body)
        if found is not None and self._publisher is not None:
            number, sent = found
            self._publisher.mark_returned(number)
            self._return_entries(sent.entries(), f"no route: {message.reply_text}")
            self._notify_change()

    def _return_entries(self, entries: list[OutboxEntry], reason: str) -> None:
        for key, frame in entries:
            self.handler.frame_rejected(key, frame, reason)

    def node_absent(self, reason: str) -> None:
        """The broker is there, and nobody that this bridge leads to. Who was there until now may return."""
        now = self._loop.time()
        if self._absent_since is None:
            self._absent_since = now
        if not self._has_been_up or now - self._absent_since >= self.settings.absence_timeout:
            self._return_all(reason)

    def _return_all(self, reason: str) -> None:
        self._return_entries(self.outbox.take_all(), reason)
        self._notify_change()

    # ── what the actors tell ──────────────────────────────────────────────────────────────────────────────

    def reading_started(self) -> None:
        self._is_reading = True
        self._check_up()

    def writing_started(self, channel: Channel) -> None:
        """Everything that waits goes out on this one, and all that comes."""
        channel.on_return = self._returned
        kind = ConfirmPublisher if self.is_durable else CheckpointPublisher
        self._publisher = kind(channel, self._confirmed)
        self._send()
        self._absent_since = None
        self._check_up()

    def _check_up(self) -> None:
        if not self._is_reading or self._publisher is None:
            return
        self.last_error = None
        self._has_been_up = True
        if not self.first_up.done():
            self.first_up.set_result(None)
        if self._is_lost:
            self._is_lost = False
            self._stop_reporting()
            self._listener.bridge_restored()

    def reading_stopped(self, error: Exception) -> None:
        self._is_reading = False
        self._mark_lost(error)

    def writing_stopped(self, error: Exception) -> None:
        self._publisher = None
        self.outbox.requeue_published()
        self._mark_lost(error)
        self._notify_change()

    def attempt_failed(self, error: Exception) -> None:
        """An attempt did. Who waits for the first one to succeed need not, if the next would fail as well."""
        self._mark_lost(error)
        if isinstance(error, ConnectionRejectedError):
            self._fail_first_up(error)
        self._notify_change()

    def _fail_first_up(self, error: Exception) -> None:
        if not self.first_up.done():
            self.first_up.set_exception(error)
            self.first_up.exception()  # or asyncio would complain where nobody waits for it

    def _mark_lost(self, error: Exception) -> None:
        self.last_error = error
        if not self._is_lost and self.close_reason is None:
            self._is_lost = True
            self._lost_at = self._loop.time()
            self._schedule_report()
            self._listener.bridge_lost(str(error))

    def _schedule_report(self) -> None:
        self._report_timer = self._loop.call_later(self.settings.report_interval, self._report)

    def _report(self) -> None:
        self._schedule_report()
        self._listener.bridge_still_down(self._loop.time() - self._lost_at, str(self.last_error))

    def _stop_reporting(self) -> None:
        if self._report_timer is not None:
            self._report_timer.cancel()

    def give_up(self, error: BaseException) -> None:
        if self.close_reason is None:
            reason = str(error)
            self.close(reason)
            self._listener.bridge_closed(reason)

    def close(self, reason: str) -> None:
        """Nothing is taken any more, what was not sent comes back, and no silent broker is waited for."""
        self.close_reason = reason
        self._fail_first_up(CannotConnectError(f"no bridge for {self.topology.name}: {reason}"))
        self._stop_reporting()
        is_up, self._publisher = self._publisher is not None and self._is_reading, None
        self._return_all(reason)
        if self.cancel_connect is not None:
            self.cancel_connect()
        if not is_up:
            for connection in self.connections:
                connection.abort(ConnectionClosedByClientError())
