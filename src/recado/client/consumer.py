"""A consumer: buffers deliveries until the program takes them.

    async for delivery in consumer: …                 # one by one
    async for deliveries in consumer.batches(): …     # all buffered ones at a time, which is much cheaper

CCO1  Deliveries are returned in the order in which they arrived, each once.
CCO2  Deliveries that need an acknowledgement are dropped when their channel has closed: the broker redelivers
      them. They are not dropped when the broker cancels the consumer: on the open channel they can be settled.
CCO3  When no more deliveries can arrive and the buffer is empty, iteration ends: normally if this program
      cancelled the consumer or closed its channel or connection, otherwise with an error.
"""

from collections import deque
from collections.abc import AsyncIterator
from itertools import repeat
from typing import TYPE_CHECKING, Self

from recado.amqp.deliveries import Delivered

from .errors import ChannelClosedByClientError, ConnectionClosedByClientError
from .messages import Delivery, DeliverySource
from .waiters import Notifier

if TYPE_CHECKING:
    from .channel import Channel

_DELIVERY_OVERHEAD_BYTES = 256  # estimate for a delivery without its body


class Consumer:
    """A consumer of a plain channel; made by `Channel.consume`. Iterate over it, or call `next_batch`."""

    def __init__(self, tag: str, queue: str, *, no_ack: bool) -> None:
        self.tag = tag
        self.queue = queue
        self.no_ack = no_ack
        self._buffer: deque[Delivery] = deque()
        self._buffered_bytes = 0  # included in `buffered_bytes` of the channel's protocol
        self._notifier = Notifier()
        self._error: Exception | None = None
        self._is_cancelled = False
        self._channel: Channel | None = None

    # ── called by the program ─────────────────────────────────────────────────────────────────────────────

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Delivery:
        if not self._buffer and not await self._wait_for_delivery():
            raise StopAsyncIteration
        delivery = self._buffer.popleft()
        self._release_bytes(len(delivery.body) + _DELIVERY_OVERHEAD_BYTES)
        return delivery

    async def batches(self) -> AsyncIterator[list[Delivery]]:
        """Iterate over batches: all buffered deliveries at a time."""
        while batch := await self.next_batch():
            yield batch

    async def next_batch(self) -> list[Delivery]:
        """Wait for a delivery and return all buffered ones.

        Returns an empty list if this program cancelled the consumer or closed its channel or connection. Raises
        any other error that ended the consumer.
        """
        if not self._buffer and not await self._wait_for_delivery():
            return []
        batch = list(self._buffer)
        self._buffer.clear()
        self._release_bytes(self._buffered_bytes)
        return batch

    async def cancel(self) -> None:
        """Cancel the consumer. Buffered deliveries are requeued; with `no_ack` they are lost."""
        channel = self._channel
        self.abandon()
        self._notifier.notify_all()
        if channel is not None:
            await channel.cancel(self)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        # After a cancel by the broker (an error, on an open channel), buffered deliveries are still to be requeued.
        if not self._is_cancelled and (self._error is None or self._channel is not None):
            await self.cancel()

    async def _wait_for_delivery(self) -> bool:
        """Wait until a delivery is buffered; return False if the consumer is cancelled."""
        while not self._buffer:
            if self._is_cancelled:
                return False
            if self._error is not None:
                raise self._error.with_traceback(None)
            await self._notifier.wait()
        return True

    # ── called by the channel ─────────────────────────────────────────────────────────────────────────────

    def attach(self, channel: "Channel") -> None:
        """The consumer is being started on this channel."""
        self._channel = channel

    def handle_deliveries(self, channel: "Channel", run: Delivered) -> None:
        """A run of deliveries arrived. Subclasses may process it without creating `Delivery` objects."""
        route, bodies = run.route, run.bodies
        source = DeliverySource(
            channel,
            route.consumer_tag,
            route.redelivered,
            route.exchange,
            route.routing_key,
            self.no_ack,
        )
        tags = range(run.first_tag, run.first_tag + len(bodies))
        deliveries = list(map(Delivery, repeat(source), tags, run.properties, bodies))
        self.enqueue(deliveries, sum(map(len, bodies)))

    def enqueue(self, deliveries: list[Delivery], body_bytes: int) -> None:
        """Buffer deliveries with `body_bytes` bytes of bodies in total."""
        self._buffer.extend(deliveries)
        if self._is_cancelled:
            self._requeue_buffered()
            return
        size_bytes = body_bytes + len(deliveries) * _DELIVERY_OVERHEAD_BYTES
        self._buffered_bytes += size_bytes
        if self._channel is not None:
            self._channel.protocol.count_buffered(size_bytes)
        self._notifier.notify_all()

    def handle_channel_closed(self, error: Exception) -> None:
        """End the consumer, because its channel has closed."""
        self.detach()
        if isinstance(error, ConnectionClosedByClientError | ChannelClosedByClientError):
            self._is_cancelled = True
        self.fail(error)

    def handle_broker_cancel(self, error: Exception) -> None:
        """The broker has cancelled the consumer (basic.cancel); raise the error behind the buffered deliveries."""
        self.fail(error)

    def detach(self) -> None:
        """Forget the channel; deliveries that need an acknowledgement are stale now (CCO2)."""
        self._release_bytes(self._buffered_bytes)
        self._channel = None
        if not self.no_ack:
            self._buffer.clear()

    def abandon(self) -> None:
        """Requeue buffered deliveries and those that still arrive; the caller cancels the consumer."""
        self._is_cancelled = True
        self._requeue_buffered()

    def fail(self, error: Exception) -> None:
        """Raise the error in the present and in later iterations, after the buffered deliveries."""
        self._error = self._error or error
        self._notifier.notify_all()

    def _requeue_buffered(self) -> None:
        buffered = list(self._buffer)
        self._buffer.clear()
        self._release_bytes(self._buffered_bytes)
        if not self.no_ack:
            for delivery in buffered:
                delivery.nack()

    def _release_bytes(self, size_bytes: int) -> None:
        self._buffered_bytes -= size_bytes
        if self._channel is not None:
            protocol = self._channel.protocol
            # `count_buffered` inlined: this runs per delivery.
            protocol.buffered_bytes -= size_bytes
            if protocol.is_reading_paused:
                protocol.update_reading()
