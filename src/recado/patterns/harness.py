"""Tests of applications: an embedded broker, virtual time for retries, and a wait until nothing is left to do.

    async def test_an_order_has_a_receipt():
        async with Harness(app) as harness:
            await app.publish("orders", Order(1))
            await harness.settled()
            assert harness.published(Receipt) == [Receipt(1)]
            assert harness.failures == []

An application is settled when no message can cause another one: the broker has confirmed everything, no queue with
an endpoint has a message, ready or unacknowledged, no handler runs, and no retry waits. That is read from the state
of the broker, which runs in the same event loop, so it does not depend on how fast anything is. Streams keep their
messages, so an endpoint of a stream or feed counts only while its handler runs.
"""

import asyncio
import heapq
from contextlib import AsyncExitStack
from itertools import count
from typing import Any, Self, TypeVar

import msgspec

from recado.amqp.properties import Properties, encode_properties
from recado.broker.stream import Stream
from recado.node.broker import Broker

from .destination import Destination
from .endpoint import EndpointState
from .feed_source import FeedSource
from .interceptor import Interceptor, Proceed
from .message import Message
from .messaging import Messaging
from .processor import HandlerProcessor
from .publisher import EncodedPublish
from .waiting_lines import WaitingLines

T = TypeVar("T")

POLL_INTERVAL_S = 0.001  # between looks at the state of the broker


class PublishedMessage(msgspec.Struct, frozen=True):
    """A message that the application has published; `to` is None for a reply."""

    message: Message[Any]
    to: Destination | None


class HandledMessage(msgspec.Struct, frozen=True):
    """A message that a handler has processed, with its result or error."""

    message: Message[Any]
    tag: str
    result: Any = None
    error: Exception | None = None


class _DelayedMessage(msgspec.Struct, frozen=True, order=True):
    due: float
    number: int
    publish: EncodedPublish


class VirtualDelay:
    """Delays messages until the harness advances its time."""

    def __init__(self, app: Messaging) -> None:
        self.now = 0.0
        self._app = app
        self._numbers = count()
        self._delayed: list[_DelayedMessage] = []

    async def deliver_later(
        self, queue: str, body: bytes, properties: Properties, delay: float
    ) -> None:
        publish = EncodedPublish(
            "", queue, body, encode_properties(properties), properties.message_id or ""
        )
        heapq.heappush(
            self._delayed, _DelayedMessage(self.now + delay, next(self._numbers), publish)
        )

    @property
    def next_due(self) -> float | None:
        """The virtual time at which the next message is due."""
        return self._delayed[0].due if self._delayed else None

    async def advance_to(self, now: float) -> None:
        """Set the time and deliver what is due."""
        self.now = max(self.now, now)
        while self._delayed and self._delayed[0].due <= self.now:
            await self._app.publish_encoded(heapq.heappop(self._delayed).publish)


class _Recorder(Interceptor):
    def __init__(self) -> None:
        self.published: list[PublishedMessage] = []
        self.handled: list[HandledMessage] = []

    def publish(self, message: Message[Any], to: Destination | None) -> Message[Any]:
        self.published.append(PublishedMessage(message, to))
        return message

    async def handle(self, message: Message[Any], tag: str, proceed: Proceed) -> Any:
        try:
            result = await proceed()
        except Exception as error:
            self.handled.append(HandledMessage(message, tag, error=error))
            raise
        self.handled.append(HandledMessage(message, tag, result))
        return result


