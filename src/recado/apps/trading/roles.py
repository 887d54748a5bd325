"""The two programs of a run: the exchange, and the clients. What happens they tell as facts, to be written.

exchange   {"listening": "127.0.0.1:41531"}      over AMQP: null, for there it has a name and no address
clients    {"begun": true}  {"asked": 12000} …  {"done": true, "processor": 7.1, "traded": 15000000}
           {"published": 30000, "publisher": "…"}
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from time import time
from typing import Final, Protocol
from urllib.parse import urlsplit

import recado
from recado.actors import ActorSystem
from recado.actors.remote import Amqp, AmqpSettings, Options, Sharing, Storage, Tcp

from .clients import Outcome, Trading, telling
from .exchange import NODE, RECEPTIONIST, Receptionist
from .figures import Transport
from .measurement import ASKED, FEED, RUN, Asked, Run, encode

CLIENTS_NODE: Final = "clients"
ANYWHERE: Final = "tcp://127.0.0.1:0"
BROKER: Final = "amqp://guest:guest@localhost"
TOLD_SECONDS: Final = 0.5

OPTIONS: Final = Options(serialiser="json", client_id=CLIENTS_NODE)

Say = Callable[[dict[str, object]], None]


class Until(Protocol):
    async def __call__(self) -> None: ...


BROKER_TIMEOUT_S: Final = 10.0
"""A measurement without its broker ends instead of waiting."""


def amqp(url: str | None, *, serve: bool) -> Amqp:
    """Durable objects, transient messages, a connection for each channel: as in the dissertation."""
    settings = AmqpSettings(
        storage=Storage.DURABLE,
        persistent=False,
        server_sharing=Sharing.PER_CHANNEL,
        client_sharing=Sharing.PER_CHANNEL,
        serve=serve,
        give_up=BROKER_TIMEOUT_S,
    )
    return Amqp(url or BROKER, settings)


def authority(url: str) -> str:
    return urlsplit(url).netloc


async def serve_exchange(transport: Transport, url: str | None, say: Say, until: Until) -> None:
    """The exchange, until then."""
    way: Tcp | Amqp
    match transport:
        case Transport.TCP:
            way = Tcp(authority(url or ANYWHERE))
        case Transport.AMQP:
            way = amqp(url, serve=True)
    async with ActorSystem(NODE, transport=way, options=OPTIONS) as system:
        await system.spawn(Receptionist, name=RECEPTIONIST)
        address = "{}:{}".format(*way.address) if isinstance(way, Tcp) else None
        say({"listening": address})
        await until()


@dataclass(frozen=True)
class Trade:
    """What clients are to do. Of a run without a name nobody else knows: then they publish that it was, too."""

    transport: Transport
    url: str | None
    clients: int
    asks: int
    feed_url: str | None
    run: str | None = None
    broker: str | None = None
    latency_us: int = 0


async def trade(wanted: Trade, say: Say) -> None:
    """All asks of a run, and then every one of them on the feed."""
    name = wanted.run or uuid.uuid4().hex[:12]
    way: Tcp | Amqp
    match wanted.transport:
        case Transport.TCP:
            way = Tcp(nodes={NODE: authority(wanted.url or "")})
        case Transport.AMQP:
            way = amqp(wanted.url, serve=False)
    async with ActorSystem(CLIENTS_NODE, transport=way, options=OPTIONS) as system:
        trading = Trading(system, name, wanted.clients)
        await trading.prepare()
        say({"begun": True})
        async with progress(trading, say):
            outcome = await trading.trade(wanted.asks)
        say(done(outcome))
    if wanted.feed_url is not None:
        alone = None if wanted.run else run_of(wanted, name, outcome)
        say(await publish(outcome.asked, alone, wanted.feed_url))


def run_of(wanted: Trade, name: str, outcome: Outcome) -> Run:
    """A run, as its clients know it."""
    return Run(
        run=name,
        transport=wanted.transport,
        broker=wanted.broker,
        latency_us=wanted.latency_us,
        clients=wanted.clients,
        asks=wanted.asks,
        at=round(time() * 1e6),
        traded=outcome.totals.traded,
        processor={"clients": round(outcome.processor, 3)},
    )


def done(outcome: Outcome) -> dict[str, object]:
    return {"done": True, "processor": outcome.processor, "traded": outcome.totals.traded}


@asynccontextmanager
async def progress(trading: Trading, say: Say) -> AsyncIterator[None]:
    task = asyncio.create_task(telling(trading, lambda count: say({"asked": count}), TOLD_SECONDS))
    try:
        yield
    finally:
        task.cancel()


async def publish(asked: Sequence[Asked], run: Run | None, url: str) -> dict[str, object]:
    async with recado.connect(url) as link:
        feed = await link.feed(FEED)
        await feed.publish_many([encode(each) for each in asked], keys=ASKED)
        if run is not None:
            await feed.publish(encode(run), key=RUN)
        await feed.flush()
        return {"published": feed.published, "publisher": feed.publisher.hex()}
