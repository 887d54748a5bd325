"""`Messaging`: the endpoints of a program on one AMQP 0-9-1 broker.

app = Messaging("amqp://localhost")

@app.subscribe("orders", retry=Retry(5, backoff=1.0))
async def handle(order: Order) -> Receipt:         # the returned value is the reply
    ...

async with app:
    receipt = await app.request("orders", order, timeout=2)
"""

import asyncio
import logging
import signal
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, Self, TypeVar, Unpack, overload

import msgspec

from recado.amqp.properties import Properties
from recado.amqp.traits import DIRECT_REPLY_TO
from recado.client import (
    Channel,
    ChannelClosedByBrokerError,
    RobustChannel,
    connect,
    parse_url,
)
from recado.node.broker import Broker

from .asyncapi import EndpointDescription, describe_endpoints, describe_sending
from .delay import Delay
from .destination import (
    DestinationLike,
    PointToPoint,
    PublishSubscribe,
    to_destination,
)
from .encoder import MessageEncoder
from .endpoint import EndpointState, MessageEndpoint, describe_endpoint
from .endpoint_registry import EndpointRegistry
from .errors import CompositionError, UnroutableMessageError
from .feed_source import SourceLike
from .flow import FlowComposition
from .handler import inspect_handler
from .interceptor import Interceptor, intercept_send
from .message import Message
from .outbox import Outbox
from .polling_consumer import PollingConsumer
from .publisher import EncodedPublish
from .retry import NO_RETRY
from .runtime import FlowDefinition, Runtime
from .settlement import ProcessorOptions
from .state import StateStore, to_store
from .step import AnyFlowStep
from .subscription_options import (
    HandlerOptions,
    SourceOptions,
    SubscriptionOptions,
    check_transaction,
    require_known,
    require_queue,
    to_source,
    to_subscription_options,
)
from .topology import BrokerTopology
from .transaction import BrokerTransaction
from .transformation.enricher import Enricher, EnricherLike, apply_enrichers, to_enricher
from .translation import Translator, Translators

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

log = logging.getLogger("recado.patterns")

FLOW_PREFETCH_COUNT = 400  # two batches: one is processed while the next one arrives
HEARTBEAT_S = 2  # a connection that is silent is replaced within twice this time
RECONNECT_DELAY_MAX_S = 1.0

DEAD_LETTERS = PointToPoint("dead-letters")
INVALID_MESSAGES = PointToPoint("invalid-messages")


class Health(msgspec.Struct, frozen=True):
    """Whether all endpoints consume, and why not."""

    is_healthy: bool
    problems: list[str]
    endpoints: list[dict[str, Any]]


