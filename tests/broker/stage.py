"""Fixtures of the broker's tests: a guest user, channels, and a peer that accepts everything."""

from collections.abc import Iterable
from itertools import count
from typing import TypeVar

from recado.amqp.errors import ChannelLevelError
from recado.amqp.events import ContentReceived, Event, Published
from recado.amqp.frames import (
    FRAME_MAX_DEFAULT_BYTES,
    encode_content,
    encode_method_frame,
    extract_body,
)
from recado.amqp.methods import BasicDeliver, BasicPublish
from recado.amqp.properties import Properties, encode_properties
from recado.amqp.reader import FrameReader
from recado.amqp.traits import read_traits
from recado.amqp.values import FieldTable
from recado.broker.access import Permission, User
from recado.broker.arguments import ConsumerSettings, QueueSettings
from recado.broker.binding import Binding, Matcher
from recado.broker.broker import Broker
from recado.broker.channel import Channel
from recado.broker.consumer import Consumer
from recado.broker.queue import Queue
from recado.broker.routing import Route, VhostAccess
from recado.broker.run import Origin, Run
from recado.broker.steps import run_to_completion
from recado.broker.store import MessageStore

GUEST = User("guest", permissions={"/": Permission(".*", ".*", ".*")})
T = TypeVar("T")
NOWHERE = Origin("", "key")


def found(matcher: Matcher[T], key: str, headers: FieldTable | None = None) -> list[Binding[T]]:
    """Return the bindings that match a message."""
    taken: dict[Binding[T], None] = {}
    run_to_completion(matcher.search(key, headers or {}, taken))
    return list(taken)


def route_of(access: VhostAccess, method: bytes) -> Route:
    """Return the route of a publish, cached or not."""
    return access.cached_route(method) or run_to_completion(access.search_route(method))


def new_broker(store: MessageStore | None = None) -> Broker:
    broker = Broker(map(str, count(1)).__next__, store=store)
    broker.add_user(GUEST)
    return broker


class Peer:
    """A connection that records its output."""

    def __init__(self, frame_max: int = FRAME_MAX_DEFAULT_BYTES) -> None:
        self.frame_max = frame_max
        self.congested = False
        self.supports_cancel_notify = True
        self.awaits_journal = False
        self._reader = FrameReader(frame_max=frame_max)
        self._written: list[bytes] = []
        self.closed: list[tuple[int, ChannelLevelError]] = []

    def write(self, data: bytes) -> None:
        self._written.append(data)

    def close_channel(self, number: int, error: ChannelLevelError, now: int) -> None:
        self.closed.append((number, error))

    def received(self) -> list[Event]:
        """Return the output since the last call."""
        written, self._written = self._written, []
        return list(self._reader.feed(b"".join(written)))

    def delivered(self) -> list[tuple[BasicDeliver, bytes]]:
        """Return the deliveries in the output since the last call, each with its body."""
        return [
            (event.method, extract_body(event.content))
            for event in self.received()
            if isinstance(event, ContentReceived) and isinstance(event.method, BasicDeliver)
        ]

    def bodies(self) -> list[bytes]:
        return [body for _, body in self.delivered()]


def open_channel(broker: Broker, peer: Peer | None = None, number: int = 1) -> Channel:
    return Channel(number, peer or Peer(), broker.grant_access(broker.users["guest"], "/"))


def close_channel(channel: Channel, now: int = 0) -> list[Queue]:
    """Close a channel in one step; return the queues that lost a consumer."""
    channel.access.vhost.background.now = now
    return run_to_completion(channel.close())


def new_queue(broker: Broker, name: str = "q", now: int = 0, **settings: object) -> Queue:
    vhost = broker.vhosts["/"]
    return broker.create_queue(vhost, name, QueueSettings(**settings), None, now)  # type: ignore[arg-type]


def consume(
    channel: Channel,
    queue: Queue,
    tag: str = "c",
    *,
    prefetch: int = 0,
    no_ack: bool = False,
    exclusive: bool = False,
    now: int = 0,
    **settings: object,
) -> Consumer:
    """Add a consumer and dispatch to it."""
    channel.consumer_prefetch = prefetch
    wanted = ConsumerSettings(**settings)  # type: ignore[arg-type]
    consumer = channel.consume(queue, tag, wanted, no_ack=no_ack, exclusive=exclusive, now=now)
    queue.dispatch(now)
    return consumer


def run_of(
    bodies: Iterable[bytes],
    properties: Properties | None = None,
    *,
    alike: bool = False,
    channel: int = 1,
    frame_max: int = FRAME_MAX_DEFAULT_BYTES,
) -> Run:
    """Build a run: of whole messages, or with a common prefix and bodies of the same size."""
    encoded = encode_properties(properties or Properties())
    payloads = [encode_content(channel, encoded, body, frame_max) for body in bodies]
    prefix = b""
    if alike:
        size = len(extract_body(payloads[0])) + 1
        prefix = payloads[0][:-size]
        payloads = [payload[-size:] for payload in payloads]
    return Run(NOWHERE, read_traits(encoded), channel, frame_max, prefix, payloads, True)


def published(
    routing_key: str,
    *bodies: bytes,
    exchange: str = "",
    mandatory: bool = False,
    immediate: bool = False,
    properties: Properties | None = None,
    channel: int = 1,
) -> Published:
    """Build a run of publishes, as the frame reader does."""
    run = run_of(bodies, properties, channel=channel)
    method = encode_method_frame(channel, BasicPublish(exchange, routing_key, mandatory, immediate))
    return Published(channel, method, run.traits, run.prefix, run.payloads)
