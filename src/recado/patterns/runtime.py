"""What an application consists of while it is started: two connections, and what works on them.

A broker that is short of memory stops reading from connections that publish. So one connection publishes, and
another one consumes and acknowledges.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from recado.client import (
    Channel,
    Connection,
    ConnectionEvent,
    ConnectionRecovered,
    RobustChannel,
    RobustConnection,
)

from .declaration import Declarer
from .delay import Delay, ExchangeDelay, QueueDelay
from .destination import Destination, DestinationLike, PointToPoint, PublishSubscribe
from .encoder import MessageEncoder
from .endpoint import Activation, EndpointSource, MessageEndpoint, Processor
from .errors import CompositionError
from .flow import FlowComposition, FlowRuntime
from .flow_processor import FlowProcessor, FlowPublisher
from .handler import Handler
from .inbox import HandlerInbox
from .interceptor import Interceptor
from .polling_consumer import PollingConsumer
from .processor import HandlerProcessor
from .publisher import ConfirmedPublisher
from .requester import Requester
from .settlement import DeliverySettlement, ProcessorOptions
from .state import StateStore
from .subscription_options import SubscriptionOptions
from .tap import TapProcessor
from .waiting_lines import WaitingLines


class FlowDefinition(msgspec.Struct, frozen=True):
    """The steps of a flow, the type of the bodies that enter it, and where messages go that reach its end."""

    composition: FlowComposition
    body_type: Any
    to: Destination | None


class Runtime:
    """The connections of a started application and what works on them."""

    def __init__(
        self,
        url: str,
        publishing: RobustConnection,
        consuming: RobustConnection,
        encoder: MessageEncoder,
        interceptors: Sequence[Interceptor],
        delay: Delay | None,
    ) -> None:
        """`delay` replaces the one that suits the broker, for tests."""
        self.url = url
        self._interceptors = interceptors
        self.publishing = publishing
        self.consuming = consuming
        self.publisher = ConfirmedPublisher(publishing)
        self.declarer = Declarer(publishing)
        self.declarer.detect_broker(publishing.server_properties)
        self.encoder = encoder
        if delay is not None:
            self.delay = delay
        elif self.declarer.is_recado:
            self.delay = ExchangeDelay(self.declarer, self.publisher)
        else:
            self.delay = QueueDelay(self.declarer, self.publisher)
        self.requester = Requester(publishing)
        self._polling: RobustChannel | None = None
        self._transactions: Connection | None = None
        self._transactions_lock = asyncio.Lock()
        publishing.on_event = self._handle_event

    def _handle_event(self, event: ConnectionEvent) -> None:
        if isinstance(event, ConnectionRecovered):
            self.declarer.forget_all()
            self.declarer.detect_broker(self.publishing.server_properties)

    async def polling_consumer(
        self, source: DestinationLike, options: ProcessorOptions
    ) -> PollingConsumer:
        """Return a polling consumer.

        All share one channel, since RabbitMQ orders a rejection and the next get only within a channel.
        """
        if self._polling is None or not self._polling.is_open:
            self._polling = await self.consuming.channel(confirms=False)
        return await self.consumer_on(self._polling, source, options)

    async def consumer_on(
        self, channel: RobustChannel | Channel, source: DestinationLike, options: ProcessorOptions
    ) -> PollingConsumer:
        """Return a polling consumer on a channel."""
        destination = await self.declarer.declare(source)
        translators = self.encoder.translators
        return PollingConsumer(channel, destination, self.settlement(options), translators)

    async def transaction_channel(self) -> Channel:
        """Open a channel for a transaction, on a plain connection that all transactions share."""
        async with self._transactions_lock:
            if self._transactions is None or self._transactions.error is not None:
                parameters = self.publishing.parameters
                self._transactions = await Connection.open(
                    parameters, name=f"{parameters.name or 'recado'} transactions"
                )
        return await self._transactions.channel(confirms=False)

    def settlement(
        self, options: ProcessorOptions, lines: WaitingLines | None = None
    ) -> DeliverySettlement:
        return DeliverySettlement(
            options, self.publisher, self.encoder, self.delay, self.declarer, lines
        )

    def handler_endpoint(
        self, handler: Handler, options: SubscriptionOptions, store: StateStore
    ) -> MessageEndpoint:
        """Return the endpoint of a subscription; the store is open if the options need it."""
        selects = self.declarer.is_recado
        processing = options.processing(self._interceptors, selects_at_broker=selects)
        ordered_by = options.retry.ordered_by
        lines = None if ordered_by is None else WaitingLines(options.tag, ordered_by, store)
        settlement = self.settlement(processing, lines)
        field = options.inbox_field
        inbox = None if field is None else HandlerInbox(options.tag, field, store)
        processor = HandlerProcessor(handler, processing, self.encoder, settlement, lines, inbox)

        async def prepare() -> None:
            await self.declarer.declare(options.dead_letter)
            await self.declarer.declare(options.invalid)

        source = options.source(selects_at_broker=selects)
        endpoint = self._endpoint(options.tag, source, processor, options.prefetch_count, prepare)
        processor.on_suspend = endpoint.suspend
        return endpoint

    def flow_endpoint(
        self, flow: FlowDefinition, options: SubscriptionOptions, store: StateStore | None
    ) -> MessageEndpoint:
        """Return the endpoint of a flow."""
        selects = self.declarer.is_recado
        processing = options.processing(self._interceptors, selects_at_broker=selects)
        publisher = FlowPublisher(self.encoder.to_destination, self.publisher, self.declarer)
        runtime = FlowRuntime(flow.composition, encode=publisher.encode, to=flow.to, store=store)
        processor = FlowProcessor(
            runtime,
            flow.body_type,
            publisher,
            self.settlement(processing),
            self._interceptors,
            self.encoder.translators,
        )

        async def prepare() -> None:
            known = flow.composition.destinations()
            for each in (options.dead_letter, options.invalid, *known):
                await self.declarer.declare(each)

        source = options.source(selects_at_broker=selects)
        return self._endpoint(
            options.tag, source, processor, options.prefetch_count, prepare, processor.activate
        )

    def tap_endpoint(
        self,
        handler: Handler,
        tag: str,
        queue: str,
        bindings: Sequence[tuple[PublishSubscribe, str]],
    ) -> MessageEndpoint:
        """Return the endpoint of a wire tap."""
        if self.declarer.is_recado:
            source = EndpointSource(destination=PointToPoint(queue), tap=True)
        elif bindings:
            (exchange, key), *more = bindings
            source = EndpointSource(
                destination=exchange, key=key, more_bindings=tuple(more), tap=True
            )
        else:
            raise CompositionError(
                f"wire tap '{tag}': this broker cannot copy what enters queue '{queue}'; pass bindings=[(exchange,"
                " key), …], the bindings of the queue"
            )
        processor = TapProcessor(tag, handler, self.encoder.translators)
        return self._endpoint(tag, source, processor, 0, _no_preparation)

    @property
    def _feed_url(self) -> str:
        """The URL of the broker for connections of feeds, with the heartbeat of the other connections."""
        if "heartbeat=" in self.url:
            return self.url
        separator = "&" if "?" in self.url else "?"
        return f"{self.url}{separator}heartbeat={self.publishing.parameters.heartbeat}"

    def _endpoint(
        self,
        tag: str,
        source: EndpointSource,
        processor: Processor,
        prefetch: int,
        prepare: Callable[[], Awaitable[object]],
        activate: Activation | None = None,
    ) -> MessageEndpoint:
        return MessageEndpoint(
            tag,
            source,
            processor,
            prefetch=prefetch,
            connection=self.consuming,
            declarer=self.declarer,
            prepare=prepare,
            activate=activate,
            url=self._feed_url,
        )

    async def close(self, timeout: float) -> None:  # noqa: ASYNC109  of each channel
        with suppress(Exception):
            await self.requester.close(timeout)
        if self._transactions is not None:
            with suppress(Exception):
                await self._transactions.close()
        await self.publisher.close(timeout)


async def _no_preparation() -> None:
    """Declare nothing: a wire tap publishes nothing."""
