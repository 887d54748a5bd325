"""What can be configured: a struct for each section of recado.toml, with its defaults and limits.

Only the shape lives here; `config` finds the values. A key that is not in these structs is an
error, so this module is also the complete list of keys.

Annotations are evaluated here, and in the section of the actors: as texts msgspec would compile each of them at
every start, which took 10 ms of it.
"""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from recado.actors.settings import ActorsSettings
from recado.actors.settings import find_problems as complaints_about_actors
from recado.broker.access import Permission, TopicPermission

MIB = 1024 * 1024

Port = Annotated[int, Meta(ge=0, le=65_535)]
Seconds = Annotated[float, Meta(gt=0)]
Fraction = Annotated[float, Meta(gt=0, le=1)]
Count = Annotated[int, Meta(ge=1)]


class Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One table of the configuration."""


class NodeSettings(Section, frozen=True):
    """`data` is the folder for what is durable; without it nothing outlasts the process.

    `definitions` is a file in RabbitMQ's format, imported at every start.

    `log` is the least that the command line writes to standard error; a program that embeds a
    broker has its own logging.
    """

    data: str | None = None
    definitions: str | None = None
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

    Publishers are blocked while the process uses more than `memory_watermark` of the memory there
    is, or less than `disk_free_min_bytes` bytes are free for the data folder; a client that leaves
    `unread_max_bytes` bytes unread for `unread_timeout` is closed. A delivery that is not acknowledged
    in `consumer_timeout` seconds closes its channel; 0 is never.
    """

    max_message_bytes: Annotated[int, Meta(ge=1, le=512 * MIB)] = 16 * MIB
    memory_watermark: Fraction = 0.6
    disk_free_min_bytes: Annotated[int, Meta(ge=0)] = 256 * MIB
    unread_max_bytes: Count = 16 * MIB
    unread_timeout: Seconds = 10.0
    consumer_timeout: Annotated[float, Meta(ge=0)] = 1800.0


class UserSettings(Section, frozen=True):
    """A user with a plain password, or with a hash: argon2's, or RabbitMQ's salted SHA-256."""

    password: str | None = None
    password_hash: str | None = None
    tags: tuple[str, ...] = ()
    permissions: dict[str, Permission] = {}
    """By vhost; a user may enter those that are named here."""
    topic_permissions: dict[str, dict[str, TopicPermission]] = {}
    """By vhost and exchange: what the user may do is narrowed by routing key."""


FULL_PERMISSION = Permission(configure=".*", write=".*", read=".*")
GUEST_HASH = "cmNkb1DpjWx3svLxmOXD10yKMF1sLUk5/fHAnV8qIEdmjBCl"
"""Of the password that everybody knows, so that nothing need be hashed to start."""


class AccessSettings(Section, frozen=True):
    """Who may enter. Without users there is guest/guest, with every permission everywhere.

    Who is named in `loopback_users` is let in only via localhost.
    """

    vhosts: Annotated[tuple[str, ...], Meta(min_length=1)] = ("/",)
    users: dict[str, UserSettings] = {}
    loopback_users: tuple[str, ...] = ("guest",)

    def effective_users(self) -> dict[str, UserSettings]:
        """The users, or the default one where none is configured."""
        if self.users:
            return self.users
        permissions = dict.fromkeys(self.vhosts, FULL_PERMISSION)
        guest = UserSettings("guest", GUEST_HASH, ("administrator",), permissions)
        return {"guest": guest}


class ArchiveSettings(Section, frozen=True):
    """An archive of a feed on this broker, run by the node; without a folder, within the data folder."""

    feed: Annotated[str, Meta(min_length=1)]
    vhost: str = "/"
    folder: str | None = None
    stack: str | None = None
    seal_rows: Count = 1_000_000
    seal_interval: Seconds = 600.0
    max_age: Seconds | None = None
    max_messages: Count | None = None
    max_share: Fraction | None = None
    grace: Annotated[float, Meta(ge=0)] = 3600.0


