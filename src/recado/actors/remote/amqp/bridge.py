"""Bridges: how a node sends and receives through a broker, and the state that survives reconnects.

    server bridge of N   declares the exchange of N, reads the messages for N, writes to the clients of N
    client bridge to N   writes to N, and reads the messages from N to this client

    Bridge ◄── ConnectionActor          supervised: a failed actor is restarted with the state of the bridge,
            ├── ReadChannelActor        and declares its exchanges, queues and bindings again
            └── WriteChannelActor

The actors own the connections and channels (actors.py). While a channel is open the bridge itself publishes on
it, because a mailbox in between would cost more than publishing.

BR1  An accepted frame is published on every new channel until the broker has confirmed or returned it.
BR2  The listener is notified of `bridge_lost` and `bridge_restored` alternately, and of `bridge_closed` at most
     once, at the end. While the bridge is lost it is notified of `bridge_still_down` every `report_interval`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Final, Protocol

from recado.actors.remote.errors import LinkClosedError
from recado.actors.remote.transport import Settle
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

from .confirmation import BridgePublisher, CheckpointPublisher, ConfirmPublisher
from .frame_batch import MAX_BATCH_FRAMES
from .outbox import BridgeOutbox, OutboxEntry
from .retry import BridgeRetries
from .settings import AmqpSettings, ConnectionSharing, Storage
from .topology import BridgeTopology

NACKED: Final = "the broker rejected the message"


class DeliveredFrames:
    """Frames that the broker delivered together, at least one. Each is redelivered until it is settled.

    Frame i came with the encoded properties `headers[i]`, and is settled by `settles[i]`.
    """

    __slots__ = ("frames", "headers", "settles")

    def __init__(
        self, headers: list[bytes], frames: list[bytes], settles: Sequence[Settle]
    ) -> None:
        self.headers = headers
        self.frames = frames
        self.settles = settles

    def group_by_header(self) -> Iterator[DeliveredFrames]:
        """Iterate over the groups of consecutive frames with equal headers."""
        headers = self.headers
        if headers.count(headers[0]) == len(headers):  # the usual case
            yield self
            return
        first = 0
        for _, group in groupby(headers):
            last = first + sum(1 for _ in group)
            part = slice(first, last)
            yield DeliveredFrames(headers[part], self.frames[part], self.settles[part])
            first = last


class BridgeFrameHandler(Protocol):
    """Receives the frames of a bridge; the links implement it."""

    def frames_delivered(self, delivered: DeliveredFrames) -> bool:
        """Handle frames. True: settle them all as accepted now. False: the handler settles each."""

    def frame_rejected(self, key: str, frame: bytes, reason: str) -> None:
        """A posted frame was not delivered: no queue is bound to its key, or the broker rejected it."""


class BridgeListener(Protocol):
    def bridge_lost(self, reason: str) -> None:
        """The broker, or the node on it, cannot be reached; the bridge reconnects."""

    def bridge_restored(self) -> None: ...

    def bridge_closed(self, reason: str) -> None:
        """The bridge was not restored within `reconnect_timeout`."""


class ReportingBridgeListener(BridgeListener, Protocol):
    def bridge_still_down(self, seconds: float, reason: str) -> None:
        """The bridge has been lost for `seconds`; called every `report_interval`."""


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
        self.connect_retries = BridgeRetries(settings.retry_policy)
        # A client bridge depends on another node, which may be absent while the broker is there.
        is_server = topology.probe_key is None
        channel_policy = settings.retry_policy if is_server else settings.search_policy
        self.read_retries = BridgeRetries(channel_policy)
        self.write_retries = BridgeRetries(channel_policy)
        self.outbox = BridgeOutbox(settings.send_buffer_bytes)
        self.connections: list[Connection] = []
        self.cancel_connect: Callable[[], object] | None = None  # during an attempt to connect
        self.close_reason: str | None = None  # set when the bridge is closed
        self.last_error: Exception | None = None  # while the bridge is not up
        self._loop = asyncio.get_running_loop()
        self.first_up = self._loop.create_future()  # done when the bridge is up for the first time
        self._listener = listener
        self._is_reading = False
        self._publisher: BridgePublisher | None = None  # while there is a channel to write on
        self._has_been_up = False
        self._is_lost = False  # and the listener was notified
        self._lost_at = 0.0
        self._report_timer: asyncio.TimerHandle | None = None  # while lost
        self._absent_since: float | None = None
        self._waiters: list[asyncio.Future[None]] = []
        # True after one frame was received and nothing was posted since: the next frame is probably its answer,
        # and is published at once. Other frames wait for those posted in the same turn, up to MAX_BATCH_FRAMES.
        self.send_at_once = True
        self._send_scheduled = False
        self.is_durable = settings.persistent and settings.storage is Storage.DURABLE
        delivery_mode = 2 if self.is_durable else 1
        self._properties = encode_properties(
            Properties(reply_to=client_id, delivery_mode=delivery_mode)
        )

    # ── sending ───────────────────────────────────────────────────────────────────────────────────────────

    def post(self, key: str, frame: bytes) -> None:
        """Accept a frame for sending (BR1).

        Raises LimitExceededError if the outbox is full, LinkClosedError if the bridge is closed.
        """
        if self.close_reason is not None:
            raise LinkClosedError(self.close_reason)
        self.outbox.put(key, frame)
        if self._publisher is None:
            return
        if self.send_at_once or self.outbox.waiting_count >= MAX_BATCH_FRAMES:
            self.send_at_once = False
            self._send()
        elif not self._send_scheduled:
            self._send_scheduled = True
            self._loop.call_soon(self._send_turn)

    def _send_turn(self) -> None:
        self._send_scheduled = False
        self._send()

    def _send(self) -> None:
        """Publish all waiting frames now."""
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
        """Wait until the outbox is at most half full. Raises LinkClosedError if the bridge was closed."""
        while not self.outbox.has_space:
            if self._publisher is not None:
                self._publisher.request_confirm()
            await self._wait_for_change()
        if self.close_reason is not None:
            raise LinkClosedError(self.close_reason)

    async def wait_until_confirmed(self) -> None:
        """Wait until all frames are confirmed or returned, across reconnects, unless the broker rejects us."""
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

    # ── outcomes of published messages ────────────────────────────────────────────────────────────────────

    def _confirmed(self, numbers: range, ok: bool) -> None:
        settled = self.outbox.mark_settled(numbers)
        if not ok:
            for message in settled:
                self._return_entries(message.entries(), NACKED)
        self._notify_change()

    def _returned(self, returned: ReturnedMessage) -> None:
        taken = self.outbox.take_returned(returned.routing_key, returned.body)
        if taken is not None and self._publisher is not None:
            number, message = taken
            self._publisher.mark_returned(number)
            self._return_entries(message.entries(), f"no route: {returned.reply_text}")
            self._notify_change()

    def _return_entries(self, entries: list[OutboxEntry], reason: str) -> None:
        for key, frame in entries:
            self.handler.frame_rejected(key, frame, reason)

    def _return_all(self, reason: str) -> None:
        self._return_entries(self.outbox.take_all(), reason)
        self._notify_change()

    def node_absent(self, reason: str) -> None:
        """The node of a client bridge is not on the broker.

        Frames to it are returned at once if it was never there, otherwise after `absence_timeout`: it may
        return.
        """
        now = self._loop.time()
        if self._absent_since is None:
            self._absent_since = now
        if not self._has_been_up or now - self._absent_since >= self.settings.absence_timeout:
            self._return_all(reason)

    # ── calls of the actors ───────────────────────────────────────────────────────────────────────────────

    def reading_started(self) -> None:
        self._is_reading = True
        self._check_up()

    def writing_started(self, channel: Channel) -> None:
        """Publish all frames on this channel, the waiting and the future ones."""
        channel.on_return = self._returned
        publisher_class = ConfirmPublisher if self.is_durable else CheckpointPublisher
        self._publisher = publisher_class(channel, self._confirmed)
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
        """An attempt of an actor failed. If the broker rejected the connection, `first_up` fails at once,
        because a further attempt would be rejected too."""
        self._mark_lost(error)
        if isinstance(error, ConnectionRejectedError):
            self._fail_first_up(error)
        self._notify_change()

    def _fail_first_up(self, error: Exception) -> None:
        if not self.first_up.done():
            self.first_up.set_exception(error)
            self.first_up.exception()  # otherwise asyncio complains if it is never awaited

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
        down_seconds = self._loop.time() - self._lost_at
        self._listener.bridge_still_down(down_seconds, str(self.last_error))

    def _stop_reporting(self) -> None:
        if self._report_timer is not None:
            self._report_timer.cancel()

    # ── end ───────────────────────────────────────────────────────────────────────────────────────────────

    def abandon(self, error: BaseException) -> None:
        """Close the bridge because it was not restored in time."""
        if self.close_reason is None:
            reason = str(error)
            self.close(reason)
            self._listener.bridge_closed(reason)

    def close(self, reason: str) -> None:
        """Accept no more frames, return the unconfirmed ones, and abort the connections unless the bridge is up."""
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
