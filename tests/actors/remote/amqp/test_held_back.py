"""What waits for its actor while others are taken: a durable mailbox takes it for new, however much that is."""

from __future__ import annotations

import pytest

import recado
from recado.actors import ActorSystem
from recado.actors.durable.mailboxes import DurableMailboxes
from recado.actors.durable.settled import GAPS
from recado.actors.remote.amqp import Amqp, AmqpSettings
from recado.actors.remote.options import Options
from recado.simulator.disk import SimulatedDisk
from tests.actors.remote.running import in_a_loop
from tests.actors.remote.shop import Book, Log, Place

MANY = 5 * GAPS // 2


@pytest.mark.parametrize("prefetch", [0, GAPS + 1])
def test_no_more_is_unsettled_than_gaps_are_remembered(prefetch: int) -> None:
    with pytest.raises(ValueError, match="prefetch"):
        AmqpSettings(prefetch=prefetch)


@in_a_loop
async def test_every_other_message_is_for_one_who_comes_later() -> None:
    async with recado.Broker() as broker:
        async with ActorSystem("server", transport=Amqp(broker.url)):
            pass
        quiet = Amqp(broker.url, AmqpSettings(serve=False))
        async with ActorSystem("client", transport=quiet) as client:
            books = [client.actor(name, Book, node="server") for name in ("early", "late")]
            for number in range(MANY):
                books[number % 2].tell(Place(number))
        patient = Options(warm_up=20)
        async with ActorSystem("server", transport=Amqp(broker.url), options=patient) as server:
            boxes = DurableMailboxes(server, SimulatedDisk())
            early = await server.spawn(Book, name="early", mailbox=boxes.mailbox("early"))
            while len(await early.ask(Log())) < GAPS // 4:
                pass
            late = await server.spawn(Book, name="late", mailbox=boxes.mailbox("late"))
            for book, first in ((early, 0), (late, 1)):
                placed: list[int] = []
                while len(placed) < MANY // 2:
                    placed = await book.ask(Log())
                    assert placed == [*range(first, first + 2 * len(placed), 2)]
