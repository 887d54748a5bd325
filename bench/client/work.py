"""One client with one task: `python -m bench.client.work CLIENT WORK URL COUNT`.

It prints the elapsed and the processor seconds, from when the client was ready until the last message is known
to have arrived: by a later answer of the broker, or by its reception.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable, Coroutine
from typing import Any

BODY = b"x" * 200
BATCH = 500
PREFETCH = 1000
WORKS = ("publish", "publish-each", "deliver", "deliver-ack")
COUNTS = {"recado": 200_000, "pika": 20_000, "aio-pika": 10_000}


class Meter:
    def __init__(self) -> None:
        self._seconds, self._cpu = time.perf_counter(), time.process_time()

    def stop(self) -> dict[str, float]:
        seconds, cpu = time.perf_counter(), time.process_time()
        return {"seconds": seconds - self._seconds, "cpu": cpu - self._cpu}


async def fill(url: str, queue: str, count: int) -> None:
    """Fill the queue for receiving tasks, with our client; not measured."""
    from recado.client import Connection

    async with await Connection.open(url) as connection:
        channel = await connection.channel(confirms=True)
        await channel.purge_queue(queue)
        for _ in range(0, count, BATCH):
            channel.publish_many("", queue, [BODY] * BATCH)
            await channel.drain()
        await channel.wait_for_confirms()


async def with_recado(work: str, url: str, count: int) -> dict[str, float]:
    from recado.client import connect

    async with connect(url) as connection:
        channel = await connection.channel(confirms=False)
        queue = (await channel.declare_queue(exclusive=False, auto_delete=True)).name
        if work.startswith("deliver"):
            await fill(url, queue, count)
            await channel.qos(PREFETCH)
            meter, got, no_ack = Meter(), 0, work == "deliver"
            consumer = await channel.consume(queue, no_ack=no_ack)
            while got < count:
                batch = await consumer.next_batch()
                got += len(batch)
                if not no_ack:
                    batch[-1].ack(multiple=True)
            return meter.stop()
        meter = Meter()
        if work == "publish":
            for _ in range(0, count, BATCH):
                channel.publish_many("", queue, [BODY] * BATCH)
                await channel.drain()
        else:
            for _ in range(count):
                channel.publish("", queue, BODY)
                await channel.drain()
        await channel.declare_queue(queue, passive=True)
        found = meter.stop()
        await channel.delete_queue(queue)
        return found


async def with_aio_pika(work: str, url: str, count: int) -> dict[str, float]:
    import aio_pika

    async with await aio_pika.connect(url) as connection:
        channel = await connection.channel(publisher_confirms=False)
        queue = await channel.declare_queue(auto_delete=True)
        if work.startswith("deliver"):
            await fill(url, queue.name, count)
            await channel.set_qos(PREFETCH)
            done, got, no_ack = asyncio.Event(), 0, work == "deliver"

            async def receive(message: Any) -> None:
                nonlocal got
                got += 1
                if not no_ack:
                    await message.ack()
                if got == count:
                    done.set()

            meter = Meter()
            await queue.consume(receive, no_ack=no_ack)
            await done.wait()
            return meter.stop()
        meter = Meter()
        for _ in range(count):
            message = aio_pika.Message(BODY)
            await channel.default_exchange.publish(message, queue.name)
        await channel.get_queue(queue.name)
        found = meter.stop()
        await queue.delete(if_unused=False, if_empty=False)
        return found


async def with_pika(work: str, url: str, count: int) -> dict[str, float]:
    import pika

    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel = connection.channel()
    queue = channel.queue_declare("", auto_delete=True).method.queue
    if work.startswith("deliver"):
        await fill(url, queue, count)
        channel.basic_qos(prefetch_count=PREFETCH)
        no_ack, got = work == "deliver", 0

        def receive(_: Any, method: Any, __: object, ___: bytes) -> None:
            nonlocal got
            got += 1
            if not no_ack:
                channel.basic_ack(method.delivery_tag)
            if got == count:
                channel.stop_consuming()

        meter = Meter()
        channel.basic_consume(queue, receive, auto_ack=no_ack)
        channel.start_consuming()
        found = meter.stop()
    else:
        meter = Meter()
        for _ in range(count):
            channel.basic_publish("", queue, BODY)
        channel.queue_declare(queue, passive=True)
        found = meter.stop()
        channel.queue_delete(queue)
    connection.close()
    return found


CLIENTS: dict[str, Callable[[str, str, int], Coroutine[Any, Any, dict[str, float]]]] = {
    "recado": with_recado,
    "pika": with_pika,
    "aio-pika": with_aio_pika,
}


async def main() -> None:
    client, work, url, count = sys.argv[1:]
    print(json.dumps(await CLIENTS[client](work, url, int(count))))


if __name__ == "__main__":
    asyncio.run(main())
