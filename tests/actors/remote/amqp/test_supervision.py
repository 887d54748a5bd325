"""The actors of bridges: only the failed ones are restarted, which is how bridges recover."""

from __future__ import annotations

import recado
from recado.actors.remote.amqp import ConnectionSharing
from recado.actors.remote.amqp.actors import (
    BridgeActor,
    ConnectionActor,
    ConnectionSupervisor,
    ReadChannelActor,
)
from recado.actors.remote.amqp.transport import AmqpTransport
from recado.actors.remote.events import LinkLost, LinkRestored
from recado.client import Connection
from tests.actors.remote.running import in_a_loop
from tests.client.faulty import faulty_wire
from tests.feeds.io.loop import until

from .ends import end, frame


def restarts(transport: AmqpTransport) -> dict[str, tuple[int, int]]:
    """By class: the actor's uid, and how often it was restarted."""
    found = {}
    for cell in transport.registry.cells():
        if isinstance(cell.actor, BridgeActor):
            found[type(cell.actor).__name__] = (cell.ref.address.uid, cell.restarts)
    return found


@in_a_loop
async def test_who_supervises_whom() -> None:
    async with recado.Broker() as broker, end(broker.url, "server") as server:
        registry = server.transport.registry
        (top,) = registry.by_class(ConnectionSupervisor)
        (connection,) = registry.by_class(ConnectionActor)
        above = {cell.ref: cell.supervisor for cell in registry.cells()}
        assert above.pop(top) is None
        assert above.pop(connection) == top
        assert set(above.values()) == {connection}
        assert len(above) == 2


@in_a_loop
async def test_a_channel_that_ends_alone_is_restarted_alone() -> None:
    async with recado.Broker() as broker, end(broker.url, "server") as server:
        before = restarts(server.transport)
        async with await Connection.open(broker.url) as connection:
            channel = await connection.channel()
            await channel.delete_queue("actor.queue.in.server")
            await until(lambda: [type(each) for each in server.told] == [LinkLost, LinkRestored])
        (reader,) = server.transport.registry.by_class(ReadChannelActor)
        after = restarts(server.transport)
        assert after.pop("ReadChannelActor") == (reader.address.uid, 1)
        assert before.pop("ReadChannelActor") == (reader.address.uid, 0)
        assert after == before


@in_a_loop
async def test_a_connection_that_ends_is_restarted_with_new_channels() -> None:
    sharing = ConnectionSharing.PER_CHANNEL
    async with (
        recado.Broker() as broker,
        faulty_wire(int(broker.url.rpartition(":")[2].partition("/")[0])) as wire,
        end(wire.address, "server", server_sharing=sharing) as server,
        end(broker.url, "client") as client,
    ):
        before = restarts(server.transport)
        assert {count for _, count in before.values()} == {0}
        client.transport.connect("server").post(frame(1))
        await server.until(lambda: server.frames == [frame(1)])
        wire.cut()
        await server.until(lambda: server.events == ["lost", "healed"])
        after = restarts(server.transport)
        assert set(after) == set(before)
        for name, (uid, count) in after.items():
            if name == "ConnectionActor":
                assert (uid, count) == (before[name][0], 1)
            else:
                assert uid != before[name][0]
                assert count == 0
