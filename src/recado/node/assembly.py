"""The assembly: a configuration becomes a broker that listens.

This is the one place that knows all the parts. It decides nothing: every choice is in the settings.
"""

from __future__ import annotations

import platform
import secrets
from ssl import SSLError

import msgspec

from recado import __version__
from recado.amqp.values import Table
from recado.broker.access import User
from recado.broker.broker import Broker
from recado.node.config import ConfigError
from recado.node.settings import AccessSettings, ServerSettings, Settings
from recado.server.listener import Server, ServerLimits
from recado.server.offer import Offer
from recado.server.passwords import hash_password


class Running(msgspec.Struct, frozen=True):
    """A broker that accepts connections, in the event loop that started it."""

    server: Server
    port: int
    tls_port: int | None

    async def stop(self) -> None:
        await self.server.stop()


async def start(settings: Settings) -> Running:
    """Build the parts and listen; whatever prevents that is raised, and nothing is left open."""
    broker = Broker(lambda: secrets.token_urlsafe(16), settings.access.vhosts)
    for user in users(settings.access):
        broker.add_user(user)
    server = Server(broker, offer(settings), limits(settings))
    chosen = settings.server
    try:
        port = await server.listen(chosen.host, chosen.port)
        return Running(server, port, await listen_with_tls(server, chosen))
    except BaseException:
        await server.stop()
        raise


async def listen_with_tls(server: Server, chosen: ServerSettings) -> int | None:
    if chosen.tls_port is None:
        return None
    from recado.server.tls import server_context

    assert chosen.certificate is not None
    assert chosen.key is not None
    for key in ("certificate", "key", "ca"):
        refuse_unreadable(f"server.{key}", getattr(chosen, key))
    try:
        context = server_context(chosen.certificate, chosen.key, chosen.ca, verify=chosen.verify)
    except SSLError as error:
        raise ConfigError(f"server.certificate and server.key do not fit: {error}") from error
    return await server.listen(chosen.host, chosen.tls_port, context)


def refuse_unreadable(key: str, file: str | None) -> None:
    """The TLS library does not say which of its files is missing."""
    from pathlib import Path

    try:
        if file is not None:
            Path(file).open("rb").close()
    except OSError as error:
        raise ConfigError(f"{key} {file!r}: {error.strerror}") from error


def users(access: AccessSettings) -> list[User]:
    """The users as the broker knows them; a plain password is hashed, so that none stays in memory."""
    return [
        User(
            name=name,
            password_hash=user.password_hash or hash_password(user.password or ""),
            tags=user.tags,
            permissions=user.permissions,
            topic_permissions={
                (vhost, exchange): permission
                for vhost, exchanges in user.topic_permissions.items()
                for exchange, permission in exchanges.items()
            },
            loopback_only=name in access.loopback_users,
        )
        for name, user in access.known_users().items()
    ]


def offer(settings: Settings) -> Offer:
    server = settings.server
    properties: Table = {
        "product": server.product,
        "version": server.version,
        "platform": f"Python {platform.python_version()}",
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
