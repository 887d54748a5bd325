"""The assembly: builds a running node from its settings.

This is the only module that knows all parts. It makes no decisions: every choice is in the settings.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from recado import __version__
from recado.amqp.values import FieldTable
from recado.broker.broker import Broker
from recado.node.address import connectable_host, format_address
from recado.node.bootstrap import populate
from recado.node.config import ConfigError
from recado.node.settings import OAuthSettings, ServerSettings, Settings
from recado.server.certificate_login import CertificateLogin
from recado.server.connection import now_ms
from recado.server.open_files import raise_file_limit
from recado.server.options import ConnectionOptions, ServerLimits
from recado.server.server import Server

if TYPE_CHECKING:
    from ssl import SSLContext

    from recado.console.identity_provider import IdentityProvider
    from recado.console.management import Management
    from recado.node.archives import NodeArchives
    from recado.node.certificates import Certificates
    from recado.node.data_folder import DataFolder
    from recado.node.metrics import MetricsPublisher
    from recado.node.startup_probe import StartupProbe
    from recado.server.oauth.verifier import TokenVerifier


class RunningNode(msgspec.Struct, frozen=True):
    """A node that accepts connections, in the event loop that started it."""

    server: Server
    port: int
    tls_port: int | None
    data_folder: DataFolder | None
    archives: NodeArchives | None = None
    metrics: MetricsPublisher | None = None
    management: Management | None = None
    certificates: Certificates | None = None
    tokens: TokenVerifier | None = None

    async def stop(self) -> None:
        if self.certificates is not None:
            await self.certificates.stop()
        if self.tokens is not None:
            await self.tokens.keys.stop()
        if self.management is not None:
            await self.management.stop()
        if self.metrics is not None:
            await self.metrics.stop()
        if self.archives is not None:
            await self.archives.stop()
        await self.server.stop()
        if self.data_folder is not None:
            self.data_folder.release()


class ListenError(OSError):
    """The address cannot be bound; `key` is the setting with the port."""

    def __init__(self, key: str, host: str, port: int, cause: OSError) -> None:
        # Use the system's text: that of asyncio also has the address, which `__str__` adds.
        code = cause.errno or 0
        super().__init__(code, os.strerror(code) if code > 0 else cause.strerror)
        self.key = key
        self.host = host
        self.port = port

    def __str__(self) -> str:
        address = format_address(self.host, self.port)
        return f"cannot listen on {address} ({self.key}): {self.strerror}"


async def start_node(settings: Settings) -> RunningNode:
    """Build all parts and listen. If one fails, the others are closed.

    Raises `ConfigError`, `ListenError`, `FolderInUseError`, `CorruptJournalError`, `UnknownFormatError`,
    `ArchiveStartError` or `MetricsStartError`.
    """
    raise_file_limit()
    certificates = load_certificates(settings)
    tokens = build_token_verifier(settings.oauth)
    data_folder = open_data_folder(settings)
    probe: StartupProbe | None = None
    try:
        probe = start_probe(settings, certificates)
        broker = build_broker(settings, data_folder)
        server = Server(broker, connection_options(settings), server_limits(settings))
        if tokens is not None:
            from recado.server.oauth.login import TokenLogin

            server.authenticator.tokens = TokenLogin(server, tokens)
        if data_folder is not None:
            data_folder.attach(server, settings.broker.disk_free_min_bytes)
        try:
            port = await listen(server, settings.server, "port")
            tls_port = None
            if certificates is not None and settings.server.tls_port is not None:
                tls_port = await listen(server, settings.server, "tls_port", certificates.amqps)
            archives = await start_archives(settings, port)
            metrics = None
            try:
                metrics = await start_metrics(settings, port, server, data_folder)
                management = await start_management(
                    settings, server, data_folder, certificates, (port, tls_port), archives, probe
                )
            except BaseException:
                if metrics is not None:
                    await metrics.stop()
                if archives is not None:
                    await archives.stop()
                raise
        except BaseException:
            await server.stop()
            raise
    except BaseException:
        if probe is not None:
            probe.close()
        if data_folder is not None:
            data_folder.release()
        raise
    if certificates is not None:
        certificates.start()
    if tokens is not None:
        tokens.keys.start()
    return RunningNode(
        server, port, tls_port, data_folder, archives, metrics, management, certificates, tokens
    )


def start_probe(settings: Settings, certificates: Certificates | None) -> StartupProbe | None:
    """Answer probes of the HTTP API while the data folder is recovered, if there are both."""
    chosen = settings.management
    if chosen.port is None or settings.node.data is None:
        return None
    from recado.node.startup_probe import StartupProbe

    host = chosen.host or settings.server.host
    # Threads use the context as it was loaded: new certificates are not looked for during recovery.
    tls = certificates.https.loaded if certificates is not None and chosen.tls else None
    try:
        probe = StartupProbe(host, chosen.port, tls, chosen.path_prefix or "")
    except OSError as error:
        raise ListenError("management.port", host, chosen.port, error) from error
    probe.start()
    return probe


async def start_archives(settings: Settings, port: int) -> NodeArchives | None:
    """Start the configured archives. A node without any does not import feeds."""
    if not settings.feeds.archives:
        return None
    from recado.node.archives import NodeArchives

    return await NodeArchives.start(
        settings, format_address(connectable_host(settings.server.host), port)
    )


async def start_metrics(
    settings: Settings, port: int, server: Server, data_folder: DataFolder | None
) -> MetricsPublisher | None:
    if not settings.metrics.publish:
        return None
    from recado.node.metrics import MetricsPublisher

    address = format_address(connectable_host(settings.server.host), port)
    return await MetricsPublisher.start(settings, address, server, data_folder)


async def start_management(
    settings: Settings,
    server: Server,
    data_folder: DataFolder | None,
    certificates: Certificates | None,
    ports: tuple[int, int | None],
    archives: NodeArchives | None,
    probe: StartupProbe | None,
) -> Management | None:
    """Start the HTTP API, if it is configured. Raises `ConfigError` without the extra, and `ListenError`."""
    chosen = settings.management
    if chosen.port is None:
        return None
    try:
        from recado.console.management import Management, MetricsPortError
        from recado.console.masked_fields import MaskedFields
        from recado.console.message_access import MessagePolicy
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"management.port needs the extra 'console' ({error.name} is missing):"
            " pip install 'recado[console]'"
        ) from error
    host = chosen.host or settings.server.host
    try:
        return await Management.start(
            server,
            host=host,
            port=chosen.port,
            sockets=probe.take_sockets() if probe is not None else (),
            metrics_port=chosen.metrics_port,
            compatible_version=settings.server.version,
            tls=certificates.https if certificates is not None and chosen.tls else None,
            certificates=certificates,
            amqp_ports=ports,
            data_folder=data_folder,
            disk_free_min_bytes=settings.broker.disk_free_min_bytes,
            loopback_users=settings.access.loopback_users,
            archives=archives,
            collects_status=chosen.status,
            path_prefix=chosen.path_prefix or "",
            message_policy=MessagePolicy(
                MaskedFields(chosen.masked_fields),
                body_tag=chosen.body_tag,
                reveal_tag=chosen.reveal_tag,
            ),
            provider=build_identity_provider(settings.oauth),
        )
    except MetricsPortError as error:
        port = chosen.metrics_port or 0
        raise ListenError("management.metrics_port", host, port, error) from error
    except OSError as error:
        raise ListenError("management.port", host, chosen.port, error) from error


def open_data_folder(settings: Settings) -> DataFolder | None:
    """Open and lock the data folder, if one is configured. A node without one does not import the store."""
    if settings.node.data is None:
        return None
    from recado.node.data_folder import DataFolder

    return DataFolder(settings.node.data)


def build_broker(settings: Settings, data_folder: DataFolder | None) -> Broker:
    """Return a broker with recovered messages and configured users, before any client connects."""
    now = now_ms()
    vhosts = settings.access.vhosts
    store = None if data_folder is None else data_folder.store
    broker = Broker(generate_name, vhosts, store)
    if data_folder is not None:
        data_folder.recover(broker, now)
    populate(broker, settings, now)
    broker.consumer_timeouts.default_ms = round(settings.broker.consumer_timeout * 1000)
    return broker


def generate_name() -> str:
    """Return a random name that cannot be guessed. `secrets` would take 4 ms to import."""
    return os.urandom(16).hex()


async def listen(
    server: Server, settings: ServerSettings, key: str, tls: SSLContext | None = None
) -> int:
    port: int = getattr(settings, key)
    try:
        return await server.listen(settings.host, port, tls)
    except OSError as error:
        raise ListenError(f"server.{key}", settings.host, port, error) from error


def load_certificates(settings: Settings) -> Certificates | None:
    """Return the certificates of the TLS listeners, None if there are no such listeners.

    Raises `ConfigError` for files that cannot be used.
    """
    if not settings.uses_tls:
        return None
    from recado.node.certificates import Certificates

    return Certificates(settings.server)


def build_token_verifier(settings: OAuthSettings) -> TokenVerifier | None:
    """Return the check of OAuth 2 tokens, None if they are not configured.

    Raises `ConfigError` without the extra, or for a file that cannot be used.
    """
    if settings.resource_server_id is None:
        return None
    try:
        from recado.node.oauth import build_verifier
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"oauth.resource_server_id needs the extra 'oauth' ({error.name} is missing):"
            " pip install 'recado[oauth]'"
        ) from error
    return build_verifier(settings)


def build_identity_provider(settings: OAuthSettings) -> IdentityProvider | None:
    """Return the provider at which users of the console sign in, None if there is none."""
    if settings.client_id is None:
        return None
    from recado.console.identity_provider import IdentityProvider, SignInSettings

    assert settings.issuer is not None
    return IdentityProvider(
        SignInSettings(
            issuer=settings.issuer,
            client_id=settings.client_id,
            client_secret=settings.client_secret,
            scopes=settings.sign_in_scopes,
            parameters=settings.sign_in_parameters,
            ca=settings.ca,
        )
    )


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
        certificate_login=certificate_login(server),
    )


def certificate_login(settings: ServerSettings) -> CertificateLogin | None:
    if settings.certificate_login_from is None:
        return None
    return CertificateLogin(
        settings.certificate_login_from,
        settings.certificate_login_san_type,
        settings.certificate_login_san_index,
    )


def server_limits(settings: Settings) -> ServerLimits:
    return ServerLimits(
        handshake_timeout=settings.server.handshake_timeout,
        max_connections=settings.server.max_connections,
        memory_watermark=settings.broker.memory_watermark,
        unread_max_bytes=settings.broker.unread_max_bytes,
        unread_timeout=settings.broker.unread_timeout,
    )


@contextmanager
def open_offline_broker(settings: Settings) -> Iterator[Broker]:
    """A context with the broker of a data folder on which no node runs, for commands that read or change it.

    Changes are stored when the context ends without an exception. The file of `node.definitions` is not
    imported. Without a data folder, the broker has only the configured users and vhosts.
    """
    data_folder = open_data_folder(settings)
    try:
        offline = replace(settings, node=replace(settings.node, definitions=None))
        yield build_broker(offline, data_folder)
        if data_folder is not None:
            data_folder.store.close()
    finally:
        if data_folder is not None:
            data_folder.release()
