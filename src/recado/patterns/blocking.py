"""`Messaging` for programs without an event loop: the same names, with calls that block until they are done.

app = BlockingMessaging("amqp://localhost")

@app.subscribe("orders", retry=3)
def handle(order: Order) -> Receipt:               # runs in a thread, so it may block too
    ...

with app:
    receipt = app.request("orders", order, Receipt, timeout=2)

The event loop runs in a thread of its own, so heartbeats and reconnections continue whatever the program does. All
methods may be called from any thread, also by plain handlers. Coroutine handlers, interceptors and enrichers run in
the thread of the loop, where a blocking call raises RuntimeError.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import update_wrapper
from os import PathLike
from queue import SimpleQueue
from typing import Any, Concatenate, ParamSpec, Protocol, Self, TypeVar, overload

from recado.client.blocking import BlockingChannel
from recado.client.loop_thread import (
    LoopThread,
    LoopThreadProxy,
    make_blocking_factory,
    make_blocking_method,
)

from .destination import DestinationLike
from .interceptor import Interceptor
from .message import Message
from .messaging import DEAD_LETTERS, INVALID_MESSAGES, Health, Messaging
from .outbox import Outbox, SqlExecutor
from .state import StateStore
from .transaction import BrokerTransaction
from .transformation.enricher import EnricherLike
from .translation import Translator, Translators

F = TypeVar("F", bound=Callable[..., Any])
P = ParamSpec("P")
T = TypeVar("T")

# Started when they are needed. Asyncio's default of 6 threads on 2 cores would be used up by handlers that wait for
# the replies of others.
HANDLER_THREADS_MAX = 256


class Registration(Protocol):
    """A decorator that registers a function and returns it."""

    def __call__(self, function: F, /) -> F: ...


def _make_direct_method(
    method: Callable[Concatenate[Messaging, P], T],
) -> Callable[Concatenate[BlockingMessaging, P], T]:
    """Make a method from one that waits for nothing and may be called in any thread."""

    def call(blocking: BlockingMessaging, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return method(blocking.messaging, *args, **kwargs)

    return update_wrapper(call, method)


def _make_registering_method(
    method: Callable[Concatenate[Messaging, P], Registration],
) -> Callable[Concatenate[BlockingMessaging, P], Registration]:
    """Make a method that returns a decorator, which waits until the endpoint consumes if the application runs."""

    def call(blocking: BlockingMessaging, /, *args: P.args, **kwargs: P.kwargs) -> Registration:
        register = method(blocking.messaging, *args, **kwargs)

        def decorate(function: F) -> F:
            blocking._register(lambda: register(function))
            return function

        return decorate

    return update_wrapper(call, method)


def _make_waiting_method(
    method: Callable[Concatenate[Messaging, P], None],
) -> Callable[Concatenate[BlockingMessaging, P], None]:
    """Make a method that adds an endpoint, and waits until it consumes if the application runs."""

    def call(blocking: BlockingMessaging, /, *args: P.args, **kwargs: P.kwargs) -> None:
        blocking._register(lambda: method(blocking.messaging, *args, **kwargs))

    return update_wrapper(call, method)


class BlockingOutbox(LoopThreadProxy[Outbox]):
    """An outbox of a blocking application, see `recado.patterns.outbox`; made by `BlockingMessaging.outbox`."""

    def add(
        self, connection: SqlExecutor, to: DestinationLike, body: object, *, key: str | None = None
    ) -> None:
        """Add a message, or an object as its body, within the transaction of a connection or cursor.

        The arguments are those of `Outbox.add`.
        """
        self._inner.add(connection, to, body, key=key)

    def wake(self) -> None:
        """Look for new rows now; called after a commit, it saves the message some time."""
        self._thread.call_soon(self._inner.wake)


class BlockingTransaction(LoopThreadProxy[BrokerTransaction]):
    """What a block publishes and takes; made by `BlockingMessaging.transaction`."""

    publish = make_blocking_method(BrokerTransaction.publish)
    take = make_blocking_method(BrokerTransaction.take)


class BlockingMessaging(LoopThreadProxy[Messaging]):
    """The endpoints, publishing and requests of a blocking program; `with` starts and stops them."""

    def __init__(
        self,
        url: str | None = None,
        *,
        name: str = "recado",
        data: str | PathLike[str] | None = None,
        dead_letter: DestinationLike = DEAD_LETTERS,
        invalid: DestinationLike = INVALID_MESSAGES,
        translators: Translators | Sequence[Translator] = (),
        wait_for_broker: bool = False,
        store: StateStore | str | PathLike[str] | None = None,
        shutdown_timeout: float = 30.0,
        compress_bytes: int | None = None,
    ) -> None:
        """Prepare endpoints without connecting. The arguments are those of `Messaging`."""
        app = Messaging(
            url,
            name=name,
            data=data,
            dead_letter=dead_letter,
            invalid=invalid,
            translators=translators,
            wait_for_broker=wait_for_broker,
            store=store,
            shutdown_timeout=shutdown_timeout,
            compress_bytes=compress_bytes,
        )
        super().__init__(LoopThread(f"{name} messaging", _not_started), app)

    @property
    def messaging(self) -> Messaging:
        """The application behind this one, for parts of this package that need it: `ControlBus(app.messaging)`.

        While it is started, only coroutines given to `wait` may use it.
        """
        return self._inner

    def wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the loop and return its result: `app.wait(purge(app.messaging, "orders"))`."""
        return self._run(coroutine)

    # ── starting and stopping ─────────────────────────────────────────────────────────────────────────────

    def start(self) -> None:
        """Connect, declare destinations, and start all endpoints; raises the errors of `Messaging.start`."""
        if self._thread.is_running:
            raise RuntimeError("the application is started already")
        self._thread.start()
        try:
            self._run(self._start())
        except BaseException:
            self._thread.stop()
            raise

    async def _start(self) -> None:
        executor = ThreadPoolExecutor(HANDLER_THREADS_MAX, f"{self._inner.name} handler")
        asyncio.get_running_loop().set_default_executor(executor)
        await self._inner.start()

    def stop(self) -> None:
        """Stop consuming, wait for running handlers and confirms, and disconnect.

        A thread cannot be cancelled, so this also waits for plain handlers that run longer than `shutdown_timeout`.
        """
        if self._thread.is_running:
            try:
                self._run(self._inner.stop())
            finally:
                self._thread.stop()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def run(self) -> None:
        """Start, and stop at SIGTERM or SIGINT; called in the main thread."""
        signals: SimpleQueue[int] = SimpleQueue()  # its `put` is safe in signal handlers
        before = {
            number: signal.signal(number, lambda received, _: signals.put(received))
            for number in (signal.SIGTERM, signal.SIGINT)
        }
        try:
            with self:
                signals.get()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    # ── what it knows ─────────────────────────────────────────────────────────────────────────────────────

    @property
    def name(self) -> str:
        """The name of the application."""
        return self._inner.name

    @property
    def url(self) -> str:
        """The URL of the broker. That of an embedded one is known only while the application is started."""
        return self._inner.url

    @property
    def is_recado(self) -> bool:
        """Whether the broker is recado, whose extensions are used then."""
        return self._inner.is_recado

    @property
    def unconfirmed_count(self) -> int:
        """The number of published messages and requests that the broker has not confirmed."""
        return self._inner.unconfirmed_count

    def health(self) -> Health:
        """Return whether all endpoints consume, like `Messaging.health`."""
        return self._inner.health()

    asyncapi = _make_direct_method(Messaging.asyncapi)

    # ── endpoints ─────────────────────────────────────────────────────────────────────────────────────────

    subscribe = _make_registering_method(Messaging.subscribe)
    listen = _make_registering_method(Messaging.listen)
    flow = _make_waiting_method(Messaging.flow)
    stop_endpoint = make_blocking_method(Messaging.stop_endpoint)

    def _register(self, register: Callable[[], object]) -> None:
        """Add endpoints; if the application is started, in its loop, and wait until they consume."""

        async def add() -> None:
            register()
            await self._inner.wait_ready()

        if self._thread.is_running:
            self._run(add())
        else:
            register()

    def outbox(self, store: StateStore | None = None, *, name: str = "outbox") -> BlockingOutbox:
        """Return an outbox in the database of a store, like `Messaging.outbox`."""
        return BlockingOutbox(self._thread, self._inner.outbox(store, name=name))

    def intercept(self, interceptor: Interceptor) -> None:
        """Run an interceptor around every message that is published and handled, inside those added before."""
        self._inner.intercept(interceptor)

    def enrich(self, enricher: EnricherLike) -> None:
        """Apply an enricher to every message that is published from now on, like `Messaging.enrich`."""
        self._inner.enrich(enricher)

    # ── publishing ────────────────────────────────────────────────────────────────────────────────────────

    publish = make_blocking_method(Messaging.publish)

    def publish_many(self, to: DestinationLike, bodies: Iterable[object], *, key: str = "") -> None:
        """Publish messages in order, and wait until the broker has confirmed all of them."""
        self._run(self._inner.publish_many(to, list(bodies), key=key))  # iterated in this thread

    @overload
    def request(
        self, to: DestinationLike, body: object, *, key: str = "", timeout: float = 10.0
    ) -> Any: ...
    @overload
    def request(
        self,
        to: DestinationLike,
        body: object,
        reply_type: type[T],
        *,
        key: str = "",
        timeout: float = 10.0,
    ) -> T: ...
    def request(
        self,
        to: DestinationLike,
        body: object,
        reply_type: Any = Any,
        *,
        key: str = "",
        timeout: float = 10.0,
    ) -> Any:
        """Publish a request and return its reply, decoded to `reply_type`. Raises like `Messaging.request`."""
        return self._run(self._inner.request(to, body, reply_type, key=key, timeout=timeout))

    @contextmanager
    def transaction(self) -> Iterator[BlockingTransaction]:
        """Publish and take messages in a transaction of the broker, like `Messaging.transaction`."""
        running = self._inner.transaction()
        transaction = BlockingTransaction(self._thread, self._run(running.__aenter__()))
        try:
            yield transaction
        except BaseException as error:
            self._run(running.__aexit__(type(error), error, error.__traceback__))
            raise
        self._run(running.__aexit__(None, None, None))

    # ── polling ───────────────────────────────────────────────────────────────────────────────────────────

    @contextmanager
    def consume(
        self, source: DestinationLike, body_type: Any = Any
    ) -> Iterator[Message[Any] | None]:
        """Take one message, or None if the queue is empty.

        The message is acknowledged at the end of the block. If the block raises, it returns to the head of its
        queue. A message that cannot be translated goes to `invalid`, and the next one is taken.
        """
        taking = self._inner.consume(source, body_type)
        message = self._run(taking.__aenter__())
        try:
            yield message
        except BaseException as error:
            self._run(taking.__aexit__(type(error), error, error.__traceback__))
            raise
        self._run(taking.__aexit__(None, None, None))

    # ── topology ──────────────────────────────────────────────────────────────────────────────────────────

    declare = make_blocking_method(Messaging.declare)
    delete = make_blocking_method(Messaging.delete)
    bind = make_blocking_method(Messaging.bind)
    unbind = make_blocking_method(Messaging.unbind)
    bind_dead_letters = make_blocking_method(Messaging.bind_dead_letters)
    unbind_dead_letters = make_blocking_method(Messaging.unbind_dead_letters)
    open_channel = make_blocking_factory(BlockingChannel, Messaging.open_channel)


def _not_started() -> RuntimeError:
    return RuntimeError("the application is not started: use `with app`")
