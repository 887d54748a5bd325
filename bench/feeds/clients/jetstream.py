"""NATS JetStream with nats-py, its own client, by the fastest methods that lose nothing.

Asynchronous publishing with a window was faster than concurrent calls of `publish`; a push consumer with a
callback and without acknowledgements was faster than an ordered one, an iterator, or `fetch`.
"""

from __future__ import annotations

import asyncio

import nats
from nats.aio.msg import Msg
from nats.js.api import AckPolicy, ConsumerConfig, StorageType

from bench.feeds.clients.work import WINDOW, Reading, Stopwatch, Work, WrongResultError, main


def publish(work: Work, stopwatch: Stopwatch) -> None:
    asyncio.run(publishing(work, stopwatch))


async def publishing(work: Work, stopwatch: Stopwatch) -> None:
    bodies = work.bodies()
    connection = await nats.connect(work.url)
    stream = connection.jetstream(publish_async_max_pending=WINDOW)
    await stream.add_stream(name=work.name, subjects=[work.name], storage=StorageType.FILE)
    stopwatch.start()
    for body in bodies:
        await stream.publish_async(work.name, body)
    await stream.publish_async_completed()
    stopwatch.stop()
    kept = (await stream.stream_info(work.name)).state.messages
    await connection.close()
    if kept != work.messages:
        raise WrongResultError(f"the stream has {kept} of {work.messages} messages")


def replay(work: Work, stopwatch: Stopwatch) -> None:
    asyncio.run(replaying(work, stopwatch))


async def replaying(work: Work, stopwatch: Stopwatch) -> None:
    connection = await nats.connect(work.url)
    reading = Reading(work)
    done = asyncio.get_running_loop().create_future()

    async def take(message: Msg) -> None:
        try:
            if reading.take(message.data):
                done.set_result(None)
        except WrongResultError as error:
            done.set_exception(error)

    stopwatch.start()
    await connection.jetstream().subscribe(
        work.name,
        config=ConsumerConfig(ack_policy=AckPolicy.NONE),
        manual_ack=True,
        cb=take,
        # Beyond a limit the client would drop messages.
        pending_msgs_limit=-1,
        pending_bytes_limit=-1,
    )
    await done
    stopwatch.stop()
    await connection.close()


if __name__ == "__main__":
    main(publish, replay)
