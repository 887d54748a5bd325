"""Encode and decode the properties of a message (AMQP's class basic).

    | flags u16 | the properties whose flags are set, in order … |

The highest flag belongs to the first property. Fourteen properties are defined; bit 1 is unused, and bit 0
would announce further flags, which AMQP 0-9-1 never needs. The broker forwards properties as the bytes that it
received; it decodes them to inspect them and encodes only the ones that it changes.

Some clients send strings that are not UTF-8, and RabbitMQ forwards them. Short strings are decoded with
surrogate escapes and header values as `LongString`, so encoding them restores the same bytes.
"""

import struct
from typing import Any, Final, get_args

import msgspec

from .codec import WIRE_TYPES, FieldReader, FieldWriter, check_end, make_short_string_type
from .errors import FrameError
from .methods import LongLong, Octet, ShortStr, Table
from .values import MAX_ENTRY_COUNT, decode_table


class Properties(msgspec.Struct):
    """The properties of a message, in wire order. None means absent, which differs from empty."""

    content_type: ShortStr | None = None
    content_encoding: ShortStr | None = None
    headers: Table | None = None
    delivery_mode: Octet | None = None
    priority: Octet | None = None
    correlation_id: ShortStr | None = None
    reply_to: ShortStr | None = None
    expiration: ShortStr | None = None
    message_id: ShortStr | None = None
    timestamp: LongLong | None = None
    type: ShortStr | None = None
    user_id: ShortStr | None = None
    app_id: ShortStr | None = None
    cluster_id: ShortStr | None = None


_FLAGS: Final = struct.Struct(">H")
_UNDEFINED_FLAGS_MASK: Final = 0b11

_WIRE_TYPES: Final = WIRE_TYPES | {ShortStr: make_short_string_type("surrogateescape")}

# (flag, name, reader, writer) of each property
_FIELDS: Final[tuple[tuple[int, str, FieldReader, FieldWriter], ...]] = tuple(
    (0x8000 >> index, name, *_WIRE_TYPES[get_args(annotation)[0]])
    for index, (name, annotation) in enumerate(Properties.__annotations__.items())
)


def decode_properties(data: bytes, *, max_entries: int = MAX_ENTRY_COUNT) -> Properties:
    """Decode the properties of a content header: its payload behind the body size.

    `max_entries` limits the number of header entries. Headers from a peer have a low limit; a broker passes a
    higher one for stored messages, because dead-lettering adds entries. Raises `FrameError` if the properties
    are malformed and `AmqpSyntaxError` if the headers exceed a limit.
    """
    values: list[Any] = []
    try:
        (flags,) = _FLAGS.unpack_from(data)
        if flags & _UNDEFINED_FLAGS_MASK:
            raise FrameError("content header sets a flag of an undefined property")
        offset = _FLAGS.size
        for flag, _, read, _ in _FIELDS:
            if flags & flag:
                if read is decode_table:
                    value, offset = decode_table(data, offset, max_entries=max_entries)
                else:
                    value, offset = read(data, offset)
                values.append(value)
            else:
                values.append(None)
    except (IndexError, struct.error):
        raise FrameError("content header is truncated") from None
    check_end("content header", data, offset)
    return Properties(*values)


def encode_properties(properties: Properties) -> bytes:
    """Encode properties as flags and values; raises `ValueError` that names the property that does not fit."""
    flags = 0
    pieces = [b""]
    for flag, name, _, write in _FIELDS:
        value = getattr(properties, name)
        if value is not None:
            flags |= flag
            try:
                pieces.append(write(value))
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from None
    pieces[0] = _FLAGS.pack(flags)
    return b"".join(pieces)
