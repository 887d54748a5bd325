"""The robust client for programs without an event loop: the same names, and calls that wait.

    with blocking.connect("amqp://localhost") as connection:
        channel = connection.channel()
        channel.declare_queue("hello")
        channel.publish("", "hello", b"recado!")
        channel.flush()
        for delivery in channel.consume("hello"):
            delivery.ack()

A thread of its own has the loop, so heartbeats and reconnections go on whatever the program does. Any thread
may call; hooks (`on_event`, `on_confirm`, `on_return`) are called in the loop's thread and must not wait here.
"""

import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Sequence
from functools import partial, update_wrapper
from typing import Any, ParamSpec, Self, TypeVar

from recado.amqp.properties import Properties

from .errors import ConnectionClosedByClientError
from .loop_thread import LoopThread, LoopThreadProxy, make_blocking_factory, make_blocking_method
from .messages import Delivery, ReturnedMessage
from .publish_encoding import check_publish, encode_optional_properties
from .robust import RobustConnection
from .robust import connect as connect_robust
from .robust_channel import RobustChannel, RobustConsumer
from .thread_safe_delivery import make_thread_safe
from .waiters import OnConfirm

P = ParamSpec("P")
T = TypeVar("T")

HANDOVER_MAX_BYTES = 4 << 20  # bytes published before it is asked whether there is room for more


class BlockingConsumer(LoopThreadProxy[RobustConsumer]):
    def __init__(self, thread: LoopThread, robust: RobustConsumer) -> None:
        """Use `Channel.consume`."""
        super().__init__(thread, robust)
        self.tag = robust.tag
        self.queue = robust.queue
        self._buffer: deque[Delivery] = deque()

    def next_batch(self, timeout: float | None = None) -> list[Delivery]:
        """All that is there, once something is; empty when the consumer was cancelled.

        `TimeoutError` if nothing came within `timeout` seconds.
        """
        return make_thread_safe(self._thread, self._run(self._inner.next_batch(), timeout))

    def batches(self) -> Iterator[list[Delivery]]:
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
        """Want no more. What was delivered and not handed over goes back to the queue."""
        ready, self._buffer = self._buffer, deque()
        for delivery in ready:
            if not delivery.source.no_ack:
                delivery.nack()
        self._run(self._inner.cancel())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.cancel()


class BlockingChannel(LoopThreadProxy[RobustChannel]):
    def __init__(self, thread: LoopThread, robust: RobustChannel) -> None:
        """Use `Connection.channel`."""
        super().__init__(thread, robust)
        self._lock = threading.Lock()
        self._published_count = 0
        self._handed_over_bytes = 0  # bytes
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
        found = super()._run(coroutine, timeout)
        self._raise_deferred_error()
        return found

    def _raise_deferred_error(self) -> None:
        """What a publish could not know when it returned is raised by the next call."""
        error, self._deferred_error = self._deferred_error, None
        if error is not None:
            raise error

    @property
    def unconfirmed_count(self) -> int:
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
        """The message's number, for its confirm; waits only while too much is under way."""
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
        """Their numbers."""
        self._raise_deferred_error()
        self._inner.check_open()
        encoded = encode_optional_properties(properties)
        check_publish(exchange, routing_key, bodies)
        with self._lock:
            first = self._published_count + 1
            if self._inner.unconfirmed is not None:
                self._published_count += len(bodies)
            numbers = range(first, self._published_count + 1)
            self._handed_over_bytes += sum(map(len, bodies))
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
        if self._handed_over_bytes > HANDOVER_MAX_BYTES:
            self._handed_over_bytes = 0
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
        """In the loop's thread."""
        try:
            self._inner.publish_many(exchange, routing_key, bodies, encoded, mandatory=mandatory)
        except Exception as error:  # noqa: BLE001 - the thread that published is told: see _raise_late
            self._deferred_error = error

    # ── receiving ─────────────────────────────────────────────────────────────────────────────────────────

    def get(self, queue: str, *, no_ack: bool = False) -> Delivery | None:
        """One message, or None if the queue is empty."""
        delivery = self._run(self._inner.get(queue, no_ack=no_ack))
        return None if delivery is None else make_thread_safe(self._thread, [delivery])[0]

    def ack(self, delivery: Delivery, *, multiple: bool = False) -> bool:
        return delivery.ack(multiple=multiple)

    def nack(self, delivery: Delivery, *, multiple: bool = False, requeue: bool = True) -> bool:
        return delivery.nack(multiple=multiple, requeue=requeue)


class BlockingConnection(LoopThreadProxy[RobustConnection]):
    """Use `connect`."""

    channel = make_blocking_factory(BlockingChannel, RobustConnection.channel)

    @property
    def is_connected(self) -> bool:
        return self._inner.is_connected

    @property
    def blocked_reason(self) -> str | None:
        return self._inner.blocked_reason

    def current_queue_name(self, queue: str) -> str:
        return self._inner.current_queue_name(queue)

    def close(self) -> None:
        if self._thread.is_running:
            self._run(self._inner.close())
            self._thread.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _make_blocking(make: Callable[P, RobustConnection]) -> Callable[P, BlockingConnection]:
    def connect(*args: P.args, **kwargs: P.kwargs) -> BlockingConnection:
        """As `recado.client.connect`; returns when it is connected."""
        robust = make(*args, **kwargs)
        thread = LoopThread("recado client", ConnectionClosedByClientError)
        thread.start()
        try:
            thread.run(_open(robust))
        except BaseException:
            thread.stop()
            raise
        return BlockingConnection(thread, robust)

    return update_wrapper(connect, make, assigned=())


async def _open(robust: RobustConnection) -> None:
    await robust


connect_blocking = _make_blocking(connect_robust)
