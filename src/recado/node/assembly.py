"""The assembly: a configuration becomes a broker that listens.

This is the one place that knows all the parts. It decides nothing: every choice is in the settings.
"""

from __future__ import annotations

import os
import secrets
import sys
from ssl import SSLContext

import msgspec

from recado import __version__
from recado.amqp.values import Table
from recado.broker.access import User
from recado.broker.broker import Broker
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
    tls = tls_context(settings.server)
    broker = Broker(lambda: secrets.token_urlsafe(16), settings.access.vhosts)
    for user in users(settings.access):
        broker.add_user(user)
    server = Server(broker, offer(settings), limits(settings))
    try:
        port = await listen(server, settings.server, "port")
        tls_port = None if tls is None else await listen(server, settings.server, "tls_port", tls)
        return Running(server, port, tls_port)
    except BaseException:
        await server.stop()
        raise


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
