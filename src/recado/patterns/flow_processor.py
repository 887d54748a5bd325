"""The processor of flows: deliveries → steps → confirmed outputs → acknowledgements.

Deliveries are processed in batches, so that one transaction of the store, and one wait for confirms, serve all
deliveries that have arrived meanwhile.

PFP1  A delivery is acknowledged after the transaction that has its id, and the confirms of all its outputs.
PFP2  If publishing fails, nothing of the batch is acknowledged, and the flow starts again with the stored outputs.
PFP3  An output that the broker refuses for good does not hold up the flow: after `REFUSED_ATTEMPTS_COUNT` attempts it
      is parked. If it cannot be parked either, a flow with state sets it aside in its store.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

import msgspec

from recado.amqp.properties import Properties
from recado.client import ChannelClosedByBrokerError, Delivery

from .declaration import Declarer
from .destination import Destination, PointToPoint
from .endpoint import Intake
from .errors import UnroutableMessageError
from .failure import describe, to_failure
from .flow import FlowOutput, FlowResult, FlowRuntime
from .interceptor import Interceptor, intercept_batch
from .message import Message
from .publisher import ConfirmedPublisher, EncodedPublish
from .reception import receive
from .settlement import REFUSED, DeliverySettlement
from .translation import Translators

log = logging.getLogger("recado.patterns")

BATCH_MAX_COUNT = 200  # messages in one transaction
EXPIRY_INTERVAL_S = (
    0.005  # between two runs of steps with more entries that are due than they handle at once
)
FLUSH_AFTER_S = 0.5  # published outputs stay in the store for so long if no message follows

REFUSED_ATTEMPTS_COUNT = 4
REFUSED_DELAY_S = 0.5  # before the third attempt; the second one is made at once
PROBLEMS_MAX_COUNT = 10

EncodeTo = Callable[[Message[Any], Destination], EncodedPublish]


class FlowPublisher:
    """Encodes and publishes the outputs of a flow; destinations are declared when they are first used."""

    def __init__(self, encode: EncodeTo, publisher: ConfirmedPublisher, declarer: Declarer) -> None:
        self._encode = encode
        self._publisher = publisher
        self._declarer = declarer
        self._undeclared: list[Destination] = []

    def encode(self, message: Message[Any], to: Destination) -> EncodedPublish:
        """Encode an output; called in the thread of the store as well."""
        if not self._declarer.is_declared(to):
            self._undeclared.append(to)
        return self._encode(message, to)

    async def publish(self, outputs: Sequence[FlowOutput]) -> list["RefusedOutput"]:
        """Publish outputs in order and wait for their confirms; return those that the broker refuses for good.

        Raises the first other error. Refused outputs are tried again: a queue may have been deleted, or another
        process has stored the output and was killed before it declared it.
        """
        await self._declare_new()
        left = list(outputs)
        for attempt in range(1, REFUSED_ATTEMPTS_COUNT + 1):
            errors = await self._publisher.publish_each([each.publish for each in left])
            refused = []
            for output, error in zip(left, errors, strict=True):
                if error is not None and not is_refusal(error):
                    raise error
                if error is not None:
                    refused.append(RefusedOutput(output, to_failure(error)))
            if not refused or attempt == REFUSED_ATTEMPTS_COUNT:
                break
            left = [each.output for each in refused]
            await asyncio.sleep((attempt - 1) * REFUSED_DELAY_S)
            await self._declare_again([each.publish for each in left])
        return refused

    async def _declare_new(self) -> None:
        while self._undeclared:
            with suppress(ChannelClosedByBrokerError):  # then the output is refused
                await self._declarer.declare(self._undeclared[0])
            del self._undeclared[0]  # meanwhile, others may have been appended

    async def _declare_again(self, publishes: Sequence[EncodedPublish]) -> None:
        for name in {each.key for each in publishes if not each.exchange and each.mandatory}:
            self._declarer.forget(PointToPoint(name))
            with suppress(ChannelClosedByBrokerError):
                await self._declarer.declare(PointToPoint(name))


class RefusedOutput(msgspec.Struct, frozen=True):
    """An output that the broker does not take, and its reason."""

    output: FlowOutput
    error: Exception


def is_refusal(error: BaseException) -> bool:
    """Whether the broker or the client refuses a message for good: unroutable, forbidden, too large, malformed."""
    return isinstance(error, UnroutableMessageError | ChannelClosedByBrokerError | ValueError)


class FlowProcessor:
    """Runs a flow over the deliveries of a consumer."""

    def __init__(
        self,
        flow: FlowRuntime,
        body_type: Any,
        publisher: FlowPublisher,
        settlement: DeliverySettlement,
        interceptors: Sequence[Interceptor],
        translators: Translators,
    ) -> None:
        self.flow = flow
        self.running_count = 0
        self.failed_count = 0
        self.problems: Sequence[str] = ()
        self._body_type = body_type
        self._publisher = publisher
        self._settlement = settlement
        self._interceptors = interceptors
        self._translators = translators

    @property
    def handled_count(self) -> int:
        return self.flow.processed_count

    @asynccontextmanager
    async def activate(self, on_standby: Callable[[], object]) -> AsyncIterator[None]:
        """Wait until this process may run the flow, and publish the outputs that are stored."""
        try:
            await self._publish(await self.flow.start(on_standby))
            yield
        finally:
            await self.flow.stop()

    async def run(self, consumer: Intake, queue: str) -> None:
        """Process deliveries until the consumer ends."""
        try:
            while True:
                try:
                    async with asyncio.timeout(self._seconds_to_deadline()):
                        batch = await consumer.next_batch()
                except TimeoutError:
                    await self.flow.flush()
                else:
                    if not batch:
                        return
                    for first in range(0, len(batch), BATCH_MAX_COUNT):
                        await self._process(batch[first : first + BATCH_MAX_COUNT], queue)
                await self._expire()
        finally:
            self.running_count = 0

    def _seconds_to_deadline(self) -> float | None:
        """Return how long to wait for deliveries, at most until the next deadline or flush."""
        if not self.flow.has_state:
            return None
        deadline = self.flow.next_deadline
        if deadline is None:
            return FLUSH_AFTER_S
        return min(max(deadline - time.time(), EXPIRY_INTERVAL_S), FLUSH_AFTER_S)

    async def _expire(self) -> None:
        """Run the steps whose deadlines have passed, also while messages arrive without a pause."""
        deadline = self.flow.next_deadline
        if deadline is not None and deadline <= time.time():
            self.running_count = 1
            await self._publish(await self.flow.expire())
            self.running_count = 0

    async def _publish(self, outputs: Sequence[FlowOutput]) -> None:
        if outputs:
            for refused in await self._publisher.publish(outputs):
                await self._park_output(refused)
            self.flow.discard(outputs)

    async def _park_output(self, refused: RefusedOutput) -> None:
        """Park an output that the broker refuses, or set it aside in the store if that is refused as well."""
        self.failed_count += 1
        publish, error = refused.output.publish, refused.error
        target = f"exchange '{publish.exchange}'" if publish.exchange else f"queue '{publish.key}'"
        try:
            await self._settlement.park_output(publish, error)
        except Exception as problem:
            if not is_refusal(problem) or not await self.flow.set_aside(refused.output):
                raise
            log.warning("output set aside in the store (flow=%s error=%s)", self.flow.name, problem)
        self.problems = [
            *self.problems[1 - PROBLEMS_MAX_COUNT :],
            f"the broker refuses messages of flow '{self.flow.name}' to {target}: {describe(error)}",
        ]

    async def _process(self, deliveries: Sequence[Delivery], queue: str) -> None:
        self.running_count = len(deliveries)
        accepted: list[tuple[Delivery, Message[Any]]] = []
        for delivery in deliveries:
            message = await self._receive(delivery, queue)
            if message is not None:
                accepted.append((delivery, message))
        messages = [message for _, message in accepted]
        process = partial(self.flow.process, messages)
        if self._interceptors and messages:
            results: Sequence[FlowResult] = await intercept_batch(
                self._interceptors, messages, self.flow.name, process
            )
        else:
            results = await process()
        await self._publish([output for result in results for output in result.outputs])
        for (delivery, _), result in zip(accepted, results, strict=True):
            await self._settle(delivery, result, queue)
        self.running_count = 0

    async def _receive(self, delivery: Delivery, queue: str) -> Message[Any] | None:
        """Return the message of a delivery, or None if it was settled without being processed."""
        received = receive(delivery, queue)
        body = await self._settlement.receive(received, self._decode)
        if body is REFUSED:
            return None
        message = received.message(body)
        return message if await self._settlement.select(received, message) else None

    def _decode(self, body: bytes, properties: Properties) -> Any:
        raw = self._translators.decompress(body, properties.content_encoding, self._body_type)
        return self._translators.decode(raw, properties.content_type, self._body_type)

    async def _settle(self, delivery: Delivery, result: FlowResult, queue: str) -> None:
        if result.error is None:
            delivery.ack()
        else:
            self.failed_count += 1
            received = receive(delivery, queue)
            await self._settlement.retry_or_park(received, result.error)
