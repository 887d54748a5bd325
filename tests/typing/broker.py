"""Types of the top level of `recado`."""

from typing import assert_type

import recado
from recado.client import BlockingConnection, RobustConnection


def in_a_program() -> None:
    with recado.Broker(port=0) as broker:
        assert_type(broker, recado.Broker)
        assert_type(broker.url, str)
    recado.Broker(port="5672")  # type: ignore[arg-type]


async def in_an_event_loop() -> None:
    async with recado.Broker() as broker:
        assert_type(broker.url, str)


def connections() -> None:
    assert_type(recado.connect("amqp://localhost"), RobustConnection)
    assert_type(recado.connect_blocking("amqp://localhost"), BlockingConnection)
    recado.connect("amqp://localhost", give_up=1.0)  # type: ignore[call-arg]
    recado.connect()  # type: ignore[call-arg]


def removed_names() -> None:
    assert recado.Message  # type: ignore[attr-defined]
    assert recado.Vector  # type: ignore[attr-defined]
