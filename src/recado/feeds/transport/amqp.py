"""Feeds on a broker: plain AMQP 0-9-1, on recado and RabbitMQ, which need no support for feeds.

    broadcast   topic exchange `feed.F`            a member's queue is exclusive and auto-deleted; an archive's
                                                   is durable and outlives it: `feed.F.archive.NAME`
    addressed   direct exchange `feed.F.archive`   bound by the member's id and `members`, for an archive by
                                                   `archives`, too, and by `coordinators` while it listens

Packets with messages are persistent and confirmed, and are published again until they are; all others are
transient. A subscriber acks broadcasts as it processes them, an archiver as it stores them, so the broker keeps
everything that an archive may lose.

AQ1  `broadcasts_confirmed(n)` follows the broker's confirm of every broadcast up to n; nacked packets are
     published again.
AQ2  Only one archiver at a time consumes the queue of its name.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from recado.amqp.errors import AmqpError
from recado.amqp.properties import Properties, encode_properties
from recado.amqp.values import FieldTable
from recado.client import (
    ChannelClosedByBrokerError,
    ClientError,
    ConnectionLostError,
    Consumer,
    Delivery,
    RobustChannel,
    RobustConnection,
    connect,
)
from recado.client.events import (
    ConnectionEvent,
    ConnectionLost,
    ConnectionRecovered,
    ReconnectAbandoned,
)
from recado.feeds.boundary import ARCHIVES, COORDINATORS, MEMBERS, PacketRoute, Target
from recado.feeds.errors import JoinError
from recado.feeds.naming import (
    archive_queue_name,
    broadcast_exchange,
    format_target,
    member_exchange,
    parse_member_id,
)
from recado.feeds.vector import PUBLISHER_ID_BYTES
from recado.feeds.views import MemberId, Role
from recado.feeds.wire import read_message_extent

from .endpoint import NO_TAG, PacketListener

MAX_PACKET_BYTES: Final = 1 << 20
PREFETCH_COUNTS: Final = {Role.SUBSCRIBER: 256, Role.ARCHIVE: 1_024}
"""Packets delivered and not acked, by role."""
ACK_PACKET_COUNT: Final = 64
ACK_DELAY_S: Final = 0.01
"""One ack per packet would cost the member and the broker a wakeup each."""
MESSAGE_TYPE: Final = "recado.feed"
QUEUE_WAIT_TIMEOUT_S: Final = 60.0
"""Time for the broker to notice that the previous connection of an archive is dead."""
RETRY_INTERVAL_S: Final = 0.5
CLOSE_TIMEOUT_S: Final = 2.0
"""Seconds to wait for a channel to close; after that the connection is considered lost."""

log = logging.getLogger("recado.feeds")


class AmqpFeedTransport:
    layer_name = "AMQP"
    max_packet_bytes = MAX_PACKET_BYTES

    def __init__(self, connection: RobustConnection) -> None:
        self._connection = connection
        self._endpoints: set[AmqpEndpoint] = set()

    @property
    def is_connected(self) -> bool:
        return self._connection.is_connected

    @classmethod
    async def open(
        cls, url: str, reconnect_timeout: float | None, *, wait_for_broker: bool
    ) -> AmqpFeedTransport:
        transport: AmqpFeedTransport

        def on_event(event: ConnectionEvent) -> None:
            match event:
                case ConnectionLost(error):
                    log.warning("broker connection of feeds lost: reconnecting (error=%s)", error)
                case ConnectionRecovered(_, seconds):
                    log.warning("broker connection of feeds restored (after_s=%.1f)", seconds)
                case ReconnectAbandoned(error):
                    transport._notify_lost(error)
                case _:
                    pass

        try:
            connection = await connect(
                url,
                name="recado feed",
                on_event=on_event,
                reconnect_timeout=reconnect_timeout,
                wait_for_broker=wait_for_broker,
            )
        except ClientError as error:
            raise JoinError(str(error)) from error
        transport = cls(connection)
        return transport

    def _notify_lost(self, error: Exception) -> None:
        for endpoint in list(self._endpoints):
            endpoint.listener.transport_lost(error)

    async def join(
        self, feed: str, member_id: MemberId, role: Role, listener: PacketListener
    ) -> AmqpEndpoint:
        endpoint = AmqpEndpoint(
            self._connection, feed, member_id, role, listener, self._endpoints.discard
        )
        self._endpoints.add(endpoint)
        try:
            await endpoint.open()
        except BaseException as error:
            await endpoint.close()
            if isinstance(error, ClientError):
                raise JoinError(f"cannot join feed {feed}: {error}") from error
            raise
        return endpoint

    async def close(self) -> None:
        await self._connection.close()


class UnconfirmedPacket:
    """A broadcast with messages that is not confirmed yet."""

    __slots__ = ("is_confirmed", "key", "last_sequence", "packet")

    def __init__(self, number: int, packet: bytes, key: str) -> None:
        self.last_sequence = number
        self.packet = packet
        self.key = key
        self.is_confirmed = False


class AmqpEndpoint:
    def __init__(
        self,
        connection: RobustConnection,
        feed: str,
        member_id: MemberId,
        role: Role,
        listener: PacketListener,
        on_close: Callable[[AmqpEndpoint], object],
    ) -> None:
        self.listener = listener
        self._connection = connection
        self._feed = feed
        self._broadcast_exchange, self._member_exchange = (
            broadcast_exchange(feed),
            member_exchange(feed),
        )
        self._member_id = member_id
        self._role = role
        self._on_close = on_close
        self._loop = asyncio.get_running_loop()
        self._tasks: list[asyncio.Task[None]] = []
        self._channels: list[RobustChannel] = []
        self._transient_properties = encode_properties(
            Properties(type=MESSAGE_TYPE, delivery_mode=1, reply_to=format_target(member_id))
        )
        self._unconfirmed: deque[UnconfirmedPacket] = deque()
        self._by_delivery_number: dict[int, UnconfirmedPacket] = {}
        self._last_tag = NO_TAG
        self._unsettled: deque[tuple[int, Delivery]] = deque()
        self._ack_up_to: Delivery | None = None
        self._unacked_count = 0  # settled packets without an ack
        self._ack_timer: asyncio.TimerHandle | None = None
        self._closed = False
        self._wants_coordinator_packets = False  # whether to receive packets to coordinators,
        self._is_coordinator_bound = False  # and whether the binding exists
        self._bind_task: asyncio.Task[None] | None = None

    # --- opening

    async def open(self) -> None:
        self._publish_channel = await self._channel(confirms=self._role is Role.PUBLISHER)
        self._publish_channel.on_confirm = self._on_confirm
        await self._publish_channel.declare_exchange(
            self._broadcast_exchange, "topic", durable=True
        )
        await self._publish_channel.declare_exchange(self._member_exchange, "direct", durable=True)
        if self._role is not Role.PUBLISHER:
            for_members = await self._consume_member_queue()
            for_all = await self._consume_broadcasts()
            self._tasks = [
                self._loop.create_task(self._receive_addressed(for_members)),
                self._loop.create_task(self._receive_broadcasts(for_all)),
            ]

    async def _channel(self, *, confirms: bool = False) -> RobustChannel:
        channel = await self._connection.channel(confirms=confirms)
        self._channels.append(channel)
        return channel

    async def _consume_member_queue(self) -> Consumer:
        channel = await self._channel()
        queue = await channel.declare_queue(exclusive=True, auto_delete=True)
        self._member_channel, self._member_queue = channel, queue.name
        keys = [format_target(self._member_id), MEMBERS]
        if self._role is Role.ARCHIVE:
            keys.append(ARCHIVES)
        for key in keys:
            await channel.bind_queue(queue.name, self._member_exchange, key)
        return await channel.consume(queue.name, no_ack=True)

    async def _consume_broadcasts(self) -> Consumer:
        until = self._loop.time() + QUEUE_WAIT_TIMEOUT_S
        while True:
            channel = await self._channel()
            try:
                await channel.qos(PREFETCH_COUNTS[self._role])
                if self._role is Role.ARCHIVE:
                    name = archive_queue_name(self._feed, self._member_id.name)
                    await channel.declare_queue(name, durable=True)
                else:
                    queue = await channel.declare_queue(exclusive=True, auto_delete=True)
                    name = queue.name
                await channel.bind_queue(name, self._broadcast_exchange, "#")
                return await channel.consume(name, exclusive=True)
            except ChannelClosedByBrokerError as error:
                self._channels.remove(channel)
                if not error.is_exclusively_locked or self._loop.time() > until:
                    raise
                log.info(
                    "waiting for the queue of the archive: another consumer has it (archive=%s)",
                    self._member_id.name,
                )
            await asyncio.sleep(
                RETRY_INTERVAL_S
            )  # the broker sends no event when a queue becomes free

    # --- input

    async def _receive_addressed(self, consumer: Consumer) -> None:
        try:
            async for deliveries in consumer.batches():
                for delivery in deliveries:
                    self._notify_packet(PacketRoute.ADDRESSED, delivery, NO_TAG)
        except ClientError as error:
            self._notify_error(error)

    async def _receive_broadcasts(self, consumer: Consumer) -> None:
        while True:
            try:
                async for deliveries in consumer.batches():
                    for delivery in deliveries:
                        self._last_tag += 1
                        self._unsettled.append((self._last_tag, delivery))
                        self._notify_packet(PacketRoute.BROADCAST, delivery, self._last_tag)
                return None
            except ChannelClosedByBrokerError as error:
                if not error.is_exclusively_locked:
                    return self._notify_error(error)
            except ClientError as error:
                return self._notify_error(error)
            # After a reconnection the broker may still consider our last connection alive.
            try:
                consumer = await self._consume_broadcasts()
            except ClientError as error:
                return self._notify_error(error)

    def _notify_packet(self, route: PacketRoute, delivery: Delivery, tag: int) -> None:
        sender = read_sender(delivery)
        if sender is not None:
            self.listener.packet_received(route, sender, delivery.body, tag)
        elif tag != NO_TAG:
            # Not a packet of a feed: the listener rejects the empty packet as malformed and settles its tag.
            self.listener.packet_received(route, UNKNOWN_SENDER, b"", tag)

    def _notify_error(self, error: Exception) -> None:
        if not self._closed:
            self.listener.transport_lost(error)

    def listen_to_coordinators(self, *, enabled: bool) -> None:
        self._wants_coordinator_packets = enabled
        if self._bind_task is None and not self._closed:
            self._bind_task = self._loop.create_task(self._update_coordinator_binding())
            self._tasks.append(self._bind_task)

    async def _update_coordinator_binding(self) -> None:
        channel, queue = self._member_channel, self._member_queue
        try:
            while self._is_coordinator_bound != self._wants_coordinator_packets:
                wanted = self._wants_coordinator_packets
                if wanted:
                    await channel.bind_queue(queue, self._member_exchange, COORDINATORS)
                else:
                    await channel.unbind_queue(queue, self._member_exchange, COORDINATORS)
                self._is_coordinator_bound = wanted
        except ClientError as error:
            self._notify_error(error)
        finally:
            if self._bind_task is not None:
                self._tasks.remove(self._bind_task)
            self._bind_task = None

    def settle(self, last_tag: int) -> None:
        """Settle packets up to a tag: one ack for all within ACK_DELAY_S, or for ACK_PACKET_COUNT packets."""
        last = None
        while self._unsettled and self._unsettled[0][0] <= last_tag:
            _, last = self._unsettled.popleft()
            self._unacked_count += 1
        if last is None:
            return
        self._ack_up_to = last
        if self._unacked_count >= ACK_PACKET_COUNT:
            self._send_ack()
        elif self._ack_timer is None:
            self._ack_timer = self._loop.call_later(ACK_DELAY_S, self._send_ack)

    def _send_ack(self) -> None:
        if self._ack_timer is not None:
            self._ack_timer.cancel()
            self._ack_timer = None
        last, self._ack_up_to, self._unacked_count = self._ack_up_to, None, 0
        if last is not None and not self._closed:
            last.ack(multiple=True)

    # --- output

    def broadcast(self, packet: bytes, key: str, last_sequence: int) -> None:
        if not last_sequence:
            self._publish_transient(self._broadcast_exchange, key, packet)
            return
        posted = UnconfirmedPacket(last_sequence, packet, key)
        self._unconfirmed.append(posted)
        self._publish_persistent(posted)

    def _publish_persistent(self, posted: UnconfirmedPacket) -> None:
        if self._closed:
            return
        headers: FieldTable = {
            "publisher": self._member_id.incarnation.hex(),
            "last": posted.last_sequence,
        }
        properties = Properties(type=MESSAGE_TYPE, delivery_mode=2, headers=headers)
        try:
            number = self._publish_channel.publish(
                self._broadcast_exchange, posted.key, posted.packet, properties
            )
        except ClientError as error:
            self._loop.call_soon(self._notify_error, error)
        else:
            self._by_delivery_number[number] = posted

    def send(self, to: Target, packet: bytes) -> None:
        self._publish_transient(self._member_exchange, format_target(to), packet)

    def _publish_transient(self, exchange: str, key: str, packet: bytes) -> None:
        """Publish a transient packet; while the connection is lost it is dropped."""
        if self._connection.is_connected and not self._closed:
            try:
                self._publish_channel.publish(exchange, key, packet, self._transient_properties)
            except ConnectionLostError:
                pass
            except ClientError as error:
                self._loop.call_soon(self._notify_error, error)

    def _on_confirm(self, numbers: range, ok: bool) -> None:
        for number in numbers:
            posted = self._by_delivery_number.pop(number, None)
            if posted is None:
                continue
            if ok:
                posted.is_confirmed = True
            else:
                log.warning("publish nacked by the broker: retrying (feed=%s)", self._feed)
                self._loop.call_later(RETRY_INTERVAL_S, self._publish_persistent, posted)
        confirmed = 0
        while self._unconfirmed and self._unconfirmed[0].is_confirmed:
            confirmed = self._unconfirmed.popleft().last_sequence
        if confirmed and not self._closed:
            self.listener.broadcasts_confirmed(confirmed)

    # --- end

    async def close(self) -> None:
        if self._closed:
            return
        self._send_ack()
        self._closed = True
        self._on_close(self)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for channel in self._channels:
            with suppress(ClientError, TimeoutError):
                async with asyncio.timeout(CLOSE_TIMEOUT_S):
                    await channel.close()


UNKNOWN_SENDER: Final = MemberId("", bytes(PUBLISHER_ID_BYTES))


def read_sender(delivery: Delivery) -> MemberId | None:
    """Return the sender of a delivery. Packets with messages contain their publisher; for others the properties
    are decoded, which takes longer."""
    messages = read_message_extent(delivery.body)
    if messages is not None:
        return MemberId("", messages[0])
    try:
        return parse_member_id(delivery.properties.reply_to or "")
    except AmqpError:
        return None