class MetricsSettings(Section, frozen=True):
    """Whether the node's counters are published on the feed `recado.metrics`, and how often.

    The node logs in as `feeds.user`.
    """

    publish: bool = False
    interval: Seconds = 1.0
    vhost: str = "/"


class FeedsSettings(Section, frozen=True):
    """Archives by their names. They log in as `user`, who has a plain password."""

    user: str = "guest"
    archives: dict[str, ArchiveSettings] = {}


class Settings(Section, frozen=True):
    """The whole configuration."""

    node: NodeSettings = NodeSettings()
    server: ServerSettings = ServerSettings()
    broker: BrokerSettings = BrokerSettings()
    access: AccessSettings = AccessSettings()
    feeds: FeedsSettings = FeedsSettings()
    metrics: MetricsSettings = MetricsSettings()
    actors: ActorsSettings = ActorsSettings()


def find_problems(settings: Settings) -> list[tuple[str, str]]:
    """What a type cannot tell: the key, and what is wrong with it, for instance beside the others."""
    found = find_tls_problems(settings.server)
    if settings.node.data == "":
        found.append(("node.data", "is empty: name a folder"))
    for name, user in settings.access.users.items():
        found += find_user_problems(user, f"access.users.{name}", settings.access.vhosts)
    return found + find_feed_problems(settings) + complaints_about_actors(settings.actors)


def find_tls_problems(server: ServerSettings) -> list[tuple[str, str]]:
    files = {f"server.{name}": getattr(server, name) for name in ("certificate", "key", "ca")}
    if server.verify and server.ca is None:
        return [("server.ca", "is needed for server.verify: it signs the clients' certificates")]
    if server.tls_port is None:
        why = "is of no use without server.tls_port"
        return [(key, why) for key, file in files.items() if file is not None]
    if server.tls_port == server.port != 0:
        return [("server.tls_port", "is the same as server.port")]
    why = "is needed for server.tls_port"
    return [(key, why) for key, file in files.items() if file is None and key != "server.ca"]


def find_feed_problems(settings: Settings) -> list[tuple[str, str]]:
    metrics = settings.metrics
    if not settings.feeds.archives and not metrics.publish:
        return []
    found = []
    if metrics.vhost not in settings.access.vhosts:
        found.append(("metrics.vhost", f"names {metrics.vhost!r}, not in access.vhosts"))
    user = settings.access.effective_users().get(settings.feeds.user)
    if user is None or user.password is None:
        found.append(("feeds.user", "is to be one of access.users that has a plain password"))
    for name, archive in settings.feeds.archives.items():
        where = f"feeds.archives.{name}"
        if archive.folder is None and settings.node.data is None:
            found.append((where, "needs a folder, or the node a data folder (node.data)"))
        if archive.vhost not in settings.access.vhosts:
            found.append((f"{where}.vhost", f"names {archive.vhost!r}, not in access.vhosts"))
    return found


def find_user_problems(
    user: UserSettings, where: str, vhosts: tuple[str, ...]
) -> list[tuple[str, str]]:
    found = []
    if user.password is None and user.password_hash is None:
        found.append((where, "needs a password or a password_hash"))
    if user.password_hash is not None:
        # Only here, since it brings asyncio with it, which `recado config show` can do without.
        from recado.server.passwords import is_password_hash

        if user.password is not None:
            found.append((where, "has both a password and a password_hash"))
        if not is_password_hash(user.password_hash):
            kinds = "neither argon2's ($argon2id$v=…) nor RabbitMQ's (base64 of salt and SHA-256)"
            found.append((f"{where}.password_hash", f"is {kinds}"))
    found += [
        (f"{where}.{key}", f"names the vhost {vhost!r}, which is not in access.vhosts")
        for key in ("permissions", "topic_permissions")
        for vhost in getattr(user, key)
        if vhost not in vhosts
    ]
    return found
