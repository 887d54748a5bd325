"""The settings: one struct for each section of recado.toml, with defaults and limits.

Only the shape is defined here; `config` finds the values. A key that is not in these structs is an error, so
this module is also the complete list of keys. Durations are float seconds; keys of other units have a suffix.

Annotations are evaluated when this module and that of the actors are imported: msgspec would compile
annotations that are strings at every start, which took 10 ms.
"""

from typing import Annotated, Literal, get_args

import msgspec
from msgspec import Meta

from recado.actors.settings import ActorsSettings
from recado.actors.settings import find_problems as find_actor_problems
from recado.broker.access import Permission, TopicPermission
from recado.server.certificate_login import LoginSource, SanType

MIB = 1024 * 1024

Port = Annotated[int, Meta(ge=0, le=65_535)]
Seconds = Annotated[float, Meta(gt=0)]
Fraction = Annotated[float, Meta(gt=0, le=1)]
Count = Annotated[int, Meta(ge=1)]
TokenAlgorithm = Literal[
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"
]
"""Those with a public key: never `none`, and none with a shared secret."""
TOKEN_ALGORITHMS: tuple[TokenAlgorithm, ...] = get_args(TokenAlgorithm)


class Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base of the tables of the configuration; unknown keys are errors."""


class NodeSettings(Section, frozen=True):
    """The process: its data folder, definitions, log level and event loop."""

    data: str | None = None
    """The folder for everything durable; without it nothing survives a restart."""
    definitions: str | None = None
    """A file in RabbitMQ's definitions format, imported at every start."""
    log: Literal["debug", "info", "warning", "error"] = "info"
    """The lowest level that `recado` logs to standard error. An embedding program has its own logging."""
    loop: Literal["auto", "asyncio", "uvloop"] = "auto"
    """`auto` is uvloop if it is installed."""


class ServerSettings(Section, frozen=True):
    """The listener, and what it announces to clients."""

    host: str = "127.0.0.1"
    port: Port = 5672
    tls_port: Port | None = None
    certificate: str | None = None
    key: str | None = None
    ca: str | None = None
    verify: bool = False
    certificate_login_from: LoginSource | None = None
    """The part of a client certificate that is the name of the user; clients can then log in with EXTERNAL."""
    certificate_login_san_type: SanType = "dns"
    certificate_login_san_index: Annotated[int, Meta(ge=0)] = 0
    max_connections: Count | None = None
    handshake_timeout: Seconds = 10.0
    heartbeat: Annotated[int, Meta(ge=0, le=65_535)] = 60
    frame_max: Annotated[int, Meta(ge=4_096, le=2**31 - 1)] = 131_072
    channel_max: Annotated[int, Meta(ge=1, le=65_535)] = 2_047
    # Announced in connection.start, because some clients adapt to the product and version of the server: Celery
    # uses a channel-wide prefetch only with RabbitMQ 3.x.
    product: str = "RabbitMQ"
    version: str = "3.13.7"


class BrokerSettings(Section, frozen=True):
    """Limits that protect the broker from its clients. Durations are in seconds."""

    max_message_bytes: Annotated[int, Meta(ge=1, le=512 * MIB)] = 16 * MIB
    memory_watermark: Fraction = 0.6
    """Publishers are blocked while the process uses more than this fraction of the memory."""
    disk_free_min_bytes: Annotated[int, Meta(ge=0)] = 256 * MIB
    """Publishers are blocked while less is free on the disk of the data folder."""
    unread_max_bytes: Count = 16 * MIB
    """A client that leaves more than this unread for `unread_timeout` is closed."""
    unread_timeout: Seconds = 10.0
    consumer_timeout: Annotated[float, Meta(ge=0)] = 1800.0
    """A delivery that is not acknowledged within this time closes its channel; 0 disables the timeout."""


