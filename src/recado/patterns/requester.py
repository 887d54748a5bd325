"""Request-reply over direct reply-to: requests and their replies share one channel, and no queue is declared.

PRQ1  A reply completes the request whose correlation id it carries; one that comes after the timeout is dropped.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import msgspec

from recado.amqp.properties import Properties
from recado.amqp.traits import DIRECT_REPLY_TO
from recado.client import ClientError, Delivery, RobustChannel, RobustConnection, RobustConsumer

from .errors import ReplyError, RequestTimeoutError
from .publisher import ConfirmedPublisher, EncodedPublish
from .return_address import REPLY_ERROR_HEADER

log = logging.getLogger("recado.patterns")

Decode = Callable[[bytes, Properties], Any]


class _PendingRequest(msgspec.Struct, frozen=True):
    reply: "asyncio.Future[Any]"
    decode: Decode


class Requester:
    """Publishes requests and waits for their replies."""

    def __init__(self, connection: RobustConnection) -> None:
        self.publisher = ConfirmedPublisher(connection, self._start_consumer)
        self._pending: dict[str, _PendingRequest] = {}
        self._receiving: asyncio.Task[None] | None = None

    @property
    def pending_count(self) -> int:
        """The number of requests without a reply."""
        return len(self._pending)

    async def request(
        self,
        publish: EncodedPublish,
        request_id: str,
        timeout: float,  # noqa: ASYNC109  one timer, half the cost of asyncio.timeout
        decode: Decode,
    ) -> Any:
        """Publish a request whose correlation id is `request_id`, which is unique, and return the decoded reply.

        Raises `RequestTimeoutError` after `timeout` seconds, `ReplyError` if the handler failed, and the errors of
        `ConfirmedPublisher.publish`.
        """
        loop = asyncio.get_running_loop()
        reply: asyncio.Future[Any] = loop.create_future()
        self._pending[request_id] = _PendingRequest(reply, decode)
        timer = loop.call_later(timeout, _expire, reply, timeout, publish)
        self.publisher.send(publish, lambda error: _fail(reply, error))
        try:
            return await reply
        finally:
            timer.cancel()
            del self._pending[request_id]

    async def _start_consumer(self, channel: RobustChannel) -> None:
        consumer = await channel.consume(DIRECT_REPLY_TO, no_ack=True)
        if self._receiving is not None:
            self._receiving.cancel()
        self._receiving = asyncio.create_task(self._receive(consumer))

    async def _receive(self, consumer: RobustConsumer) -> None:
        try:
            async for batch in consumer.batches():
                for delivery in batch:
                    self._handle_reply(delivery)
        except ClientError as error:
            log.debug("reply consumer ended (error=%s)", error)

    def _handle_reply(self, delivery: Delivery) -> None:
        try:
            properties = delivery.properties
        except Exception as error:  # noqa: BLE001 - the broker does not check them
            log.debug("reply dropped: its properties are invalid (error=%s)", error)
            return
        pending = self._pending.get(properties.correlation_id or "")
        if pending is None or pending.reply.done():
            log.debug("late reply dropped (correlation_id=%s)", properties.correlation_id)
            return
        try:
            pending.reply.set_result(_decode_reply(delivery, properties, pending.decode))
        except Exception as error:  # noqa: BLE001 - bodies and headers come from the network
            pending.reply.set_exception(error)

    async def close(self, timeout: float) -> None:  # noqa: ASYNC109  see `ConfirmedPublisher.close`
        """Close the channel."""
        await self.publisher.close(timeout)
        if self._receiving is not None:
            await asyncio.wait([self._receiving])


def _decode_reply(delivery: Delivery, properties: Properties, decode: Decode) -> Any:
    error = (properties.headers or {}).get(REPLY_ERROR_HEADER)
    if error is not None:
        raise ReplyError(str(error))
    return decode(delivery.body, properties)


def _fail(reply: "asyncio.Future[Any]", error: Exception | None) -> None:
    if error is not None and not reply.done():
        reply.set_exception(error)


def _expire(reply: "asyncio.Future[Any]", timeout: float, publish: EncodedPublish) -> None:
    if not reply.done():
        target = publish.key if not publish.exchange else f"{publish.exchange} ({publish.key})"
        reply.set_exception(RequestTimeoutError(f"no reply from '{target}' within {timeout} s"))
