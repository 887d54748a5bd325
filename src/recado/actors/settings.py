"""The section `[actors]` of recado.toml.

    [actors]
    transport = "amqp"
    broker = "amqps://broker.example"
    user = "exchange"
    password = "…"
    cookie = "…"
    mailbox_folder = "mail"

    async with open_system("exchange", recado.read_settings().actors) as system:
        mailbox = system.durable_mailboxes.mailbox("book.A1")
        book = await system.spawn(Book, name="book.A1", mailbox=mailbox)

A broker reads this section, too, but runs no actors. To import none of their modules in a broker, the functions
below import them when they are called.
"""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Literal, TypeVar

import msgspec
from msgspec import Meta

if TYPE_CHECKING:
    from .dispatchers.worker_threads import WorkerThreads
    from .remote.amqp import AmqpSettings, AmqpTransport
    from .remote.options import RemoteOptions
    from .remote.tcp import TcpTransport
    from .remote.tcp.transport import TcpSettings
    from .system import ActorSystem

Seconds = Annotated[float, Meta(gt=0)]
Count = Annotated[int, Meta(ge=1)]
Sharing = Literal["one_connection_per_node", "one_connection_per_channel"]

ZLIB_LEVEL_MAX = 9  # as in RemoteOptions, which a broker does not import

S = TypeVar("S", bound=msgspec.Struct)


class ActorsSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a system of actors reaches other nodes, and how it runs. Durations are in seconds."""

    transport: Literal["none", "tcp", "amqp"] = "none"
    """How other nodes are reached."""
    client_id: str | None = None
    """The id to which other nodes send their replies through a broker; by default the name of this node."""
    cookie: str | None = None
    """The secret by which nodes authenticate their frames."""
    require_cookie: bool | None = None
    """Whether frames that are not authenticated by the cookie are rejected; by default if a cookie is set."""
    untrusted: bool = False
    """Whether other nodes are untrusted: they cannot create, move, stop or supervise actors here."""
    serializer: Literal["msgpack", "json"] = "msgpack"
    pickle: bool = False
    """Whether pickles are sent and accepted. They can run any code."""
    compression: Literal["none", "zlib", "zstd"] = "none"
    compression_level: Annotated[int, Meta(ge=-1, le=22)] | None = None
    max_frame_bytes: Annotated[int, Meta(ge=1024)] = 1 << 20
    max_decompressed_bytes: Annotated[int, Meta(ge=1024)] = 16 << 20
    warm_up: Annotated[float, Meta(ge=0)] = 2.0
    """Seconds after the start in which messages wait for actors that are not spawned yet."""

    connect_timeout: Seconds = 5.0
    read_timeout: Seconds = 20.0
    """The silence after which a connection is closed as dead."""
    retry_max: Seconds = 0.3
    """The longest delay between two attempts to connect."""
    reconnect_timeout: Seconds | None = None
    """How long to keep reconnecting before a link is closed (event LinkClosed). By default forever over AMQP
    (600 s, which is also the maximum, while the broker is there and the other node is not), and 600 s over TCP. The
    next message to an absent node creates a new link."""
    send_buffer_bytes: Annotated[int, Meta(ge=1 << 16)] = 64 << 20

    listen: str | None = None
    """TCP: host:port to listen on; port 0 chooses a free one."""
    nodes: dict[str, str] = {}
    """TCP: host:port of other nodes, by name."""

    broker: str = "amqp://localhost"
    """AMQP: URL of the broker. `vhost`, `user` and `password` override its parts."""
    vhost: str | None = None
    user: str | None = None
    password: str | None = None
    storage: Literal["durable", "transient", "exclusive_autodelete"] = "durable"
    persistent: bool = True
    server_bridge: bool = True
    """AMQP: whether other nodes reach this node by its name. A node that only asks needs no server bridge."""
    server_sharing: Sharing = "one_connection_per_node"
    client_sharing: Sharing = "one_connection_per_node"

    dispatcher: Literal["loop", "fixed_pool", "thread_per_actor", "elastic_pool"] = "loop"
    threads: Count = 8
    mailbox_capacity: Annotated[int, Meta(ge=0)] = 0
    """Messages that may wait for an actor before its senders are paused; 0 is unbounded."""
    mailbox_folder: str | None = None
    """The folder of durable mailboxes."""

    status: str | None = None
    """URL of a broker to which the system publishes its status, for the management API."""
    status_interval: Annotated[float, Meta(ge=0.1, le=3600)] = 5.0

    # ── the settings of each part ─────────────────────────────────────────────────────────────────────────────

    def remote_options(self) -> "RemoteOptions":
        from .remote.options import RemoteOptions

        return _copy_common_fields(
            self, RemoteOptions, client_id=self.client_id or "", cookie=self.cookie or ""
        )

    def amqp_settings(self) -> "AmqpSettings":
        from .remote.amqp import AmqpSettings
        from .remote.amqp.settings import ConnectionSharing, Storage

        return _copy_common_fields(
            self,
            AmqpSettings,
            storage=Storage(self.storage),
            server_sharing=ConnectionSharing(self.server_sharing),
            client_sharing=ConnectionSharing(self.client_sharing),
        )

    def tcp_settings(self) -> "TcpSettings":
        from .remote.tcp.transport import TcpSettings

        return _copy_common_fields(
            self,
            TcpSettings,
            reconnect_timeout=self.reconnect_timeout or TcpSettings().reconnect_timeout,
        )

    def create_transport(self) -> "AmqpTransport | TcpTransport | None":
        """Return the transport to other nodes; None if there is none. Raises ValueError for an invalid
        address."""
        if self.transport == "none":
            return None
        if self.transport == "tcp":
            from .remote.tcp import TcpTransport

            return TcpTransport(self.listen, self.nodes, self.tcp_settings())
        from recado.client import parse_url

        from .remote.amqp import AmqpTransport

        overrides = {"vhost": self.vhost, "username": self.user, "password": self.password}
        given = {name: value for name, value in overrides.items() if value is not None}
        address = msgspec.structs.replace(parse_url(self.broker), **given)
        return AmqpTransport(address, self.amqp_settings())

    def create_dispatcher(self) -> "WorkerThreads | None":
        """Return the default dispatcher; None if that is the event loop."""
        from . import dispatchers

        match self.dispatcher:
            case "loop":
                return None
            case "fixed_pool":
                return dispatchers.FixedPool(self.threads)
            case "thread_per_actor":
                return dispatchers.ThreadPerActor()
            case "elastic_pool":
                return dispatchers.ElasticPool(min(2, self.threads), self.threads)


def _copy_common_fields(
    settings: ActorsSettings, settings_class: type[S], **overrides: object
) -> S:
    """Create settings of a class from the fields that both have, and `overrides`."""
    names = {field.name for field in msgspec.structs.fields(settings_class)}
    common = names.intersection(field.name for field in msgspec.structs.fields(settings))
    return settings_class(**({name: getattr(settings, name) for name in common} | overrides))


def find_problems(settings: ActorsSettings) -> list[tuple[str, str]]:
    """Return the problems that types cannot express, as (key, problem)."""
    problems = []
    if settings.require_cookie and not settings.cookie:
        problems.append(("actors.cookie", "is needed for actors.require_cookie"))
    if settings.compression == "zlib" and (settings.compression_level or 0) > ZLIB_LEVEL_MAX:
        problems.append(
            ("actors.compression_level", f"is above {ZLIB_LEVEL_MAX}, the maximum of zlib")
        )
    if settings.mailbox_folder == "":
        problems.append(("actors.mailbox_folder", "is empty: name a folder"))
    return problems


@asynccontextmanager
async def open_system(name: str, settings: ActorsSettings) -> AsyncIterator["ActorSystem"]:
    """Open a system as the settings say, for `async with`. The configured dispatcher and capacity are defaults
    of `spawn`.

    With a `mailbox_folder`, `system.durable_mailboxes` has its mailboxes; then the exceptions of
    DurableMailboxes are raised, too.
    """
    from .system import ActorSystem

    async with AsyncExitStack() as stack:
        dispatcher = settings.create_dispatcher()
        if dispatcher is not None:
            await stack.enter_async_context(dispatcher)
        system = await stack.enter_async_context(
            ActorSystem(
                name,
                transport=settings.create_transport(),
                options=settings.remote_options(),
                dispatcher=dispatcher,
                capacity=settings.mailbox_capacity,
            )
        )
        if settings.mailbox_folder is not None:
            from .durable_mailbox.mailboxes import DurableMailboxes

            system._durable_mailboxes = DurableMailboxes(
                system, settings.mailbox_folder, pickle=settings.pickle
            )
        if settings.status is not None:
            from .status import publish_status

            await stack.enter_async_context(
                publish_status(system, settings.status, interval=settings.status_interval)
            )
        yield system