class UserSettings(Section, frozen=True):
    """A user with a plain password, or with a hash: argon2's, or RabbitMQ's salted SHA-256 or SHA-512.

    Users that log in with certificates need neither.
    """

    password: str | None = None
    password_hash: str | None = None
    tags: tuple[str, ...] = ()
    permissions: dict[str, Permission] = {}
    """By vhost; a user has access to the vhosts named here."""
    topic_permissions: dict[str, dict[str, TopicPermission]] = {}
    """By vhost and exchange: restricts the permissions further, by routing key."""

    @property
    def has_password(self) -> bool:
        return self.password is not None or self.password_hash is not None


FULL_PERMISSION = Permission(configure=".*", write=".*", read=".*")
GUEST_HASH = "cmNkb1DpjWx3svLxmOXD10yKMF1sLUk5/fHAnV8qIEdmjBCl"
"""The hash of `guest`, so that nothing has to be hashed at the start."""


class AccessSettings(Section, frozen=True):
    """Vhosts and users. Without users there is guest/guest, with all permissions on all vhosts.

    The `loopback_users` can only log in via localhost.
    """

    vhosts: Annotated[tuple[str, ...], Meta(min_length=1)] = ("/",)
    users: dict[str, UserSettings] = {}
    loopback_users: tuple[str, ...] = ("guest",)

    def effective_users(self) -> dict[str, UserSettings]:
        """Return the configured users, or the default user if there are none."""
        if self.users:
            return self.users
        permissions = dict.fromkeys(self.vhosts, FULL_PERMISSION)
        guest = UserSettings("guest", GUEST_HASH, ("administrator",), permissions)
        return {"guest": guest}


class ArchiveSettings(Section, frozen=True):
    """An archive of a feed on this broker, run by the node. Without `folder` it is in the data folder.

    Durations are in seconds. Messages are first written to the journal of the archive; after `seal_rows` of
    them or `seal_interval`, they are written to Parquet files. The limits `max_…` are those of
    `RetentionLimits`. A removed file is deleted after `grace`, so that readers can finish.
    """

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
    """Whether the node publishes its counters on the feed `recado.metrics`, and how often (in seconds).

    The node logs in as `feeds.user`.
    """

    publish: bool = False
    interval: Seconds = 1.0
    vhost: str = "/"


class FeedsSettings(Section, frozen=True):
    """The archives by name. They log in as `user`, which must have a plain password."""

    user: str = "guest"
    archives: dict[str, ArchiveSettings] = {}


class ManagementSettings(Section, frozen=True):
    """The HTTP API and metrics; off unless a port is set. `host` is that of the server unless set."""

    port: Port | None = None
    metrics_port: Port | None = None
    """The port for Prometheus, without login; `/metrics` is on the other port as well, with login."""
    host: str | None = None
    tls: bool = False
    """Serve HTTPS with the certificate of the server, on `port`."""
    status: bool = False
    """Collect the status records of actor systems and pipelines from the exchange `recado.status` of each vhost."""
    path_prefix: Annotated[str, Meta(pattern=r"^(/[A-Za-z0-9._~-]+)*$")] | None = None
    """The path under which a reverse proxy serves the console and the API, such as `/broker`."""
    body_tag: Annotated[str, Meta(min_length=1)] | None = None
    """The tag that users need to see bodies over HTTP; if unset, the permission to read the queue is sufficient."""
    masked_fields: tuple[str, ...] = ()
    """Headers and JSON fields that are not shown over HTTP: `headers.authorization`, `json.card.number`, or `body`."""
    reveal_tag: Annotated[str, Meta(min_length=1)] = "administrator"
    """The tag that users need to reveal the masked fields of a message; the audit log records each such request."""


