"""Types of `recado.client`."""

from typing import assert_type

from recado.client import (
    BlockingChannel,
    BlockingConsumer,
    Channel,
    ChannelClosedByBrokerError,
    Connection,
    ConnectionEvent,
    ConnectionLost,
    ConnectionRecovered,
    Consumer,
    Delivery,
    Properties,
    PublishNackedError,
    QueueInfo,
    RobustChannel,
    RobustConsumer,
    connect,
    connect_blocking,
)


def on_event(event: ConnectionEvent) -> None:
    match event:
        case ConnectionLost(error):
            assert_type(error, Exception)
        case ConnectionRecovered(attempts, elapsed):
            assert_type(attempts, int)
            assert_type(elapsed, float)
        case _:
            pass


async def robust() -> None:
    async with connect("amqp://localhost", on_event=on_event, reconnect_timeout=None) as connection:
        channel = await connection.channel()
        assert_type(channel, RobustChannel)
        assert_type(await channel.declare_queue("jobs"), QueueInfo)
        number = channel.publish("", "jobs", b"one", Properties(message_id="1"))
        assert_type(number, int)
        assert_type(channel.publish_many("", "jobs", [b"a", b"b"]), range)
        await channel.wait_for_confirm(number)
        consumer = await channel.consume("jobs")
        assert_type(consumer, RobustConsumer)
        async for delivery in consumer:
            assert_type(delivery, Delivery)
            assert_type(delivery.body, bytes)
            assert_type(delivery.properties, Properties)
            assert_type(delivery.ack(), bool)
        async for deliveries in consumer.batches():
            assert_type(deliveries, list[Delivery])

        channel.publish("", "jobs", "text")  # type: ignore[arg-type]
        await channel.wait_for_confirm("1")  # type: ignore[arg-type]
        await channel.qos("many")  # type: ignore[arg-type]


async def plain() -> None:
    async with await Connection.open("amqp://localhost") as connection:
        channel = await connection.channel(confirms=True)
        assert_type(channel, Channel)
        assert_type(await channel.consume("jobs"), Consumer)
        assert_type(await channel.get("jobs"), Delivery | None)
        await connection.channel(True)  # type: ignore[call-arg]


def blocking() -> None:
    with connect_blocking("amqp://localhost", on_event=on_event) as connection:
        channel = connection.channel()
        assert_type(channel, BlockingChannel)
        assert_type(channel.declare_queue("jobs"), QueueInfo)
        assert_type(channel.publish("", "jobs", b"one"), int)
        consumer = channel.consume("jobs")
        assert_type(consumer, BlockingConsumer)
        for delivery in consumer:
            assert_type(delivery, Delivery)
        channel.declare_queue(5)  # type: ignore[arg-type]


def errors(nacked: PublishNackedError, refused: ChannelClosedByBrokerError) -> None:
    assert_type(nacked.sequence_numbers, list[range])
    assert_type(refused.reply_code, int)
