"""What can be configured of actors: the section `[actors]` of recado.toml.

    [actors]
    transport = "amqp"
    broker = "amqps://broker.example"
    user = "exchange"
    password = "…"
    cookie = "…"
    mailboxes = "mail"

    async with open_system("exchange", recado.read_settings().actors) as system:
        mailbox = system.mailboxes.mailbox("book.A1")
        book = await system.spawn(Book, name="book.A1", mailbox=mailbox)

Only the shape is imported here, since a broker's settings have it too, and that starts without any actor.
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

ZLIB_LEVEL_MAX = 9  # as in Options, which a broker does not import

S = TypeVar("S", bound=msgspec.Struct)


class ActorsSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How actors reach others, `none` if they do not, and how they run.

    `cookie` seals what nodes send to each other; nothing else is processed then, unless `require_cookie` is
    false. A node that is `untrusted` creates nothing for others. `read_timeout` is the silence after which a
    connection is taken for dead; `retry_max` is between two attempts at most. They are made until the
    broker is back, and the application is told by the events `LinkLost` and `LinkStillDown`; if `give_up` is
    set, they end after so many seconds by `LinkClosed`. A link over TCP to a node ends after 600 s if it is not
    set; the next message makes a new one.
    """

    transport: Literal["none", "tcp", "amqp"] = "none"
    client_id: str | None = None
    cookie: str | None = None
    require_cookie: bool | None = None
    untrusted: bool = False
    serializer: Literal["msgpack", "json"] = "msgpack"
    pickle: bool = False
    compression: Literal["none", "zlib", "zstd"] = "none"
    compression_level: Annotated[int, Meta(ge=-1, le=22)] | None = None
    max_frame_bytes: Annotated[int, Meta(ge=1024)] = 1 << 20
    max_decompressed_bytes: Annotated[int, Meta(ge=1024)] = 16 << 20
    warm_up: Annotated[float, Meta(ge=0)] = 2.0
    """Seconds after the start in which messages wait for actors that are not there yet."""

    connect_timeout: Seconds = 5.0
    read_timeout: Seconds = 20.0
    retry_max: Seconds = 0.3
    reconnect_timeout: Seconds | None = None
    send_buffer_bytes: Annotated[int, Meta(ge=1 << 16)] = 64 << 20

    listen: str | None = None
    """TCP: host and port, 0 for any that is free."""
    nodes: dict[str, str] = {}
    """TCP: where other nodes listen."""

    broker: str = "amqp://localhost"
    """AMQP: its URL; the next three are said here or there."""
    vhost: str | None = None
    user: str | None = None
    password: str | None = None
    storage: Literal["durable", "transient", "exclusive_autodelete"] = "durable"
    persistent: bool = True
    server_bridge: bool = True
    """AMQP: whether others reach this node by its name; one that only asks needs none."""
    server_sharing: Sharing = "one_connection_per_node"
    client_sharing: Sharing = "one_connection_per_node"

    dispatcher: Literal["loop", "pool", "thread_per_actor", "self_sizing"] = "loop"
    threads: Count = 8
    mailbox_capacity: Annotated[int, Meta(ge=0)] = 0
    """Messages that may wait for an actor before its senders do; 0 is any number."""
    mailbox_folder: str | None = None
    """The folder of durable mailboxes."""

    # ── as the parts want it ──────────────────────────────────────────────────────────────────────────────

    def remote_options(self) -> "RemoteOptions":
        from .remote.options import RemoteOptions

        return _copy_common_fields(
            self, RemoteOptions, client_id=self.client_id or "", cookie=self.cookie or ""
        )

    def amqp_settings(self) -> "AmqpSettings":
        from .remote.amqp import AmqpSettings
        from .remote.amqp.storage import ConnectionSharing, Storage

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
            self, TcpSettings, reconnect_timeout=self.reconnect_timeout or TcpSettings().reconnect_timeout
        )

    def create_transport(self) -> "AmqpTransport | TcpTransport | None":
        """What carries messages to others. ValueError if it is wrong in a way that a type cannot tell."""
        if self.transport == "none":
            return None
        if self.transport == "tcp":
            from .remote.tcp import TcpTransport

            return TcpTransport(self.listen, self.nodes, self.tcp_settings())
        from recado.client import parse_url

        from .remote.amqp import AmqpTransport

        said = {"vhost": self.vhost, "username": self.user, "password": self.password}
        given = {name: value for name, value in said.items() if value is not None}
        address = msgspec.structs.replace(parse_url(self.broker), **given)
        return AmqpTransport(address, self.amqp_settings())

    def create_dispatcher(self) -> "WorkerThreads | None":
        """None is the loop itself."""
        from . import dispatchers

        match self.dispatcher:
            case "loop":
                return None
            case "pool":
                return dispatchers.FixedPool(self.threads)
            case "thread_per_actor":
                return dispatchers.ThreadPerActor()
            case "self_sizing":
                return dispatchers.ElasticPool(min(2, self.threads), self.threads)


def _copy_common_fields(
    settings: ActorsSettings, settings_class: type[S], **overrides: object
) -> S:
    """Made of the fields that both have, but for `others`."""
    names = {field.name for field in msgspec.structs.fields(settings_class)}
    common = names.intersection(field.name for field in msgspec.structs.fields(settings))
    return settings_class(**({name: getattr(settings, name) for name in common} | overrides))


def find_problems(settings: ActorsSettings) -> list[tuple[str, str]]:
    """What a type cannot tell: the key, and what is wrong with it, for instance beside the others."""
    problems = []
    if settings.require_cookie and not settings.cookie:
        problems.append(("actors.cookie", "is needed for actors.require_cookie"))
    if settings.compression == "zlib" and (settings.compression_level or 0) > ZLIB_LEVEL_MAX:
        problems.append(
            ("actors.compression_level", f"is above {ZLIB_LEVEL_MAX}, the most of zlib")
        )
    if settings.mailbox_folder == "":
        problems.append(("actors.mailboxes", "is empty: name a folder"))
    return problems


@asynccontextmanager
async def open_system(name: str, settings: ActorsSettings) -> AsyncIterator["ActorSystem"]:
    """A system as the settings say; dispatcher and capacity are those of actors that say nothing else.

    If there is a folder of durable mailboxes they are `system.mailboxes`; InUse and Corrupt are raised as they
    are by DurableMailboxes.
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

            system.durable_mailboxes = DurableMailboxes(
                system, settings.mailbox_folder, pickle=settings.pickle
            )
        yield system
