"""The objects of the chat on the broker.

    private-messages   a direct exchange, with a binding to each user's queue by the id of the user
    ROOM               a topic exchange for each room, with a binding `#` to the queue of each member
    USER ID            a queue for each user; the server reads it while the user is online

They are those of the report "Chat Application", and all of them are durable. A message is published to the exchange of
its room when it is in the history. A queue that is not read for an hour expires with its bindings, and is declared
again when its user returns: pages then get what they missed from the history.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Any, Final, TypeVar

import recado
from recado.client import (
    ChannelClosedByBrokerError,
    ChannelClosedError,
    ConnectionEvent,
    ConnectionLost,
    ConnectionRecovered,
    ConsumerCancelledError,
    Delivery,
    RobustChannel,
)
from recado.patterns import Message

from .names import PRIVATE_EXCHANGE, RefusedError
from .traffic import Traffic

PRIVATE_TYPE: Final = "direct"
ROOM_TYPE: Final = "topic"
ROOM_BINDING: Final = "#"
QUEUE_EXPIRES_MS: Final = 3_600_000
QUEUE_LENGTH_MAX_COUNT: Final = 10_000
QUEUE_ARGUMENTS: Final[dict[str, Any]] = {
    "x-expires": QUEUE_EXPIRES_MS,
    "x-max-length": QUEUE_LENGTH_MAX_COUNT,
}
PREFETCH_COUNT: Final = 200
RETRY_S: Final = 1.0

T = TypeVar("T")
OnDeliveries = Callable[[list[Delivery]], object]

log = logging.getLogger("recado.chat")


class BrokerLink:
    """A connection to the broker; entered by `async with`."""

    def __init__(
        self,
        url: str,
        *,
        on_state: Callable[[bool], object],
        on_unrouted: Callable[[str], object],
        on_publications_lost: Callable[[], object],
    ) -> None:
        """Prepare a connection.

        `on_state` is called with whether the broker is connected, when that changes; `on_unrouted` with an exchange
        that has no bindings; `on_publications_lost` when the broker has closed the channel of publications.
        """
        self._on_state = on_state
        self._on_unrouted = on_unrouted
        self._on_publications_lost = on_publications_lost
        self._connection = recado.connect(
            url, name="recado chat", on_event=self._handle_event, reconnect_timeout=None
        )
        self._control: RobustChannel | None = None
        self._controlling = asyncio.Lock()
        self._publishing: RobustChannel | None = None
        self._consuming: RobustChannel | None = None
        self._opening = asyncio.Lock()
        self._unconfirmed: deque[tuple[int, Traffic, str]] = deque()
        """Sequence numbers of publications whose confirm is to be recorded, with the exchange."""

    @property
    def is_connected(self) -> bool:
        return self._connection.is_connected

    async def __aenter__(self) -> BrokerLink:
        await self._connection.open()
        self._publishing = await self._open_publishing()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._connection.close()

    def _handle_event(self, event: ConnectionEvent) -> None:
        match event:
            case ConnectionLost(error):
                log.warning("connection to the broker lost: reconnecting (error=%s)", error)
                self._on_state(False)
            case ConnectionRecovered(attempt_count, elapsed):
                log.info(
                    "connection to the broker recovered (attempts=%d seconds=%.1f)",
                    attempt_count,
                    elapsed,
                )
                self._on_state(True)
            case _:
                pass

    # ── objects ───────────────────────────────────────────────────────────────────────────────────────────

    async def declare_user(self, user_id: str, traffic: Traffic) -> None:
        """Declare the queue of a user and bind it to the exchange of private messages."""
        async with self._controlling:
            await self._call(
                lambda channel: channel.declare_exchange(
                    PRIVATE_EXCHANGE, PRIVATE_TYPE, durable=True
                )
            )
            traffic.record("exchange.declare", PRIVATE_EXCHANGE, "type=direct durable")
            await self._call(
                lambda channel: channel.declare_queue(
                    user_id, durable=True, arguments=QUEUE_ARGUMENTS
                )
            )
            traffic.record("queue.declare", user_id, f"durable x-expires={QUEUE_EXPIRES_MS}")
            await self._call(lambda channel: channel.bind_queue(user_id, PRIVATE_EXCHANGE, user_id))
            traffic.record("queue.bind", user_id, f"exchange={PRIVATE_EXCHANGE} key={user_id}")

    async def delete_user(self, user_id: str) -> None:
        """Delete the queue of a user who has signed out."""
        async with self._controlling:
            await self._call(lambda channel: channel.delete_queue(user_id))

    async def join(self, user_id: str, room: str, traffic: Traffic) -> None:
        """Declare the exchange of a room and bind the queue of a user to it. Raises `RefusedError`."""
        async with self._controlling:
            try:
                await self._call(
                    lambda channel: channel.declare_exchange(room, ROOM_TYPE, durable=True)
                )
                traffic.record("exchange.declare", room, "type=topic durable")
                await self._call(lambda channel: channel.bind_queue(user_id, room, ROOM_BINDING))
                traffic.record("queue.bind", user_id, f"exchange={room} key={ROOM_BINDING}")
            except ChannelClosedByBrokerError as error:
                raise RefusedError(
                    "room", f"the broker refuses the room '{room}': {error.reply_text}"
                ) from error

    async def leave(self, user_id: str, room: str, traffic: Traffic) -> None:
        """Remove the binding of a user's queue to a room."""
        async with self._controlling:
            await self._call(lambda channel: channel.unbind_queue(user_id, room, ROOM_BINDING))
            traffic.record("queue.unbind", user_id, f"exchange={room} key={ROOM_BINDING}")

    async def _call(self, operation: Callable[[RobustChannel], Awaitable[T]]) -> T:
        """Run an operation on the control channel, which is opened again after the broker refused one."""
        if self._control is None or not self._control.is_open:
            self._control = await self._connection.channel(confirms=False)
        return await operation(self._control)

    # ── messages ──────────────────────────────────────────────────────────────────────────────────────────

    async def publish(
        self, exchange: str, key: str, message: Message[Any], body: bytes, traffic: Traffic | None
    ) -> None:
        """Publish a message that is in the history; waits only while too much is unconfirmed."""
        channel = self._publishing
        if channel is None or not channel.is_open:
            channel = await self._reopen_publishing(exchange)
        number = channel.publish(exchange, key, body, message.to_properties(), mandatory=True)
        if traffic is not None:
            traffic.record("basic.publish", exchange, f"key={key} message-id={message.message_id}")
            self._unconfirmed.append((number, traffic, exchange))
        with suppress(ChannelClosedError):  # as the callback of the channel reports
            await channel.drain()

    async def _reopen_publishing(self, exchange: str) -> RobustChannel:
        """Open another channel: the exchange of a room was deleted, and the broker closed the last one."""
        async with self._opening:
            if self._publishing is None or not self._publishing.is_open:
                self._unconfirmed.clear()
                self._publishing = await self._open_publishing()
                kind = PRIVATE_TYPE if exchange == PRIVATE_EXCHANGE else ROOM_TYPE
                await self._publishing.declare_exchange(exchange, kind, durable=True)
            return self._publishing

    async def _open_publishing(self) -> RobustChannel:
        channel = await self._connection.channel()
        channel.on_confirm = self._record_confirms
        channel.on_return = lambda returned: self._on_unrouted(returned.exchange)
        channel.on_end = self._handle_publishing_end
        return channel

    def _handle_publishing_end(self, error: Exception) -> None:
        if isinstance(error, ChannelClosedByBrokerError):
            log.warning("publishing to rooms failed: opening another channel (error=%s)", error)
            self._on_publications_lost()

    def _record_confirms(self, numbers: range, acked: bool) -> None:
        while self._unconfirmed and self._unconfirmed[0][0] < numbers.stop:
            number, traffic, exchange = self._unconfirmed.popleft()
            traffic.record("basic.ack", exchange, f"confirm of the broker for publication {number}")

    async def consume(
        self, user_id: str, rooms: Callable[[], Iterable[str]], traffic: Traffic,
        on_ready: Callable[[], object], on_deliveries: OnDeliveries,
    ) -> None:  # fmt: skip
        """Declare the objects of a user, and take the messages of the queue until cancelled.

        `on_ready` is called when the bindings exist: whatever is published from then on is delivered. If the broker
        deletes the queue or closes the channel, everything is declared again.
        """
        while True:
            try:
                await self.declare_user(user_id, traffic)
                for room in rooms():
                    with suppress(RefusedError):  # its exchange was replaced by one of another type
                        await self.join(user_id, room, traffic)
                channel = await self._open_consuming()
                consumer = await channel.consume(user_id)
                traffic.record("basic.consume", user_id, f"prefetch={PREFETCH_COUNT}")
                on_ready()
                async with consumer:
                    async for deliveries in consumer.batches():
                        on_deliveries(deliveries)
                return
            except (ConsumerCancelledError, ChannelClosedError) as error:
                log.warning(
                    "queue of a user lost: declaring it again (user=%s error=%s)", user_id, error
                )
                await asyncio.sleep(RETRY_S)

    async def _open_consuming(self) -> RobustChannel:
        async with self._opening:
            if self._consuming is None or not self._consuming.is_open:
                self._consuming = await self._connection.channel(confirms=False)
                await self._consuming.qos(PREFETCH_COUNT)
            return self._consuming
