"""The processor of handlers: translate a delivery, call the handler, reply, and settle.

    delivery ─→ decode ─→ selected? ─→ handler ─→ reply ─→ acknowledge
                  │error     │no          │error     │error
               invalid   acknowledge   attempt again later, or dead letter; then acknowledge

PPR1  A delivery is acknowledged only after everything that follows from it is confirmed: the reply, the copy that
      is attempted again, the dead letter.
PPR2  No delay holds an unacknowledged delivery, except the turn that `rate` makes it wait for, and the pause of
      `REQUEUE_DELAY_S` before one is requeued whose consequences the broker has refused.
PPR3  A message is handled at most `Retry.attempts` times, also if it kills its workers (quorum queues).

Properties are decoded only if something needs them, because that takes longer than translating a small body.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final

import msgspec

from recado.amqp.properties import Properties
from recado.client import Delivery

from .encoder import MessageEncoder
from .endpoint import Intake
from .errors import HandlerTimeoutError, StateError, TranslationError
from .failure import to_failure
from .handler import Handler
from .inbox import HandlerInbox, InboxError
from .interceptor import Proceed, intercept_handler
from .limits import FailureCount, Pacer
from .message import Message
from .reception import Received, receive
from .settlement import (
    REFUSED,
    THREAD_MIN_BYTES,
    DeliverySettlement,
    ProcessorOptions,
    reply_address,
)
from .waiting_lines import WaitingLines

_CONTENT_TYPE_FLAG: Final = 0x80  # of the first byte of the flags, see `recado.amqp.properties`
_CONTENT_ENCODING_FLAG: Final = 0x40
_HEADERS_FLAG: Final = 0x20
_REPLY_TO_FLAG: Final = 0x02

_DECODERS_MAX_COUNT: Final = 64  # bounds the cache: content types come from the network


class HandlerProcessor:
    """Calls a handler with each message."""

    def __init__(
        self,
        handler: Handler,
        options: ProcessorOptions,
        encoder: MessageEncoder,
        settlement: DeliverySettlement,
        lines: WaitingLines | None = None,
        inbox: HandlerInbox | None = None,
    ) -> None:
        self.handler = handler
        self.options = options
        self.running_count = 0  # handlers that run at the moment
        self.handled_count = 0
        self.failed_count = 0
        self.problems: Sequence[str] = ()
        self._encoder = encoder
        self._settlement = settlement
        self.lines = lines  # None: retries have no order
        self._decoders: dict[bytes, Callable[[bytes], Any]] = {}
        self._needs_message = (
            handler.wants_message
            or options.selected is not None
            or bool(options.interceptors)
            or lines is not None
            or inbox is not None
        )
        self._inbox = inbox
        self.on_suspend: Callable[[float], object] | None = None  # called when the breaker opens
        self._pacer = None if options.rate is None else Pacer(options.rate)
        self._failures = None if options.breaker is None else FailureCount(options.breaker)
        self._counts_attempts = options.retry.attempts > 1
        self._failing: set[asyncio.Task[None]] = set()  # of requests whose replies were refused

    def set_concurrency(self, concurrency: int) -> None:
        """Change how many messages are processed at the same time, from the next `run` on."""
        self.options = msgspec.structs.replace(self.options, concurrency=concurrency)

    async def run(self, consumer: Intake, queue: str) -> None:
        """Process deliveries, `concurrency` at a time, until the consumer ends."""
        if self.lines is None:
            await self._run_workers(partial(self._work, consumer, queue))
        else:
            slots_count = self.options.concurrency
            async with self.lines.serve(self._process_turn, slots_count, queue):
                await self._run_workers(partial(self._work, consumer, queue))

    async def _run_workers(self, work: Callable[[], Awaitable[None]]) -> None:
        if self.options.concurrency == 1:
            await work()
        else:
            # Not a TaskGroup: the consumer's end must not cancel the handlers that run.
            workers = [work() for _ in range(self.options.concurrency)]
            for result in await asyncio.gather(*workers, return_exceptions=True):
                if isinstance(result, BaseException):
                    raise result

    async def _work(self, consumer: Intake, queue: str) -> None:
        async for delivery in consumer:
            if self._pacer is not None:
                await self._pacer.wait()
            self.running_count += 1
            try:
                await self._process(delivery, queue)
            finally:
                self.running_count -= 1

    async def _process_turn(self, received: Received) -> None:
        """Process the message of a waiting line whose turn has come."""
        if self._pacer is not None:
            await self._pacer.wait()
        self.running_count += 1
        try:
            await self._process_message(received)
        except Exception as error:  # noqa: BLE001 - the connection, or a refusal
            await self._settlement.requeue(received.delivery, error)
        finally:
            self.running_count -= 1

    async def _process(self, delivery: Delivery, queue: str) -> None:
        """Process one delivery; on an internal or connection error it is requeued."""
        raw = delivery.raw_properties
        try:
            if (
                self._needs_message
                or raw[0] & (_CONTENT_ENCODING_FLAG | _HEADERS_FLAG | _REPLY_TO_FLAG)
                or len(delivery.body) > THREAD_MIN_BYTES
                or (self._counts_attempts and delivery.redelivered)
            ):
                await self._process_message(receive(delivery, queue))
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
            await self._settlement.park(receive(delivery, queue), error)
            return
        try:
            await self._call(body)
        except BaseException as raised:  # noqa: BLE001 - raised by the handler
            await self._fail(receive(delivery, queue), raised)
        else:
            self._record_success()
            delivery.ack()

    async def _process_message(self, received: Received) -> None:
        """Process a message with its properties."""
        options, settlement = self.options, self._settlement
        argument = await settlement.receive(received, self._decode)
        if argument is REFUSED:
            return
        call: Proceed = partial(self._call, argument)
        if self._needs_message:
            message = received.message(argument)
            if not await settlement.select(received, message):
                return
            if self.handler.wants_message:
                argument = message
                call = partial(self._call, message)
            if self._inbox is not None:
                call = self._call_once(self._inbox, message, argument, call)
            if options.interceptors:
                call = partial(intercept_handler, options.interceptors, message, options.tag, call)
            if self.lines is not None:
                await self._handle_in_order(self.lines, received, message, call)
                return
        await self._handle(received, call)

    def _call_once(
        self, inbox: HandlerInbox, message: Message[Any], argument: Any, call: Proceed
    ) -> Proceed:
        """Return the call of a handler that does nothing for a message that was handled before."""
        if self.handler.wants_transaction:
            return partial(inbox.call_in_transaction, message, self.handler.function, argument)
        return partial(inbox.call, message, call)

    async def _handle_in_order(
        self, lines: WaitingLines, received: Received, message: Message[Any], call: Proceed
    ) -> None:
        """Call the handler, unless the message has to wait behind others of its key."""
        try:
            entered = await lines.enter(received, message)
        except StateError:
            raise
        except Exception as error:  # noqa: BLE001 - of the function that names the key
            await self._fail(received, error)
            return
        if entered is not None:
            try:
                await self._handle(entered, call)
            finally:
                lines.leave(entered)

    async def _handle(self, received: Received, call: Proceed) -> None:
        """Call the handler and settle the delivery."""
        try:
            result = await call()
        except InboxError:
            raise  # it is requeued
        except BaseException as raised:  # noqa: BLE001 - raised by the handler
            await self._fail(received, raised)
            return
        self._record_success()
        if result is None or received.properties.reply_to is None:
            received.delivery.ack()
        else:
            await self._reply(received, result)

    async def _fail(self, received: Received, raised: BaseException) -> None:
        failure = to_failure(raised)
        self._record_failure()
        await self._settlement.retry_or_park(received, failure)

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

    async def _reply(self, received: Received, result: Any) -> None:
        """Publish the reply; the delivery is acknowledged when it is confirmed.

        A result that cannot be encoded dead-letters the request at once: it would be the same after another attempt.
        """
        settlement = self._settlement
        try:
            reply = self._encoder.reply(result, reply_address(received.properties))
        except Exception as error:  # noqa: BLE001 - of the program
            await settlement.park(received, error, is_valid=True)
            return

        def settle(error: Exception | None) -> None:
            if error is None:
                received.delivery.ack()
            else:
                task = asyncio.create_task(self._fail_reply(received, error))
                self._failing.add(task)
                task.add_done_callback(self._failing.discard)

        settlement.publisher.send(reply, settle)

    async def _fail_reply(self, received: Received, error: Exception) -> None:
        """A reply that the broker has refused is a failed attempt; its queue may be any that a sender names."""
        try:
            await self._settlement.retry_or_park(received, error)
        except Exception as problem:  # noqa: BLE001 - the connection, or a refusal
            await self._settlement.requeue(received.delivery, problem)

    # ── translation ───────────────────────────────────────────────────────────────────────────────────────

    def _decode(self, body: bytes, properties: Properties) -> Any:
        content_type = (properties.content_type or "").encode("utf-8", "surrogateescape")
        decode = self._find_decoder(content_type)
        translators, target = self._encoder.translators, self.handler.body_type
        return decode(translators.decompress(body, properties.content_encoding, target))

    def _find_decoder(self, content_type: bytes) -> Callable[[bytes], Any]:
        """Return the decoder of a content type; those that succeed are cached."""
        decoder = self._decoders.get(content_type)
        if decoder is None:
            name = content_type.decode("utf-8", "surrogateescape") or None
            decoder = self._encoder.translators.decoder(name, self.handler.body_type)
            if len(self._decoders) < _DECODERS_MAX_COUNT:
                self._decoders[content_type] = decoder
        return decoder
