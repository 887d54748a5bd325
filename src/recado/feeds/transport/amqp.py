"""Feeds on a broker: plain AMQP 0-9-1, the same on recado and on RabbitMQ, which know nothing of feeds.

    channel P   topic exchange `feed.F`            a member's queue is its own and goes with it; an archive's
                                                   is durable and waits for it: `feed.F.archive.NAME`
    channel A   direct exchange `feed.F.archive`   bound by the member's id and `members`, an archive's also by
                                                   `archives`, and by `coordinators` while the member listens
                                                   to what is sent to those

What has messages is persistent and confirmed, and is repeated until it is; everything else is transient. A
member settles what came on P as it is processed, an archive as it is stored, so a broker keeps what an archive
may lose.

AQ1  `confirmed(n)` follows the broker's confirm of every cast up to n; what it refuses is cast again.
AQ2  Only one archive at a time has the queue of its name.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from recado.amqp.errors import ProtocolError
from recado.amqp.properties import Properties, encode_properties
from recado.amqp.values import Table
from recado.client import (
    ChannelRefused,
    ClientError,
    ConnectionLost,
    Consumer,
    Delivery,
    RobustChannel,
    RobustConnection,
    connect,
)
from recado.client.notices import GivenUp, Lost, Notice, Restored
from recado.feeds.boundary import ARCHIVES, COORDINATORS, MEMBERS, Channel, Target
from recado.feeds.errors import CannotJoin
from recado.feeds.naming import archive_queue, exchange_a, exchange_p, id_of, text_of
from recado.feeds.vector import PUBLISHER_SIZE
from recado.feeds.views import MemberId, Role
from recado.feeds.wire import extent

from .port import UNTAGGED, Listener

LARGEST: Final = 1 << 20
PREFETCH: Final = {Role.SUBSCRIBER: 256, Role.ARCHIVE: 1_024}
"""Packets that came and are not settled."""
ACK_PACKETS: Final = 64
ACK_SECONDS: Final = 0.01
"""An ack for each costs a member and its broker a wake-up that nobody waits for."""
TYPE: Final = "recado.feed"
PATIENCE: Final = 60.0
"""Seconds for the broker to notice that an archive's last life is over."""
AGAIN_SECONDS: Final = 0.5
CLOSE_SECONDS: Final = 2.0
"""Longer, and the connection is not there to be told."""

log = logging.getLogger("recado.feeds")


class AmqpCarrier:
    transport = "AMQP"
    largest = LARGEST

    def __init__(self, connection: RobustConnection) -> None:
        self._connection = connection
        self._ports: set[AmqpPort] = set()

    @classmethod
    async def open(cls, url: str, give_up: float | None, *, patient: bool) -> AmqpCarrier:
        carrier: AmqpCarrier

        def on_event(event: Notice) -> None:
            match event:
                case Lost(error):
                    log.warning("feeds are without their broker, and wait for it: %s", error)
                case Restored(_, seconds):
                    log.warning("feeds have their broker again after %.1f s", seconds)
                case GivenUp(error):
                    carrier._given_up(error)
                case _:
                    pass

        try:
            connection = await connect(
                url, name="recado feed", on_event=on_event, give_up=give_up, patient=patient
            )
        except ClientError as error:
            raise CannotJoin(str(error)) from error
        carrier = cls(connection)
        return carrier

    def _given_up(self, error: Exception) -> None:
        for port in list(self._ports):
            port.listener.broken(error)

    async def join(self, feed: str, me: MemberId, role: Role, listener: Listener) -> AmqpPort:
        port = AmqpPort(self._connection, feed, me, role, listener, self._ports.discard)
        self._ports.add(port)
        try:
            await port.open()
        except BaseException as error:
            await port.close()
            if isinstance(error, ClientError):
                raise CannotJoin(f"cannot join the feed {feed}: {error}") from error
            raise
        return port

    async def close(self) -> None:
        await self._connection.close()


class Posted:
    """A cast with messages, until it is confirmed."""

    __slots__ = ("done", "key", "number", "packet")

    def __init__(self, number: int, packet: bytes, key: str) -> None:
        self.number = number
        self.packet = packet
        self.key = key
        self.done = False


