"""One run: queues, publishers and consumers on a broker, for some seconds, and the removal of the queues."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final, Literal

import msgspec

from recado.amqp.values import FieldTable
from recado.client import Channel, ClientError, Connection, Properties, encode_properties

from .histogram import LatencyHistogram
from .workers import Backlog, BenchConsumer, BenchPublisher

QUEUE_PREFIX: Final = "recado-bench."
CONNECTION_NAME: Final = "recado bench"
CONNECTING_MAX_COUNT: Final = 50
"""Connections that are opened at the same time."""
EXPIRY_S: Final = 60.0
"""The broker deletes the queues of a killed bench when they were unused for the time of the run and this. The time of
the run is included because a queue without consumers is unused from the start, and must outlive the run."""
STREAM_MAX_BYTES: Final = 1 << 30  # the retention of a stream
SEGMENT_MAX_BYTES: Final = 64 << 20  # of a stream: retention deletes whole segments
CLEAN_UP_TIMEOUT_S: Final = 15.0
REPORT_INTERVAL_S: Final = 0.2

QueueType = Literal["classic", "quorum", "stream"]


class Load(msgspec.Struct, frozen=True):
    """The load of a bench. Queue number i gets the publishers and the consumers number i, i + `queues`, …"""

    publishers: int
    consumers: int
    queues: int
    queue_type: QueueType
    size_bytes: int
    seconds: float
    is_persistent: bool
    confirm_window: int
    """Unconfirmed messages of a publisher; 0: without confirms."""
    prefetch: int
    """Unacknowledged messages of a consumer; 0: without acknowledgements."""
    rate: float | None
    """Messages a second of each publisher; None: as many as possible."""


class MessageFlow(msgspec.Struct):
    """The messages that passed one point, and their latencies in milliseconds."""

    messages: int
    messages_per_s: float
    bytes_per_s: int
    latency_ms: dict[str, float]


class Measurement(msgspec.Struct):
    """The result of a run."""

    server: str
    load: Load
    elapsed_s: float
    published: MessageFlow
    consumed: MessageFlow
    nacked: int
    client_cpu_share: float
    """Processor time of this program, as a share of one core: near 1 it limits the rates itself."""


class Progress(msgspec.Struct, frozen=True):
    """The state of a run: the share of its time that has passed, and messages so far."""

    share: float
    published: int
    consumed: int


async def measure(
    url: str,
    load: Load,
    stopped: asyncio.Event,
    on_progress: Callable[[Progress], None],
) -> Measurement:
    """Run a load until its time is over or `stopped` is set. Raises `ClientError`."""
    run_id = os.urandom(4).hex()
    names = [f"{QUEUE_PREFIX}{run_id}.{number}" for number in range(load.queues)]
    async with await Connection.open(url, name=CONNECTION_NAME) as control:
        try:
            await declare(control, names, load)
            async with open_channels(url, load.publishers + load.consumers) as channels:
                publishers, consumers = await start(channels, names, load)
                result = await run(load, publishers, consumers, stopped, on_progress)
        finally:
            await asyncio.shield(delete(url, names))
    result.server = describe_server(control.server_properties)
    return result


def describe_server(properties: FieldTable) -> str:
    """Return product and version. recado has those of RabbitMQ, and its own in the property `information`."""
    product, version, information = (
        str(properties.get(name, "")) for name in ("product", "version", "information")
    )
    return information if information.startswith("recado ") else f"{product} {version}".strip()


async def declare(control: Connection, names: Sequence[str], load: Load) -> None:
    arguments: FieldTable = {"x-queue-type": load.queue_type}
    if load.queue_type == "stream":  # a stream has no expiry; its size is limited instead
        arguments["x-max-length-bytes"] = STREAM_MAX_BYTES
        arguments["x-stream-max-segment-size-bytes"] = SEGMENT_MAX_BYTES
    else:
        arguments["x-expires"] = round((load.seconds + EXPIRY_S) * 1000)
    durable = load.is_persistent or load.queue_type != "classic"
    channel = await control.channel()
    for name in names:
        await channel.declare_queue(name, durable=durable, arguments=arguments)


async def delete(url: str, names: Sequence[str]) -> None:
    """Delete the queues on a new connection, because the other ones may be blocked or broken."""
    with suppress(TimeoutError, ClientError):
        async with (
            asyncio.timeout(CLEAN_UP_TIMEOUT_S),
            await Connection.open(url, name=CONNECTION_NAME) as connection,
        ):
            channel = await connection.channel()
            for name in names:
                await channel.delete_queue(name)


@asynccontextmanager
async def open_channels(url: str, count: int) -> AsyncIterator[list[Channel]]:
    """Open connections with a channel each, and close them in the end."""
    connections: list[Connection] = []
    gate = asyncio.Semaphore(CONNECTING_MAX_COUNT)

    async def open_one() -> Channel:
        async with gate:
            connection = await Connection.open(url, name=CONNECTION_NAME)
            connections.append(connection)
            return await connection.channel()

    opening = [asyncio.create_task(open_one()) for _ in range(count)]
    try:
        yield await asyncio.gather(*opening)
    finally:
        for task in opening:
            task.cancel()
        await asyncio.wait(opening)
        closing = [asyncio.create_task(connection.close()) for connection in connections]
        if closing:
            await asyncio.wait(closing, timeout=CLEAN_UP_TIMEOUT_S)


async def start(
    channels: Sequence[Channel], names: Sequence[str], load: Load
) -> tuple[list[BenchPublisher], list[BenchConsumer]]:
    """Start the consumers, and return them with the publishers, which do not publish yet."""
    is_stream = load.queue_type == "stream"
    backlogs = [Backlog(name, load.size_bytes, is_stream=is_stream) for name in names]
    consumers = []
    for number, channel in enumerate(channels[load.publishers :]):
        backlog = backlogs[number % load.queues]
        arguments: FieldTable = {"x-stream-offset": "first"} if is_stream else {}
        if load.prefetch:
            await channel.qos(load.prefetch)
        started = await channel.consume(
            backlog.queue, no_ack=not load.prefetch, arguments=arguments
        )
        consumers.append(BenchConsumer(started, backlog))
    properties = encode_properties(Properties(delivery_mode=2 if load.is_persistent else 1))
    publishers = []
    for number, channel in enumerate(channels[: load.publishers]):
        if load.confirm_window:
            await channel.select_confirms()
        publishers.append(
            BenchPublisher(
                channel,
                backlogs[number % load.queues],
                size_bytes=load.size_bytes,
                properties=properties,
                window=load.confirm_window,
                rate=load.rate,
            )
        )
    return publishers, consumers


async def run(
    load: Load,
    publishers: Sequence[BenchPublisher],
    consumers: Sequence[BenchConsumer],
    stopped: asyncio.Event,
    on_progress: Callable[[Progress], None],
) -> Measurement:
    """Let the workers work until the time is over, all publishers have ended, or `stopped` is set."""
    started, started_cpu = time.perf_counter(), time.process_time()
    publishing = [asyncio.create_task(publisher.run()) for publisher in publishers]
    consuming = [asyncio.create_task(consumer.run()) for consumer in consumers]
    stop = asyncio.create_task(stopped.wait())
    waiting = {*publishing, *consuming, stop}
    try:
        while not stop.done() and not all(task.done() for task in publishing):
            elapsed_s = time.perf_counter() - started
            left_s = load.seconds - elapsed_s
            if left_s <= 0:
                break
            timeout_s = min(left_s, REPORT_INTERVAL_S)
            done, waiting = await asyncio.wait(
                waiting, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED
            )
            for task in done:
                task.result()  # raises the error that ended a worker
            published = sum(publisher.published_count for publisher in publishers)
            consumed = sum(consumer.received_count for consumer in consumers)
            on_progress(Progress(elapsed_s / load.seconds, published, consumed))
        elapsed_s = time.perf_counter() - started
        used_s = time.process_time() - started_cpu
        return Measurement(
            server="",
            load=load,
            elapsed_s=elapsed_s,
            published=summarise(publishers, elapsed_s, load.size_bytes),
            consumed=summarise(consumers, elapsed_s, load.size_bytes),
            nacked=sum(publisher.nacked_count for publisher in publishers),
            client_cpu_share=used_s / elapsed_s,
        )
    finally:
        tasks = [*publishing, *consuming, stop]
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


def summarise(
    workers: Sequence[BenchPublisher] | Sequence[BenchConsumer], elapsed_s: float, size_bytes: int
) -> MessageFlow:
    latencies = LatencyHistogram()
    for worker in workers:
        latencies.merge(worker.latencies)
    messages = sum(
        worker.published_count if isinstance(worker, BenchPublisher) else worker.received_count
        for worker in workers
    )
    rate = messages / elapsed_s
    return MessageFlow(messages, round(rate, 1), round(rate * size_bytes), latencies.to_json())
