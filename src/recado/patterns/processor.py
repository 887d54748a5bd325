"""The processor of handlers: translate a delivery, call the handler, reply, and settle.

    delivery ─→ selected? ─→ translate ─→ steps ─→ handler ─→ reply ─→ acknowledge
                   │no          │error       │error    │error
                acknowledge   invalid      attempt again later, or dead letter; then acknowledge

PPR1  A delivery is acknowledged only after everything that follows from it is confirmed: the reply, the copy that
      is attempted again, the dead letter.
PPR2  No delay holds an unacknowledged delivery, except the pause of `REQUEUE_DELAY_S` before one is requeued whose
      consequences the broker has refused.
PPR3  A message is handled at most `Retry.attempts` times, also if it kills its workers (quorum queues).

Properties are decoded only if something needs them, because that takes longer than translating a small body.
"""

import asyncio
import logging
import random
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final
from uuid import uuid4

import msgspec

from recado.amqp.properties import Properties, encode_properties
from recado.client import ClientError, Delivery, RobustConsumer

from .declaration import Declarer
from .delay import Delay
from .destination import Destination
from .encoder import MessageEncoder, ReplyAddress
from .errors import (
    HandlerTimeoutError,
    MessagingError,
    TranslationError,
    UnroutableMessageError,
)
from .failure import (
    attempt_number,
    describe,
    parked_properties,
    retry_properties,
    to_failure,
)
from .handler import Handler
from .interceptor import Interceptor, Proceed, intercept_handler
from .limits import CircuitBreaker, FailureCount, Pacer
from .message import Message
from .publisher import ConfirmedPublisher, EncodedPublish
from .reception import to_message
from .retry import Retry

log = logging.getLogger("recado.patterns")

REPLY_ERROR_HEADER = "x-reply-error"

REQUEUE_DELAY_S = 1.0  # so that an endpoint does not call its handler in a loop while its dead-letter queue is full

_CONTENT_TYPE_FLAG: Final = 0x80  # of the first byte of the flags, see `recado.amqp.properties`
_HEADERS_FLAG: Final = 0x20
_REPLY_TO_FLAG: Final = 0x02

_DECODERS_MAX_COUNT: Final = 64  # bounds the cache: content types come from the network

Selected = Callable[[Message[Any]], bool]


class WorkerLostError(MessagingError):
    """The workers of a message ended, `Retry.attempts` times, before its handler did."""


class ProcessorOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How an endpoint processes its messages."""

    tag: str
    retry: Retry
    dead_letter: Destination
    invalid: Destination
    concurrency: int = 1
    timeout: float | None = None
    selected: Selected | None = None  # None: all messages, or the broker selects them
    unselected: Destination | None = None  # None: messages that are not selected are dropped
    interceptors: Sequence[Interceptor] = ()
    rate: float | None = None
    breaker: CircuitBreaker | None = None


class DeliverySettlement:
    """Settles deliveries: what follows from one is published before it is acknowledged."""

    def __init__(
        self,
        options: ProcessorOptions,
        publisher: ConfirmedPublisher,
        delay: Delay,
        declarer: Declarer,
    ) -> None:
        self.options = options
        self.publisher = publisher
        self.delay = delay
        self._declarer = declarer

    async def retry_or_park(
        self,
        delivery: Delivery,
        properties: Properties,
        queue: str,
        error: Exception,
        attempt: int,
    ) -> bool:
        """Attempt a failed message again later, or park it; return whether it is attempted again."""
        retry = self.options.retry
        if not retry.should_retry(error, attempt):
            await self.park(delivery, properties, queue, error, attempt)
            return False
        seconds = retry.delay(attempt, random.random())
        log.info(
            "message failed, attempting again (endpoint=%s queue=%s attempt=%d delay_s=%.3f error=%s)",
            self.options.tag,
            queue,
            attempt,
            seconds,
            describe(error),
        )
        again = retry_properties(properties, error, attempt, time.time())
        await self.delay.deliver_later(queue, delivery.body, again, seconds)
        delivery.ack()
        return True

    async def park(
        self,
        delivery: Delivery,
        properties: Properties,
        queue: str,
        error: Exception,
        attempt: int,
        *,
        is_valid: bool = False,
    ) -> None:
        """Publish a message as a dead letter, or as an invalid message if it cannot be translated.

        A message without an id gets one, by which the broker can tell that there is no queue for it.
        """
        options = self.options
        is_invalid = isinstance(error, TranslationError) and not is_valid
        target = options.invalid if is_invalid else options.dead_letter
        log.warning(
            "message parked (endpoint=%s queue=%s target=%s attempt=%d error=%s)",
            options.tag,
            queue,
            target.name,
            attempt,
            describe(error),
        )
        parked = parked_properties(
            properties, error, attempt, time.time(), queue=queue, handler=options.tag
        )
        message_id = properties.message_id or uuid4().hex
        encoded = encode_properties(msgspec.structs.replace(parked, message_id=message_id))
        await self._publish_to(target, delivery.body, encoded, message_id)
        delivery.ack()

    async def _publish_to(
        self, target: Destination, body: bytes, properties: bytes, message_id: str
    ) -> None:
        """Publish to a queue, which is declared again if it was deleted."""
        publish = EncodedPublish("", target.name, body, properties, message_id, mandatory=True)
        try:
            await self.publisher.publish(publish)
        except UnroutableMessageError:
            self._declarer.forget(target)
            await self._declarer.declare(target)
            await self.publisher.publish(publish)

    async def drop_unselected(self, delivery: Delivery) -> None:
        """Acknowledge a message that the selector does not match, after moving it if it would be lost."""
        target = self.options.unselected
        if target is not None:
            properties = delivery.properties
            message_id = properties.message_id or uuid4().hex
            encoded = encode_properties(
                msgspec.structs.replace(properties, message_id=message_id, user_id=None)
            )
            await self._publish_to(target, delivery.body, encoded, message_id)
        delivery.ack()

    async def requeue(self, delivery: Delivery, error: Exception) -> None:
        """Requeue a delivery for which nothing else could be done."""
        log.warning(
            "delivery requeued (endpoint=%s error=%s)",
            self.options.tag,
            describe(error),
            exc_info=None if isinstance(error, MessagingError | ClientError) else error,
        )
        await asyncio.sleep(REQUEUE_DELAY_S)
        delivery.nack()


class HandlerProcessor:
    """Calls a handler with each message."""

    def __init__(
        self,
        handler: Handler,
        options: ProcessorOptions,
        encoder: MessageEncoder,
        settlement: DeliverySettlement,
    ) -> None:
        self.handler = handler
        self.options = options
        self.running_count = 0  # handlers that run at the moment
        self.handled_count = 0
        self.failed_count = 0
        self._encoder = encoder
        self._settlement = settlement
        self._decoders: dict[bytes, Callable[[bytes], Any]] = {}
        self._needs_message = (
            handler.wants_message or options.selected is not None or bool(options.interceptors)
        )
        self.on_suspend: Callable[[float], object] | None = None  # called when the breaker opens
        self._pacer = None if options.rate is None else Pacer(options.rate)
        self._failures = None if options.breaker is None else FailureCount(options.breaker)
        self._counts_attempts = options.retry.attempts > 1
        self._failing: set[asyncio.Task[None]] = set()  # of requests whose replies were refused

    def set_concurrency(self, concurrency: int) -> None:
        """Change how many messages are processed at the same time, from the next `run` on."""
        self.options = msgspec.structs.replace(self.options, concurrency=concurrency)

    async def run(self, consumer: RobustConsumer, queue: str) -> None:
        """Process deliveries, `concurrency` at a time, until the consumer ends."""
        if self.options.concurrency == 1:
            await self._work(consumer, queue)
        else:
            # Not a TaskGroup: the consumer's end must not cancel the handlers that run.
            workers = [self._work(consumer, queue) for _ in range(self.options.concurrency)]
            for result in await asyncio.gather(*workers, return_exceptions=True):
                if isinstance(result, BaseException):
                    raise result

    async def _work(self, consumer: RobustConsumer, queue: str) -> None:
        async for delivery in consumer:
            if self._pacer is not None:
                await self._pacer.wait()
            self.running_count += 1
            try:
                await self._process(delivery, queue)
            finally:
                self.running_count -= 1

    async def _process(self, delivery: Delivery, queue: str) -> None:
        """Process one delivery; on an internal or connection error it is requeued."""
        raw = delivery.raw_properties
        try:
            if (
                self._needs_message
                or raw[0] & (_HEADERS_FLAG | _REPLY_TO_FLAG)
                or (self._counts_attempts and delivery.redelivered)
            ):
                await self._process_message(delivery, delivery.properties, queue)
            else:
                await self._process_body(delivery, queue)
        except Exception as error:  # noqa: BLE001 - the connection, or a refusal
            await self._settlement.requeue(delivery, error)

    async def _process_body(self, delivery: Delivery, queue: str) -> None:
        """Process a message of which only the body and its content type matter."""
        raw = delivery.raw_properties
        content_type = raw[3 : 3 + raw[2]] if raw[0] & _CONTENT_TYPE_FLAG else b""
        try:
            decode = self._decoders.get(content_type) or self._find_decoder(content_type)
            body = decode(delivery.body)
        except TranslationError as error:
            await self._settlement.park(delivery, delivery.properties, queue, error, 1)
            return
        try:
            await self._call(body)
        except BaseException as raised:  # noqa: BLE001 - raised by the handler
            failure = to_failure(raised)
            self._record_failure()
            await self._settlement.retry_or_park(delivery, delivery.properties, queue, failure, 1)
        else:
            self._record_success()
            delivery.ack()

    async def _process_message(
        self, delivery: Delivery, properties: Properties, queue: str
    ) -> None:
        """Process a message with its properties."""
        options, settlement = self.options, self._settlement
        attempt = attempt_number(delivery, properties)
        if attempt > options.retry.attempts > 1:
            lost = WorkerLostError(
                f"{attempt - 1} attempts ended without a result: the worker was killed or lost its connection"
            )
            await settlement.park(delivery, properties, queue, lost, attempt - 1)
            return
        try:
            decode = self._find_decoder(
                (properties.content_type or "").encode("utf-8", "surrogateescape")
            )
            argument = decode(delivery.body)
        except TranslationError as error:
            await settlement.park(delivery, properties, queue, error, attempt)
            if properties.reply_to is not None:
                self._reply_error(properties, error)
            return
        call: Proceed = partial(self._call, argument)
        if self._needs_message:
            message = to_message(delivery, queue, argument, properties)
            if options.selected is not None and not options.selected(message):
                await settlement.drop_unselected(delivery)
                return
            if self.handler.wants_message:
                call = partial(self._call, message)
            if options.interceptors:
                call = partial(intercept_handler, options.interceptors, message, options.tag, call)
        try:
            result = await call()
        except BaseException as raised:  # noqa: BLE001 - raised by the handler
            failure = to_failure(raised)
            self._record_failure()
            again = await settlement.retry_or_park(delivery, properties, queue, failure, attempt)
            if not again and properties.reply_to is not None:
                self._reply_error(properties, failure)
            return
        self._record_success()
        if result is None or properties.reply_to is None:
            delivery.ack()
        else:
            await self._reply(delivery, properties, queue, result, attempt)

    async def _call(self, argument: Any) -> Any:
        timeout = self.options.timeout
        if timeout is None:
            return await self.handler.call(argument)
        try:
            async with asyncio.timeout(timeout) as deadline:
                return await self.handler.call(argument)
        except TimeoutError as error:
            if not deadline.expired():
                raise
            raise HandlerTimeoutError(
                f"handler {self.handler.name} ran longer than {timeout} s"
            ) from error

    def _record_success(self) -> None:
        self.handled_count += 1
        if self._failures is not None:
            self._failures.record_success()

    def _record_failure(self) -> None:
        self.failed_count += 1
        if self._failures is not None and self._failures.record_failure():
            assert self.options.breaker is not None
            if self.on_suspend is not None:
                self.on_suspend(self.options.breaker.reset)

    # ── replies ───────────────────────────────────────────────────────────────────────────────────────────

    async def _reply(
        self,
        delivery: Delivery,
        properties: Properties,
        queue: str,
        result: Any,
        attempt: int,
    ) -> None:
        """Publish the reply; the delivery is acknowledged when it is confirmed.

        A result that cannot be encoded dead-letters the request at once: it would be the same after another attempt.
        """
        settlement = self._settlement
        try:
            reply = self._encoder.reply(result, _reply_address(properties))
        except Exception as error:  # noqa: BLE001 - of the program
            await settlement.park(delivery, properties, queue, error, attempt, is_valid=True)
            self._reply_error(properties, error)
            return

        def settle(error: Exception | None) -> None:
            if error is None:
                delivery.ack()
            else:
                failing = self._fail_reply(delivery, properties, queue, error, attempt)
                task = asyncio.create_task(failing)
                self._failing.add(task)
                task.add_done_callback(self._failing.discard)

        settlement.publisher.send(reply, settle)

    async def _fail_reply(
        self,
        delivery: Delivery,
        properties: Properties,
        queue: str,
        error: Exception,
        attempt: int,
    ) -> None:
        """A reply that the broker has refused is a failed attempt; its queue may be any that a sender names."""
        try:
            await self._settlement.retry_or_park(delivery, properties, queue, error, attempt)
        except Exception as problem:  # noqa: BLE001 - the connection, or a refusal
            await self._settlement.requeue(delivery, problem)

    def _reply_error(self, properties: Properties, error: Exception) -> None:
        """Tell the requester that its request failed."""
        message = Message(body=None, headers={REPLY_ERROR_HEADER: describe(error)})
        reply = self._encoder.reply(message, _reply_address(properties))
        self._settlement.publisher.send(reply, _ignore_outcome)

    # ── translation ───────────────────────────────────────────────────────────────────────────────────────

    def _find_decoder(self, content_type: bytes) -> Callable[[bytes], Any]:
        """Return the decoder of a content type; those that succeed are cached."""
        decoder = self._decoders.get(content_type)
        if decoder is None:
            name = content_type.decode("utf-8", "surrogateescape") or None
            decoder = self._encoder.translators.decoder(name, self.handler.body_type)
            if len(self._decoders) < _DECODERS_MAX_COUNT:
                self._decoders[content_type] = decoder
        return decoder


def _reply_address(properties: Properties) -> ReplyAddress:
    assert properties.reply_to is not None
    return ReplyAddress(
        properties.reply_to,
        properties.correlation_id or properties.message_id,
        properties.content_type,
    )


def _ignore_outcome(error: Exception | None) -> None:
    """An error reply is sent once: the request has its place among the dead letters."""
