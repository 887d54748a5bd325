"""The robust client for programs without an event loop: the same names, with calls that block.

    with connect_blocking("amqp://localhost") as connection:
        channel = connection.channel()
        channel.declare_queue("hello")
        channel.publish("", "hello", b"recado!")
        channel.wait_for_confirms()
        for delivery in channel.consume("hello"):
            delivery.ack()

The event loop runs in a thread of its own, so heartbeats and reconnections continue whatever the program does.
All objects may be used from any thread. Callbacks (`on_event`, `on_confirm`, `on_return`) run in the thread of
the loop and must not make blocking calls.
"""

import ssl
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Sequence
from functools import partial
from typing import Any, Self, TypeVar

from recado.amqp.properties import Properties

from .channel import Channel
from .errors import ConnectionClosedByClientError
from .events import ConnectionEvent
from .loop_thread import LoopThread, LoopThreadProxy, make_blocking_factory, make_blocking_method
from .messages import Delivery, DeliverySource, ReturnedMessage
from .parameters import ConnectionParameters
from .publish_encoding import check_publish, encode_optional_properties
from .robust import RobustConnection, connect
from .robust_channel import RobustChannel, RobustConsumer
from .waiters import OnConfirm

T = TypeVar("T")

HANDOVER_MAX_BYTES = 4 << 20  # after this many bytes of bodies, `publish` waits in `drain`


class BlockingConsumer(LoopThreadProxy[RobustConsumer]):
    """A consumer of a blocking channel; iterate over it, or call `next_batch`."""

    def __init__(self, thread: LoopThread, robust: RobustConsumer) -> None:
        """Use `BlockingChannel.consume`."""
        super().__init__(thread, robust)
        self.tag = robust.tag
        self.queue = robust.queue
        self._buffer: deque[Delivery] = deque()

    def next_batch(self, timeout: float | None = None) -> list[Delivery]:
        """Wait for a delivery and return all buffered ones.

        Returns an empty list if this program cancelled the consumer or closed its channel or connection. Raises
        any other error that ended the consumer, and `TimeoutError` if no delivery arrives within `timeout`
        seconds.
        """
        return make_thread_safe(self._thread, self._run(self._inner.next_batch(), timeout))

    def batches(self) -> Iterator[list[Delivery]]:
        """Iterate over batches: all buffered deliveries at a time."""
        while batch := self.next_batch():
            yield batch

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Delivery:
        if not self._buffer:
            self._buffer.extend(self.next_batch())
        if not self._buffer:
            raise StopIteration
        return self._buffer.popleft()

    def cancel(self) -> None:
        """Cancel the consumer. Buffered deliveries are requeued; with `no_ack` they are lost."""
        buffered, self._buffer = self._buffer, deque()
        for delivery in buffered:
            if not delivery.source.no_ack:
                delivery.nack()
        self._run(self._inner.cancel())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.cancel()


