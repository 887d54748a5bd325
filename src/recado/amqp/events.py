"""The events of a connection, as immutable values: `FrameReader` produces them, a session handles them."""

from typing import TypeAlias

import msgspec

from .deliveries import Delivered
from .methods import Method
from .traits import MessageTraits


class ProtocolHeaderReceived(msgspec.Struct, frozen=True):
    """The eight bytes that a client sends first."""

    header: bytes


class MethodReceived(msgspec.Struct, frozen=True):
    channel: int
    method: Method


class Published(msgspec.Struct, frozen=True):
    """A run of publishes with one method frame; the content of message i is `prefix + payloads[i]`."""

    channel: int
    method_frame: bytes
    traits: MessageTraits
    prefix: bytes
    payloads: list[bytes]


class InterleavedPublished(msgspec.Struct, frozen=True):
    """A run of publishes whose method frames have equal size but differ, usually in the routing key.

    Message i has `method_frames[i]` and the content `prefix + payloads[i]`.
    """

    channel: int
    traits: MessageTraits
    prefix: bytes
    method_frames: list[bytes]
    payloads: list[bytes]


class ContentReceived(msgspec.Struct, frozen=True):
    """A message from the broker: return, get-ok, or deliver if the reader does not batch deliveries."""

    channel: int
    method: Method
    content: bytes


class Acked(msgspec.Struct, frozen=True):
    """`count` single acknowledgements of the consecutive delivery tags that begin with `first_tag`."""

    channel: int
    first_tag: int
    count: int


class OversizedBodyReceived(msgspec.Struct, frozen=True):
    """A content header that announces a body larger than the reader's `body_max`."""

    channel: int
    body_size: int


class Discarded(msgspec.Struct, frozen=True):
    """A frame or run on a channel that awaits close-ok. It has no effect, but the session counts its cost."""


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
