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

from .errors import ConnectionClosed
from .loop_thread import LoopThread, Threaded, waited, waited_as
from .messages import Delivery, Returned
from .rendering import check_publish, property_bytes
from .robust import RobustConnection
from .robust import connect as connect_robust
from .robust_channel import RobustChannel, RobustConsumer
from .settling import for_threads
from .waits import OnConfirm

P = ParamSpec("P")
T = TypeVar("T")

HANDED_OVER_MOST = 4 << 20  # bytes published before it is asked whether there is room for more


class Consumer(Threaded[RobustConsumer]):
    def __init__(self, thread: LoopThread, robust: RobustConsumer) -> None:
        """Use `Channel.consume`."""
        super().__init__(thread, robust)
        self.tag = robust.tag
        self.queue = robust.queue
        self._ready: deque[Delivery] = deque()

    def next_batch(self, timeout: float | None = None) -> list[Delivery]:
        """All that is there, once something is; empty when the consumer was cancelled.

        `TimeoutError` if nothing came within `timeout` seconds.
        """
        return for_threads(self._thread, self._run(self._inner.next_batch(), timeout))

    def batches(self) -> Iterator[list[Delivery]]:
        while batch := self.next_batch():
            yield batch

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Delivery:
        if not self._ready:
            self._ready.extend(self.next_batch())
        if not self._ready:
            raise StopIteration
        return self._ready.popleft()

    def cancel(self) -> None:
        """Want no more. What was delivered and not handed over goes back to the queue."""
        ready, self._ready = self._ready, deque()
        for delivery in ready:
            if not delivery.source.settled:
                delivery.nack()
        self._run(self._inner.cancel())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.cancel()


class Channel(Threaded[RobustChannel]):
    def __init__(self, thread: LoopThread, robust: RobustChannel) -> None:
        """Use `Connection.channel`."""
        super().__init__(thread, robust)
        self._lock = threading.Lock()
        self._published = 0
        self._handed_over = 0  # bytes
        self._error: Exception | None = None

    declare_exchange = waited(RobustChannel.declare_exchange)
    delete_exchange = waited(RobustChannel.delete_exchange)
    bind_exchange = waited(RobustChannel.bind_exchange)
    unbind_exchange = waited(RobustChannel.unbind_exchange)
    declare_queue = waited(RobustChannel.declare_queue)
    bind_queue = waited(RobustChannel.bind_queue)
    unbind_queue = waited(RobustChannel.unbind_queue)
    purge_queue = waited(RobustChannel.purge_queue)
    delete_queue = waited(RobustChannel.delete_queue)
    qos = waited(RobustChannel.qos)
    consume = waited_as(Consumer, RobustChannel.consume)
    drain = waited(RobustChannel.drain)
    flush = waited(RobustChannel.flush)
    confirmed = waited(RobustChannel.confirmed)
    close = waited(RobustChannel.close)

    def _run(self, work: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
        found = super()._run(work, timeout)
        self._raise_late()
        return found

    def _raise_late(self) -> None:
        """What a publish could not know when it returned is raised by the next call."""
        error, self._error = self._error, None
        if error is not None:
            raise error

    @property
    def unconfirmed(self) -> int:
        return self._inner.unconfirmed

    @property
    def on_confirm(self) -> OnConfirm | None:
        return self._inner.on_confirm

    @on_confirm.setter
    def on_confirm(self, callback: OnConfirm | None) -> None:
        self._inner.on_confirm = callback

    @property
    def on_return(self) -> Callable[[Returned], object] | None:
        return self._inner.on_return

    @on_return.setter
    def on_return(self, callback: Callable[[Returned], object] | None) -> None:
        self._inner.on_return = callback

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ── publishing ────────────────────────────────────────────────────────────────────────────────────────

    def publish(
        self,
        exchange: str,
        key: str,
        body: bytes,
        properties: Properties | bytes | None = None,
        *,
        mandatory: bool = False,
    ) -> int:
        """The message's number, for its confirm; waits only while too much is under way."""
        numbers = self.publish_many(exchange, key, (body,), properties, mandatory=mandatory)
        return numbers[0] if numbers else 0

    def publish_many(
        self,
        exchange: str,
        key: str,
        bodies: Sequence[bytes],
        properties: Properties | bytes | None = None,
        *,
        mandatory: bool = False,
    ) -> range:
        """Their numbers."""
        self._raise_late()
        self._inner.check()
        encoded = property_bytes(properties)
        check_publish(exchange, key, bodies)
        with self._lock:
            first = self._published + 1
            if self._inner.outstanding is not None:
                self._published += len(bodies)
            numbers = range(first, self._published + 1)
            self._handed_over += sum(map(len, bodies))
            self._thread.soon(
                partial(self._take_over, exchange, key, bodies, encoded, mandatory=mandatory)
            )
        if self._handed_over > HANDED_OVER_MOST:
            self._handed_over = 0
            self.drain()
        return numbers

    def _take_over(
        self, exchange: str, key: str, bodies: Sequence[bytes], encoded: bytes, *, mandatory: bool
    ) -> None:
        """In the loop's thread."""
        try:
            self._inner.publish_many(exchange, key, bodies, encoded, mandatory=mandatory)
        except Exception as error:  # noqa: BLE001 - the thread that published is told: see _raise_late
            self._error = error

    # ── receiving ─────────────────────────────────────────────────────────────────────────────────────────

    def get(self, queue: str, *, no_ack: bool = False) -> Delivery | None:
        """One message, or None if the queue is empty."""
        delivery = self._run(self._inner.get(queue, no_ack=no_ack))
        return None if delivery is None else for_threads(self._thread, [delivery])[0]

    def ack(self, delivery: Delivery, *, multiple: bool = False) -> bool:
        return delivery.ack(multiple=multiple)

    def nack(self, delivery: Delivery, *, multiple: bool = False, requeue: bool = True) -> bool:
        return delivery.nack(multiple=multiple, requeue=requeue)


class Connection(Threaded[RobustConnection]):
    """Use `connect`."""

    channel = waited_as(Channel, RobustConnection.channel)

    @property
    def is_connected(self) -> bool:
        return self._inner.is_connected

    @property
    def blocked(self) -> str | None:
        return self._inner.blocked

    def name_of(self, queue: str) -> str:
        return self._inner.name_of(queue)

    def close(self) -> None:
        if self._thread.is_running:
            self._run(self._inner.close())
            self._thread.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _connected(make: Callable[P, RobustConnection]) -> Callable[P, Connection]:
    def connect(*args: P.args, **kwargs: P.kwargs) -> Connection:
        """As `recado.client.connect`; returns when it is connected."""
        robust = make(*args, **kwargs)
        thread = LoopThread("recado client", ConnectionClosed)
        thread.start()
        try:
            thread.run(_opened(robust))
        except BaseException:
            thread.stop()
            raise
        return Connection(thread, robust)

    return update_wrapper(connect, make, assigned=())


async def _opened(robust: RobustConnection) -> None:
    await robust


connect = _connected(connect_robust)
