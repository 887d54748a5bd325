"""Actor systems and pipelines publish their status to recado and to RabbitMQ alike: plain AMQP."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

from pika.adapters.blocking_connection import BlockingChannel

from recado.actors import Actor, ActorSystem, publish_status
from recado.pipeline.report import PipelineReport, SourceReport
from recado.pipeline.status import publish_run
from recado.status.record import STATUS_EXCHANGE
from workshop.peers import Server


class Idle(Actor[None]):
    def receive(self, message: None) -> None:
        pass


def test_a_bound_queue_gets_the_records(
    server: Server, channel: BlockingChannel, queue: str, name: Callable[[str], str]
) -> None:
    channel.exchange_declare(STATUS_EXCHANGE, "topic", durable=True)
    system_name, pipeline = name("system"), name("pipeline")[:64]
    channel.queue_bind(queue, STATUS_EXCHANGE, f"actors.{system_name}")
    channel.queue_bind(queue, STATUS_EXCHANGE, f"pipeline.{pipeline}")

    async def run_system() -> None:
        async with ActorSystem(system_name) as system:
            await system.spawn(Idle, name="idle")
            async with publish_status(system, server.url):
                pass

    asyncio.run(run_system())
    with publish_run(pipeline, server.url) as status:
        status.update(PipelineReport(pipeline, sources={"q": SourceReport(3, 1.5, 4)}), 1_000)
        status.finish(2_000, was_stopped=False)
    last = {}
    while (got := channel.basic_get(queue, auto_ack=True))[0] is not None:
        record = json.loads(got[2])
        last[record["kind"]] = record
        assert got[1].content_type == "application/json"
    assert last["actors"]["state"] == "closed"
    assert [actor["name"] for actor in last["actors"]["actors"]] == ["idle"]
    assert (last["pipeline"]["state"], last["pipeline"]["lag"]) == ("finished", 4)
