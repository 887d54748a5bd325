"""What a connection receives, as values; the reader makes them, whoever holds it acts on them."""

from typing import TypeAlias

import msgspec

from .deliveries import Delivered
from .methods import Method
from .traits import MessageTraits


class ProtocolHeaderReceived(msgspec.Struct, frozen=True):
    """The eight bytes with which a client opens."""

    header: bytes


class MethodReceived(msgspec.Struct, frozen=True):
    channel: int
    method: Method


class Published(msgspec.Struct, frozen=True):
    """A run of publishes: `method` is their common frame, message i is `head + tails[i]`."""

    channel: int
    method_frame: bytes
    traits: MessageTraits
    prefix: bytes
    payloads: list[bytes]


class InterleavedPublished(msgspec.Struct, frozen=True):
    """Publishes of several routes in turn, alike but for that and the body: message i is `methods[i]`, and
    `head + tails[i]`."""

    channel: int
    traits: MessageTraits
    prefix: bytes
    method_frames: list[bytes]
    payloads: list[bytes]


class ContentReceived(msgspec.Struct, frozen=True):
    """A client's message from the broker: deliver (where runs are not asked for), return or get-ok."""

    channel: int
    method: Method
    content: bytes


class Acked(msgspec.Struct, frozen=True):
    """`count` deliveries acknowledged one by one, tags counting up."""

    channel: int
    first_tag: int
    count: int


class OversizedBodyReceived(msgspec.Struct, frozen=True):
    channel: int
    body_size: int


class Discarded(msgspec.Struct, frozen=True):
    """Something on a channel that awaits close-ok; it only counts as work."""


class HeartbeatReceived(msgspec.Struct, frozen=True):
    pass


Event: TypeAlias = (
    ProtocolHeaderReceived
    | MethodReceived
    | Published
    | InterleavedPublished
    | ContentReceived
    | Delivered
    | Acked
    | OversizedBodyReceived
    | Discarded
    | HeartbeatReceived
)
