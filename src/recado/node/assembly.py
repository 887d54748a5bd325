"""The assembly: a configuration becomes a broker that listens.

This is the one place that knows all the parts. It decides nothing: every choice is in the settings.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import msgspec

from recado import __version__
from recado.amqp.values import FieldTable
from recado.broker.broker import Broker
from recado.node.bootstrap import populate
from recado.node.settings import ServerSettings, Settings
from recado.server.connection import now_ms
from recado.server.open_files import raise_file_limit
from recado.server.options import ConnectionOptions, ServerLimits
from recado.server.server import Server

if TYPE_CHECKING:
    from ssl import SSLContext

    from recado.node.archives import NodeArchives
    from recado.node.data_folder import DataFolder
    from recado.node.metrics import MetricsPublisher


class RunningNode(msgspec.Struct, frozen=True):
    """A broker that accepts connections, in the event loop that started it."""

    server: Server
    port: int
    tls_port: int | None
    data_folder: DataFolder | None
    archives: NodeArchives | None = None
    metrics: MetricsPublisher | None = None

    async def stop(self) -> None:
        if self.metrics is not None:
            await self.metrics.stop()
        if self.archives is not None:
            await self.archives.stop()
        await self.server.stop()
        if self.data_folder is not None:
            self.data_folder.release()


class ListenError(OSError):
    """The system does not give us a port; `key` is the setting that names it."""

    def __init__(self, key: str, host: str, port: int, cause: OSError) -> None:
        # The loop's own text has the address again, as a tuple.
        number = cause.errno or 0
        super().__init__(number, os.strerror(number) if number > 0 else cause.strerror)
        self.key = key
        self.host = host
        self.port = port

    def __str__(self) -> str:
        return f"cannot listen on {format_address(self.host, self.port)} (server.{self.key}): {self.strerror}"


async def start_node(settings: Settings) -> RunningNode:
    """Build the parts and listen; whatever prevents that is raised, and nothing is left open."""
    raise_file_limit()
    tls = build_tls_context(settings.server)
    storage = open_data_folder(settings)
    try:
        server = Server(
            build_broker(settings, storage), connection_options(settings), server_limits(settings)
        )
        if storage is not None:
            storage.attach(server, settings.broker.disk_free_min_bytes)
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
    return RunningNode(server, port, tls_port, storage, archives, metrics)


async def start_archives(settings: Settings, port: int) -> NodeArchives | None:
    """Those of the configuration. A node without any need not load feeds."""
    if not settings.feeds.archives:
        return None
    from recado.node.archives import NodeArchives

    return await NodeArchives.start(
        settings, format_address(connectable_host(settings.server.host), port)
    )


async def start_metrics(
    settings: Settings, port: int, server: Server, storage: DataFolder | None
) -> MetricsPublisher | None:
    if not settings.metrics.publish:
        return None
    from recado.node.metrics import MetricsPublisher

    address = format_address(connectable_host(settings.server.host), port)
    return await MetricsPublisher.start(settings, address, server, storage)


# Addresses to listen on that are none to connect to, and the one of theirs that lets guest in.
LOOPBACK_BY_WILDCARD = {"0.0.0.0": "127.0.0.1", "::": "::1"}


def connectable_host(host: str) -> str:
    return LOOPBACK_BY_WILDCARD.get(host, host)


def open_data_folder(settings: Settings) -> DataFolder | None:
    """The data folder, if there is one. Who keeps nothing need not load what can."""
    if settings.node.data is None:
        return None
    from recado.node.data_folder import DataFolder

    return DataFolder(settings.node.data)


def build_broker(settings: Settings, data_folder: DataFolder | None) -> Broker:
    """A broker with all that is in it before anybody connects."""
    now = now_ms()
    vhosts = settings.access.vhosts
    keeper = None if data_folder is None else data_folder.store
    broker = Broker(generate_name, vhosts, keeper)
    if data_folder is not None:
        data_folder.recover(broker, now)
    populate(broker, settings, now)
    broker.consumer_timeouts.default_ms = round(settings.broker.consumer_timeout * 1000)
    return broker


def generate_name() -> str:
    """That nobody can guess; not by `secrets`, which takes 4 ms to load."""
    return os.urandom(16).hex()


async def listen(
    server: Server, chosen: ServerSettings, key: str, tls: SSLContext | None = None
) -> int:
    port: int = getattr(chosen, key)
    try:
        return await server.listen(chosen.host, port, tls)
    except OSError as error:
        raise ListenError(key, chosen.host, port, error) from error


def format_address(host: str, port: int) -> str:
    """Host and port as an URL has them."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def build_tls_context(chosen: ServerSettings) -> SSLContext | None:
    if chosen.tls_port is None:
        return None
    from recado.node.tls import check_tls_files
    from recado.server.tls import server_context

    assert chosen.certificate is not None
    assert chosen.key is not None
    check_tls_files(chosen.certificate, chosen.key, chosen.ca)
    return server_context(chosen.certificate, chosen.key, chosen.ca, verify=chosen.verify)


def connection_options(settings: Settings) -> ConnectionOptions:
    server = settings.server
    properties: FieldTable = {
        "product": server.product,
        "version": server.version,
        "platform": f"Python {sys.version.split()[0]}",
        "information": f"recado {__version__}",
        "cluster_name": "recado",
    }
    return ConnectionOptions(
        product_properties=properties,
        frame_max=server.frame_max,
        channel_max=server.channel_max,
        heartbeat=server.heartbeat,
        body_max_bytes=settings.broker.max_message_bytes,
    )


def server_limits(settings: Settings) -> ServerLimits:
    return ServerLimits(
        handshake_timeout=settings.server.handshake_timeout,
        max_connections=settings.server.max_connections,
        memory_watermark=settings.broker.memory_watermark,
        unread_max_bytes=settings.broker.unread_max_bytes,
        unread_timeout=settings.broker.unread_timeout,
    )
