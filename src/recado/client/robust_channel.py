"""The channel of a robust connection: it uses one plain channel after another.

CRC1  Messages published with confirms are stored until the broker confirms them, and published again on each
      new connection, in order and before newer ones. So each arrives at least once, and first arrivals are in
      order.
CRC2  Calls wait while there is no connection, and are repeated if the connection is lost before the reply,
      unless the broker closed the connection because of an error.
CRC3  An operation that the broker refuses is not repeated: the channel closes with the error, like a plain one.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Self

import msgspec

from recado.amqp import methods as m
from recado.amqp.frames import FRAME_MAX_DEFAULT_BYTES
from recado.amqp.properties import Properties

from .channel import Channel
from .commands import ChannelCommands, M
from .consumer import Consumer
from .errors import (
    ChannelClosedByBrokerError,
    ChannelClosedByClientError,
    ConnectionClosedByBrokerError,
    ConnectionClosedByClientError,
    ConnectionClosedError,
    ConnectionLostError,
)
from .messages import Delivery, ReturnedMessage
from .publish_encoding import check_publish, encode_optional_properties
from .unconfirmed_publishes import UnconfirmedPublishes
from .waiters import ConfirmWaiters, Notifier, OnConfirm

if TYPE_CHECKING:
    from .robust import RobustConnection

UNCONFIRMED_MAX_BYTES = 32 << 20
_CONNECTION_FORCED_CODE = 320  # the broker stops, or an operator closed the connection


class RobustConsumer(Consumer):
    """A consumer that continues on the next connection; the broker redelivers its unacknowledged messages."""

    def __init__(self, owner: "RobustChannel", method: m.BasicConsume) -> None:
        super().__init__(method.consumer_tag, method.queue, no_ack=method.no_ack)
        self.method = method
        self._owner = owner

    def handle_channel_closed(self, error: Exception) -> None:
        refused_in_recovery = self._owner._is_recovering and isinstance(
            error, ChannelClosedByBrokerError
        )
        if is_recoverable(error) or refused_in_recovery:  # ConnectionRecovery decides what follows
            self.detach()
        else:
            self._owner._remove_consumer(self)
            super().handle_channel_closed(error)

    def handle_broker_cancel(self, error: Exception) -> None:
        self._owner._remove_consumer(self)
        super().handle_broker_cancel(error)

    def fail_recovery(self, error: Exception) -> None:
        """The consumer could not be started again."""
        self._owner._remove_consumer(self)
        self.fail(error)

    async def cancel(self) -> None:
        self._owner._remove_consumer(self)
        try:
            await super().cancel()
        except ConnectionClosedError as error:
            if not is_recoverable(error):
                raise


class RobustChannel(ChannelCommands[RobustConsumer]):
    """A channel that survives reconnections; made by `RobustConnection.channel`.

    `on_confirm` is called with a range of sequence numbers and whether they were acked, `on_return` with each
    returned message, `on_end` with the error when the channel has ended for good.
    """

    def __init__(
        self, connection: "RobustConnection", *, confirms: bool, unconfirmed_max_bytes: int
    ) -> None:
        super().__init__()
        self.connection = connection
        self.unconfirmed_max_bytes = unconfirmed_max_bytes
        self.error: Exception | None = None
        self.frame_max = FRAME_MAX_DEFAULT_BYTES  # of the current or last connection
        self.on_confirm: OnConfirm | None = None
        self.on_return: Callable[[ReturnedMessage], object] | None = None
        self.on_end: Callable[[Exception], object] | None = None
        self._unconfirmed = UnconfirmedPublishes() if confirms else None
        self._consumers: dict[str, RobustConsumer] = {}
        self._prefetch: dict[bool, m.BasicQos] = {}
        self._current: Channel | None = None  # None while disconnected or recovering
        self._notifier = Notifier()
        self._is_republishing = False  # connected, but unconfirmed messages are sent first
        self._last_declared_queue = ""
        if self._unconfirmed is not None:
            self._confirm_waiters = ConfirmWaiters(
                self._unconfirmed.confirms, connection._wait_counter
            )

    @property
    def is_open(self) -> bool:
        """Whether the channel has not ended for good; it may be disconnected at the moment."""
        return self.error is None

    @property
    def _is_recovering(self) -> bool:
        """Whether the channel is disconnected or its recovery is not complete."""
        return self.error is None and self._current is None

    @property
    def has_confirms(self) -> bool:
        """Whether the channel was opened with publisher confirms."""
        return self._unconfirmed is not None

    @property
    def unconfirmed_count(self) -> int:
        """The number of published messages that the broker has not confirmed yet."""
        return self._unconfirmed.confirms.unconfirmed_count if self._unconfirmed is not None else 0

    # ── opening, recovery, closing ────────────────────────────────────────────────────────────────────────

    def _attach(self, channel: Channel) -> None:
        """Connect the callbacks of the next plain channel; it is used only after `_resume`."""
        self.frame_max = channel.protocol.session.frame_max
        channel.on_end = self._handle_channel_closed
        channel.on_return = self._handle_return
        if self._unconfirmed is not None:
            channel.on_confirm = self._handle_confirms
            self._unconfirmed.start_channel()
        self._is_republishing = True
        if channel.error is not None:
            self._handle_channel_closed(channel.error)

    def _resume(self, channel: Channel) -> None:
        """Recovery is complete: use the plain channel."""
        self._is_republishing = False
        if channel.is_open:
            self._current = channel
        self._notifier.notify_all()

    def _handle_channel_closed(self, error: Exception) -> None:
        self._current = None
        self._is_republishing = False
        if not is_recoverable(error):
            self._terminate(error)
        self._notifier.notify_all()

    def _terminate(self, error: Exception) -> None:
        """End the channel for good."""
        if self.error is not None:
            return
        self.error = error
        self._current = None
        self.connection._remove_channel(self)
        if self._unconfirmed is not None:
            self._confirm_waiters.fail(error)
        for consumer in list(self._consumers.values()):
            consumer.handle_channel_closed(error)
        self._notifier.notify_all()
        if self.on_end is not None:
            self.on_end(error)

    async def close(self) -> None:
        """Close the channel. Unconfirmed messages are not sent again."""
        channel = self._current
        self._terminate(ChannelClosedByClientError())
        if channel is not None:
            try:
                await channel.close()
            except ConnectionClosedError as error:
                if not is_recoverable(error):
                    raise

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def check_open(self) -> None:
        """Raise the error that ended the channel for good, if it has ended."""
        if self.error is not None:
            raise self.error.with_traceback(None)

    async def _wait_connected(self) -> Channel:
        while True:
            self.check_open()
            if self._current is not None:
                return self._current
            await self._wait_for_change()

    async def _wait_for_change(self) -> None:
        """Wait until the connection or the amount of unconfirmed messages changes."""
        with self.connection._wait_counter:
            await self._notifier.wait()

    # ── calls ─────────────────────────────────────────────────────────────────────────────────────────────

    async def call(self, method: m.Method, reply_type: type[M]) -> M:
        """Send a method and return the broker's reply; repeated if the connection is lost (CRC2)."""
        method = self._resolve_empty_queue_name(method)
        topology = self.connection._topology
        while True:
            channel = await self._wait_connected()
            request = topology.resolve_queue_name(method)
            try:
                reply = await channel.call(request, reply_type)
            except ConnectionClosedError as error:
                raise_unless_retryable(error)
                continue
            topology.record(request, reply)
            match reply:
                case m.QueueDeclareOk(name):
                    self._last_declared_queue = name
                case m.BasicQosOk():
                    assert isinstance(request, m.BasicQos)
                    self._prefetch[request.global_] = request
                case _:
                    pass
            return reply

    def _resolve_empty_queue_name(self, method: M) -> M:
        """Replace AMQP's empty queue name, the last queue declared on the channel, by its name.

        The broker would resolve it to another queue after a reconnection.
        """
        match method:
            case m.QueueBind("", _, key):
                name = self._last_declared_queue
                return msgspec.structs.replace(method, queue=name, routing_key=key or name)
            case (
                m.QueueUnbind("")
                | m.QueuePurge("")
                | m.QueueDelete("")
                | m.BasicConsume("")
                | m.BasicGet("")
            ):
                return msgspec.structs.replace(method, queue=self._last_declared_queue)
            case _:
                return method

    async def get(self, queue: str, *, no_ack: bool = False) -> Delivery | None:
        """Return one message of a queue, or None if the queue is empty."""
        while True:
            channel = await self._wait_connected()
            name = self.connection._topology.current_name(queue or self._last_declared_queue)
            try:
                return await channel.get(name, no_ack=no_ack)
            except ConnectionClosedError as error:
                raise_unless_retryable(error)

    # ── publishing ────────────────────────────────────────────────────────────────────────────────────────

    def publish(
        self,
        exchange: str,
        routing_key: str,
        body: bytes,
        properties: Properties | bytes | None = None,
        *,
        mandatory: bool = False,
    ) -> int:
        """Publish a message without waiting (see `drain`); return its sequence number.

        Without confirms, returns 0, and raises `ConnectionLostError` while disconnected.
        """
        self.check_open()
        encoded = encode_optional_properties(properties)
        if self._unconfirmed is None:
            return self._require_current().publish(
                exchange, routing_key, body, encoded, mandatory=mandatory
            )
        check_publish(exchange, routing_key, (body,), encoded, self.frame_max)
        batch = self._unconfirmed.add(exchange, routing_key, (body,), encoded, mandatory)
        if self._current is not None:
            self._current.publish(exchange, routing_key, body, encoded, mandatory=mandatory)
            self._unconfirmed.mark_sent()
        return batch.first_number

    def publish_many(
        self,
        exchange: str,
        routing_key: str,
        bodies: Sequence[bytes],
        properties: Properties | bytes | None = None,
        *,
        mandatory: bool = False,
    ) -> range:
        """Publish messages; return their sequence numbers.

        `bodies` is stored until they are confirmed: do not modify the list.
        """
        self.check_open()
        encoded = encode_optional_properties(properties)
        if self._unconfirmed is None:
            return self._require_current().publish_many(
                exchange, routing_key, bodies, encoded, mandatory=mandatory
            )
        check_publish(exchange, routing_key, bodies, encoded, self.frame_max)
        batch = self._unconfirmed.add(exchange, routing_key, bodies, encoded, mandatory)
        if self._current is not None:
            self._current.publish_many(exchange, routing_key, bodies, encoded, mandatory=mandatory)
            self._unconfirmed.mark_sent()
        return range(batch.first_number, batch.end_number)

    def _require_current(self) -> Channel:
        if self._current is None:
            raise ConnectionLostError(
                "the connection is lost, and messages without confirms are not stored",
                "Open the channel with confirms=True, or drop the message.",
            )
        return self._current

    async def drain(self) -> None:
        """Wait while the output buffers are full or unconfirmed messages exceed `unconfirmed_max_bytes`.

        While disconnected, a channel with confirms waits for this limit only, because it stores messages; a
        channel without confirms waits for the next connection.
        """
        while True:
            self.check_open()
            if self._unconfirmed is None:
                full = self._current is None
            else:
                full = (
                    self._is_republishing
                    or self._unconfirmed.memory_bytes >= self.unconfirmed_max_bytes
                )
            if full:
                await self._wait_for_change()
            elif self._current is None:
                return
            else:
                try:
                    await self._current.drain()
                except ConnectionClosedError as error:
                    raise_unless_retryable(error)
                    continue
                return

    async def wait_for_confirms(self) -> None:
        """Wait until all messages published so far are confirmed; raises `PublishNackedError` for nacks."""
        await self._require_confirms().wait_for_confirms()

    async def wait_for_confirm(self, sequence_number: int) -> None:
        """Wait until one message is confirmed; raises `PublishNackedError` if it was nacked."""
        await self._require_confirms().wait_for_confirm(sequence_number)

    def _require_confirms(self) -> ConfirmWaiters:
        if self._unconfirmed is None:
            raise ValueError(
                "the channel has no publisher confirms: it was opened with confirms=False"
            )
        return self._confirm_waiters

    def _handle_confirms(self, channel_numbers: range, acked: bool) -> None:
        assert self._unconfirmed is not None
        for sequence_numbers in self._unconfirmed.settle(channel_numbers):
            self._confirm_waiters.handle_confirms(sequence_numbers, acked=acked)
            if self.on_confirm is not None:
                self.on_confirm(sequence_numbers, acked)
        if self._unconfirmed.memory_bytes < self.unconfirmed_max_bytes:
            self._notifier.notify_all()

    def _handle_return(self, message: ReturnedMessage) -> None:
        if self.on_return is not None:
            self.on_return(message)

    # ── consuming ─────────────────────────────────────────────────────────────────────────────────────────

    async def _consume(self, method: m.BasicConsume) -> RobustConsumer:
        """Start a consumer that continues after reconnections, in the same iteration."""
        name = method.consumer_tag
        if name in self._consumers:
            raise ValueError(f"consumer tag '{name}' is already used on this channel")
        method = self._resolve_empty_queue_name(method)
        consumer = RobustConsumer(self, method)
        while True:
            channel = await self._wait_connected()
            try:
                await channel.start_consumer(
                    consumer, self.connection._topology.resolve_queue_name(method)
                )
            except ConnectionClosedError as error:
                raise_unless_retryable(error)
                continue
            self._consumers[name] = consumer
            return consumer

    def _remove_consumer(self, consumer: RobustConsumer) -> None:
        """A consumer was cancelled or has failed; it is not started again."""
        if self._consumers.pop(consumer.tag, None) is not None:
            self.connection._handle_consumer_removed(consumer.queue)

    def ack(self, delivery: Delivery, *, multiple: bool = False) -> bool:
        """Acknowledge a delivery; return False and send nothing if it is stale."""
        return delivery.ack(multiple=multiple)

    def nack(self, delivery: Delivery, *, multiple: bool = False, requeue: bool = True) -> bool:
        """Reject a delivery: requeue it, or without `requeue` drop or dead-letter it. Returns like `ack`."""
        return delivery.nack(multiple=multiple, requeue=requeue)


def is_recoverable(error: Exception) -> bool:
    """Whether the error ends one connection only, so that the next may succeed."""
    return isinstance(error, ConnectionClosedError) and not isinstance(
        error, ConnectionClosedByClientError
    )


def raise_unless_retryable(error: ConnectionClosedError) -> None:
    """Raise the error unless the call can be repeated on the next connection.

    A call that made the broker close the connection is not repeated: it would do so again.
    """
    if not is_recoverable(error) or (
        isinstance(error, ConnectionClosedByBrokerError)
        and error.reply_code != _CONNECTION_FORCED_CODE
    ):
        raise error
