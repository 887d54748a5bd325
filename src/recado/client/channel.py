"""A channel of a plain connection: all operations of AMQP 0-9-1.

Methods to which the broker replies are coroutines. Those without a reply (publish, ack) return at once; their
output is buffered and written by the next iteration of the event loop. `drain` waits while the output buffers
are full, `wait_for_confirms` waits for the broker's confirms. When the channel closes for any reason, every
pending wait gets the error, and later calls raise it; only `ack` and `nack` return False instead.
"""

import asyncio
from collections.abc import Callable, Sequence
from enum import Enum, auto
from functools import partial
from typing import TYPE_CHECKING, Self
from weakref import WeakSet

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


class ChannelState(Enum):
    """The state of a plain channel."""

    OPEN = auto()
    CLOSING = auto()  # channel.close was sent, close-ok has not arrived
    CLOSED = auto()  # `Channel.error` says why


_OPEN = ChannelState.OPEN  # for `ack`: reading it from the class takes 65 ns more


class Channel(ChannelCommands[Consumer]):
    """A channel of a plain connection; made by `Connection.channel`."""

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
        # Cancelled by the broker; deliveries that they still buffer can be settled until the channel closes.
        self._cancelled_consumers: WeakSet[Consumer] = WeakSet()
        self.state = ChannelState.OPEN

    @property
    def is_open(self) -> bool:
        """Whether the channel has not closed; True while close-ok is awaited."""
        return self.state is not ChannelState.CLOSED

    def __repr__(self) -> str:
        return f"<Channel {self.number} of {self.connection.parameters}>"

    # ── opening and closing ───────────────────────────────────────────────────────────────────────────────

    async def open(self, *, confirms: bool) -> Self:
        """Open the channel on the broker; called by `Connection.channel`."""
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
        """Close the channel. Unacknowledged deliveries become stale."""
        if self.state is ChannelState.OPEN:
            self.state = ChannelState.CLOSING
            token = asyncio.get_running_loop().create_future()
            self.protocol.session.close_channel(self.number, token)
            await self._await_reply(token)

    def _close_without_waiting(self) -> None:
        """Send channel.close; nothing waits for the reply."""
        if self.state is ChannelState.OPEN:
            self.state = ChannelState.CLOSING
            self.protocol.session.close_channel(self.number, None)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def terminate(self, error: Exception) -> None:
        """The channel or its connection has ended; called once, by the connection."""
        self.state = ChannelState.CLOSED
        self.error = error
        self._publisher.fail(error)
        self._flow_active.set()
        consumers, self._consumers = self._consumers, {}
        for consumer in consumers.values():
            consumer.handle_channel_closed(error)
        for consumer in self._cancelled_consumers:
            consumer.detach()
        if self.on_end is not None:
            self.on_end(error)

    # ── calls ─────────────────────────────────────────────────────────────────────────────────────────────

    async def call(self, method: m.Method, reply_type: type[M]) -> M:
        """Send a method and return the broker's reply, which has the type `reply_type`."""
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
        """Raise the error that closed the channel, if it has closed."""
        if self.error is not None:
            raise self.error.with_traceback(None)  # otherwise each raise would extend the traceback

    # ── publishing ────────────────────────────────────────────────────────────────────────────────────────

    async def select_confirms(self) -> None:
        """Enable publisher confirms; messages published from now on have sequence numbers."""
        if not self._publisher.is_confirming:
            self.check_open()
            # The broker counts from this method on, so messages published before its reply count too.
            self._publisher.start_confirms()
            await self.call(m.ConfirmSelect(), m.ConfirmSelectOk)

    @property
    def on_confirm(self) -> OnConfirm | None:
        """A callback for confirms: a range of sequence numbers, and True for ack or False for nack."""
        return self._publisher.on_confirm

    @on_confirm.setter
    def on_confirm(self, callback: OnConfirm | None) -> None:
        self._publisher.on_confirm = callback

    @property
    def unconfirmed_count(self) -> int:
        """The number of published messages that the broker has not confirmed yet."""
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
        """Publish a message without waiting (see `drain`); return its sequence number, 0 without confirms."""
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
        """Publish messages; return their sequence numbers. Fastest if bodies of equal size are adjacent."""
        self.check_open()
        encoded = encode_optional_properties(properties)
        return self._publisher.publish_many(exchange, routing_key, bodies, encoded, mandatory)

    async def drain(self) -> None:
        """Wait while output buffers are full or the broker accepts no messages. Call it after publishing."""
        self.check_open()
        await self.protocol.drain()
        if not self._flow_active.is_set():
            with self.protocol.wait_counter:
                await self._flow_active.wait()
            self.check_open()

    async def wait_for_confirms(self) -> None:
        """Wait until all messages published so far are confirmed; raises `PublishNackedError` for nacks."""
        await self._publisher.confirm_waiters().wait_for_confirms()

    async def wait_for_confirm(self, sequence_number: int) -> None:
        """Wait until one message is confirmed; raises `PublishNackedError` if it was nacked."""
        await self._publisher.confirm_waiters().wait_for_confirm(sequence_number)

    # ── consuming ─────────────────────────────────────────────────────────────────────────────────────────

    async def _consume(self, method: m.BasicConsume) -> Consumer:
        consumer = Consumer(method.consumer_tag, method.queue, no_ack=method.no_ack)
        await self.start_consumer(consumer, method)
        return consumer

    async def start_consumer(self, consumer: Consumer, method: m.BasicConsume) -> None:
        """Send basic.consume. The consumer is registered first: deliveries may directly follow the reply."""
        self.check_open()
        tag = method.consumer_tag
        if tag in self._consumers:
            raise ValueError(f"consumer tag '{tag}' is already used on this channel")
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
        """Send basic.cancel for a consumer whose `start_consumer` was cancelled.

        Called when the reply to basic.consume has arrived: RabbitMQ 3.10 closes a connection that sends
        basic.cancel before.
        """
        if token.exception() is None and self.state is ChannelState.OPEN:
            done = token.get_loop().create_future()
            done.add_done_callback(lambda _: self._consumers.pop(consumer.tag, None))
            self.protocol.session.call(self.number, m.BasicCancel(consumer.tag), done)

    async def cancel(self, consumer: Consumer) -> None:
        """Send basic.cancel; used by `Consumer.cancel`."""
        if self._consumers.get(consumer.tag) is consumer and self.state is not ChannelState.CLOSING:
            await self.call(m.BasicCancel(consumer.tag), m.BasicCancelOk)
            self._consumers.pop(consumer.tag, None)

    async def get(self, queue: str, *, no_ack: bool = False) -> Delivery | None:
        """Return one message of a queue, or None if the queue is empty."""
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
        """The call of `get` was cancelled before the reply; requeue the message."""
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
        """Acknowledge a delivery; return False and send nothing if it is stale."""
        if not self._can_settle(delivery):
            return False
        self.protocol.session.write(
            encode_ack_frame(self.number, delivery.delivery_tag, multiple=multiple)
        )
        return True

    def nack(self, delivery: Delivery, *, multiple: bool = False, requeue: bool = True) -> bool:
        """Reject a delivery: requeue it, or without `requeue` drop or dead-letter it. Returns like `ack`."""
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
            raise ValueError(
                f"the delivery must be settled on its own channel, {delivery.source.channel}"
            )
        if delivery.source.no_ack:
            raise ValueError("a delivery to a consumer with no_ack cannot be settled")
        return self.state is _OPEN

    async def recover(self, *, requeue: bool = True) -> None:
        """Requeue all unacknowledged deliveries of the channel."""
        await self.call(m.BasicRecover(requeue), m.BasicRecoverOk)

    # ── the rest of AMQP ──────────────────────────────────────────────────────────────────────────────────

    async def flow(self, active: bool) -> None:
        """Ask the broker to pause or resume deliveries; RabbitMQ supports only True."""
        await self.call(m.ChannelFlow(active), m.ChannelFlowOk)

    async def select_tx(self) -> None:
        """Start transactions on the channel (tx.select)."""
        await self.call(m.TxSelect(), m.TxSelectOk)

    async def commit(self) -> None:
        """Commit the transaction: its publishes and acknowledgements take effect."""
        await self.call(m.TxCommit(), m.TxCommitOk)

    async def rollback(self) -> None:
        """Roll the transaction back."""
        await self.call(m.TxRollback(), m.TxRollbackOk)

    # ── called by the connection ──────────────────────────────────────────────────────────────────────────

    def handle_deliveries(self, run: Delivered) -> None:
        consumer = self._consumers.get(run.route.consumer_tag)
        # None if a broker sends deliveries after the consumer was cancelled, which it should not.
        if consumer is not None:
            consumer.handle_deliveries(self, run)

    def handle_confirms(self, sequence_numbers: range, acked: bool) -> None:
        self._publisher.handle_confirms(sequence_numbers, acked=acked)

    def handle_return(self, returned: ReturnedMessage) -> None:
        if self.on_return is not None:
            self.on_return(returned)

    def handle_consumer_cancel(self, tag: str) -> None:
        """The broker cancelled a consumer."""
        consumer = self._consumers.pop(tag, None)
        if consumer is not None:
            self._cancelled_consumers.add(consumer)
            consumer.handle_broker_cancel(ConsumerCancelledError(tag, consumer.queue))

    def handle_flow(self, active: bool) -> None:
        """The broker sent channel.flow: pause or resume publishing."""
        if active:
            self._flow_active.set()
        else:
            self._flow_active.clear()
