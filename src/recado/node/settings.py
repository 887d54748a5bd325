"""What can be configured: a struct for each section of recado.toml, with its defaults and limits.

Only the shape lives here; `config` finds the values. A key that is not in these structs is an
error, so this module is also the complete list of keys.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from recado.broker.access import Permission, TopicPermission

MIB = 1024 * 1024

Port = Annotated[int, Meta(ge=0, le=65_535)]
Seconds = Annotated[float, Meta(gt=0)]
Fraction = Annotated[float, Meta(gt=0, le=1)]
Count = Annotated[int, Meta(ge=1)]


class Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One table of the configuration."""


class NodeSettings(Section, frozen=True):
    """`data` is the folder for what is durable; without it nothing is kept.

    `log` is the least that the command line writes to standard error; a program that embeds a
    broker has its own logging.
    """

    data: str | None = None
    log: Literal["debug", "info", "warning", "error"] = "info"
    loop: Literal["auto", "asyncio", "uvloop"] = "auto"


class ServerSettings(Section, frozen=True):
    """The listener, and what it offers to clients.

    `product` and `version` are announced in connection.start: clients choose by them how they
    behave towards RabbitMQ, and only a 3.x version keeps Celery's channel-wide prefetch.
    """

    host: str = "127.0.0.1"
    port: Port = 5672
    tls_port: Port | None = None
    certificate: str | None = None
    key: str | None = None
    ca: str | None = None
    verify: bool = False
    max_connections: Count | None = None
    handshake_timeout: Seconds = 10.0
    heartbeat: Annotated[int, Meta(ge=0, le=65_535)] = 60
    frame_max: Annotated[int, Meta(ge=4_096, le=2**31 - 1)] = 131_072
    channel_max: Annotated[int, Meta(ge=1, le=65_535)] = 2_047
    product: str = "RabbitMQ"
    version: str = "3.13.7"


class BrokerSettings(Section, frozen=True):
    """Limits that protect the broker from its clients.

    Publishers are blocked while the process uses more than `memory_watermark` of the machine's
    memory; a client that leaves `backlog_limit` bytes unread for `backlog_seconds` is closed.
    """

    max_message_size: Annotated[int, Meta(ge=1, le=512 * MIB)] = 16 * MIB
    memory_watermark: Fraction = 0.6
    backlog_limit: Count = 16 * MIB
    backlog_seconds: Seconds = 10.0


class UserSettings(Section, frozen=True):
    """A user with a plain password, or with a hash: argon2's, or RabbitMQ's salted SHA-256."""

    password: str | None = None
    password_hash: str | None = None
    tags: tuple[str, ...] = ()
    permissions: dict[str, Permission] = {}
    """By vhost; a user may enter those that are named here."""
    topic_permissions: dict[str, dict[str, TopicPermission]] = {}
    """By vhost and exchange: what the user may do is narrowed by routing key."""


EVERYTHING = Permission(configure=".*", write=".*", read=".*")


class AccessSettings(Section, frozen=True):
    """Who may enter. Without users there is guest/guest, with every permission everywhere.

    Who is named in `loopback_users` is let in only from this machine.
    """

    vhosts: Annotated[tuple[str, ...], Meta(min_length=1)] = ("/",)
    users: dict[str, UserSettings] = {}
    loopback_users: tuple[str, ...] = ("guest",)

    def known_users(self) -> dict[str, UserSettings]:
        """The users, or the default one where none is configured."""
        if self.users:
            return self.users
        permissions = dict.fromkeys(self.vhosts, EVERYTHING)
        guest = UserSettings(password="guest", tags=("administrator",), permissions=permissions)
        return {"guest": guest}


class Settings(Section, frozen=True):
    """The whole configuration."""

    node: NodeSettings = NodeSettings()
    server: ServerSettings = ServerSettings()
    broker: BrokerSettings = BrokerSettings()
    access: AccessSettings = AccessSettings()


def complaints(settings: Settings) -> list[tuple[str, str]]:
    """What no single key can tell: the key, and what is wrong with it beside the others."""
    found = []
    server = settings.server
    if server.tls_port is not None:
        found += [
            (f"server.{name}", "is needed for server.tls_port")
            for name in ("certificate", "key")
            if getattr(server, name) is None
        ]
    if server.verify and server.ca is None:
        found.append(
            ("server.ca", "is needed for server.verify: it signs the clients' certificates")
        )
    for name, user in settings.access.users.items():
        where = f"access.users.{name}"
        if (user.password is None) == (user.password_hash is None):
            found.append((where, "needs either password or password_hash"))
        found += [
            (f"{where}.{key}", f"names the vhost {vhost!r}, which is not in access.vhosts")
            for key in ("permissions", "topic_permissions")
            for vhost in getattr(user, key)
            if vhost not in settings.access.vhosts
        ]
    return found
