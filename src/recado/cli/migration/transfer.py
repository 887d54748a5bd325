"""Move the messages of one queue from a broker to another, over AMQP.

Messages are consumed at the source and published to the target through a fanout exchange that exists only during
the transfer and is bound to the one queue. So the routing key and all properties stay as they were, and the headers
`CC` and `BCC`, which other exchanges obey, cause no copies. A batch is acknowledged at the source after all of it is
confirmed by the target; deliveries of the next batch arrive meanwhile.

MIG1  A message leaves the source only after the target has confirmed it.
MIG2  Messages arrive in the order in which the source delivers them.
MIG3  After an interruption at most `window` messages of the queue are moved again.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

if TYPE_CHECKING:
    from recado.amqp.values import FieldValue
    from recado.client import Channel, Connection, Delivery, ReturnedMessage

    from .plan import QueueJob

IDLE_S: Final = 0.1
"""Without a delivery for this long, the source is asked whether the queue is empty."""
STREAM_IDLE_S: Final = 5.0
"""A stream that delivers nothing for this long is regarded as copied: brokers count its messages with a delay."""
EXCHANGE_PREFIX: Final = "recado.migration."
"""Of the exchanges that exist only during a transfer."""
OFFSET_HEADER: Final = "x-stream-offset"

OnProgress = Callable[[int], None]


class TransferError(Exception):
    """A message cannot be published to the target, so the transfer has ended."""


class StreamPositions:
    """The next offset of each stream, in a file that is replaced atomically after each batch."""

    def __init__(self, file: Path) -> None:
        """Read the file, if it exists. Raises `ValueError` if it is damaged."""
        self._file = file
        self._offsets: dict[str, int] = {}
        try:
            self._offsets = msgspec.json.decode(file.read_bytes(), type=dict[str, int])
        except FileNotFoundError:
            pass
        except msgspec.DecodeError as error:
            raise ValueError(f"{file}: {error}; delete it to copy all streams again") from error

    def read(self, job: QueueJob) -> int:
        return self._offsets.get(f"{job.vhost}/{job.name}", 0)

    def write(self, job: QueueJob, next_offset: int) -> None:
        self._offsets[f"{job.vhost}/{job.name}"] = next_offset
        self._file.parent.mkdir(parents=True, exist_ok=True)
        temporary = self._file.with_suffix(".new")
        temporary.write_bytes(msgspec.json.encode(self._offsets))
        temporary.replace(self._file)


class TransferResult(NamedTuple):
    """How a transfer ended."""

    moved: int
    left: int
    """Ready messages in the queue of the source at the end; 0 for a stream, which keeps its messages."""


class _Target:
    """The channel to the target; a message that it returns or refuses ends the transfer."""

    def __init__(self, channel: Channel, exchange: str, job: QueueJob) -> None:
        self._channel = channel
        self._exchange = exchange
        self._job = job
        self._returned: ReturnedMessage | None = None
        channel.on_return = self._handle_return

    def _handle_return(self, returned: ReturnedMessage) -> None:
        self._returned = returned

    async def publish(self, deliveries: list[Delivery], *, without_offset: bool) -> None:
        """Publish a batch and wait until all of it is confirmed (MIG1). Raises `TransferError`."""
        from recado.client import ClientError

        try:
            for delivery in deliveries:
                self._channel.publish(
                    self._exchange,
                    delivery.routing_key,
                    delivery.body,
                    _strip_offset(delivery) if without_offset else delivery.raw_properties,
                    mandatory=True,
                )
            await self._channel.wait_for_confirms()
        except ClientError as error:
            raise TransferError(f"{self._job}: the target refused a message: {error}") from error
        if self._returned is not None:
            raise TransferError(
                f"{self._job}: the target returned a message: {self._returned.reply_text};"
                " the queue was deleted there"
            )


def _strip_offset(delivery: Delivery) -> bytes:
    """Return the properties without the offset, which the broker of a stream adds to its deliveries."""
    from recado.client import encode_properties

    properties = delivery.properties
    headers = dict(properties.headers or {})
    headers.pop(OFFSET_HEADER, None)
    return encode_properties(msgspec.structs.replace(properties, headers=headers or None))


async def transfer(
    source: Connection,
    target: Connection,
    job: QueueJob,
    *,
    window: int,
    positions: StreamPositions,
    on_progress: OnProgress,
) -> TransferResult:
    """Move the messages of a queue until it is empty, or copy those of a stream.

    `window` is how many messages are moved between two acknowledgements at most. Raises `TransferError` and
    `ClientError`.
    """
    if not job.is_stream:  # the message count of RabbitMQ's streams lags
        async with await source.channel() as asking, await target.channel() as cleaning:
            if await _count_ready(asking, job) == 0:
                await cleaning.delete_exchange(exchange_of(job))  # of an interrupted transfer
                return TransferResult(0, 0)
    async with (
        await source.channel(confirms=False) as reading,
        await target.channel(confirms=True) as writing,
        _private_exchange(writing, job) as exchange,
    ):
        out = _Target(writing, exchange, job)
        await reading.qos(window)
        arguments: dict[str, FieldValue] | None = None
        if job.is_stream:
            arguments = {OFFSET_HEADER: positions.read(job)}
        moved = 0
        async with await reading.consume(job.name, arguments=arguments) as consumer:
            while True:
                try:
                    async with asyncio.timeout(STREAM_IDLE_S if job.is_stream else IDLE_S):
                        batch = await consumer.next_batch()
                except TimeoutError:
                    if job.is_stream:
                        break
                    if await _count_ready(reading, job) == 0:
                        break
                    continue
                if not batch:
                    break
                await out.publish(batch, without_offset=job.is_stream)
                if job.is_stream:
                    positions.write(job, _offset_of(batch[-1], job) + 1)
                batch[-1].ack(multiple=True)
                moved += len(batch)
                on_progress(len(batch))
        left = 0 if job.is_stream else await _count_ready(reading, job)
    return TransferResult(moved, left)


async def _count_ready(channel: Channel, job: QueueJob) -> int:
    declared = await channel.declare_queue(job.name, passive=True)
    return declared.message_count


def _offset_of(delivery: Delivery, job: QueueJob) -> int:
    offset = (delivery.properties.headers or {}).get(OFFSET_HEADER)
    if not isinstance(offset, int):
        raise TransferError(f"{job}: a message has no header {OFFSET_HEADER}")
    return int(offset)


def exchange_of(job: QueueJob) -> str:
    """Return the name of the private exchange. It depends only on the queue, so the next run finds it."""
    digest = hashlib.sha256(f"{job.vhost}/{job.name}".encode()).hexdigest()
    return f"{EXCHANGE_PREFIX}{digest[:16]}"


@asynccontextmanager
async def _private_exchange(channel: Channel, job: QueueJob) -> AsyncIterator[str]:
    """Declare the exchange of a transfer, and delete it afterwards."""
    name = exchange_of(job)
    await channel.declare_exchange(name, "fanout")
    await channel.bind_queue(job.name, name)
    yield name
    # Not in `finally`: after an error the channel may be closed, and the next run deletes the exchange.
    await channel.delete_exchange(name)
