"""The options of a subscription or flow, checked: which of them work together."""

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict, get_type_hints

import msgspec

from .destination import (
    DestinationLike,
    LogStream,
    PointToPoint,
    PublishSubscribe,
    to_destination,
)
from .endpoint import EndpointSource
from .errors import CompositionError
from .feed_source import FeedSource, Source, SourceLike
from .handler import Handler
from .inbox import MESSAGE_ID_FIELD
from .interceptor import Interceptor
from .limits import CircuitBreaker
from .retry import NO_RETRY, Retry
from .routing import MessageSelector
from .routing.message_field import MessageField, to_reader
from .settlement import ProcessorOptions

_PREFETCH_MAX_COUNT = 65_535  # the width of AMQP's field
PREFETCH_MIN_COUNT = 100  # without retries: enough deliveries to hide the round trip


class SourceOptions(TypedDict, total=False):
    """How an endpoint consumes its source, and what becomes of failed messages.

    key: the binding key of a `PublishSubscribe`; default all messages.
    subscriber: name of a durable subscriber of a `PublishSubscribe`. Its messages wait while the program is away, and
        programs with the same subscriber share them. Without it the subscription is private and ends with the
        connection.
    selector: a filter expression. On a stream recado applies it, for other brokers the client; there, and on a private
        subscription, messages that do not match are dropped. A subscription to a feed applies it itself. On a queue
        the endpoint must be the only consumer, and messages that do not match go to `dead_letter`.
    offset: where a stream begins: `first`, `last`, `next` or an offset.
    retry: attempts after a failure, or their number; default none. Not for streams and feeds.
    dead_letter: where messages go whose last attempt failed.
    invalid: where messages go that cannot be translated.
    prefetch: unacknowledged deliveries of the consumer. Default 100, or twice `concurrency` if that is more. With
        `retry` or `rate` it is `concurrency`, so that an attempt is counted only for messages that a lost worker was
        handling.
    tag: the name of the endpoint; default that of the function.
    """

    key: str | None
    subscriber: str | None
    selector: str | None
    offset: str | int | None
    retry: Retry | int | None
    dead_letter: DestinationLike | None
    invalid: DestinationLike | None
    prefetch: int | None
    tag: str | None


class HandlerOptions(SourceOptions, total=False):
    """How an endpoint calls its handler.

    concurrency: how many messages are handled at the same time; with 1, in order.
    timeout: seconds that a handler may run before the attempt fails.
    rate: how many messages are handled per second at most.
    deduplicate: True handles each message id once, a field or function of the message each of its values; see
        `recado.patterns.inbox`.
    breaker: suspends the endpoint after several failures in a row.
    """

    concurrency: int
    timeout: float | None
    rate: float | None
    breaker: CircuitBreaker | None
    deduplicate: bool | MessageField