class OAuthSettings(Section, frozen=True):
    """Logins with OAuth 2 tokens; off unless `resource_server_id` is set. Needs the extra `oauth`."""

    resource_server_id: Annotated[str, Meta(min_length=1)] | None = None
    """The name of this broker at the identity provider: the audience of tokens, and the prefix of scopes."""
    jwks_url: str | None = None
    """Where the provider publishes its keys (JSON Web Key Set); with https, except on this machine."""
    jwks_file: str | None = None
    ca: str | None = None
    """The authorities that sign the certificate of `jwks_url`; default: those of the system."""
    issuer: str | None = None
    """Accept only tokens of this issuer (`iss`)."""
    algorithms: Annotated[tuple[TokenAlgorithm, ...], Meta(min_length=1)] = TOKEN_ALGORITHMS
    leeway: Annotated[float, Meta(ge=0)] = 10.0
    """How far the clocks of broker and provider may differ, in seconds."""
    verify_audience: bool = True
    scope_prefix: str | None = None
    """Default: `resource_server_id` and a dot."""
    scope_aliases: dict[str, tuple[str, ...]] = {}
    """Scopes, with their prefix, by the names that the provider has for them."""
    additional_scopes_key: str | None = None
    """A further claim with scopes; a path such as `realm_access.roles` is possible."""
    preferred_username_claims: tuple[str, ...] = ()
    """Claims that are the name of the user, before `sub` and `client_id`."""
    client_id: Annotated[str, Meta(min_length=1)] | None = None
    """The web console as a client of the provider: users can then sign in there. Needs `issuer`."""
    client_secret: str | None = None
    """Of a confidential client; a public one uses PKCE only."""
    sign_in_scopes: Annotated[tuple[str, ...], Meta(min_length=1)] = ("openid", "profile")
    """The scopes that the console asks for."""
    sign_in_parameters: dict[str, str] = {}
    """Further parameters of the authorization request, such as `audience`."""


class Settings(Section, frozen=True):
    """The whole configuration."""

    node: NodeSettings = NodeSettings()
    server: ServerSettings = ServerSettings()
    broker: BrokerSettings = BrokerSettings()
    access: AccessSettings = AccessSettings()
    feeds: FeedsSettings = FeedsSettings()
    metrics: MetricsSettings = MetricsSettings()
    management: ManagementSettings = ManagementSettings()
    oauth: OAuthSettings = OAuthSettings()
    actors: ActorsSettings = ActorsSettings()

    @property
    def uses_tls(self) -> bool:
        """Whether a listener needs the certificate of the server."""
        return self.server.tls_port is not None or self.management.tls


def find_problems(settings: Settings) -> list[tuple[str, str]]:
    """Return (key, problem) for everything that types cannot check, such as keys that exclude each other."""
    problems = find_tls_problems(settings)
    if settings.node.data == "":
        problems.append(("node.data", "is empty: name a folder"))
    for name, user in settings.access.users.items():
        where = f"access.users.{name}"
        problems += find_user_problems(user, where, settings.access.vhosts)
        if settings.server.certificate_login_from is None and not user.has_password:
            problems.append((where, "needs a password or a password_hash"))
    problems += find_oauth_problems(settings.oauth)
    problems += find_mask_problems(settings.management.masked_fields)
    return problems + find_feed_problems(settings) + find_actor_problems(settings.actors)


def find_tls_problems(settings: Settings) -> list[tuple[str, str]]:
    server = settings.server
    files = {f"server.{name}": getattr(server, name) for name in ("certificate", "key", "ca")}
    if server.verify and server.ca is None:
        return [("server.ca", "is required by server.verify: it signs the clients' certificates")]
    if server.certificate_login_from is not None and server.ca is None:
        problem = "is required by server.certificate_login_from: it signs the clients' certificates"
        return [("server.ca", problem)]
    if server.tls_port is None and server.ca is not None:
        return [("server.ca", "has no effect without server.tls_port")]
    if not settings.uses_tls:
        problem = "has no effect without server.tls_port or management.tls"
        return [(key, problem) for key, file in files.items() if file is not None]
    if server.tls_port == server.port != 0:
        return [("server.tls_port", "is the same as server.port")]
    user = "management.tls" if server.tls_port is None else "server.tls_port"
    return [
        (key, f"is required by {user}")
        for key, file in files.items()
        if file is None and key != "server.ca"
    ]


