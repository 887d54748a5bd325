"""An AMQP channel without a socket, by which the HTTP API publishes and gets messages on behalf of its user.

Messages pass the same code as those of AMQP clients: the broker checks permissions, routes and settles.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from recado.amqp.errors import ChannelLevelError, PreconditionFailedError
from recado.amqp.events import ContentReceived, OversizedBodyReceived, Published
from recado.amqp.frames import (
    FRAME_MAX_DEFAULT_BYTES,
    encode_content,
    encode_method_frame,
    extract_body,
    extract_properties,
)
from recado.amqp.methods import BasicGetOk, BasicPublish, BasicReturn
from recado.amqp.properties import Properties, decode_properties, encode_properties
from recado.amqp.reader import FrameReader
from recado.broker.broker import Broker
from recado.broker.channel import Channel, Settlement
from recado.broker.queue import Queue
from recado.broker.routing import VhostAccess

_CHANNEL_ID = 1


class GotMessage(NamedTuple):
    """A message that the channel got from a queue; unacknowledged until it is settled."""

    method: BasicGetOk
    properties: Properties
    body: bytes


class LocalChannel:
    """A channel for one request; `close` requeues the messages that are not settled."""

    # The attributes of a `PeerConnection`, which this class implements for its channel.
    frame_max = FRAME_MAX_DEFAULT_BYTES
    congested = False
    supports_cancel_notify = False
    awaits_journal = False

    def __init__(self, broker: Broker, access: VhostAccess, body_max_bytes: int, now: int) -> None:
        self._broker = broker
        self._now = now
        self._output: list[bytes] = []
        self._body_max_bytes = body_max_bytes
        self._channel = Channel(_CHANNEL_ID, self, access)
        self._got_count = 0

    def write(self, data: bytes) -> None:
        self._output.append(data)

    def close_channel(self, number: int, error: ChannelLevelError, now: int) -> None:
        """Do nothing. Only a consumer timeout would call it, and the channel is closed before the next check."""

    def publish(self, exchange: str, routing_key: str, properties: Properties, body: bytes) -> bool:
        """Publish a message; return whether it was routed to a queue. Raises `AmqpError`."""
        method = encode_method_frame(
            _CHANNEL_ID, BasicPublish(exchange, routing_key, mandatory=True)
        )
        content = encode_content(_CHANNEL_ID, encode_properties(properties), body, self.frame_max)
        reader = FrameReader(body_max=self._body_max_bytes, open_channels={_CHANNEL_ID})
        for event in reader.feed(method + content):
            if isinstance(event, OversizedBodyReceived):
                raise PreconditionFailedError(
                    f"message size {len(body)} is larger than the maximum of {self._body_max_bytes} bytes"
                )
            if isinstance(event, Published):
                unfinished: Published | None = event
                while unfinished is not None:
                    unfinished, _ = self._channel.publisher.publish(unfinished, self._now)
        self._broker.coalescer.flush(self._now)
        return not any(isinstance(each.method, BasicReturn) for each in self._read_output())

    def get(self, queue: Queue, *, no_ack: bool = False) -> GotMessage | None:
        """Get one message of a queue, to be settled by `settle` unless `no_ack`; None if the queue is empty."""
        if not self._channel.get(queue, no_ack=no_ack, now=self._now):
            return None
        self._got_count += not no_ack
        (received,) = self._read_output()
        assert isinstance(received.method, BasicGetOk)
        properties = decode_properties(extract_properties(received.content))
        return GotMessage(received.method, properties, extract_body(received.content))

    def settle(self, settlement: Settlement) -> None:
        """Settle all messages that were got."""
        if self._got_count:
            self._channel.settle(settlement, 0, self._now, multiple=True)
            self._got_count = 0

    def close(self) -> None:
        self._broker.counters.add_channel(self._channel)
        self._broker.close_channel(self._channel, self._now)

    def _read_output(self) -> Iterator[ContentReceived]:
        data, self._output = b"".join(self._output), []
        reader = FrameReader(open_channels={_CHANNEL_ID}, body_max=1 << 40)
        for event in reader.feed(data):
            if isinstance(event, ContentReceived):
                yield event
