"""Settling deliveries: what follows from one is published before it is acknowledged.

A delivery is received (or refused: its worker was lost too often, it cannot be decoded, it is not selected), and
settled: acknowledged, attempted again later, or parked.
"""

import asyncio
import logging
import random
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias
from uuid import uuid4

import msgspec

from recado.amqp.properties import Properties, decode_properties, encode_properties
from recado.client import ClientError, Delivery

from .declaration import Declarer
from .delay import Delay
from .destination import Destination
from .encoder import MessageEncoder, ReplyAddress
from .errors import MessagingError, TranslationError, UnroutableMessageError
from .failure import describe, parked_output_properties, parked_properties, retry_properties
from .interceptor import Interceptor
from .limits import CircuitBreaker
from .message import Message, without_copy_headers
from .publisher import ConfirmedPublisher, EncodedPublish
from .reception import Received
from .retry import Retry
from .return_address import REPLY_ERROR_HEADER
from .translation.content_encoding import is_compressed
from .waiting_lines import WaitingLines

log = logging.getLogger("recado.patterns")

REQUEUE_DELAY_S = 1.0  # so that an endpoint does not call its handler in a loop while its dead-letter queue is full

THREAD_MIN_BYTES: Final = 1 << 20  # translating a larger body takes many milliseconds
COMPRESSED_THREAD_MIN_BYTES: Final = 4 << 10  # it can have a thousand times that size

REFUSED: Final = msgspec.UNSET  # instead of a body, which can be any other object

Selected: TypeAlias = Callable[[Message[Any]], bool]


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
    has_queue: bool = True  # to which the replay of a parked message returns it


class DeliverySettlement:
    """Receives and settles the deliveries of an endpoint."""

    def __init__(
        self,
        options: ProcessorOptions,
        publisher: ConfirmedPublisher,
        encoder: MessageEncoder,
        delay: Delay,
        declarer: Declarer,
        lines: WaitingLines | None = None,
    ) -> None:
        self.options = options
        self.publisher = publisher
        self._delay = delay
        self._lines = lines
        self._encoder = encoder
        self._declarer = declarer

    async def receive(self, received: Received, decode: Callable[[bytes, Properties], Any]) -> Any:
        """Return the decoded body of a delivery, or `REFUSED` if it was parked instead."""
        if received.error is not None:
            await self.park(received, received.error)
            return REFUSED
        attempt = received.attempt
        if attempt > self.options.retry.attempts > 1:
            lost = WorkerLostError(
                f"{attempt - 1} attempts ended without a result: the worker was killed or lost its connection"
            )
            await self.park(received, lost, attempt=attempt - 1)
            return REFUSED
        try:
            body = received.delivery.body
            if is_slow_to_decode(body, received.properties.content_encoding):
                return await asyncio.to_thread(decode, body, received.properties)
            return decode(body, received.properties)
        except TranslationError as error:
            await self.park(received, error)
            return REFUSED

    async def select(self, received: Received, message: Message[Any]) -> bool:
        """Whether the selector matches a message; if not, it was settled."""
        selected = self.options.selected
        if selected is None or selected(message):
            return True
        await self._drop_unselected(received.delivery)
        return False

    async def retry_or_park(self, received: Received, error: Exception) -> None:
        """Attempt a failed message again later, or park it after its last attempt."""
        attempt, queue = received.attempt, received.queue
        retry = self.options.retry
        if not retry.should_retry(error, attempt):
            await self.park(received, error)
            return
        seconds = retry.delay(attempt, random.random())
        log.info(
            "message failed, attempting again (endpoint=%s queue=%s attempt=%d delay_s=%.3f error=%s)",
            self.options.tag,
            queue,
            attempt,
            seconds,
            describe(error),
        )
        again = retry_properties(received.properties, error, attempt, time.time())
        if self._lines is not None and received.line is not None:
            await self._lines.wait_for_retry(received, again, seconds)
        else:
            await self._delay.deliver_later(queue, received.delivery.body, again, seconds)
        received.delivery.ack()

    async def park(
        self,
        received: Received,
        error: Exception,
        *,
        attempt: int | None = None,
        is_valid: bool = False,
    ) -> None:
        """Publish a message as a dead letter, or as an invalid message if it cannot be translated.

        A message without an id gets one, by which the broker can tell that there is no queue for it. If the message
        is a request, its requester is told that it failed.
        """
        options = self.options
        delivery, properties, queue = received.delivery, received.properties, received.queue
        attempt = received.attempt if attempt is None else attempt
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
            properties,
            error,
            attempt,
            time.time(),
            queue=queue if options.has_queue else None,
            handler=options.tag,
        )
        message_id = properties.message_id or uuid4().hex
        encoded = encode_properties(msgspec.structs.replace(parked, message_id=message_id))
        await self._publish_to(target, delivery.body, encoded, message_id)
        delivery.ack()
        if properties.reply_to is not None:
            message = Message(body=None, headers={REPLY_ERROR_HEADER: describe(error)})
            reply = self._encoder.reply(message, reply_address(properties))
            self.publisher.send(reply, _ignore_outcome)

    async def park_output(self, publish: EncodedPublish, error: Exception) -> None:
        """Publish an output that the broker has refused as a dead letter; a replay sends it where it was to go."""
        options = self.options
        log.warning(
            "output parked (endpoint=%s exchange=%s key=%.100s target=%s error=%s)",
            options.tag,
            publish.exchange,
            publish.key,
            options.dead_letter.name,
            describe(error),
        )
        properties = decode_properties(publish.properties, max_entries=1 << 16)
        parked = parked_output_properties(properties, error, time.time(), publish, options.tag)
        message_id = publish.message_id or uuid4().hex
        encoded = encode_properties(msgspec.structs.replace(parked, message_id=message_id))
        await self._publish_to(options.dead_letter, publish.body, encoded, message_id)

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

    async def _drop_unselected(self, delivery: Delivery) -> None:
        """Acknowledge a message that the selector does not match, after moving it if it would be lost."""
        target = self.options.unselected
        if target is not None:
            properties = delivery.properties
            message_id = properties.message_id or uuid4().hex
            headers = dict(without_copy_headers(properties.headers or {}))
            encoded = encode_properties(
                msgspec.structs.replace(
                    properties, headers=headers or None, message_id=message_id, user_id=None
                )
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


def is_slow_to_decode(body: bytes, content_encoding: str | None) -> bool:
    """Whether decoding a body may hold up the event loop, so that it is done in a thread."""
    size = len(body)
    return size > THREAD_MIN_BYTES or (
        size > COMPRESSED_THREAD_MIN_BYTES and is_compressed(content_encoding)
    )


def reply_address(properties: Properties) -> ReplyAddress:
    """Return where the reply to a request goes."""
    assert properties.reply_to is not None
    return ReplyAddress(
        properties.reply_to,
        properties.correlation_id or properties.message_id,
        properties.content_type,
    )


def _ignore_outcome(error: Exception | None) -> None:
    """An error reply is sent once: the request has its place among the dead letters."""
