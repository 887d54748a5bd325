"""The two programs of a run: the exchange and the clients. Each reports its progress as *facts*: JSON
objects, one per line of standard output, which `benchmark.py` reads.

exchange   {"listening": "127.0.0.1:41531"}      over AMQP: null, because nodes on a broker have no address
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

import recado.feeds
from recado.actors import ActorSystem
from recado.actors.remote import (
    AmqpSettings,
    AmqpTransport,
    ConnectionSharing,
    RemoteOptions,
    Storage,
    TcpTransport,
)

from .clients import ClientGroup, ClientsOutcome, report_progress
from .exchange import NODE_NAME, RECEPTIONIST_NAME, Receptionist
from .figures import TransportKind
from .measurement import ASK_KEY, FEED_NAME, RUN_KEY, AskTiming, RunSummary, encode

CLIENTS_NODE_NAME: Final = "clients"
DEFAULT_LISTEN_URL: Final = "tcp://127.0.0.1:0"
DEFAULT_BROKER_URL: Final = "amqp://guest:guest@localhost"
PROGRESS_INTERVAL_S: Final = 0.5

REMOTE_OPTIONS: Final = RemoteOptions(serializer="json")

EmitFact = Callable[[dict[str, object]], None]


class WaitForShutdown(Protocol):
    async def __call__(self) -> None: ...


BROKER_TIMEOUT_S: Final = 10.0
"""A run fails if its broker cannot be reached for this long."""


def amqp_transport(url: str | None, *, serve: bool) -> AmqpTransport:
    """Return a transport with durable queues, transient messages and a connection per channel, as in the
    dissertation."""
    settings = AmqpSettings(
        storage=Storage.DURABLE,
        persistent=False,
        server_sharing=ConnectionSharing.PER_CHANNEL,
        client_sharing=ConnectionSharing.PER_CHANNEL,
        server_bridge=serve,
        reconnect_timeout=BROKER_TIMEOUT_S,
    )
    return AmqpTransport(url or DEFAULT_BROKER_URL, settings)


def authority(url: str) -> str:
    return urlsplit(url).netloc


async def serve_exchange(
    transport: TransportKind, url: str | None, emit: EmitFact, wait_for_shutdown: WaitForShutdown
) -> None:
    """Run the exchange until `wait_for_shutdown` returns."""
    network: TcpTransport | AmqpTransport
    match transport:
        case TransportKind.TCP:
            network = TcpTransport(authority(url or DEFAULT_LISTEN_URL))
        case TransportKind.AMQP:
            network = amqp_transport(url, serve=True)
    async with ActorSystem(NODE_NAME, transport=network, options=REMOTE_OPTIONS) as system:
        await system.spawn(Receptionist, name=RECEPTIONIST_NAME)
        address = "{}:{}".format(*network.address) if isinstance(network, TcpTransport) else None
        emit({"listening": address})
        await wait_for_shutdown()


@dataclass(frozen=True)
class ClientsTask:
    """The task of the clients. Without a `run` name there is no benchmark process, and the clients publish the
    record of the run, too."""

    transport: TransportKind
    url: str | None
    clients: int
    asks: int
    feed_url: str | None
    run: str | None = None
    broker: str | None = None
    latency_us: int = 0


async def run_clients(task: ClientsTask, emit: EmitFact) -> None:
    """Send all asks of a run, then publish their timings on the feed."""
    name = task.run or uuid.uuid4().hex[:12]
    network: TcpTransport | AmqpTransport
    match task.transport:
        case TransportKind.TCP:
            network = TcpTransport(nodes={NODE_NAME: authority(task.url or "")})
        case TransportKind.AMQP:
            network = amqp_transport(task.url, serve=False)
    async with ActorSystem(CLIENTS_NODE_NAME, transport=network, options=REMOTE_OPTIONS) as system:
        clients = ClientGroup(system, name, task.clients)
        await clients.prepare()
        emit({"begun": True})
        async with emit_progress(clients, emit):
            outcome = await clients.run(task.asks)
        emit(outcome_fact(outcome))
    if task.feed_url is not None:
        run = None if task.run else create_run_summary(task, name, outcome)
        emit(await publish(outcome.asks, run, task.feed_url))


def create_run_summary(task: ClientsTask, name: str, outcome: ClientsOutcome) -> RunSummary:
    """Create the record of a run from the data of its clients."""
    return RunSummary(
        run=name,
        transport=task.transport,
        broker=task.broker,
        latency_us=task.latency_us,
        clients=task.clients,
        asks=task.asks,
        at=round(time() * 1e6),
        traded=outcome.totals.traded,
        processor={"clients": round(outcome.cpu_seconds, 3)},
    )


def outcome_fact(outcome: ClientsOutcome) -> dict[str, object]:
    return {"done": True, "processor": outcome.cpu_seconds, "traded": outcome.totals.traded}


@asynccontextmanager
async def emit_progress(clients: ClientGroup, emit: EmitFact) -> AsyncIterator[None]:
    task = asyncio.create_task(
        report_progress(clients, lambda count: emit({"asked": count}), PROGRESS_INTERVAL_S)
    )
    try:
        yield
    finally:
        task.cancel()


async def publish(
    asked: Sequence[AskTiming], run: RunSummary | None, url: str
) -> dict[str, object]:
    async with recado.feeds.connect(url) as link:
        feed = link.feed(FEED_NAME)
        await feed.publish_many([encode(each) for each in asked], keys=ASK_KEY)
        if run is not None:
            await feed.publish(encode(run), key=RUN_KEY)
        await feed.flush()
        return {"published": feed.last_sequence, "publisher": feed.publisher.hex()}