class BlockingChannel(LoopThreadProxy[RobustChannel]):
    """A channel of a blocking connection; methods have the names and arguments of `RobustChannel`."""

    def __init__(self, thread: LoopThread, robust: RobustChannel) -> None:
        """Use `BlockingConnection.channel`."""
        super().__init__(thread, robust)
        self._lock = threading.Lock()
        # The sequence number of the last message. `publish` returns before the loop has executed it, so numbers
        # are assigned here; the robust channel assigns the same ones, because it executes calls in this order.
        self._published_count = 0
        self._handed_over_bytes = 0
        self._deferred_error: Exception | None = None

    declare_exchange = make_blocking_method(RobustChannel.declare_exchange)
    delete_exchange = make_blocking_method(RobustChannel.delete_exchange)
    bind_exchange = make_blocking_method(RobustChannel.bind_exchange)
    unbind_exchange = make_blocking_method(RobustChannel.unbind_exchange)
    declare_queue = make_blocking_method(RobustChannel.declare_queue)
    bind_queue = make_blocking_method(RobustChannel.bind_queue)
    unbind_queue = make_blocking_method(RobustChannel.unbind_queue)
    purge_queue = make_blocking_method(RobustChannel.purge_queue)
    delete_queue = make_blocking_method(RobustChannel.delete_queue)
    qos = make_blocking_method(RobustChannel.qos)
    consume = make_blocking_factory(BlockingConsumer, RobustChannel.consume)
    drain = make_blocking_method(RobustChannel.drain)
    wait_for_confirms = make_blocking_method(RobustChannel.wait_for_confirms)
    wait_for_confirm = make_blocking_method(RobustChannel.wait_for_confirm)
    close = make_blocking_method(RobustChannel.close)

    def _run(self, coroutine: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
        result = super()._run(coroutine, timeout)
        self._raise_deferred_error()
        return result

    def _raise_deferred_error(self) -> None:
        """Raise the error of an earlier publish, which had returned before the loop executed it."""
        error, self._deferred_error = self._deferred_error, None
        if error is not None:
            raise error

    @property
    def unconfirmed_count(self) -> int:
        """The number of published messages that the broker has not confirmed yet."""
        return self._inner.unconfirmed_count

    @property
    def on_confirm(self) -> OnConfirm | None:
        return self._inner.on_confirm

    @on_confirm.setter
    def on_confirm(self, callback: OnConfirm | None) -> None:
        self._inner.on_confirm = callback

    @property
    def on_return(self) -> Callable[[ReturnedMessage], object] | None:
        return self._inner.on_return

    @on_return.setter
    def on_return(self, callback: Callable[[ReturnedMessage], object] | None) -> None:
        self._inner.on_return = callback

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

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
        """Publish a message; return its sequence number. Like `publish_many`, it can block in `drain`."""
        numbers = self.publish_many(exchange, routing_key, (body,), properties, mandatory=mandatory)
        return numbers[0] if numbers else 0

    def publish_many(
        self,
        exchange: str,
        routing_key: str,
        bodies: Sequence[bytes],
        properties: Properties | bytes | None = None,
        *,
        mandatory: bool = False,
    ) -> range:
        """Hand messages over to the loop's thread; return their sequence numbers.

        Once per `HANDOVER_MAX_BYTES` of bodies it blocks in `drain`. An error while the loop publishes is
        raised by the next call on the channel.
        """
        self._raise_deferred_error()
        self._inner.check_open()
        encoded = encode_optional_properties(properties)
        check_publish(exchange, routing_key, bodies, encoded, self._inner.frame_max)
        with self._lock:
            first = self._published_count + 1
            if self._inner.has_confirms:
                self._published_count += len(bodies)
            numbers = range(first, self._published_count + 1)
            self._handed_over_bytes += sum(map(len, bodies))
            must_drain = self._handed_over_bytes > HANDOVER_MAX_BYTES
            if must_drain:
                self._handed_over_bytes = 0
            self._thread.call_soon(
                partial(
                    self._publish_in_loop,
                    exchange,
                    routing_key,
                    bodies,
                    encoded,
                    mandatory=mandatory,
                )
            )
        if must_drain:
            self.drain()
        return numbers

    def _publish_in_loop(
        self,
        exchange: str,
        routing_key: str,
        bodies: Sequence[bytes],
        encoded: bytes,
        *,
        mandatory: bool,
    ) -> None:
        """Publish; runs in the thread of the loop."""
        try:
            self._inner.publish_many(exchange, routing_key, bodies, encoded, mandatory=mandatory)
        except Exception as error:  # noqa: BLE001 - raised by the next call: _raise_deferred_error
            self._deferred_error = error

    # ── receiving ─────────────────────────────────────────────────────────────────────────────────────────

    def get(self, queue: str, *, no_ack: bool = False) -> Delivery | None:
        """Return one message of a queue, or None if the queue is empty."""
        delivery = self._run(self._inner.get(queue, no_ack=no_ack))
        return None if delivery is None else make_thread_safe(self._thread, [delivery])[0]

    def ack(self, delivery: Delivery, *, multiple: bool = False) -> bool:
        """Acknowledge a delivery; return False and send nothing if it is stale.

        True means that the loop's thread will send it, unless the channel closes before.
        """
        return delivery.ack(multiple=multiple)

    def nack(self, delivery: Delivery, *, multiple: bool = False, requeue: bool = True) -> bool:
        """Reject a delivery: requeue it, or without `requeue` drop or dead-letter it. Returns like `ack`."""
        return delivery.nack(multiple=multiple, requeue=requeue)


class BlockingConnection(LoopThreadProxy[RobustConnection]):
    """A robust connection with calls that block; made by `connect_blocking`."""

    def __init__(self, robust: RobustConnection) -> None:
        super().__init__(LoopThread("recado client", ConnectionClosedByClientError), robust)

    channel = make_blocking_factory(BlockingChannel, RobustConnection.channel)

    def open(self) -> Self:
        """Connect and log in; `with` does this. Raises the errors of `connect`."""
        if not self._thread.is_running:
            self._thread.start()
            try:
                self._run(self._inner.open())
            except BaseException:
                self._thread.stop()
                raise
        return self

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection now and its recovery is complete."""
        return self._inner.is_connected

    @property
    def blocked_reason(self) -> str | None:
        """Why the broker accepts no messages now (connection.blocked); None if it accepts them."""
        return self._inner.blocked_reason

    def current_queue_name(self, queue: str) -> str:
        """Return the current name of a queue that the broker named, or `queue`."""
        return self._inner.current_queue_name(queue)

    def close(self) -> None:
        """Close the connection. Unconfirmed messages are not sent again: call `wait_for_confirms` before."""
        if self._thread.is_running:
            self._run(self._inner.close())
            self._thread.stop()

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(self, *_: object) -> None:
        self.close()


def connect_blocking(
    url: str | ConnectionParameters,
    *,
    tls: ssl.SSLContext | None = None,
    name: str | None = None,
    on_event: Callable[[ConnectionEvent], object] | None = None,
    reconnect_timeout: float | None = 300.0,
    wait_for_broker: bool = False,
    retry_initial: float = 0.1,
    retry_max: float = 5.0,
    retry_factor: float = 2.0,
) -> BlockingConnection:
    """Return a robust connection with calls that block; `with` (or `open()`) opens it.

    The arguments and errors are those of `connect`. `on_event` is called in another thread.
    """
    return BlockingConnection(
        connect(
            url,
            tls=tls,
            name=name,
            on_event=on_event,
            reconnect_timeout=reconnect_timeout,
            wait_for_broker=wait_for_broker,
            retry_initial=retry_initial,
            retry_max=retry_max,
            retry_factor=retry_factor,
        )
    )


# ── deliveries that any thread may settle ─────────────────────────────────────────────────────────────────


class _ThreadSafeChannel:
    """The channel of a delivery, for threads other than that of the loop."""

    def __init__(self, thread: LoopThread, source: DeliverySource, channel: Channel) -> None:
        self._thread = thread
        self._source = source
        self._channel = channel

    @property
    def is_open(self) -> bool:
        return self._channel.is_open

    def ack(self, delivery: Delivery, *, multiple: bool = False) -> bool:
        return self._settle_in_loop(
            partial(self._channel.ack, self._restore_delivery(delivery), multiple=multiple)
        )

    def nack(self, delivery: Delivery, *, multiple: bool = False, requeue: bool = True) -> bool:
        original = self._restore_delivery(delivery)
        return self._settle_in_loop(
            partial(self._channel.nack, original, multiple=multiple, requeue=requeue)
        )

    def _restore_delivery(self, delivery: Delivery) -> Delivery:
        """Return the delivery with its original channel: `Channel` settles only its own deliveries."""
        if self._source.no_ack:
            raise ValueError("a delivery to a consumer with no_ack cannot be settled")
        return Delivery(self._source, delivery.delivery_tag, delivery.raw_properties, delivery.body)

    def _settle_in_loop(self, settle: Callable[[], bool]) -> bool:
        if not (self._channel.is_open and self._thread.is_running):
            return False
        self._thread.call_soon(settle)
        return True


def make_thread_safe(thread: LoopThread, deliveries: list[Delivery]) -> list[Delivery]:
    """Return the same deliveries, with channels that any thread may use."""
    wrapped: list[Delivery] = []
    source: DeliverySource | None = None
    for each in deliveries:
        if each.source is not source:
            source = each.source
            assert isinstance(source.channel, Channel)
            safe_source = DeliverySource(
                _ThreadSafeChannel(thread, source, source.channel),
                source.consumer_tag,
                source.redelivered,
                source.exchange,
                source.routing_key,
                source.no_ack,
            )
        wrapped.append(Delivery(safe_source, each.delivery_tag, each.raw_properties, each.body))
    return wrapped