class Harness:
    """Runs an application on an embedded broker and records what it does."""

    def __init__(self, app: Messaging) -> None:
        """Prepare an application that is not started, whatever its URL."""
        self.app = app
        self._recorder = _Recorder()
        self._broker: Broker
        self._delay: VirtualDelay
        self._exit_stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            self._broker = await stack.enter_async_context(Broker())
            self._delay = VirtualDelay(self.app)
            stack.enter_context(self.app.substituted(self._broker.url, self._delay, self._recorder))
            await stack.enter_async_context(self.app)
            self._exit_stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._exit_stack.aclose()

    # ── what happened ─────────────────────────────────────────────────────────────────────────────────────

    def published(self, body_type: type[T], to: str | None = None) -> list[T]:
        """Return the bodies of this type that were published, in order, optionally only to one destination."""
        return [
            each.message.body
            for each in self._recorder.published
            if isinstance(each.message.body, body_type)
            and (to is None or (each.to is not None and each.to.name == to))
        ]

    @property
    def publishes(self) -> list[PublishedMessage]:
        """All messages that were published, retries excepted."""
        return list(self._recorder.published)

    @property
    def handled(self) -> list[HandledMessage]:
        """All calls of handlers, in the order in which they ended."""
        return list(self._recorder.handled)

    @property
    def failures(self) -> list[HandledMessage]:
        """The calls of handlers that raised."""
        return [each for each in self._recorder.handled if each.error is not None]

    # ── waiting ───────────────────────────────────────────────────────────────────────────────────────────

    async def settled(
        self,
        timeout: float = 60.0,  # noqa: ASYNC109  the error says what is left
        *,
        advance: bool = True,
    ) -> None:
        """Wait until no message can cause another one.

        With `advance`, virtual time jumps to the next retry whenever nothing else is left; otherwise messages
        that wait for a retry are ignored. Raises `TimeoutError` with what is left after `timeout` seconds.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + timeout
        while True:
            left = self._find_work() or await self._find_turns()
            if left is None:
                due = await self._next_due()
                if due is None or not advance:
                    return
                await self._advance_to(due)
            elif loop.time() > end:
                raise TimeoutError(f"the application is not settled after {timeout} s: {left}")
            else:
                await asyncio.sleep(POLL_INTERVAL_S)

    async def advance(self, seconds: float) -> None:
        """Advance virtual time, and wait until what that causes is settled."""
        end = self._delay.now + seconds
        while (due := await self._next_due()) is not None and due <= end:
            await self._advance_to(due)
            await self.settled(advance=False)
        await self._advance_to(end)

    def _lines(self) -> list[WaitingLines]:
        processors = [each.processor for each in self.app.endpoints.values()]
        return [
            each.lines
            for each in processors
            if isinstance(each, HandlerProcessor) and each.lines is not None
        ]

    async def _next_due(self) -> float | None:
        """Return the virtual time of the next retry."""
        dues = [] if self._delay.next_due is None else [self._delay.next_due]
        for each in self._lines():
            seconds = await each.seconds_to_turn()
            if seconds is not None:
                dues.append(self._delay.now + seconds)
        return min(dues, default=None)

    async def _advance_to(self, now: float) -> None:
        for each in self._lines():
            await each.skip(max(now - self._delay.now, 0))
        await self._delay.advance_to(now)

    async def _find_turns(self) -> str | None:
        """Return a description of an ordered retry that is due, or None."""
        for each in self._lines():
            if await each.seconds_to_turn() == 0:
                return "an ordered retry is due"
        return None

    def _find_work(self) -> str | None:
        """Return a description of something that is not finished, or None."""
        if count := self.app.unconfirmed_count:
            return f"{count} messages are not confirmed"
        core = self._broker.core
        queues = core.vhosts["/"].queues
        for endpoint in self.app.endpoints.values():
            if endpoint.state is EndpointState.PAUSED:
                continue
            if endpoint.state is not EndpointState.CONSUMING:
                return f"endpoint '{endpoint.tag}' is {endpoint.state.value}"
            if endpoint.processor.running_count:
                return f"handlers of endpoint '{endpoint.tag}' are running"
            if isinstance(endpoint.source.destination, FeedSource):
                continue
            queue = queues.get(endpoint.queue)
            if queue is None:
                return f"queue '{endpoint.queue}' does not exist"
            if isinstance(queue, Stream):
                continue
            if queue.ready or queue.unacked:
                return f"queue '{endpoint.queue}' has {queue.ready} ready and {queue.unacked} unacknowledged messages"
        return None