class SubscriptionOptions(msgspec.Struct, frozen=True, kw_only=True):
    """`HandlerOptions` with their source, complete; raises `CompositionError` for a combination that cannot work."""

    tag: str
    target: Source
    retry: Retry
    dead_letter: PointToPoint
    invalid: PointToPoint
    key: str | None = None
    subscriber: str | None = None
    selector: str | None = None
    offset: str | int | None = None
    concurrency: int = 1
    prefetch: int | None = None
    timeout: float | None = None
    rate: float | None = None
    breaker: CircuitBreaker | None = None
    deduplicate: bool | MessageField = False

    def __post_init__(self) -> None:
        self._check_numbers()
        match self.target:
            case PointToPoint(name) | LogStream(name):
                if self.key is not None or self.subscriber is not None:
                    raise self._error(
                        f"key and subscriber belong to an exchange; write PublishSubscribe({name!r}), or leave them out"
                    )
            case PublishSubscribe():
                if self.selector is not None and self.subscriber is not None:
                    raise self._error(
                        f"the queue of subscriber '{self.subscriber}' is shared by its programs, so a selector would"
                        " take messages from the others; use flow() with a ContentRouter or Filter instead"
                    )
            case FeedSource():
                self._check_feed(self.target)
        if isinstance(self.target, LogStream):
            if self.retry.attempts > 1:
                raise self._error(
                    "a message of a stream cannot be attempted again later, because it stays in the stream; forward"
                    " the stream to a queue with flow(), and retry there"
                )
        elif self.offset is not None:
            raise self._error("offset belongs to a LogStream")
        if self.selector is not None and not isinstance(self.target, FeedSource):
            MessageSelector(self.selector)
        if self.retry.ordered_by is not None:
            to_reader(self.retry.ordered_by)
        if self.inbox_field is not None:
            to_reader(self.inbox_field)

    def _check_feed(self, feed: FeedSource) -> None:
        if self.key is not None or self.subscriber is not None:
            raise self._error(
                "key and subscriber belong to an exchange; a FeedSource names its subscriber"
            )
        if self.retry.attempts > 1:
            raise self._error(
                "a message of a feed cannot be attempted again later, because its position would pass it; forward the"
                " feed to a queue with flow(), and retry there"
            )
        if self.breaker is not None and feed.recovery in (None, "optimistic"):
            raise self._error(
                f"while a breaker suspends it, messages of feed '{feed.name}' would be lost; give the FeedSource a"
                " recovery, or leave the breaker out"
            )
        if self.selector is not None:
            feed.check_selector(self.selector)

    def _check_numbers(self) -> None:
        if self.concurrency < 1:
            raise self._error(f"concurrency={self.concurrency} must be at least 1")
        if self.prefetch is not None and not 1 <= self.prefetch <= _PREFETCH_MAX_COUNT:
            raise self._error(f"prefetch={self.prefetch} must be from 1 to {_PREFETCH_MAX_COUNT}")
        if self.timeout is not None and self.timeout <= 0:
            raise self._error(f"timeout={self.timeout} must be more than 0 seconds")
        if self.rate is not None and self.rate <= 0:
            raise self._error(f"rate={self.rate} must be more than 0 messages per second")

    def _error(self, problem: str) -> CompositionError:
        return CompositionError(f"endpoint '{self.tag}': {problem}")

    @property
    def needs_store(self) -> bool:
        """Whether the endpoint keeps something in the state store."""
        return self.retry.ordered_by is not None or self.inbox_field is not None

    @property
    def inbox_field(self) -> MessageField | None:
        """The field by which messages are recognised that were handled; None: they are not."""
        if isinstance(self.deduplicate, bool):
            return MESSAGE_ID_FIELD if self.deduplicate else None
        return self.deduplicate

    @property
    def _is_exclusive(self) -> bool:
        """Whether the endpoint must be the only consumer of its queue."""
        return self.selector is not None and isinstance(self.target, PointToPoint)

    @property
    def prefetch_count(self) -> int:
        """The number of unacknowledged deliveries of the consumer."""
        if self.prefetch is not None:
            return self.prefetch
        if self.retry.attempts > 1 or self.rate is not None:
            return self.concurrency
        return max(PREFETCH_MIN_COUNT, 2 * self.concurrency)

    def source(self, *, selects_at_broker: bool) -> EndpointSource:
        """Return from where the endpoint consumes."""
        return EndpointSource(
            destination=self.target,
            key=self.key,
            subscriber=self.subscriber,
            offset=self.offset,
            exclusive=self._is_exclusive,
            selector=self.selector if self._broker_selects(selects_at_broker) else None,
        )

    def processing(
        self, interceptors: Sequence[Interceptor], *, selects_at_broker: bool
    ) -> ProcessorOptions:
        """Return how the endpoint processes its messages."""
        is_selected_here = self.selector is not None and not self._broker_selects(selects_at_broker)
        return ProcessorOptions(
            tag=self.tag,
            retry=self.retry,
            dead_letter=self.dead_letter,
            invalid=self.invalid,
            concurrency=self.concurrency,
            timeout=self.timeout,
            rate=self.rate,
            breaker=self.breaker,
            selected=MessageSelector(self.selector or "") if is_selected_here else None,
            unselected=self.dead_letter if self._is_exclusive else None,
            has_queue=not isinstance(self.target, FeedSource),
            interceptors=interceptors,
        )

    def _broker_selects(self, selects_at_broker: bool) -> bool:
        """Whether the source applies the selector: a feed does, and recado on streams."""
        if isinstance(self.target, FeedSource):
            return True
        return selects_at_broker and isinstance(self.target, LogStream)


def to_subscription_options(target: Source, options: Mapping[str, Any]) -> SubscriptionOptions:
    """Return `HandlerOptions` as checked options; they have a tag and the queues of failed messages."""
    retry = options.get("retry", NO_RETRY)
    return SubscriptionOptions(
        **{
            **options,
            "target": target,
            "retry": Retry(retry) if isinstance(retry, int) else retry,
            "dead_letter": require_queue(options["dead_letter"], "dead_letter"),
            "invalid": require_queue(options["invalid"], "invalid"),
        }
    )


def to_source(source: SourceLike) -> Source:
    """Return a source; a string is the name of a point-to-point queue."""
    return source if isinstance(source, FeedSource) else to_destination(source)


def check_transaction(handler: Handler, options: SubscriptionOptions) -> None:
    """Raise `CompositionError` if a handler wants a transaction that it cannot have."""
    if handler.wants_transaction and options.inbox_field is None:
        raise CompositionError(
            f"endpoint '{options.tag}': handler {handler.name} takes a transaction, so it needs deduplicate=…"
        )
    if handler.wants_transaction and options.timeout is not None:
        raise CompositionError(
            f"endpoint '{options.tag}': handler {handler.name} runs within a transaction, which no timeout can end"
        )


def require_known(options: Mapping[str, object], kind: type) -> None:
    """Raise `TypeError` for a name that `SourceOptions` or `HandlerOptions` does not have."""
    known = get_type_hints(kind)
    for name in options:
        if name not in known:
            raise TypeError(f"unexpected option '{name}'; the options are {', '.join(known)}")


def require_queue(destination: DestinationLike, option: str) -> PointToPoint:
    """Return a destination that must be a queue."""
    target = to_destination(destination)
    if not isinstance(target, PointToPoint):
        raise CompositionError(f"{option} must be a queue, not {type(target).__name__}")
    return target