class AmqpPort:
    def __init__(
        self,
        connection: RobustConnection,
        feed: str,
        me: MemberId,
        role: Role,
        listener: Listener,
        forget: Callable[[AmqpPort], object],
    ) -> None:
        self.listener = listener
        self._connection = connection
        self._feed = feed
        self._p, self._a = exchange_p(feed), exchange_a(feed)
        self._me = me
        self._role = role
        self._forget = forget
        self._loop = asyncio.get_running_loop()
        self._tasks: list[asyncio.Task[None]] = []
        self._channels: list[RobustChannel] = []
        self._transient = encode_properties(
            Properties(type=TYPE, delivery_mode=1, reply_to=text_of(me))
        )
        self._posted: deque[Posted] = deque()
        self._by_number: dict[int, Posted] = {}
        self._tag = UNTAGGED
        self._unsettled: deque[tuple[int, Delivery]] = deque()
        self._settles: Delivery | None = None
        self._owed = 0  # packets that are settled and not acknowledged
        self._ack_timer: asyncio.TimerHandle | None = None
        self._closed = False
        self._listens = False  # to what is sent to coordinators,
        self._is_bound = False  # and whether the broker has been told
        self._binding: asyncio.Task[None] | None = None

    # --- the beginning

    async def open(self) -> None:
        self._out = await self._channel(confirms=self._role is Role.PUBLISHER)
        self._out.on_confirm = self._on_confirm
        await self._out.declare_exchange(self._p, "topic", durable=True)
        await self._out.declare_exchange(self._a, "direct", durable=True)
        if self._role is not Role.PUBLISHER:
            for_members = await self._consume_a()
            for_all = await self._consume_p()
            self._tasks = [
                self._loop.create_task(self._hear_a(for_members)),
                self._loop.create_task(self._hear_p(for_all)),
            ]

    async def _channel(self, *, confirms: bool = False) -> RobustChannel:
        channel = await self._connection.channel(confirms=confirms)
        self._channels.append(channel)
        return channel

    async def _consume_a(self) -> Consumer:
        channel = await self._channel()
        queue = await channel.declare_queue(exclusive=True, auto_delete=True)
        self._for_members, self._queue_a = channel, queue.name
        keys = [text_of(self._me), MEMBERS]
        if self._role is Role.ARCHIVE:
            keys.append(ARCHIVES)
        for key in keys:
            await channel.bind_queue(queue.name, self._a, key)
        return await channel.consume(queue.name, no_ack=True)

    async def _consume_p(self) -> Consumer:
        until = self._loop.time() + PATIENCE
        while True:
            channel = await self._channel()
            try:
                await channel.qos(PREFETCH[self._role])
                if self._role is Role.ARCHIVE:
                    name = archive_queue(self._feed, self._me.name)
                    await channel.declare_queue(name, durable=True)
                else:
                    queue = await channel.declare_queue(exclusive=True, auto_delete=True)
                    name = queue.name
                await channel.bind_queue(name, self._p, "#")
                return await channel.consume(name, exclusive=True)
            except ChannelRefused as error:
                self._channels.remove(channel)
                if not error.is_held or self._loop.time() > until:
                    raise
                log.info("another archive %s is at work, or was until now", self._me.name)
            await asyncio.sleep(AGAIN_SECONDS)  # the broker does not tell when a queue is free

    # --- in

    async def _hear_a(self, consumer: Consumer) -> None:
        try:
            async for deliveries in consumer.batches():
                for delivery in deliveries:
                    self._arrive(Channel.A, delivery, UNTAGGED)
        except ClientError as error:
            self._broken(error)

    async def _hear_p(self, consumer: Consumer) -> None:
        while True:
            try:
                async for deliveries in consumer.batches():
                    for delivery in deliveries:
                        self._tag += 1
                        self._unsettled.append((self._tag, delivery))
                        self._arrive(Channel.P, delivery, self._tag)
                return None
            except ChannelRefused as error:
                if not error.is_held:
                    return self._broken(error)
            except ClientError as error:
                return self._broken(error)
            # After a reconnection the broker may still take our last connection for alive.
            try:
                consumer = await self._consume_p()
            except ClientError as error:
                return self._broken(error)

    def _arrive(self, channel: Channel, delivery: Delivery, tag: int) -> None:
        sender = sender_of(delivery)
        if sender is not None:
            self.listener.arrived(channel, sender, delivery.body, tag)
        elif tag != UNTAGGED:  # somebody else's message, of no meaning here
            self.listener.arrived(channel, NOBODY, b"", tag)

    def _broken(self, error: Exception) -> None:
        if not self._closed:
            self.listener.broken(error)

    def listen(self, *, to_coordinators: bool) -> None:
        self._listens = to_coordinators
        if self._binding is None and not self._closed:
            self._binding = self._loop.create_task(self._bind())
            self._tasks.append(self._binding)

    async def _bind(self) -> None:
        channel, queue = self._for_members, self._queue_a
        try:
            while self._is_bound != self._listens:
                wanted = self._listens
                if wanted:
                    await channel.bind_queue(queue, self._a, COORDINATORS)
                else:
                    await channel.unbind_queue(queue, self._a, COORDINATORS)
                self._is_bound = wanted
        except ClientError as error:
            self._broken(error)
        finally:
            if self._binding is not None:
                self._tasks.remove(self._binding)
            self._binding = None

    def settle(self, upto: int) -> None:
        """One ack for all that is settled within some milliseconds, unless that is much."""
        last = None
        while self._unsettled and self._unsettled[0][0] <= upto:
            _, last = self._unsettled.popleft()
            self._owed += 1
        if last is None:
            return
        self._settles = last
        if self._owed >= ACK_PACKETS:
            self._acknowledge()
        elif self._ack_timer is None:
            self._ack_timer = self._loop.call_later(ACK_SECONDS, self._acknowledge)

    def _acknowledge(self) -> None:
        if self._ack_timer is not None:
            self._ack_timer.cancel()
            self._ack_timer = None
        last, self._settles, self._owed = self._settles, None, 0
        if last is not None and not self._closed:
            last.ack(multiple=True)

    # --- out

    def cast(self, packet: bytes, key: str, number: int) -> None:
        if not number:
            self._publish(self._p, key, packet)
            return
        posted = Posted(number, packet, key)
        self._posted.append(posted)
        self._post(posted)

    def _post(self, posted: Posted) -> None:
        if self._closed:
            return
        headers: Table = {"publisher": self._me.incarnation.hex(), "last": posted.number}
        properties = Properties(type=TYPE, delivery_mode=2, headers=headers)
        try:
            number = self._out.publish(self._p, posted.key, posted.packet, properties)
        except ClientError as error:
            self._loop.call_soon(self._broken, error)
        else:
            self._by_number[number] = posted

    def send(self, to: Target, packet: bytes) -> None:
        self._publish(self._a, text_of(to), packet)

    def _publish(self, exchange: str, key: str, packet: bytes) -> None:
        """What is transient is not kept for when the connection is back."""
        if self._connection.is_connected and not self._closed:
            try:
                self._out.publish(exchange, key, packet, self._transient)
            except ConnectionLost:
                pass
            except ClientError as error:
                self._loop.call_soon(self._broken, error)

    def _on_confirm(self, numbers: range, ok: bool) -> None:
        for number in numbers:
            posted = self._by_number.pop(number, None)
            if posted is None:
                continue
            if ok:
                posted.done = True
            else:
                log.warning("feed %s: the broker refused a batch; it is sent again", self._feed)
                self._loop.call_later(AGAIN_SECONDS, self._post, posted)
        confirmed = 0
        while self._posted and self._posted[0].done:
            confirmed = self._posted.popleft().number
        if confirmed and not self._closed:
            self.listener.confirmed(confirmed)

    # --- the end

    async def close(self) -> None:
        if self._closed:
            return
        self._acknowledge()
        self._closed = True
        self._forget(self)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for channel in self._channels:
            with suppress(ClientError, TimeoutError):
                async with asyncio.timeout(CLOSE_SECONDS):
                    await channel.close()


NOBODY: Final = MemberId("", bytes(PUBLISHER_SIZE))


def sender_of(delivery: Delivery) -> MemberId | None:
    """A publisher by what it sent, all others by what they say: that takes longer, and comes rarely."""
    messages = extent(delivery.body)
    if messages is not None:
        return MemberId("", messages[0])
    try:
        return id_of(delivery.properties.reply_to or "")
    except ProtocolError:
        return None