class Messaging:
    """The endpoints, publishing and requests of a program; `async with` starts and stops them."""

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
        """Prepare endpoints without connecting.

        Args:
            url: the broker, as in `recado.connect`; None starts an embedded one with the application.
            name: the name of the application, shown in the broker's list of connections.
            data: folder of the embedded broker, for everything durable; None keeps it in memory.
            dead_letter: where failed messages go, unless an endpoint names another destination.
            invalid: where messages go that cannot be translated.
            translators: additional formats, or a registry with limits of its own, see `recado.patterns.translation`.
            wait_for_broker: retry the first connection too.
            store: where stateful steps keep their state: a store, the path of an SQLite file, or a URL
                `postgresql://…`. Default: the file `state.sqlite` in `data`, or `<name>.sqlite` in the current folder.
            compress_bytes: bodies of at least so many bytes are compressed with gzip, unless their message has a
                content encoding; default none.
            shutdown_timeout: seconds to wait for running handlers at the end, before they are cancelled.
        """
        self.name = name
        self.shutdown_timeout = shutdown_timeout
        self.translators = (
            translators if isinstance(translators, Translators) else Translators(*translators)
        )
        self._interceptors: list[Interceptor] = []
        self.encoder = MessageEncoder(
            self.translators, self._interceptors, compress_bytes=compress_bytes
        )
        self._url = url
        self._data = data
        self.dead_letter = require_queue(dead_letter, "dead_letter")
        self.invalid = require_queue(invalid, "invalid")
        self._wait_for_broker = wait_for_broker
        self._store = self._to_store(store)
        self._delay: Delay | None = None  # None: chosen by the broker
        self._registry = EndpointRegistry()
        self._outboxes: list[Outbox] = []
        self._enrichers: list[Enricher] = []
        self._needs_store = False
        self._runtime: Runtime | None = None
        self._exit_stack = AsyncExitStack()
        self._changing = asyncio.Lock()  # held while the application starts or stops

    def _to_store(self, store: StateStore | str | PathLike[str] | None) -> StateStore:
        """Return the store; it is opened when something needs it."""
        if isinstance(store, StateStore):
            return store
        if store is None:
            store = (
                f"{self.name}.sqlite" if self._data is None else Path(self._data, "state.sqlite")
            )
        return to_store(store)

    # ── starting and stopping ─────────────────────────────────────────────────────────────────────────────

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Connect, declare destinations, and start all endpoints; returns when each consumes.

        Raises the errors of `recado.connect`, `CompositionError` if an endpoint cannot work, and
        `recado.feeds.JoinError` if one cannot join its feed.
        """
        if self._runtime is not None or self._changing.locked():
            raise RuntimeError("the application is started already, or it is stopping")
        async with self._changing, AsyncExitStack() as stack:
            url = self._url
            if url is None:
                url = (await stack.enter_async_context(Broker(data=self._data))).url
            stores = [self._store] if self._needs_store else []
            stores += [each.store for each in self._outboxes]
            for store in dict.fromkeys(stores):
                await store.open()
                stack.push_async_callback(store.close)
            self._runtime = runtime = await self._connect(url, stack)
            for outbox in self._outboxes:
                await outbox.start()
                stack.push_async_callback(outbox.stop)
            try:
                await self._registry.start(runtime)
            except BaseException:
                await self._registry.stop(self.shutdown_timeout)
                self._runtime = None
                raise
            self._exit_stack = stack.pop_all()

    async def _connect(self, url: str, stack: AsyncExitStack) -> Runtime:
        parameters = parse_url(url)
        if "heartbeat=" not in url:
            parameters = msgspec.structs.replace(parameters, heartbeat=HEARTBEAT_S)
        connections = []
        for role in ("publisher", "consumer"):
            connection = connect(
                parameters,
                name=f"{self.name} {role}",
                reconnect_timeout=None,
                wait_for_broker=self._wait_for_broker,
                retry_max=RECONNECT_DELAY_MAX_S,
            )
            connections.append(await stack.enter_async_context(connection))
        publishing, consuming = connections
        runtime = Runtime(url, publishing, consuming, self.encoder, self._interceptors, self._delay)
        stack.push_async_callback(runtime.close, self.shutdown_timeout)
        await runtime.publisher.open()
        return runtime

    async def stop(self) -> None:
        """Stop consuming, wait for running handlers and confirms, and disconnect."""
        async with self._changing:
            if self._runtime is not None:
                await self._registry.stop(self.shutdown_timeout)
                self._runtime = None
                await self._exit_stack.aclose()

    async def run(self) -> None:
        """Start, and stop at SIGTERM or SIGINT."""
        loop = asyncio.get_running_loop()
        stopping = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stopping.set)
        try:
            async with self:
                await stopping.wait()
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)

    def _require_runtime(self) -> Runtime:
        if self._runtime is None:
            raise RuntimeError("the application is not started: use `async with app`")
        return self._runtime

    @property
    def url(self) -> str:
        """The URL of the broker. That of an embedded one is known only while the application is started."""
        return self._url if self._url is not None else self._require_runtime().url

    @contextmanager
    def substituted(self, url: str, delay: Delay, interceptor: Interceptor) -> Iterator[None]:
        """Use another broker and delay for a test, and observe what is published and handled."""
        before = self._url
        self._url, self._delay = url, delay
        self._interceptors.insert(0, interceptor)
        try:
            yield
        finally:
            self._url, self._delay = before, None
            self._interceptors.remove(interceptor)

    @property
    def endpoints(self) -> Mapping[str, MessageEndpoint]:
        """The endpoints by their tags, while the application is started."""
        return self._registry.running

    @property
    def unconfirmed_count(self) -> int:
        """The number of published messages and requests that the broker has not confirmed."""
        if self._runtime is None:
            return 0
        return (
            self._runtime.publisher.unconfirmed_count
            + self._runtime.requester.publisher.unconfirmed_count
        )

    @property
    def is_recado(self) -> bool:
        """Whether the broker is recado, whose extensions are used then."""
        return self._require_runtime().declarer.is_recado

    def health(self) -> Health:
        """Return whether all endpoints consume. It checks what the client knows, without asking the broker."""
        problems = []
        if self._runtime is None:
            problems.append("the application is not started")
        elif not self._runtime.publishing.is_connected:
            problems.append("the publishing connection is lost, reconnecting")
        endpoints = list(self.endpoints.values())
        for each in endpoints:
            idle = (EndpointState.PAUSED, EndpointState.STANDBY)
            if not each.is_consuming and each.state not in idle:
                problems.append(
                    f"endpoint '{each.tag}' has no consumer: {each.error or each.state.value}"
                )
            problems += each.processor.problems
        return Health(not problems, problems, [describe_endpoint(each) for each in endpoints])

    def asyncapi(
        self,
        *,
        version: str,
        title: str | None = None,
        description: str = "",
        sends: Sequence[tuple[DestinationLike, Any]] = (),
    ) -> dict[str, Any]:
        """Return an AsyncAPI 3.0 document of the endpoints, ready to be encoded as JSON or YAML.

        Args:
            version: of the application.
            title: of the document; default the name of the application.
            description: for people, in CommonMark.
            sends: destinations to which the application publishes, each with the type of its messages.
        """
        sent = [describe_sending("send", to_destination(to), body_type) for to, body_type in sends]
        return describe_endpoints(
            [*self._registry.descriptions, *sent],
            title=title or self.name,
            version=version,
            description=description,
            url=self._url,
        )

    # ── endpoints ─────────────────────────────────────────────────────────────────────────────────────────

    def subscribe(self, source: SourceLike, **options: Unpack[HandlerOptions]) -> Callable[[F], F]:
        """Return a decorator that makes a function an event-driven consumer.

        Args:
            source: a queue, exchange or stream, see `recado.patterns.destination`, or a `FeedSource`.
            options: see `HandlerOptions`.
        """

        require_known(options, HandlerOptions)

        def register(function: F) -> F:
            handler = inspect_handler(function)
            checked = self._to_options(source, options, tag=function.__name__)
            check_transaction(handler, checked)
            self._require_store(checked.needs_store)
            self._registry.add(
                checked.tag,
                lambda runtime: runtime.handler_endpoint(handler, checked, self._store),
                EndpointDescription(
                    name=checked.tag,
                    destination=checked.target,
                    key=checked.key,
                    body_type=handler.body_type,
                    reply_type=handler.reply_type,
                    function=function,
                ),
            )
            return function

        return register

    def flow(
        self,
        source: SourceLike,
        *steps: AnyFlowStep,
        to: DestinationLike | None = None,
        body_type: Any = Any,
        **options: Unpack[SourceOptions],
    ) -> None:
        """Lead the messages of a source through steps (pipes and filters).

        Args:
            source: a queue, exchange or stream, see `recado.patterns.destination`, or a `FeedSource`.
            steps: see `recado.patterns.step`. If one has state, the flow runs in one process at a time, and other
                processes take over when that ends.
            to: where messages go that reach the end; None drops them.
            body_type: the type to which bodies are decoded.
            options: see `SourceOptions`. The tag is the name under which the state of the flow is stored; default
                `<source>.flow`. A worker that is lost counts as an attempt for all messages that it had not
                acknowledged, which are up to `prefetch`.
        """
        require_known(options, SourceOptions)
        checked = self._to_options(
            source,
            options,
            tag=f"{to_source(source).name}.flow",
            prefetch=FLOW_PREFETCH_COUNT,
        )
        definition = FlowDefinition(
            FlowComposition(checked.tag, steps),
            body_type,
            None if to is None else to_destination(to),
        )
        if checked.retry.ordered_by is not None:
            raise CompositionError(
                f"flow '{checked.tag}': its steps run in batches, so its retries cannot be ordered; subscribe() to the"
                " destination of the flow with this retry"
            )
        self._require_store(definition.composition.has_state)
        store = self._store if definition.composition.has_state else None
        sent = (*definition.composition.destinations(), definition.to)
        self._registry.add(
            checked.tag,
            lambda runtime: runtime.flow_endpoint(definition, checked, store),
            EndpointDescription(
                name=checked.tag, destination=checked.target, key=checked.key, body_type=body_type
            ),
            *(describe_sending(checked.tag, each) for each in sent if each is not None),
        )

    def outbox(self, store: StateStore | None = None, *, name: str = "outbox") -> Outbox:
        """Return an outbox in the database of a store, default that of this application.

        It is dispatched while the application is started, which also opens and closes the store.
        """
        outbox = Outbox(
            store or self._store,
            encode=self.encoder.to_destination,
            publish=self._publish_declared,
            name=name,
        )
        self._outboxes.append(outbox)
        return outbox

    async def _publish_declared(self, publish: EncodedPublish) -> None:
        """Publish a message of an outbox; its queue is declared if it does not exist."""
        runtime = self._require_runtime()
        if not publish.exchange:
            await runtime.declarer.declare(PointToPoint(publish.key))
        await runtime.publisher.publish(publish)

    def _require_store(self, is_needed: bool) -> None:
        """Open the store when the application starts; raises `CompositionError` if it is started without one."""
        if is_needed and not self._needs_store:
            if self._runtime is not None:
                raise CompositionError(
                    "the application was started without a state store: add endpoints that need one before"
                )
            self._needs_store = True

    def _to_options(
        self, source: SourceLike, options: HandlerOptions | SourceOptions, **defaults: object
    ) -> SubscriptionOptions:
        """Return the options of an endpoint, checked, with defaults for those that are missing or None."""
        given = {name: value for name, value in options.items() if value is not None}
        queues = {"dead_letter": self.dead_letter, "invalid": self.invalid}
        return to_subscription_options(to_source(source), {**queues, **defaults, **given})

    def listen(
        self,
        queue: str,
        *,
        bindings: Sequence[tuple[PublishSubscribe, str]] = (),
        tag: str | None = None,
    ) -> Callable[[F], F]:
        """Return a decorator that makes a function a wire tap: it sees a copy of what enters a queue.

        On recado the broker copies the messages. Other brokers cannot; there, `bindings` are the exchanges and
        keys from which the queue gets its messages, and the tap has a private queue on the same bindings.
        Errors of the function are logged.
        """

        def register(function: F) -> F:
            handler = inspect_handler(function)
            name = tag or function.__name__
            self._registry.add(
                name,
                lambda runtime: runtime.tap_endpoint(handler, name, queue, bindings),
                EndpointDescription(
                    name=name,
                    destination=PointToPoint(queue),
                    body_type=handler.body_type,
                    function=function,
                ),
            )
            return function

        return register

    async def wait_ready(self) -> None:
        """Wait until endpoints that were added to a started application consume."""
        await self._registry.wait_ready()

    async def stop_endpoint(self, tag: str) -> None:
        """Stop an endpoint by its tag and forget it; waits for its running handlers."""
        await self._registry.remove(tag, self.shutdown_timeout)

    def intercept(self, interceptor: Interceptor) -> None:
        """Run an interceptor around every message that is published and handled, inside those added before."""
        self._interceptors.append(interceptor)

    # ── publishing ────────────────────────────────────────────────────────────────────────────────────────

    def enrich(self, enricher: EnricherLike) -> None:
        """Apply an enricher to every message that `publish`, `publish_many` and `request` send from now on.

        Enrichers are applied in the order in which they were added; see `recado.patterns.transformation`.
        """
        self._enrichers.append(to_enricher(enricher))

    async def publish(self, to: DestinationLike, body: object, *, key: str = "") -> None:
        """Publish a message, and wait until the broker has confirmed it.

        Args:
            to: the destination, which is declared if it does not exist.
            body: an object, or a `Message` with properties of its own.
            key: the routing key, for a `PublishSubscribe`.

        Raises `TranslationError`, `ValueError` for properties that cannot be encoded, `NotConfirmedError` if the broker
        has refused the message, `UnroutableMessageError` if there is no queue for it also after `to` was declared
        again, and `ChannelClosedByBrokerError` if the broker refuses it as invalid or forbidden, for example because
        of a `user_id` of another user.
        """
        publish = await self._encode(to, body, key)
        if self._interceptors:
            send = partial(self._send, to, publish)
            await intercept_send(self._interceptors, [publish], to_destination(to), send)
        else:
            await self._send(to, publish)

    async def _send(self, to: DestinationLike, publish: EncodedPublish) -> None:
        """Publish an encoded message; if its destination was deleted, it is declared again."""
        runtime = self._require_runtime()
        try:
            await runtime.publisher.publish(publish)
        except (UnroutableMessageError, ChannelClosedByBrokerError):
            # The destination was deleted since it was declared.
            destination = to_destination(to)
            runtime.declarer.forget(destination)
            await runtime.declarer.declare(destination)
            await runtime.publisher.publish(publish)

    async def _encode(self, to: DestinationLike, body: object, key: str) -> EncodedPublish:
        """Encode a message for a destination, which is declared."""
        destination = await self._require_runtime().declarer.declare(to)
        if self._enrichers or isinstance(body, Message):
            message = await self._to_message(body, key)
            return self.encoder.to_destination(message, destination)
        return self.encoder.body_to_destination(body, destination, key)

    async def publish_many(
        self, to: DestinationLike, bodies: Iterable[object], *, key: str = ""
    ) -> None:
        """Publish messages in order, and wait until the broker has confirmed all of them."""
        publishes = [await self._encode(to, body, key) for body in bodies]
        send = partial(self._require_runtime().publisher.publish_many, publishes)
        if self._interceptors and publishes:
            await intercept_send(self._interceptors, publishes, to_destination(to), send)
        else:
            await send()

    async def publish_encoded(self, publish: EncodedPublish) -> None:
        """Publish a message that is encoded already, and wait for its confirm."""
        await self._require_runtime().publisher.publish(publish)

    async def _to_message(self, body: object, key: str) -> Message[Any]:
        message = body if isinstance(body, Message) else Message(body=body)
        if key:
            message = message.replace(key=key)
        if self._enrichers:
            enriched = apply_enrichers(message, self._enrichers)
            message = enriched if isinstance(enriched, Message) else await enriched
        return message

    @overload
    async def request(
        self,
        to: DestinationLike,
        body: object,
        *,
        key: str = "",
        timeout: float = 10.0,  # noqa: ASYNC109  the timer is started with the request
    ) -> Any: ...
    @overload
    async def request(
        self,
        to: DestinationLike,
        body: object,
        reply_type: type[T],
        *,
        key: str = "",
        timeout: float = 10.0,  # noqa: ASYNC109  the timer is started with the request
    ) -> T: ...
    async def request(
        self,
        to: DestinationLike,
        body: object,
        reply_type: Any = Any,
        *,
        key: str = "",
        timeout: float = 10.0,  # noqa: ASYNC109  the timer is started with the request
    ) -> Any:
        """Publish a request and return its reply, decoded to `reply_type`.

        The request expires after `timeout` seconds, so it is not handled in vain. Raises `RequestTimeoutError`
        then, `ReplyError` if the handler failed, and the errors of `publish`.
        """
        runtime = self._require_runtime()
        destination = await runtime.declarer.declare(to)
        message = await self._to_message(body, key)
        request_id = self.encoder.new_message_id()
        request = message.replace(
            message_id=message.message_id or request_id,
            correlation_id=request_id,
            reply_to=DIRECT_REPLY_TO,
            expiration=timeout,
            persistent=False,
        )

        def decode(reply: bytes, properties: Properties) -> Any:
            body = self.translators.decompress(reply, properties.content_encoding, reply_type)
            return self.translators.decode(body, properties.content_type, reply_type)

        publish = self.encoder.to_destination(request, destination)
        return await runtime.requester.request(publish, request_id, timeout, decode)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[BrokerTransaction]:
        """Publish and take messages in a transaction of the broker, which is committed at the end of the block.

        If the block raises, nothing was published and what it has taken returns to its queue. Raises the errors of
        the client if the connection is lost.
        """
        runtime = self._require_runtime()

        async def poll(channel: Channel, source: DestinationLike) -> PollingConsumer:
            return await runtime.consumer_on(channel, source, self._polling_options)

        async with await runtime.transaction_channel() as channel:
            transaction = BrokerTransaction(channel, self._encode, poll)
            await transaction.begin()
            yield transaction
            await transaction.commit()

    # ── polling ───────────────────────────────────────────────────────────────────────────────────────────

    @asynccontextmanager
    async def consume(
        self, source: DestinationLike, body_type: Any = Any
    ) -> AsyncIterator[Message[Any] | None]:
        """Take one message, or None if the queue is empty.

        The message is acknowledged at the end of the block. If the block raises, it returns to the head of its
        queue. A message that cannot be translated goes to `invalid`, and the next one is taken.
        """
        consumer = await self._require_runtime().polling_consumer(source, self._polling_options)
        async with consumer.take(body_type) as message:
            yield message

    @property
    def _polling_options(self) -> ProcessorOptions:
        return ProcessorOptions(
            tag="consume", retry=NO_RETRY, dead_letter=self.dead_letter, invalid=self.invalid
        )

    # ── topology ──────────────────────────────────────────────────────────────────────────────────────────

    async def open_channel(self) -> RobustChannel:
        """Open a channel of `recado.client`, for operations that this class does not have."""
        return await self._topology().open_channel()

    async def declare(self, *destinations: DestinationLike) -> None:
        """Declare queues, exchanges and streams that do not exist."""
        await self._topology().declare(*destinations)

    async def delete(self, destination: DestinationLike) -> None:
        """Delete a queue, exchange or stream."""
        await self._topology().delete(destination)

    async def bind(self, exchange: PublishSubscribe, queue: DestinationLike, key: str = "") -> None:
        """Route messages of an exchange whose key matches to a queue."""
        await self._topology().bind(exchange, queue, key)

    async def unbind(
        self, exchange: PublishSubscribe, queue: DestinationLike, key: str = ""
    ) -> None:
        """Remove a binding of `bind`."""
        await self._topology().unbind(exchange, queue, key)

    async def bind_dead_letters(
        self, exchange: PublishSubscribe, queue: DestinationLike, key: str = ""
    ) -> None:
        """Route messages of an exchange that match no ordinary binding to a queue.

        On recado this is a dead-letter binding. Other brokers have an alternate exchange, which the exchange
        has if it was declared here.
        """
        await self._topology().bind_dead_letters(exchange, queue, key)

    async def unbind_dead_letters(
        self, exchange: PublishSubscribe, queue: DestinationLike, key: str = ""
    ) -> None:
        """Remove a binding of `bind_dead_letters`."""
        await self._topology().unbind_dead_letters(exchange, queue, key)

    def _topology(self) -> BrokerTopology:
        return BrokerTopology(self._require_runtime().declarer)