def find_oauth_problems(oauth: OAuthSettings) -> list[tuple[str, str]]:
    if oauth.resource_server_id is None:
        problem = "has no effect without oauth.resource_server_id"
        keys = ("jwks_url", "jwks_file", "client_id")
        return [(f"oauth.{key}", problem) for key in keys if getattr(oauth, key) is not None]
    if oauth.jwks_url is None and oauth.jwks_file is None:
        return [("oauth.jwks_url", "or oauth.jwks_file is required by oauth.resource_server_id")]
    problems = find_sign_in_problems(oauth)
    if problems:
        return problems
    if oauth.jwks_url is None:
        if oauth.ca is None or oauth.client_id is not None:
            return []
        return [("oauth.ca", "has no effect without oauth.jwks_url or oauth.client_id")]
    if oauth.jwks_file is not None:
        return [("oauth.jwks_file", "excludes oauth.jwks_url")]
    from recado.server.oauth.provider_url import find_url_problems

    return [("oauth.jwks_url", problem) for problem in find_url_problems(oauth.jwks_url)]


def find_mask_problems(paths: tuple[str, ...]) -> list[tuple[str, str]]:
    if not paths:
        return []
    # Imported here because most configurations do not need selectors.
    from recado.console.masked_fields import InvalidMaskError, MaskedFields

    try:
        MaskedFields(paths)
    except InvalidMaskError as error:
        return [("management.masked_fields", str(error))]
    return []


def find_sign_in_problems(oauth: OAuthSettings) -> list[tuple[str, str]]:
    if oauth.client_id is None:
        if oauth.client_secret is None:
            return []
        return [("oauth.client_secret", "has no effect without oauth.client_id")]
    if oauth.issuer is None:
        return [("oauth.issuer", "is required by oauth.client_id: users sign in there")]
    from recado.server.oauth.provider_url import find_url_problems

    return [("oauth.issuer", problem) for problem in find_url_problems(oauth.issuer)]


def find_feed_problems(settings: Settings) -> list[tuple[str, str]]:
    metrics = settings.metrics
    if not settings.feeds.archives and not metrics.publish:
        return []
    problems = []
    if metrics.vhost not in settings.access.vhosts:
        problems.append(("metrics.vhost", f"names {metrics.vhost!r}, not in access.vhosts"))
    user = settings.access.effective_users().get(settings.feeds.user)
    if user is None or user.password is None:
        problems.append(("feeds.user", "must be one of access.users, with a plain password"))
    for name, archive in settings.feeds.archives.items():
        where = f"feeds.archives.{name}"
        if archive.folder is None and settings.node.data is None:
            problems.append((where, "needs a folder, or the node a data folder (node.data)"))
        if archive.vhost not in settings.access.vhosts:
            problems.append((f"{where}.vhost", f"names {archive.vhost!r}, not in access.vhosts"))
    return problems


def find_user_problems(
    user: UserSettings, where: str, vhosts: tuple[str, ...]
) -> list[tuple[str, str]]:
    problems = []
    if user.password_hash is not None:
        # Imported here because it imports asyncio, which `recado config show` does not need.
        from recado.server.passwords import is_password_hash

        if user.password is not None:
            problems.append((where, "has both a password and a password_hash"))
        if not is_password_hash(user.password_hash):
            kinds = (
                "neither an argon2 hash ($argon2id$v=…) nor RabbitMQ's (base64 of salt and SHA-256)"
            )
            problems.append((f"{where}.password_hash", f"is {kinds}"))
    problems += [
        (f"{where}.{key}", f"names the vhost {vhost!r}, which is not in access.vhosts")
        for key in ("permissions", "topic_permissions")
        for vhost in getattr(user, key)
        if vhost not in vhosts
    ]
    return problems
