"""A channel of a bare connection: everything that AMQP 0-9-1 has, by its own names.

Calls that the broker answers are awaited. What it does not answer (publish, ack) returns at once and goes out
at the end of the loop's turn; `drain` waits for room, `flush` for the broker's confirms. When the channel
ends, by whatever cause, everything that waits gets the error, and everything that is called later raises it.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Self

from recado.amqp import methods as m
from recado.amqp.deliveries import Delivered
from recado.amqp.frames import ack_frame
from recado.amqp.properties import Properties

from .commands import Commands, M
from .consumer import Consumer
from .errors import ConsumerCancelled
from .messages import Delivery, Returned, Source
from .occurrences import Answered
from .publishing import Publishing
from .rendering import property_bytes
from .waits import OnConfirm
from .wire import Wire

if TYPE_CHECKING:
    from .connection import Connection


class Channel(Commands[Consumer]):
    def __init__(self, connection: "Connection", wire: Wire) -> None:
        super().__init__()
        self.connection = connection
        self.wire = wire
        self.number = 0
        self.error: Exception | None = None
        self.on_return: Callable[[Returned], object] | None = None
        self.on_end: Callable[[Exception], object] | None = None
        self._flows = asyncio.Event()
        self._flows.set()
        self._consumers: dict[str, Consumer] = {}
        self._closing = False

    @property
    def is_open(self) -> bool:
        return self.error is None

    def __repr__(self) -> str:
        return f"<Channel {self.number} of {self.connection.address}>"

    # ── life ──────────────────────────────────────────────────────────────────────────────────────────────

    async def open(self, *, confirms: bool) -> Self:
        """Used by `Connection.channel`."""
        token = asyncio.get_running_loop().create_future()
        self.number = self.wire.session.open_channel(token)
        self.connection.channels[self.number] = self
        self._publishing = Publishing(self.wire, self.number)
        try:
            await self._answer(token)
            if confirms:
                await self.select_confirms()
        except asyncio.CancelledError:
            self._abandon()
            raise
        return self

    async def close(self) -> None:
        """Part in order. What was not acknowledged is stale."""
        if self.error is None and not self._closing:
            self._closing = True
            token = asyncio.get_running_loop().create_future()
            self.wire.session.close_channel(self.number, token)
            await self._answer(token)

    def _abandon(self) -> None:
        """Close it without waiting: nobody does."""
        if self.error is None and not self._closing:
            self._closing = True
            self.wire.session.close_channel(self.number, None)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def end(self, error: Exception) -> None:
        """Called once, when the channel or its connection has ended."""
        self.error = error
        self._publishing.fail(error)
        self._flows.set()
        consumers, self._consumers = self._consumers, {}
        for consumer in consumers.values():
            consumer.channel_ended(error)
        if self.on_end is not None:
            self.on_end(error)

    # ── calls ─────────────────────────────────────────────────────────────────────────────────────────────

    async def call(self, method: m.Method, answer: type[M]) -> M:
        """Send a method and await its answer."""
        self.check()
        token = asyncio.get_running_loop().create_future()
        self.wire.session.call(self.number, method, token)
        answered = (await self._answer(token)).method
        assert isinstance(answered, answer)
        return answered

    async def _answer(self, token: "asyncio.Future[Answered]") -> Answered:
        with self.wire.waits:
            return await token

    def check(self) -> None:
        """Raises the error that ended the channel."""
        if self.error is not None:
            raise self.error.with_traceback(None)  # or each raise would make it longer

    # ── publishing ────────────────────────────────────────────────────────────────────────────────────────

    async def select_confirms(self) -> None:
        """Ask for confirms, and number what is published from now on."""
        if not self._publishing.is_confirming:
            self.check()
            # The broker counts from when it reads this, so what follows before its answer counts too.
            self._publishing.confirm()
            await self.call(m.ConfirmSelect(), m.ConfirmSelectOk)

    @property
    def on_confirm(self) -> OnConfirm | None:
        """Called with consecutive numbers, and whether the broker took them."""
        return self._publishing.on_confirm

    @on_confirm.setter
    def on_confirm(self, callback: OnConfirm | None) -> None:
        self._publishing.on_confirm = callback

    @property
    def unconfirmed(self) -> int:
        return self._publishing.unconfirmed

    def publish(
        self,
        exchange: str,
        key: str,
        body: bytes,
        properties: Properties | bytes | None = None,
        *,
        mandatory: bool = False,
    ) -> int:
        """The message's number, for its confirm; 0 if there are none. Nothing waits here: see `drain`."""
        self.check()
        return self._publishing.publish(exchange, key, body, property_bytes(properties), mandatory)

    def publish_many(
        self,
        exchange: str,
        key: str,
        bodies: Sequence[bytes],
        properties: Properties | bytes | None = None,
        *,
        mandatory: bool = False,
    ) -> range:
        """Their numbers. Fastest where bodies of one size follow each other."""
        self.check()
        common = property_bytes(properties)
        return self._publishing.publish_many(exchange, key, bodies, common, mandatory)

    async def drain(self) -> None:
        """Wait until there is room for more messages. Call it after publishing, as often as you like."""
        self.check()
        await self.wire.drain()
        if not self._flows.is_set():
            with self.wire.waits:
                await self._flows.wait()
            self.check()

    async def flush(self) -> None:
        """Wait until all that was published so far is confirmed; raises `NotConfirmed` for what was refused."""
        await self._publishing.waits().flush()

    async def confirmed(self, number: int) -> None:
        """Wait until message `number` is confirmed; raises `NotConfirmed` if it was refused."""
        await self._publishing.waits().confirmed(number)

    # ── consuming ─────────────────────────────────────────────────────────────────────────────────────────

    async def _consume(self, method: m.BasicConsume) -> Consumer:
        consumer = Consumer(method.consumer_tag, method.queue, no_ack=method.no_ack)
        await self.start_consumer(consumer, method)
        return consumer

    async def start_consumer(self, consumer: Consumer, method: m.BasicConsume) -> None:
        """It is known before the answer comes: deliveries may be right behind that."""
        self.check()
        tag = method.consumer_tag
        if tag in self._consumers:
            raise ValueError(f"this channel has a consumer '{tag}' already")
        token: asyncio.Future[Answered] = asyncio.get_running_loop().create_future()
        self.wire.session.call(self.number, method, token)
        self._consumers[tag] = consumer
        consumer.attach(self)
        try:
            with self.wire.waits:
                await asyncio.shield(token)
        except asyncio.CancelledError:
            consumer.abandon()
            token.add_done_callback(partial(self._cancel_abandoned, consumer))
            raise
        except Exception:
            self._consumers.pop(tag, None)
            consumer.detach()
            raise

    def _cancel_abandoned(self, consumer: Consumer, token: "asyncio.Future[Answered]") -> None:
        """Not before it is there: RabbitMQ 3.10 ends a connection whose cancel follows too soon."""
        if token.exception() is None and self.error is None and not self._closing:
            done = token.get_loop().create_future()
            done.add_done_callback(lambda _: self._consumers.pop(consumer.tag, None))
            self.wire.session.call(self.number, m.BasicCancel(consumer.tag), done)

    async def cancel(self, consumer: Consumer) -> None:
        if self._consumers.get(consumer.tag) is consumer and not self._closing:
            await self.call(m.BasicCancel(consumer.tag), m.BasicCancelOk)
            self._consumers.pop(consumer.tag, None)

    async def get(self, queue: str, *, no_ack: bool = False) -> Delivery | None:
        """One message, or None if the queue is empty."""
        self.check()
        token: asyncio.Future[Answered] = asyncio.get_running_loop().create_future()
        self.wire.session.call(self.number, m.BasicGet(queue, no_ack), token)
        try:
            with self.wire.waits:
                answered = await asyncio.shield(token)
        except asyncio.CancelledError:
            token.add_done_callback(partial(self._give_back, no_ack))
            raise
        return self._got(answered, no_ack)

    def _give_back(self, no_ack: bool, token: "asyncio.Future[Answered]") -> None:
        """Nobody waits any more for what was asked for; a message goes back."""
        if token.exception() is None and not no_ack:
            delivery = self._got(token.result(), no_ack)
            if delivery is not None:
                self.nack(delivery)

    def _got(self, answered: Answered, no_ack: bool) -> Delivery | None:
        match answered.method:
            case m.BasicGetOk(tag, redelivered, exchange, key):
                source = Source(self, "", redelivered, exchange, key, no_ack)
                return Delivery(source, tag, answered.header, answered.body)
            case _:
                return None

    # ── settling ──────────────────────────────────────────────────────────────────────────────────────────

    def ack(self, delivery: Delivery, *, multiple: bool = False) -> bool:
        """False, and nothing is sent, if the delivery is stale."""
        if not self._may_settle(delivery):
            return False
        self.wire.session.write(ack_frame(self.number, delivery.tag, multiple=multiple))
        return True

    def nack(self, delivery: Delivery, *, multiple: bool = False, requeue: bool = True) -> bool:
        """Give it back to its queue, or without `requeue` let it be dropped or become a dead letter."""
        if not self._may_settle(delivery):
            return False
        self.wire.session.send(self.number, m.BasicNack(delivery.tag, multiple, requeue))
        return True

    def _may_settle(self, delivery: Delivery) -> bool:
        if delivery.source.channel is not self:
            if delivery.is_stale:
                return False
            raise ValueError(f"{delivery.source.channel} delivered this, and has to settle it")
        if delivery.source.settled:
            raise ValueError("a delivery to a consumer with no_ack is settled already")
        return self.error is None and not self._closing

    async def recover(self, *, requeue: bool = True) -> None:
        """All that is not acknowledged goes back to the queues."""
        await self.call(m.BasicRecover(requeue), m.BasicRecoverOk)

    # ── the rest of AMQP ──────────────────────────────────────────────────────────────────────────────────

    async def flow(self, active: bool) -> None:
        """Ask the broker to stop delivering, or to go on; RabbitMQ only knows the latter."""
        await self.call(m.ChannelFlow(active), m.ChannelFlowOk)

    async def select_tx(self) -> None:
        await self.call(m.TxSelect(), m.TxSelectOk)

    async def commit(self) -> None:
        await self.call(m.TxCommit(), m.TxCommitOk)

    async def rollback(self) -> None:
        await self.call(m.TxRollback(), m.TxRollbackOk)

    # ── what the connection tells ─────────────────────────────────────────────────────────────────────────

    def delivered(self, run: Delivered) -> None:
        consumer = self._consumers.get(run.route.consumer_tag)
        if consumer is not None:  # else the broker cancelled it, and took back what it delivered
            consumer.delivered(self, run)

    def confirmation(self, numbers: range, ok: bool) -> None:
        self._publishing.settled(numbers, ok=ok)

    def came_back(self, message: Returned) -> None:
        if self.on_return is not None:
            self.on_return(message)

    def consumer_gone(self, tag: str) -> None:
        consumer = self._consumers.pop(tag, None)
        if consumer is not None:
            consumer.channel_ended(ConsumerCancelled(tag, consumer.queue))

    def flow_changed(self, active: bool) -> None:
        if active:
            self._flows.set()
        else:
            self._flows.clear()
