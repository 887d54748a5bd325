"""One library with one task: `python program.py LIBRARY TASK URL COUNT`.

It prints the elapsed and the processor seconds from the first publish until the last message was handled, or the
last reply has arrived; and before that, a line of progress after every `PROGRESS_COUNT` messages. It imports only
what the library needs, because FastStream has an environment of its own.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

COUNTS = {"recado": 40_000, "faststream": 8_000, "aio-pika": 16_000}
PUBLISHERS_COUNT = 100
PREFETCH_COUNT = 100
PROGRESS_COUNT = 50_000  # more than a comparison has, so that it is not interrupted
QUEUE = "bench.patterns"


class Meter:
    def __init__(self) -> None:
        self._seconds, self._cpu = time.perf_counter(), time.process_time()

    def stop(self) -> dict[str, float]:
        seconds, cpu = time.perf_counter(), time.process_time()
        return {"seconds": seconds - self._seconds, "cpu": cpu - self._cpu}


def resident_bytes() -> int:
    """Return the memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Countdown:
    """Completes when it was called as often as there are messages."""

    def __init__(self, count: int) -> None:
        self.left_count = count
        self.done = asyncio.Event()

    def __call__(self) -> None:
        self.left_count -= 1
        if not self.left_count:
            self.done.set()


async def in_parallel(count: int, call: Callable[[int], Awaitable[object]]) -> None:
    """Call with all numbers below `count`, by `PUBLISHERS_COUNT` coroutines."""

    async def work(numbers: range) -> None:
        for number in numbers:
            await call(number)

    for begin in range(0, count, PROGRESS_COUNT):
        end = min(begin + PROGRESS_COUNT, count)
        await asyncio.gather(
            *(work(range(begin + n, end, PUBLISHERS_COUNT)) for n in range(PUBLISHERS_COUNT))
        )
        if end < count:
            print(json.dumps({"progress": end / count}), flush=True)


