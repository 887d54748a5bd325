"""Encode messages for publishing: run interceptors, translate the body, and address the message.

Most messages have a body and no properties of their own. Their properties are joined from parts that repeat,
which takes 0.5 µs instead of the 4 µs of `encode_properties`:

    | flags u16 | content_type | delivery_mode u8 | message_id | timestamp u64 |
"""

import itertools
import struct
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final
from uuid import uuid4

from recado.amqp.properties import encode_properties

from .destination import Destination, LogStream, PointToPoint, PublishSubscribe
from .failure import ATTEMPT_HEADER, DELIVERY_COUNT_HEADER
from .interceptor import Interceptor, intercept_publish
from .message import Message
from .publisher import EncodedPublish
from .translation import Translators
from .translation.content_encoding import compress, is_compressed

_TRANSIENT_REPLY_PREFIX: Final = "amq."  # of direct reply-to and of queues that the server named
# The flags of content type, delivery mode, message id and timestamp.
_PLAIN_FLAGS: Final = struct.pack(">H", 0x8000 | 0x1000 | 0x0080 | 0x0040)
_COUNTING_HEADERS: Final = frozenset({ATTEMPT_HEADER, DELIVERY_COUNT_HEADER})
_TIMESTAMP: Final = struct.Struct(">Q")


class MessageEncoder:
    """Encodes messages of one program."""

    def __init__(
        self,
        translators: Translators,
        interceptors: Sequence[Interceptor] = (),
        *,
        compress_bytes: int | None = None,
    ) -> None:
        """Bodies of at least `compress_bytes` are compressed; None: those whose message says so."""
        self.translators = translators
        self._compress_bytes = compress_bytes
        self._interceptors = interceptors
        self._id_prefix = uuid4().hex[:20]
        self._id_numbers = itertools.count(1)

    def new_message_id(self) -> str:
        """Return an id that no other message has."""
        return f"{self._id_prefix}-{next(self._id_numbers)}"

    def to_destination(self, message: Message[Any], to: Destination) -> EncodedPublish:
        """Encode a message for a destination."""
        message = self._intercept(message, to)
        match to:
            case PointToPoint(name):
                return self.to_exchange(message, "", name, mandatory=True)
            case LogStream(name):
                return self.to_exchange(message, "", name, mandatory=True)
            case PublishSubscribe(name):
                return self.to_exchange(message, name, message.key)

    def to_exchange(
        self, message: Message[Any], exchange: str, key: str, *, mandatory: bool = False
    ) -> EncodedPublish:
        """Encode a message for an exchange and routing key."""
        body, content_type = self.translators.encode(message.body, message.content_type)
        encoding = message.content_encoding
        is_raw = isinstance(message.body, bytes | bytearray | memoryview)
        if encoding is None and self._is_to_compress(body):
            encoding = "gzip"
            body = compress(body, encoding)
        elif encoding is not None and is_compressed(encoding) and not is_raw:
            body = compress(body, encoding)
        message_id = message.message_id or self.new_message_id()
        if not _COUNTING_HEADERS.isdisjoint(
            message.headers
        ):  # of a received message that is sent on
            message = message.with_headers(dict.fromkeys(_COUNTING_HEADERS))
        properties = message.replace(
            content_type=content_type,
            content_encoding=encoding,
            message_id=message_id,
            timestamp=message.timestamp or datetime.now(UTC),
        ).to_properties()
        return EncodedPublish(
            exchange, key, body, encode_properties(properties), message_id, mandatory
        )

    def body_to_destination(self, body: object, to: Destination, key: str) -> EncodedPublish:
        """Encode an object as the body of a message without properties of its own."""
        if self._interceptors:
            return self.to_destination(Message(body=body, key=key), to)
        encoded, content_type = self.translators.encode(body, None)
        if self._is_to_compress(encoded):
            return self.to_destination(
                Message(body=encoded, key=key, content_type=content_type), to
            )
        message_id = self.new_message_id()
        properties = _plain_properties(content_type, message_id)
        if isinstance(to, PublishSubscribe):
            return EncodedPublish(to.name, key, encoded, properties, message_id)
        return EncodedPublish("", to.name, encoded, properties, message_id, mandatory=True)

    def reply(self, result: Any, request: "ReplyAddress") -> EncodedPublish:
        """Encode the reply to a request: a message, or an object that becomes its body."""
        message = result if isinstance(result, Message) else Message(body=result)
        message = message.replace(
            correlation_id=message.correlation_id or request.correlation_id,
            content_type=message.content_type or request.content_type,
            persistent=not request.reply_to.startswith(_TRANSIENT_REPLY_PREFIX),
        )
        return self.to_exchange(self._intercept(message, None), "", request.reply_to)

    def _is_to_compress(self, body: bytes) -> bool:
        return self._compress_bytes is not None and len(body) >= self._compress_bytes

    def _intercept(self, message: Message[Any], to: Destination | None) -> Message[Any]:
        """Return what remains of a message after the interceptors, which see its id."""
        if not self._interceptors:
            return message
        if message.message_id is None:
            message = message.replace(message_id=self.new_message_id())
        return intercept_publish(self._interceptors, message, to)


class ReplyAddress:
    """Where a reply goes, and what ties it to its request."""

    __slots__ = ("content_type", "correlation_id", "reply_to")

    def __init__(self, reply_to: str, correlation_id: str | None, content_type: str | None) -> None:
        self.reply_to = reply_to
        self.correlation_id = correlation_id
        self.content_type = content_type


@lru_cache(256)
def _plain_properties_start(content_type: str) -> bytes:
    encoded = content_type.encode()
    return b"%b%c%b\x02" % (_PLAIN_FLAGS, len(encoded), encoded)


def _plain_properties(content_type: str, message_id: str) -> bytes:
    encoded_id = message_id.encode()
    return b"%b%c%b%b" % (
        _plain_properties_start(content_type),
        len(encoded_id),
        encoded_id,
        _TIMESTAMP.pack(int(time.time())),
    )
