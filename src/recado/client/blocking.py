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

import ssl
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Sequence
from functools import partial, update_wrapper
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from recado.amqp.properties import Properties
from recado.amqp.values import Table

from .address import Address
from .backoff import Backoff
from .loop_thread import LoopThread
from .messages import Delivery, Returned
from .notices import Notice
from .rendering import check_publish, property_bytes
from .robust import RobustConnection
from .robust import connect as connect_robust
from .robust_channel import WINDOW, RobustChannel, RobustConsumer
from .settling import for_threads
from .waits import OnConfirm

P = ParamSpec("P")
T = TypeVar("T")

HANDED_OVER_MOST = 4 << 20  # bytes published before it is asked whether there is room for more


def connect(
    url: str | Address,
    *,
    tls: ssl.SSLContext | None = None,
    name: str | None = None,
    on_event: Callable[[Notice], object] | None = None,
    give_up: float | None = 300.0,
    patient: bool = False,
    backoff: Backoff | None = None,
) -> "Connection":
    """As `recado.client.connect`; returns when it is connected."""
    robust = connect_robust(
        url,
        tls=tls,
        name=name,
        on_event=on_event,
        give_up=give_up,
        patient=patient,
        backoff=backoff,
    )
    loop = LoopThread()
    try:
        loop.run(_opened(robust))
    except BaseException:
        loop.stop()
        raise
    return Connection(loop, robust)


async def _opened(robust: RobustConnection) -> None:
    await robust


class Connection:
    def __init__(self, loop: LoopThread, robust: RobustConnection) -> None:
        """Use `connect`."""
        self._loop = loop
        self._robust = robust

    def channel(self, *, confirms: bool = True, window: int = WINDOW) -> "Channel":
        channel = self._loop.run(self._robust.channel(confirms=confirms, window=window))
        return Channel(self._loop, channel)

    @property
    def is_connected(self) -> bool:
        return self._robust.is_connected

    @property
    def blocked(self) -> str | None:
        return self._robust.blocked

    def name_of(self, queue: str) -> str:
        return self._robust.name_of(queue)

    def close(self) -> None:
        if not self._loop.loop.is_closed():
            self._loop.run(self._robust.close())
            self._loop.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()


def _waits(
    method: Callable[Concatenate[RobustChannel, P], Coroutine[Any, Any, T]],
) -> "Callable[Concatenate[Channel, P], T]":
    """The same call, waited for."""

    def call(channel: "Channel", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return channel._run(method(channel._robust, *args, **kwargs))

    update_wrapper(call, method)
    return call


class Channel:
    def __init__(self, loop: LoopThread, robust: RobustChannel) -> None:
        """Use `Connection.channel`."""
        self._loop = loop
        self._robust = robust
        self._lock = threading.Lock()
        self._published = 0
        self._handed_over = 0  # bytes
        self._error: Exception | None = None

    declare_exchange = _waits(RobustChannel.declare_exchange)
    delete_exchange = _waits(RobustChannel.delete_exchange)
    bind_exchange = _waits(RobustChannel.bind_exchange)
    unbind_exchange = _waits(RobustChannel.unbind_exchange)
    declare_queue = _waits(RobustChannel.declare_queue)
    bind_queue = _waits(RobustChannel.bind_queue)
    unbind_queue = _waits(RobustChannel.unbind_queue)
    purge_queue = _waits(RobustChannel.purge_queue)
    delete_queue = _waits(RobustChannel.delete_queue)
    qos = _waits(RobustChannel.qos)
    drain = _waits(RobustChannel.drain)
    flush = _waits(RobustChannel.flush)
    confirmed = _waits(RobustChannel.confirmed)
    close = _waits(RobustChannel.close)

    def _run(self, work: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
        found = self._loop.run(work, timeout)
        self._raise_late()
        return found

    def _raise_late(self) -> None:
        """What a publish could not know when it returned is raised by the next call."""
        error, self._error = self._error, None
        if error is not None:
            raise error

    @property
    def unconfirmed(self) -> int:
        return self._robust.unconfirmed

    @property
    def on_confirm(self) -> OnConfirm | None:
        return self._robust.on_confirm

    @on_confirm.setter
    def on_confirm(self, callback: OnConfirm | None) -> None:
        self._robust.on_confirm = callback

    @property
    def on_return(self) -> Callable[[Returned], object] | None:
        return self._robust.on_return

    @on_return.setter
    def on_return(self, callback: Callable[[Returned], object] | None) -> None:
        self._robust.on_return = callback

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
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
        self._robust.check()
        encoded = property_bytes(properties)
        check_publish(exchange, key, bodies)
        with self._lock:
            first = self._published + 1
            if self._robust.outstanding is not None:
                self._published += len(bodies)
            numbers = range(first, self._published + 1)
            self._handed_over += sum(map(len, bodies))
            self._loop.soon(
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
            self._robust.publish_many(exchange, key, bodies, encoded, mandatory=mandatory)
        except Exception as error:  # noqa: BLE001 - the thread that published is told: see _raise_late
            self._error = error

    # ── consuming ─────────────────────────────────────────────────────────────────────────────────────────

    def consume(
        self,
        queue: str,
        *,
        tag: str = "",
        no_ack: bool = False,
        exclusive: bool = False,
        no_local: bool = False,
        arguments: Table | None = None,
    ) -> "Consumer":
        consuming = self._robust.consume(
            queue,
            tag=tag,
            no_ack=no_ack,
            exclusive=exclusive,
            no_local=no_local,
            arguments=arguments,
        )
        return Consumer(self._loop, self._run(consuming))

    def get(self, queue: str, *, no_ack: bool = False) -> Delivery | None:
        """One message, or None if the queue is empty."""
        delivery = self._run(self._robust.get(queue, no_ack=no_ack))
        return None if delivery is None else for_threads(self._loop, [delivery])[0]

    def ack(self, delivery: Delivery, *, multiple: bool = False) -> bool:
        return delivery.ack(multiple=multiple)

    def nack(self, delivery: Delivery, *, multiple: bool = False, requeue: bool = True) -> bool:
        return delivery.nack(multiple=multiple, requeue=requeue)


class Consumer:
    def __init__(self, loop: LoopThread, robust: RobustConsumer) -> None:
        """Use `Channel.consume`."""
        self._loop = loop
        self._robust = robust
        self.tag = robust.tag
        self.queue = robust.queue
        self._ready: deque[Delivery] = deque()

    def next_batch(self, timeout: float | None = None) -> list[Delivery]:
        """All that is there, once something is; empty when the consumer was cancelled.

        `TimeoutError` if nothing came within `timeout` seconds.
        """
        return for_threads(self._loop, self._loop.run(self._robust.next_batch(), timeout))

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
        self._loop.run(self._robust.cancel())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.cancel()
