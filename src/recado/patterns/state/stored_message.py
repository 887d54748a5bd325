"""Messages as values of a store.

    message   msgpack [ key, properties as in AMQP, body as MessagePack ]
    output    msgpack [ kind of destination, fields of the destination, message ]

The properties keep all types of AMQP's headers. The delivery and the attempt are not stored: a message that comes
out of a store is a new one.
"""

from typing import Any, Final

import msgspec

from recado.amqp.properties import decode_properties, encode_properties

from ..destination import Destination, LogStream, PointToPoint, PublishSubscribe, to_destination
from ..message import DeliveryInfo, Message, received_message
from ..step import Send
from ..translation.message_pack_translator import MessagePackTranslator

_encode_body: Final = MessagePackTranslator().encoder({})
_KEY_ENCODING: Final = ("utf-8", "surrogateescape")
_NO_DELIVERY: Final = DeliveryInfo(exchange="", queue="", redelivered=False, raw_body=b"")


class _StoredForm(msgspec.Struct, frozen=True, array_like=True):
    key: bytes  # may be no valid UTF-8, as in AMQP
    properties: bytes
    body: bytes


_decode: Final = msgspec.msgpack.Decoder(_StoredForm).decode
_encode: Final = msgspec.msgpack.Encoder().encode


class MessageCodec:
    """Encodes messages whose bodies have one type; plain values, as JSON has them, need none."""

    def __init__(self, body_type: Any = Any) -> None:
        self._decode_body = MessagePackTranslator().decoder(body_type, {})

    def encode(self, message: Message[Any]) -> bytes:
        """Return a message as bytes."""
        properties = encode_properties(message.to_properties())
        return _encode(
            _StoredForm(message.key.encode(*_KEY_ENCODING), properties, _encode_body(message.body))
        )

    def decode(self, stored: bytes) -> Message[Any]:
        """Return the message of `encode`."""
        form = _decode(stored)
        properties = decode_properties(form.properties)
        body = self._decode_body(form.body)
        return received_message(
            body, properties, _NO_DELIVERY, form.key.decode(*_KEY_ENCODING), 1
        ).replace(delivery=None)

    def encode_send(self, send: Send) -> bytes:
        """Return an output that leaves the flow as bytes."""
        destination = to_destination(send.to)
        fields: dict[str, Any] = msgspec.to_builtins(destination)
        return _encode((type(destination).__name__, fields, self.encode(send.message)))

    def decode_send(self, stored: bytes) -> Send:
        """Return the output of `encode_send`."""
        kind, fields, message = msgspec.msgpack.decode(
            stored, type=tuple[str, dict[str, Any], bytes]
        )
        destination: Destination = msgspec.convert(fields, _DESTINATIONS[kind])
        return Send(destination, self.decode(message))


_DESTINATIONS: Final[dict[str, type[Destination]]] = {
    each.__name__: each for each in (PointToPoint, PublishSubscribe, LogStream)
}
