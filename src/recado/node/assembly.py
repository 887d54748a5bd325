"""The assembly: a configuration becomes a broker that listens.

This is the one place that knows all the parts. It decides nothing: every choice is in the settings.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import msgspec

from recado import __version__
from recado.amqp.values import Table
from recado.broker.broker import Broker
from recado.node.population import populate
from recado.node.settings import ServerSettings, Settings
from recado.server.connection import clock
from recado.server.listener import Server, ServerLimits
from recado.server.offer import Offer
from recado.server.open_files import raise_limit

if TYPE_CHECKING:
    from ssl import SSLContext

    from recado.node.archives import Archives
    from recado.node.metrics import Metrics
    from recado.node.storage import Storage


class Running(msgspec.Struct, frozen=True):
    """A broker that accepts connections, in the event loop that started it."""

    server: Server
    port: int
    tls_port: int | None
    storage: Storage | None
    archives: Archives | None = None
    metrics: Metrics | None = None

    async def stop(self) -> None:
        if self.metrics is not None:
            await self.metrics.stop()
        if self.archives is not None:
            await self.archives.stop()
        await self.server.stop()
        if self.storage is not None:
            self.storage.release()


class CannotListen(OSError):
    """The system does not give us a port; `key` is the setting that names it."""

    def __init__(self, key: str, host: str, port: int, cause: OSError) -> None:
        # The loop's own text has the address again, as a tuple.
        number = cause.errno or 0
        super().__init__(number, os.strerror(number) if number > 0 else cause.strerror)
        self.key = key
        self.host = host
        self.port = port

    def __str__(self) -> str:
        return f"cannot listen on {at(self.host, self.port)} (server.{self.key}): {self.strerror}"


async def start(settings: Settings) -> Running:
    """Build the parts and listen; whatever prevents that is raised, and nothing is left open."""
    raise_limit()
    tls = tls_context(settings.server)
    storage = open_storage(settings)
    try:
        server = Server(populated(settings, storage), offer(settings), limits(settings))
        if storage is not None:
            storage.serve(server, settings.broker.disk_free_limit)
        try:
            port = await listen(server, settings.server, "port")
            tls_port = await listen(server, settings.server, "tls_port", tls) if tls else None
            archives = await start_archives(settings, port)
            try:
                metrics = await start_metrics(settings, port, server, storage)
            except BaseException:
                if archives is not None:
                    await archives.stop()
                raise
        except BaseException:
            await server.stop()
            raise
    except BaseException:
        if storage is not None:
            storage.release()
        raise
    return Running(server, port, tls_port, storage, archives, metrics)


async def start_archives(settings: Settings, port: int) -> Archives | None:
    """Those of the configuration. A node without any need not load feeds."""
    if not settings.feeds.archives:
        return None
    from recado.node.archives import Archives

    return await Archives.start(settings, at(reachable(settings.server.host), port))


async def start_metrics(
    settings: Settings, port: int, server: Server, storage: Storage | None
) -> Metrics | None:
    if not settings.metrics.publish:
        return None
    from recado.node.metrics import Metrics

    address = at(reachable(settings.server.host), port)
    return await Metrics.start(settings, address, server, storage)


# Addresses to listen on that are none to connect to, and the one of theirs that lets guest in.
EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}


def reachable(host: str) -> str:
    return EVERYWHERE.get(host, host)


def open_storage(settings: Settings) -> Storage | None:
    """The data folder, if there is one. Who keeps nothing need not load what can."""
    if settings.node.data is None:
        return None
    from recado.node.storage import Storage

    return Storage(settings.node.data)


def populated(settings: Settings, storage: Storage | None) -> Broker:
    """A broker with all that is in it before anybody connects."""
    now = clock()
    vhosts = settings.access.vhosts
    keeper = None if storage is None else storage.ledger
    broker = Broker(random_name, vhosts, keeper)
    if storage is not None:
        storage.recover(broker, now)
    populate(broker, settings, now)
    broker.timeouts.default = round(settings.broker.consumer_timeout * 1000)
    return broker


def random_name() -> str:
    """That nobody can guess; not by `secrets`, which takes 4 ms to load."""
    return os.urandom(16).hex()


async def listen(
    server: Server, chosen: ServerSettings, key: str, tls: SSLContext | None = None
) -> int:
    port: int = getattr(chosen, key)
    try:
        return await server.listen(chosen.host, port, tls)
    except OSError as error:
        raise CannotListen(key, chosen.host, port, error) from error


def at(host: str, port: int) -> str:
    """Host and port as an URL has them."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def tls_context(chosen: ServerSettings) -> SSLContext | None:
    if chosen.tls_port is None:
        return None
    from recado.node.certificates import check_files
    from recado.server.tls import server_context

    assert chosen.certificate is not None
    assert chosen.key is not None
    check_files(chosen.certificate, chosen.key, chosen.ca)
    return server_context(chosen.certificate, chosen.key, chosen.ca, verify=chosen.verify)


def offer(settings: Settings) -> Offer:
    server = settings.server
    properties: Table = {
        "product": server.product,
        "version": server.version,
        "platform": f"Python {sys.version.split()[0]}",
        "information": f"recado {__version__}",
        "cluster_name": "recado",
    }
    return Offer(
        properties=properties,
        frame_max=server.frame_max,
        channel_max=server.channel_max,
        heartbeat=server.heartbeat,
        body_max=settings.broker.max_message_size,
    )


def limits(settings: Settings) -> ServerLimits:
    return ServerLimits(
        handshake_seconds=settings.server.handshake_timeout,
        max_connections=settings.server.max_connections,
        memory_share=settings.broker.memory_watermark,
        backlog_bytes=settings.broker.backlog_limit,
        backlog_seconds=settings.broker.backlog_seconds,
    )
