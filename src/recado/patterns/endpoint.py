"""An event-driven consumer: deliveries of a queue or feed → a processor, supervised.

An endpoint declares its source, consumes it on a channel of its own, and starts again whenever that ends: the
broker cancelled the consumer, the queue was deleted, the channel was closed because of an error or because an
acknowledgement came too late. The client below it reconnects by itself.

    STOPPED ── start ──→ STARTING ──→ CONSUMING ── pause ────→ PAUSED ───── resume ──────→ STARTING
                            ↑             │ └───── suspend ──→ SUSPENDED ── after a time ─→ STARTING
                            └─── error ───┘

A feed has a connection and a subscription of its own; the client of feeds reconnects as well.

A flow with state runs in one process at a time. In the others its endpoint is on STANDBY, between STARTING and
CONSUMING; it has no consumer, since deliveries would wait there in vain.

PEP1  A started endpoint that is neither paused, suspended nor on standby consumes, or waits at most
      `RESTART_DELAY_MAX_S` to try again. If the broker has lost the consumer without a notice, it is missed within
      `(MISSING_MAX_COUNT + 1) * WATCH_INTERVAL_S`, unless the queue has other consumers.
PEP2  `stop` and `pause` return when no handler runs any more; buffered deliveries are requeued.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from enum import Enum
from typing import Any, Protocol, TypeAlias
from uuid import uuid4

import msgspec

from recado.amqp.values import FieldTable
from recado.client import (
    ChannelClosedByBrokerError,
    ClientError,
    ConsumerCancelledError,
    Delivery,
    RobustChannel,
    RobustConnection,
    RobustConsumer,
)
from recado.feeds.errors import FeedError, JoinError, RecoveryError

from .declaration import NOT_FOUND_CODE, Declarer
from .destination import Destination, LogStream, PointToPoint, PublishSubscribe
from .errors import CompositionError, MessagingError
from .feed_source import FeedIntake, FeedSource, Source, open_feed

log = logging.getLogger("recado.patterns")

RESTART_DELAY_INITIAL_S = 0.05
RESTART_DELAY_MAX_S = 1.0

CLOSED_GRACE_S = 0.5  # within which most handlers end after their channel has closed
WATCH_INTERVAL_S = 1.5
MISSING_MAX_COUNT = 2
"""Consecutive checks without a consumer: it appears in the broker's count a moment after its start."""

REFUSED_CODES = (403, 405, 406)  # access refused, resource locked, precondition failed

MATCH_ALL_KEYS = {"topic": "#", "regex": ".*"}


Activation: TypeAlias = Callable[[Callable[[], object]], AbstractAsyncContextManager[None]]


class EndpointState(Enum):
    """What an endpoint does at the moment."""

    STOPPED = "stopped"
    STARTING = "starting"
    STANDBY = "standby"  # another process runs this flow
    CONSUMING = "consuming"
    PAUSED = "paused"
    SUSPENDED = "suspended"


class EndpointSource(msgspec.Struct, frozen=True, kw_only=True):
    """From where an endpoint consumes, and how.

    A `PublishSubscribe` needs a queue: one of the name `<exchange>.<subscriber>` that stays and is shared by all
    programs of that subscriber, or a private one that is deleted with the connection.
    """

    destination: Source
    key: str | None = None
    subscriber: str | None = None
    offset: str | int | None = None
    exclusive: bool = False
    tap: bool = False
    more_bindings: tuple[tuple[PublishSubscribe, str], ...] = ()
    selector: str | None = None  # evaluated by the broker, or by the subscription to a feed

    @property
    def is_private(self) -> bool:
        """Whether the queue belongs to this endpoint alone."""
        return isinstance(self.destination, PublishSubscribe) and self.subscriber is None

    @property
    def is_stream(self) -> bool:
        return isinstance(self.destination, LogStream)

    def consume_arguments(self) -> FieldTable:
        """Return the arguments of basic.consume."""
        arguments: FieldTable = {}
        if self.offset is not None:
            arguments["x-stream-offset"] = self.offset
        if self.tap and not self.is_private:
            arguments["x-wire-tap"] = True
        if self.selector is not None:
            arguments["x-selector"] = self.selector
        return arguments


class Intake(Protocol):
    """The deliveries that a processor takes: those of a consumer, or of a feed."""

    def __aiter__(self) -> AsyncIterator[Delivery]: ...

    async def __anext__(self) -> Delivery: ...

    def batches(self) -> AsyncIterator[list[Delivery]]: ...

    async def next_batch(self) -> list[Delivery]: ...

    async def cancel(self) -> None: ...


