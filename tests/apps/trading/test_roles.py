"""Exchange and clients as programs in one loop: over both transports, with what they say and publish."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import recado.feeds
from recado.actors import ActorError, ActorSystem
from recado.actors.remote import TcpTransport
from recado.apps.trading.book import InvalidOrderError
from recado.apps.trading.clients import TotalsMismatchError
from recado.apps.trading.exchange import NODE_NAME, RECEPTIONIST_NAME, Receptionist
from recado.apps.trading.figures import TransportKind
from recado.apps.trading.measurement import FEED_NAME
from recado.apps.trading.messages import BuyOrder, FindReceivers
from recado.apps.trading.results import load_complete_runs
from recado.apps.trading.roles import REMOTE_OPTIONS, ClientsTask, run_clients, serve_exchange
from workshop.time_limit import scale

TCP, AMQP = TransportKind.TCP, TransportKind.AMQP
SECONDS = 60


class Heard:
    """What a program says, as it comes."""

    def __init__(self) -> None:
        self.facts: list[dict[str, Any]] = []
        self.first = asyncio.Event()

    def __call__(self, fact: dict[str, object]) -> None:
        self.facts.append(fact)
        self.first.set()


async def session(
    transport: TransportKind, url: str | None, *trades: ClientsTask
) -> list[dict[str, Any]]:
    """An exchange, and one client program after the other; gives what these said."""
    exchange, clients, over = Heard(), Heard(), asyncio.Event()

    async def until() -> None:
        await over.wait()

    serving = asyncio.create_task(serve_exchange(transport, url, exchange, until))
    listening = asyncio.create_task(exchange.first.wait())
    await asyncio.wait((serving, listening), return_when=asyncio.FIRST_COMPLETED)
    try:
        for each in trades:
            address = exchange.facts[0]["listening"]
            there = url if address is None else f"tcp://{address}"
            await run_clients(replace_url(each, there), clients)
    finally:
        over.set()
        listening.cancel()
        await serving
    return clients.facts


def replace_url(wanted: ClientsTask, url: str | None) -> ClientsTask:
    rest = (wanted.clients, wanted.asks, wanted.feed_url, wanted.run, wanted.broker)
    return ClientsTask(wanted.transport, url, *rest, wanted.latency_us)


def run(transport: TransportKind, url: str | None, *trades: ClientsTask) -> list[dict[str, Any]]:
    return asyncio.run(asyncio.wait_for(session(transport, url, *trades), scale(SECONDS)))


def test_point_to_point() -> None:
    begun, done = run(TCP, None, ClientsTask(TCP, None, 2, 60, None))
    assert begun == {"begun": True}
    assert (done["done"], done["traded"]) == (True, 30_000)
    assert done["processor"] > 0


def test_by_hand_the_clients_publish_the_run_as_well(
    recado_broker: recado.Broker, tmp_path: Path
) -> None:
    url = recado_broker.url

    async def work() -> list[dict[str, Any]]:
        async with recado.feeds.connect(url) as link, link.archive(FEED_NAME, tmp_path) as archive:
            by_hand = ClientsTask(AMQP, url, 3, 90, url, broker="mine", latency_us=1670)
            facts = await session(AMQP, url, by_hand)
            publisher = bytes.fromhex(facts[-1]["publisher"])
            while archive.vector.last_of(publisher) < facts[-1]["published"]:  # noqa: ASYNC110 - it tells its feed
                await asyncio.sleep(0.01)
            return facts

    *_, published = asyncio.run(asyncio.wait_for(work(), scale(SECONDS)))
    assert published["published"] == 91
    (found,) = load_complete_runs(tmp_path)
    assert (found.run.clients, found.run.asks, found.run.traded) == (3, 90, 45_000)
    assert (found.run.broker, found.run.latency_us) == ("mine", 1670)
    assert set(found.run.processor) == {"clients"}


def test_orders_of_others_are_noticed() -> None:
    """Two runs on one exchange: its account of the second is not that of its clients alone."""
    wanted = ClientsTask(TCP, None, 1, 30, None)
    with pytest.raises(TotalsMismatchError):
        run(TCP, None, wanted, wanted)


def test_a_mistake_of_a_client_is_told_on_its_node() -> None:
    async def work() -> None:
        here, over = Heard(), asyncio.Event()

        async def until() -> None:
            await over.wait()

        serving = asyncio.create_task(serve_exchange(TCP, None, here, until))
        await here.first.wait()
        way = TcpTransport(nodes={NODE_NAME: here.facts[0]["listening"]})
        async with ActorSystem("elsewhere", transport=way, options=REMOTE_OPTIONS) as system:
            receptionist = system.actor(RECEPTIONIST_NAME, Receptionist, node=NODE_NAME)
            found = await receptionist.ask(FindReceivers(), SECONDS)
            with pytest.raises(InvalidOrderError, match="share 'Z9' is not traded here"):
                await found.receivers[0].ask(BuyOrder("Z9", 1, 1), SECONDS)
        over.set()
        await serving

    asyncio.run(asyncio.wait_for(work(), scale(SECONDS)))


def test_an_exchange_that_is_not_there(recado_broker: recado.Broker) -> None:
    wanted = ClientsTask(AMQP, recado_broker.url, 1, 30, None)
    with pytest.raises(ActorError):
        asyncio.run(asyncio.wait_for(run_clients(wanted, Heard()), scale(SECONDS)))
