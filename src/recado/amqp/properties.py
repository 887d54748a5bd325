"""Basic properties: what a message says about itself.

    | flags u16 | the properties whose flags are set, in order … |

The highest flag is the first property's. Fourteen are defined; bit 1 belongs to none, and bit 0
would announce further flags, which AMQP 0-9-1 never needs. The broker forwards properties as the
bytes it received: it decodes them to look, and encodes only what it must change.

Clients do send strings here that are not UTF-8, and RabbitMQ passes them on. They decode with
surrogate escapes, so that encoding gives the same octets again.
"""

import struct
from typing import Any, Final, get_args

import msgspec

from .codec import WIRE_TYPES, FieldReader, FieldWriter, check_end, make_short_string_type
from .errors import FrameError
from .methods import LongLong, Octet, ShortStr, Table
from .values import MAX_ENTRY_COUNT, decode_table


class Properties(msgspec.Struct):
    """In wire order; None is absent, which is not the same as empty."""

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

# flag, name, how it is read, how it is written
_FIELDS: Final[tuple[tuple[int, str, FieldReader, FieldWriter], ...]] = tuple(
    (0x8000 >> place, name, *_WIRE_TYPES[get_args(annotation)[0]])
    for place, (name, annotation) in enumerate(Properties.__annotations__.items())
)


def decode_properties(data: bytes, *, max_entries: int = MAX_ENTRY_COUNT) -> Properties:
    """The properties of a content header: all of its payload after the body's size.

    `max_entries` bounds the headers. A peer's are limited; a broker that added to them, as
    dead-lettering does, reads its own work with a higher bound.
    """
    values: list[Any] = []
    try:
        (flags,) = _FLAGS.unpack_from(data)
        if flags & _UNDEFINED_FLAGS_MASK:
            raise FrameError("a flag of a property that does not exist is set")
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
        raise FrameError("a content header is cut short") from None
    check_end("a content header", data, offset)
    return Properties(*values)


def encode_properties(properties: Properties) -> bytes:
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
