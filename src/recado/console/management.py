"""Management of a running node: the HTTP API, its statistics, and their start and stop."""

from __future__ import annotations

import socket
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from recado.web import WebAssets

from .console import ArchiveSet, CertificateFiles, Console, DiskFolder, Listener
from .message_access import MessagePolicy
from .resources import (
    audit_log,
    compatibility,
    connections,
    dead_letters,
    definitions,
    events,
    feeds,
    health,
    logins,
    messages,
    openapi,
    overview,
    policies,
    prometheus,
    queue_operations,
    route_test,
    samples,
    session,
    snapshots,
    status,
    taps,
    topology,
    traces,
    unacked_messages,
    users,
    vhosts,
)
from .routes import API, METRICS
from .site import Site
from .status_collector import StatusCollector

if TYPE_CHECKING:
    import ssl

    from recado.server.server import Server

    from .identity_provider import IdentityProvider

WEB_FOLDER: Final = Path(__file__).parent / "web"
VENDORED: Final = ("hooks", "htm", "preact", "uplot")
RESOURCES = (
    audit_log,
    compatibility,
    connections,
    dead_letters,
    definitions,
    events,
    feeds,
    health,
    logins,
    messages,
    openapi,
    overview,
    policies,
    prometheus,
    queue_operations,
    route_test,
    status,
    samples,
    session,
    snapshots,
    taps,
    topology,
    traces,
    unacked_messages,
    users,
    vhosts,
)
"""The modules that register their routes when they are imported."""


class MetricsPortError(OSError):
    """The port for Prometheus cannot be bound."""


class Management:
    """The running HTTP API: its listening sites, the sampler and the probe of the event loop."""

    def __init__(
        self, console: Console, sites: list[Site], port: int, metrics_port: int | None
    ) -> None:
        self.console = console
        self.port = port
        self.metrics_port = metrics_port
        self._sites = sites

    @classmethod
    async def start(
        cls,
        server: Server,
        *,
        host: str,
        port: int,
        sockets: Sequence[socket.socket] = (),
        metrics_port: int | None = None,
        tls: ssl.SSLContext | None = None,
        amqp_ports: tuple[int, int | None] = (0, None),
        compatible_version: str = "3.13.7",
        data_folder: DiskFolder | None = None,
        disk_free_min_bytes: int = 0,
        loopback_users: Collection[str] = (),
        certificates: CertificateFiles | None = None,
        archives: ArchiveSet | None = None,
        collects_status: bool = False,
        path_prefix: str = "",
        message_policy: MessagePolicy | None = None,
        provider: IdentityProvider | None = None,
    ) -> Management:
        """Listen for HTTP, on `sockets` if they are given, and sample the counters.

        Raises `OSError` if a port cannot be bound, and `MetricsPortError` if it is that of the metrics.
        """
        console = Console(
            server,
            node_name=f"recado@{socket.gethostname()}",
            compatible_version=compatible_version,
            data_folder=data_folder,
            disk_free_min_bytes=disk_free_min_bytes,
            loopback_users=loopback_users,
            certificates=certificates,
            archives=archives,
            collector=StatusCollector(server) if collects_status else None,
            message_policy=message_policy,
            provider=provider,
        )
        sites = [
            Site(
                console,
                API,
                assets=WebAssets(WEB_FOLDER, vendored=VENDORED),
                path_prefix=path_prefix,
            )
        ]
        bound_port = await sites[0].listen(host, port, tls, sockets)
        bound_metrics_port = None
        if metrics_port is not None:
            sites.append(Site(console, METRICS))
            try:
                bound_metrics_port = await sites[1].listen(host, metrics_port)
            except OSError as error:
                await sites[0].close()
                raise MetricsPortError(error.errno, error.strerror) from error
            console.listeners.append(Listener("http/prometheus", host, bound_metrics_port))
        plain, secure = amqp_ports
        console.listeners.append(Listener("amqp", host, plain))
        if secure is not None:
            console.listeners.append(Listener("amqp/ssl", host, secure))
        console.listeners.append(Listener("https" if tls else "http", host, bound_port))
        console.sampler.start()
        console.loop_lag.start()
        if console.collector is not None:
            console.collector.start()
        console.history.start()
        return cls(console, sites, bound_port, bound_metrics_port)

    async def stop(self) -> None:
        await self.console.events.close()
        await self.console.imports.stop()
        if self.console.sign_in is not None:
            await self.console.sign_in.stop()
        self.console.snapshots.close()
        self.console.taps.close()
        self.console.traces.close()
        if self.console.collector is not None:
            await self.console.collector.stop()
        await self.console.sampler.stop()
        await self.console.loop_lag.stop()
        await self.console.history.stop()
        for site in self._sites:
            await site.close()
        self.console.slices.close()