async def with_recado(task: str, url: str, count: int) -> dict[str, float]:
    """`task` may also be a feature, whose cost is measured."""
    import msgspec

    from recado.patterns import Interceptor, Message, Messaging, PointToPoint, PublishSubscribe

    class Order(msgspec.Struct):
        id: int
        customer: str
        amount: float

    class Receipt(msgspec.Struct):
        id: int

    app, handled = Messaging(url), Countdown(count)

    async def handle(order: Order) -> None:
        handled()

    async def handle_message(message: Message[Order]) -> None:
        handled()

    async def reply(order: Order) -> Receipt:
        return Receipt(order.id)

    to: PointToPoint | PublishSubscribe = PointToPoint(QUEUE, "classic")
    options: dict[str, Any] = {"tag": "bench", "prefetch": PREFETCH_COUNT}
    handler: Callable[[Any], Any] = handle
    match task:
        case "request":
            handler = reply
        case "message":
            handler = handle_message
        case "retry":
            options["retry"] = 5
        case "timeout":
            options["timeout"] = 30.0
        case "selector":
            to = PublishSubscribe(QUEUE, "fanout")
            options["selector"] = "json.amount > 3"
        case "intercepted":
            app.intercept(Interceptor())
        case _:
            pass
    # Annotations are resolved in the module's namespace, which has no local classes.
    handle.__annotations__["order"] = reply.__annotations__["order"] = Order
    handle_message.__annotations__["message"] = Message[Order]
    reply.__annotations__["return"] = Receipt
    app.subscribe(to, **options)(handler)
    async with app:
        meter = Meter()
        if task == "request":

            async def request(number: int) -> None:
                await app.request(to, Order(number, "somebody", 12.5), Receipt, timeout=60)

            await in_parallel(count, request)
        else:

            async def publish(number: int) -> None:
                await app.publish(to, Order(number, "somebody", 12.5))

            await in_parallel(count // 10, publish)
            early_bytes = resident_bytes()
            await in_parallel(count - count // 10, publish)
            await handled.done.wait()
            return {**meter.stop(), "grown_bytes": resident_bytes() - early_bytes}
        return meter.stop()


async def with_faststream(task: str, url: str, count: int) -> dict[str, float]:
    from faststream.rabbit import (  # type: ignore[import-not-found,unused-ignore]
        Channel,
        RabbitBroker,
        RabbitQueue,
    )
    from pydantic import BaseModel

    class Order(BaseModel):
        id: int
        customer: str
        amount: float

    class Receipt(BaseModel):
        id: int

    broker = RabbitBroker(url, default_channel=Channel(prefetch_count=PREFETCH_COUNT), logger=None)
    queue, handled = RabbitQueue(QUEUE, durable=True), Countdown(count)

    async def handle(order: Order) -> None:
        handled()

    async def reply(order: Order) -> Receipt:
        return Receipt(id=order.id)

    # Annotations are resolved in the module's namespace, which has no local classes.
    for function in (handle, reply):
        function.__annotations__["order"] = Order
    handle.__annotations__["return"] = None
    reply.__annotations__["return"] = Receipt
    broker.subscriber(queue)(reply if task == "request" else handle)
    async with broker:
        await broker.start()
        meter = Meter()
        if task == "request":

            async def request(number: int) -> None:
                order = Order(id=number, customer="somebody", amount=12.5)
                answer = await broker.request(order, queue=queue, timeout=60)
                Receipt.model_validate(await answer.decode())

            await in_parallel(count, request)
        else:

            async def publish(number: int) -> None:
                order = Order(id=number, customer="somebody", amount=12.5)
                await broker.publish(order, queue=queue, persist=True)

            await in_parallel(count, publish)
            await handled.done.wait()
        return meter.stop()


async def with_aio_pika(task: str, url: str, count: int) -> dict[str, float]:
    import aio_pika
    import msgspec

    class Order(msgspec.Struct):
        id: int
        customer: str
        amount: float

    class Receipt(msgspec.Struct):
        id: int

    encode = msgspec.json.Encoder().encode
    decode = msgspec.json.Decoder(Order).decode
    decode_receipt = msgspec.json.Decoder(Receipt).decode
    handled = Countdown(count)
    pending: dict[str, asyncio.Future[Receipt]] = {}

    async with (
        await aio_pika.connect_robust(url) as publishing,
        await aio_pika.connect_robust(url) as consuming,
    ):
        publisher = await publishing.channel()
        consumer = await consuming.channel()
        await consumer.set_qos(PREFETCH_COUNT)
        queue = await consumer.declare_queue(QUEUE, durable=True)

        def message(body: bytes, **properties: Any) -> aio_pika.Message:
            return aio_pika.Message(
                body,
                content_type="application/json",
                delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
                **properties,
            )

        async def handle(delivery: aio_pika.abc.AbstractIncomingMessage) -> None:
            order = decode(delivery.body)
            if delivery.reply_to is not None:
                answer = message(encode(Receipt(order.id)), correlation_id=delivery.correlation_id)
                await publisher.default_exchange.publish(answer, delivery.reply_to)
            await delivery.ack()
            if delivery.reply_to is None:
                handled()

        async def receive(delivery: aio_pika.abc.AbstractIncomingMessage) -> None:
            pending.pop(delivery.correlation_id or "").set_result(decode_receipt(delivery.body))

        await queue.consume(handle)
        replies = await publisher.get_queue("amq.rabbitmq.reply-to", ensure=False)
        if task == "request":
            await replies.consume(receive, no_ack=True)
        meter = Meter()
        if task == "request":

            async def request(number: int) -> None:
                reply = pending[str(number)] = asyncio.get_running_loop().create_future()
                body = encode(Order(number, "somebody", 12.5))
                asked = message(
                    body,
                    correlation_id=str(number),
                    reply_to="amq.rabbitmq.reply-to",
                    expiration=60,
                )
                await publisher.default_exchange.publish(asked, QUEUE)
                async with asyncio.timeout(60):
                    await reply

            await in_parallel(count, request)
        else:

            async def publish(number: int) -> None:
                body = encode(Order(number, "somebody", 12.5))
                await publisher.default_exchange.publish(
                    message(body, message_id=str(number)), QUEUE
                )

            await in_parallel(count, publish)
            await handled.done.wait()
        return meter.stop()


LIBRARIES = {"recado": with_recado, "faststream": with_faststream, "aio-pika": with_aio_pika}


def main() -> None:
    library, task, url, count = sys.argv[1:]
    print(json.dumps(asyncio.run(LIBRARIES[library](task, url, int(count)))))


if __name__ == "__main__":
    main()
