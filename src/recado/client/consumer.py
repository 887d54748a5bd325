"""A consumer: what the broker delivered and the program has not taken yet.

    async for delivery in consumer: …                 # one by one
    async for deliveries in consumer.batches(): …     # all that is there at a time, which is much cheaper

K1  Deliveries are handed over in the order in which they came, each once.
K2  What must be acknowledged is not handed over once its channel has ended: the broker gives it out again.
K3  When no more can come, iteration ends: by an error, or quietly if this program cancelled.
"""

from collections import deque
from collections.abc import AsyncIterator
from itertools import repeat
from typing import TYPE_CHECKING, Self

from recado.amqp.deliveries import Delivered

from .errors import ChannelClosed, ConnectionClosed
from .messages import Delivery, Source
from .waits import Waiters

if TYPE_CHECKING:
    from .channel import Channel

_WEIGHT = 256  # bytes, about, of a delivery without its body


class Consumer:
    def __init__(self, tag: str, queue: str, *, no_ack: bool) -> None:
        self.tag = tag
        self.queue = queue
        self.no_ack = no_ack
        self._ready: deque[Delivery] = deque()
        self._weight = 0  # of what is ready, as it counts on the wire of `_channel`
        self._waiters = Waiters()
        self._error: Exception | None = None
        self._cancelled = False
        self._channel: Channel | None = None

    # ── the program's side ────────────────────────────────────────────────────────────────────────────────

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Delivery:
        if not self._ready and not await self._more():
            raise StopAsyncIteration
        delivery = self._ready.popleft()
        self._lighten(len(delivery.body) + _WEIGHT)
        return delivery

    async def batches(self) -> AsyncIterator[list[Delivery]]:
        """All that is there, whenever something is."""
        while batch := await self.next_batch():
            yield batch

    async def next_batch(self) -> list[Delivery]:
        """Waits for at least one; empty only when the consumer was cancelled."""
        if not self._ready and not await self._more():
            return []
        batch = list(self._ready)
        self._ready.clear()
        self._lighten(self._weight)
        return batch

    async def cancel(self) -> None:
        """Want no more. What was delivered and not handed over goes back to the queue."""
        channel = self._channel
        self.abandon()
        self._waiters.wake()
        if channel is not None:
            await channel.cancel(self)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        if not self._cancelled and self._error is None:
            await self.cancel()

    async def _more(self) -> bool:
        """Wait until something is ready: True; False when cancelled."""
        while not self._ready:
            if self._cancelled:
                return False
            if self._error is not None:
                raise self._error.with_traceback(None)
            await self._waiters.wait()
        return True

    # ── the channel's side ────────────────────────────────────────────────────────────────────────────────

    def attach(self, channel: "Channel") -> None:
        self._channel = channel

    def delivered(self, channel: "Channel", run: Delivered) -> None:
        """A run came. Who has its own way with them need not make a `Delivery` of each."""
        route, bodies = run.route, run.bodies
        source = Source(
            channel,
            route.consumer_tag,
            route.redelivered,
            route.exchange,
            route.routing_key,
            self.no_ack,
        )
        tags = range(run.first, run.first + len(bodies))
        deliveries = list(map(Delivery, repeat(source), tags, run.properties, bodies))
        self.put(deliveries, sum(map(len, bodies)))

    def put(self, deliveries: list[Delivery], size: int) -> None:
        """These came, `size` bytes of bodies."""
        self._ready.extend(deliveries)
        if self._cancelled:
            self._give_back()
            return
        weight = size + len(deliveries) * _WEIGHT
        self._weight += weight
        if self._channel is not None:
            self._channel.wire.buffered += weight
        self._waiters.wake()

    def channel_ended(self, error: Exception) -> None:
        """No more can come from the channel; the bare consumer ends with it."""
        self.detach()
        if isinstance(error, ConnectionClosed | ChannelClosed):
            self._cancelled = True
        self.fail(error)

    def detach(self) -> None:
        """Without its channel, what must be acknowledged is stale (K2)."""
        self._lighten(self._weight)
        self._channel = None
        if not self.no_ack:
            self._ready.clear()

    def abandon(self) -> None:
        """Nobody will take anything."""
        self._cancelled = True
        self._give_back()

    def fail(self, error: Exception) -> None:
        self._error = self._error or error
        self._waiters.wake()

    def _give_back(self) -> None:
        ready = list(self._ready)
        self._ready.clear()
        self._lighten(self._weight)
        if not self.no_ack:
            for delivery in ready:
                delivery.nack()

    def _lighten(self, weight: int) -> None:
        self._weight -= weight
        if self._channel is not None:
            wire = self._channel.wire
            wire.buffered -= weight
            if wire.reading_paused:
                wire.look_at_reading()
