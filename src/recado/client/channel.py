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
from recado.amqp.frames import encode_ack_frame
from recado.amqp.properties import Properties

from .commands import ChannelCommands, M
from .consumer import Consumer
from .errors import ConsumerCancelledError
from .messages import Delivery, DeliverySource, ReturnedMessage
from .protocol import ConnectionProtocol
from .publish_encoding import encode_optional_properties
from .publisher import ChannelPublisher
from .session_events import ReplyReceived
from .waiters import OnConfirm

if TYPE_CHECKING:
    from .connection import Connection


class Channel(ChannelCommands[Consumer]):
    def __init__(self, connection: "Connection", protocol: ConnectionProtocol) -> None:
        super().__init__()
        self.connection = connection
        self.protocol = protocol
        self.number = 0
        self.error: Exception | None = None
        self.on_return: Callable[[ReturnedMessage], object] | None = None
        self.on_end: Callable[[Exception], object] | None = None
        self._flow_active = asyncio.Event()
        self._flow_active.set()
        self._consumers: dict[str, Consumer] = {}
        self._is_closing = False

    @property
    def is_open(self) -> bool:
        return self.error is None

    def __repr__(self) -> str:
        return f"<Channel {self.number} of {self.connection.parameters}>"

    # ── life ──────────────────────────────────────────────────────────────────────────────────────────────

    async def open(self, *, confirms: bool) -> Self:
        """Used by `Connection.channel`."""
        token = asyncio.get_running_loop().create_future()
        self.number = self.protocol.session.open_channel(token)
        self.connection.channels[self.number] = self
        self._publisher = ChannelPublisher(self.protocol, self.number)
        try:
            await self._await_reply(token)
            if confirms:
                await self.select_confirms()
        except asyncio.CancelledError:
            self._close_without_waiting()
            raise
        return self

    async def close(self) -> None:
        """Part in order. What was not acknowledged is stale."""
        if self.error is None and not self._is_closing:
            self._is_closing = True
            token = asyncio.get_running_loop().create_future()
            self.protocol.session.close_channel(self.number, token)
            await self._await_reply(token)

    def _close_without_waiting(self) -> None:
        """Close it without waiting: nobody does."""
        if self.error is None and not self._is_closing:
            self._is_closing = True
            self.protocol.session.close_channel(self.number, None)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def terminate(self, error: Exception) -> None:
        """Called once, when the channel or its connection has ended."""
        self.error = error
        self._publisher.fail(error)
        self._flow_active.set()
        consumers, self._consumers = self._consumers, {}
        for consumer in consumers.values():
            consumer.handle_channel_closed(error)
        if self.on_end is not None:
            self.on_end(error)

    # ── calls ─────────────────────────────────────────────────────────────────────────────────────────────

    async def call(self, method: m.Method, reply_type: type[M]) -> M:
        """Send a method and await its answer."""
        self.check_open()
        token = asyncio.get_running_loop().create_future()
        self.protocol.session.call(self.number, method, token)
        answered = (await self._await_reply(token)).method
        assert isinstance(answered, reply_type)
        return answered

    async def _await_reply(self, token: "asyncio.Future[ReplyReceived]") -> ReplyReceived:
        with self.protocol.wait_counter:
            return await token

    def check_open(self) -> None:
        """Raises the error that ended the channel."""
        if self.error is not None:
            raise self.error.with_traceback(None)  # or each raise would make it longer

    # ── publishing ────────────────────────────────────────────────────────────────────────────────────────

    async def select_confirms(self) -> None:
        """Ask for confirms, and number what is published from now on."""
        if not self._publisher.is_confirming:
            self.check_open()
            # The broker counts from when it reads this, so what follows before its answer counts too.
            self._publisher.start_confirms()
            await self.call(m.ConfirmSelect(), m.ConfirmSelectOk)

    @property
    def on_confirm(self) -> OnConfirm | None:
        """Called with consecutive numbers, and whether the broker took them."""
        return self._publisher.on_confirm

    @on_confirm.setter
    def on_confirm(self, callback: OnConfirm | None) -> None:
        self._publisher.on_confirm = callback

    @property
    def unconfirmed_count(self) -> int:
        return self._publisher.unconfirmed_count

    def publish(
        self,
        exchange: str,
        routing_key: str,
        body: bytes,
        properties: Properties | bytes | None = None,
        *,
        mandatory: bool = False,
    ) -> int:
        """The message's number, for its confirm; 0 if there are none. Nothing waits here: see `drain`."""
        self.check_open()
        return self._publisher.publish(
            exchange, routing_key, body, encode_optional_properties(properties), mandatory
        )

    def publish_many(
        self,
        exchange: str,
        routing_key: str,
        bodies: Sequence[bytes],
        properties: Properties | bytes | None = None,
        *,
        mandatory: bool = False,
    ) -> range:
        """Their numbers. Fastest where bodies of one size follow each other."""
        self.check_open()
        encoded = encode_optional_properties(properties)
        return self._publisher.publish_many(exchange, routing_key, bodies, encoded, mandatory)

    async def drain(self) -> None:
        """Wait until there is room for more messages. Call it after publishing, as often as you like."""
        self.check_open()
        await self.protocol.drain()
        if not self._flow_active.is_set():
            with self.protocol.wait_counter:
                await self._flow_active.wait()
            self.check_open()

    async def wait_for_confirms(self) -> None:
        """Wait until all that was published so far is confirmed; raises `PublishNackedError` for what was refused."""
        await self._publisher.confirm_waiters().wait_for_confirms()

    async def wait_for_confirm(self, sequence_number: int) -> None:
        """Wait until message `number` is confirmed; raises `PublishNackedError` if it was refused."""
        await self._publisher.confirm_waiters().wait_for_confirm(sequence_number)

    # ── consuming ─────────────────────────────────────────────────────────────────────────────────────────

    async def _consume(self, method: m.BasicConsume) -> Consumer:
        consumer = Consumer(method.consumer_tag, method.queue, no_ack=method.no_ack)
        await self.start_consumer(consumer, method)
        return consumer

    async def start_consumer(self, consumer: Consumer, method: m.BasicConsume) -> None:
        """It is known before the answer comes: deliveries may be right behind that."""
        self.check_open()
        tag = method.consumer_tag
        if tag in self._consumers:
            raise ValueError(f"this channel has a consumer '{tag}' already")
        token: asyncio.Future[ReplyReceived] = asyncio.get_running_loop().create_future()
        self.protocol.session.call(self.number, method, token)
        self._consumers[tag] = consumer
        consumer.attach(self)
        try:
            with self.protocol.wait_counter:
                await asyncio.shield(token)
        except asyncio.CancelledError:
            consumer.abandon()
            token.add_done_callback(partial(self._cancel_abandoned, consumer))
            raise
        except Exception:
            self._consumers.pop(tag, None)
            consumer.detach()
            raise

    def _cancel_abandoned(self, consumer: Consumer, token: "asyncio.Future[ReplyReceived]") -> None:
        """Not before it is there: RabbitMQ 3.10 ends a connection whose cancel follows too soon."""
        if token.exception() is None and self.error is None and not self._is_closing:
            done = token.get_loop().create_future()
            done.add_done_callback(lambda _: self._consumers.pop(consumer.tag, None))
            self.protocol.session.call(self.number, m.BasicCancel(consumer.tag), done)

    async def cancel(self, consumer: Consumer) -> None:
        if self._consumers.get(consumer.tag) is consumer and not self._is_closing:
            await self.call(m.BasicCancel(consumer.tag), m.BasicCancelOk)
            self._consumers.pop(consumer.tag, None)

    async def get(self, queue: str, *, no_ack: bool = False) -> Delivery | None:
        """One message, or None if the queue is empty."""
        self.check_open()
        token: asyncio.Future[ReplyReceived] = asyncio.get_running_loop().create_future()
        self.protocol.session.call(self.number, m.BasicGet(queue, no_ack), token)
        try:
            with self.protocol.wait_counter:
                answered = await asyncio.shield(token)
        except asyncio.CancelledError:
            token.add_done_callback(partial(self._requeue_unclaimed, no_ack))
            raise
        return self._make_delivery(answered, no_ack)

    def _requeue_unclaimed(self, no_ack: bool, token: "asyncio.Future[ReplyReceived]") -> None:
        """Nobody waits any more for what was asked for; a message goes back."""
        if token.exception() is None and not no_ack:
            delivery = self._make_delivery(token.result(), no_ack)
            if delivery is not None:
                self.nack(delivery)

    def _make_delivery(self, answered: ReplyReceived, no_ack: bool) -> Delivery | None:
        match answered.method:
            case m.BasicGetOk(tag, redelivered, exchange, key):
                source = DeliverySource(self, "", redelivered, exchange, key, no_ack)
                return Delivery(source, tag, answered.raw_properties, answered.body)
            case _:
                return None

    # ── settling ──────────────────────────────────────────────────────────────────────────────────────────

    def ack(self, delivery: Delivery, *, multiple: bool = False) -> bool:
        """False, and nothing is sent, if the delivery is stale."""
        if not self._can_settle(delivery):
            return False
        self.protocol.session.write(
            encode_ack_frame(self.number, delivery.delivery_tag, multiple=multiple)
        )
        return True

    def nack(self, delivery: Delivery, *, multiple: bool = False, requeue: bool = True) -> bool:
        """Give it back to its queue, or without `requeue` let it be dropped or become a dead letter."""
        if not self._can_settle(delivery):
            return False
        self.protocol.session.send(
            self.number, m.BasicNack(delivery.delivery_tag, multiple, requeue)
        )
        return True

    def _can_settle(self, delivery: Delivery) -> bool:
        if delivery.source.channel is not self:
            if delivery.is_stale:
                return False
            raise ValueError(f"{delivery.source.channel} delivered this, and has to settle it")
        if delivery.source.no_ack:
            raise ValueError("a delivery to a consumer with no_ack is settled already")
        return self.error is None and not self._is_closing

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

    def handle_deliveries(self, run: Delivered) -> None:
        consumer = self._consumers.get(run.route.consumer_tag)
        if consumer is not None:  # else the broker cancelled it, and took back what it delivered
            consumer.handle_deliveries(self, run)

    def handle_confirms(self, sequence_numbers: range, acked: bool) -> None:
        self._publisher.handle_confirms(sequence_numbers, acked=acked)

    def handle_return(self, returned: ReturnedMessage) -> None:
        if self.on_return is not None:
            self.on_return(returned)

    def handle_consumer_cancel(self, tag: str) -> None:
        consumer = self._consumers.pop(tag, None)
        if consumer is not None:
            consumer.handle_channel_closed(ConsumerCancelledError(tag, consumer.queue))

    def handle_flow(self, active: bool) -> None:
        if active:
            self._flow_active.set()
        else:
            self._flow_active.clear()