class Processor(Protocol):
    """Processes deliveries and settles each of them."""

    @property
    def running_count(self) -> int:
        """The number of messages that are being processed."""

    @property
    def handled_count(self) -> int:
        """The number of messages that were processed."""

    @property
    def failed_count(self) -> int:
        """The number of times that processing a message failed."""

    @property
    def problems(self) -> Sequence[str]:
        """What is wrong although messages are processed."""

    async def run(self, consumer: Intake, queue: str) -> None:
        """Process deliveries until the consumer ends; raises the error that ended it."""


class MessageEndpoint:
    """A supervised consumer."""

    def __init__(
        self,
        tag: str,
        source: EndpointSource,
        processor: Processor,
        *,
        prefetch: int,
        connection: RobustConnection,
        declarer: Declarer,
        prepare: Callable[[], Awaitable[object]],
        activate: Activation | None = None,
        url: str = "",
    ) -> None:
        """Make an endpoint, which is not started.

        `prepare` declares the other destinations that the processor uses; it is awaited before consuming.
        `activate` waits until this process may consume, and calls its argument if it has to wait. `url` is the broker
        of feeds that name no other one.
        """
        self.tag = tag
        self.source = source
        self.processor = processor
        self.prefetch = prefetch
        self.state = EndpointState.STOPPED
        self.error: Exception | None = None  # that ended the consumer last
        self.queue = self._name_queue()
        self.channel: RobustChannel | None = None
        self._connection = connection
        self._declarer = declarer
        self._prepare = prepare
        self._activate = activate or _activate_at_once
        self._task: asyncio.Task[None] | None = None
        self._url = url
        self._recovery = (
            source.destination.recovery if isinstance(source.destination, FeedSource) else None
        )
        self._consumer: RobustConsumer | FeedIntake | None = None
        self._started = asyncio.Event()
        self._detached: set[asyncio.Future[Any]] = set()  # processors whose channel has closed
        self._suspension: asyncio.Task[None] | None = None
        self._is_ending = False

    def _name_queue(self) -> str:
        destination = self.source.destination
        if not isinstance(destination, PublishSubscribe):
            return destination.name
        return f"{destination.name}.{self.source.subscriber or f'{self.tag}.{uuid4().hex[:12]}'}"

    @property
    def is_consuming(self) -> bool:
        """Whether the broker has a consumer of this endpoint, as far as the connection knows."""
        if self.state is not EndpointState.CONSUMING:
            return False
        if isinstance(self._consumer, FeedIntake):
            is_waiting = isinstance(self.error, RecoveryError) and not self._consumer.is_receiving
            return self._consumer.is_connected and not is_waiting
        return self._connection.is_connected

    # ── control ───────────────────────────────────────────────────────────────────────────────────────────

    def start(self) -> None:
        """Start consuming in the background, unless it does."""
        if self._task is None:
            self.state = EndpointState.STARTING
            self._task = asyncio.create_task(self._supervise(), name=f"endpoint {self.tag}")

    async def wait_started(self) -> None:
        """Wait until the endpoint consumes for the first time, is on standby, or lacks an archive of its feed.

        Raises an error that retrying cannot mend.
        """
        assert self._task is not None
        waiting = asyncio.ensure_future(self._started.wait())
        try:
            await asyncio.wait([waiting, self._task], return_when=asyncio.FIRST_COMPLETED)
            if self._task.done():
                self._task.result()
        finally:
            waiting.cancel()

    async def stop(self, grace: float = 30.0) -> None:
        """Stop consuming, and wait up to `grace` seconds for running handlers before they are cancelled."""
        await self._cancel_suspension()
        await self._end(EndpointState.STOPPED, grace)

    async def pause(self, grace: float = 30.0) -> None:
        """Stop consuming until `resume`; like `stop` otherwise."""
        if self.state is not EndpointState.STOPPED:
            await self._cancel_suspension()
            await self._end(EndpointState.PAUSED, grace)

    def resume(self) -> None:
        """Consume again after `pause`."""
        if self.state is EndpointState.PAUSED:
            self.start()

    async def _cancel_suspension(self) -> None:
        suspension, self._suspension = self._suspension, None
        if suspension is not None:
            suspension.cancel()
            await asyncio.wait([suspension])

    def suspend(self, seconds: float) -> None:
        """Stop consuming for some seconds; called by the processor while a handler may still run."""
        is_stopping = self._is_ending or self._task is None
        if self._suspension is None and not is_stopping:
            log.warning("endpoint suspended (tag=%s seconds=%.1f)", self.tag, seconds)
            self._suspension = asyncio.create_task(self._suspend(seconds))

    async def _suspend(self, seconds: float) -> None:
        await self._end(EndpointState.SUSPENDED, grace=seconds)
        await asyncio.sleep(seconds)
        self._suspension = None
        if self.state is EndpointState.SUSPENDED:
            self.start()

    async def _end(self, state: EndpointState, grace: float) -> None:
        self._is_ending = True
        try:
            await self._end_tasks(grace)
        finally:
            self._is_ending = False
        self.state = state

    async def _end_tasks(self, grace: float) -> None:
        task = self._task
        if task is not None:
            if self._consumer is not None:
                with suppress(ClientError, TimeoutError):
                    # While there is no connection, it waits for one.
                    async with asyncio.timeout(grace):
                        await self._consumer.cancel()
                await asyncio.wait([task], timeout=grace)
            if not task.done():
                task.cancel()
            await asyncio.wait([task])
            # Only now: if this call is cancelled while it waits, the next one has to wait for the task too.
            self._task = None
            if not task.cancelled() and (error := task.exception()) is not None:
                log.debug("endpoint ended (tag=%s error=%s)", self.tag, error)
        if self._detached:
            _, late = await asyncio.wait(self._detached, timeout=grace)
            for each in late:
                each.cancel()

    # ── supervision ───────────────────────────────────────────────────────────────────────────────────────

    async def _supervise(self) -> None:
        delay = RESTART_DELAY_INITIAL_S
        while True:
            try:
                await self._consume()
            except CompositionError:
                raise
            except ChannelClosedByBrokerError as error:
                if not self._started.is_set() and error.reply_code in REFUSED_CODES:
                    raise  # a mistake in the program, which it should see at its start
                self.error = error
            except JoinError as error:
                self.error = error
                if not self._started.is_set():
                    raise
            except RecoveryError as error:
                self.error = error
                self._started.set()  # the application need not wait for an archive: `health` reports it
            except (ClientError, MessagingError, FeedError) as error:
                self.error = error  # the broker, or the store: another process runs the flow now
            except Exception as error:
                log.exception("endpoint failed by an internal error (tag=%s)", self.tag)
                self.error = error
            else:
                return
            if self._connection.error is not None:
                raise self._connection.error
            if self.state is EndpointState.CONSUMING:
                delay = RESTART_DELAY_INITIAL_S
            self.state = EndpointState.STARTING
            log.warning(
                "endpoint restarting (tag=%s queue=%s delay_s=%.2f error=%s)",
                self.tag,
                self.queue,
                delay,
                self.error,
            )
            if not isinstance(self.source.destination, FeedSource):
                self._declarer.forget(self.source.destination)
            await asyncio.sleep(delay)
            delay = min(2 * delay, RESTART_DELAY_MAX_S)

    async def _consume(self) -> None:
        """Consume until the consumer ends; returns if this program cancelled it."""
        await self._prepare()
        destination = self.source.destination
        if isinstance(destination, FeedSource):
            async with self._activate(self._stand_by):
                await self._consume_feed(destination)
        else:
            await self._declarer.declare(destination)
            await self._consume_queue(destination)

    async def _consume_feed(self, source: FeedSource) -> None:
        """Receive a feed until its subscription ends; the next one continues after it."""
        opening = open_feed(source, self._url, self.source.selector, self._recovery)
        intake: FeedIntake | None = None
        try:
            async with opening as intake:
                self._consumer = intake
                self.state = EndpointState.CONSUMING
                self._started.set()
                await self._process(intake, asyncio.get_running_loop().create_future())
        finally:
            self._consumer = None
            if intake is not None:
                self._recovery = intake.next_recovery(self._recovery)

    async def _consume_queue(self, destination: Destination) -> None:
        async with (
            self._activate(self._stand_by),
            await self._connection.channel(confirms=False) as channel,
        ):
            self.channel = channel
            if isinstance(destination, PublishSubscribe):
                await self._declare_queue(channel, destination)
            if self.source.exclusive and not self._started.is_set():
                await self._check_alone(channel)
            await channel.qos(self.prefetch)
            self._consumer = await channel.consume(
                self.queue,
                consumer_tag=f"{self.tag}.{uuid4().hex[:8]}",
                no_ack=self.source.tap,
                exclusive=self.source.exclusive,
                arguments=self.source.consume_arguments(),
            )
            self.state = EndpointState.CONSUMING
            self._started.set()
            watching = asyncio.create_task(self._watch(self._consumer))
            closed: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            channel.on_end = lambda error: None if closed.done() else closed.set_result(error)
            try:
                await self._process(self._consumer, closed)
            finally:
                self._consumer = None
                watching.cancel()
                await asyncio.wait([watching])

    async def _process(self, consumer: Intake, closed: "asyncio.Future[Any]") -> None:
        """Run the processor until the consumer ends, or until the channel has closed.

        Handlers that are then still running, such as those that have exceeded the broker's timeout for
        acknowledgements, go on beside the next consumer; their acknowledgements have no effect.
        """
        running: asyncio.Future[Any] = asyncio.create_task(self.processor.run(consumer, self.queue))
        try:
            await asyncio.wait([running, closed], return_when=asyncio.FIRST_COMPLETED)
            if not running.done():
                await asyncio.wait([running], timeout=CLOSED_GRACE_S)
        except asyncio.CancelledError:
            running.cancel()
            await asyncio.wait([running])
            raise
        if running.done():
            if running.cancelled():
                raise RuntimeError("the processor was cancelled")
            error = running.exception()
            if error is not None and not isinstance(error, Exception):
                raise RuntimeError("the processor has ended") from error  # so that it starts again
            running.result()
            return
        self._detached.add(running)
        running.add_done_callback(self._handle_detached_end)
        raise closed.result()

    def _handle_detached_end(self, running: "asyncio.Future[Any]") -> None:
        self._detached.discard(running)
        if not running.cancelled():
            running.exception()  # that of the channel, which is known

    def _stand_by(self) -> None:
        log.info("endpoint on standby: another process runs the flow (tag=%s)", self.tag)
        self.state = EndpointState.STANDBY
        self._started.set()

    async def _watch(self, consumer: RobustConsumer) -> None:
        """End the consumer if the broker has lost it without a notice.

        RabbitMQ 3.10 does so if a quorum queue is deleted and declared again at once.
        """
        missing_count = 0
        while missing_count < MISSING_MAX_COUNT:
            await asyncio.sleep(WATCH_INTERVAL_S)
            try:
                count = await self._count_consumers()
            except ClientError:
                count = 1  # the connection is lost; the client restores the consumer with it
            missing_count = 0 if count else missing_count + 1
        consumer.fail(ConsumerCancelledError(consumer.tag, self.queue))

    async def _count_consumers(self) -> int:
        """Ask the broker how many consumers the queue has."""
        channel = await self._connection.channel(confirms=False)
        try:
            info = await channel.declare_queue(self.queue, passive=True)
        except ChannelClosedByBrokerError as error:
            if error.reply_code == NOT_FOUND_CODE:
                return 0
            raise
        await channel.close()
        return info.consumer_count

    async def _check_alone(self, channel: RobustChannel) -> None:
        """Raise an error if the queue has another consumer: RabbitMQ has no exclusive consumers of quorum queues."""
        info = await channel.declare_queue(self.queue, passive=True)
        if info.consumer_count:
            raise CompositionError(
                f"endpoint '{self.tag}': queue '{self.queue}' has another consumer, so a selector would take messages"
                " from it; use flow() with a ContentRouter or Filter instead"
            )

    async def _declare_queue(self, channel: RobustChannel, exchange: PublishSubscribe) -> None:
        """Declare the queue of a subscriber and bind it to the exchange."""
        if self.source.subscriber is None:
            await channel.declare_queue(self.queue, exclusive=True, auto_delete=True)
        else:
            await self._declarer.declare(PointToPoint(self.queue))
        key = self.source.key
        if key is None:
            key = MATCH_ALL_KEYS.get(exchange.type, "")
        await channel.bind_queue(self.queue, exchange.name, key)
        for another, another_key in self.source.more_bindings:
            await self._declarer.declare(another)
            await channel.bind_queue(self.queue, another.name, another_key)


@asynccontextmanager
async def _activate_at_once(on_standby: Callable[[], object]) -> AsyncIterator[None]:
    """Let an endpoint consume without waiting: it may do so in several processes at the same time."""
    yield


def describe_endpoint(endpoint: MessageEndpoint) -> dict[str, Any]:
    """Return the state of an endpoint for people and machines."""
    return {
        "tag": endpoint.tag,
        "queue": endpoint.queue,
        "state": endpoint.state.value,
        "error": None if endpoint.error is None else str(endpoint.error),
    }
