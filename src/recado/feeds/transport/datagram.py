"""The format of datagrams.

    | magic u16 0xFEED | version u8 1 | route u8 | feed u8 + bytes | sender u8 + bytes | to u8 + bytes |
    | packet … |

`route` is 0 for broadcast and 1 for addressed. `sender` and `to` are member ids as text; `to` is empty for
broadcasts, and may be `members`, `archives` or `coordinators` otherwise. Several feeds may share a group and
port: members drop datagrams of other feeds.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

DATAGRAM_MAGIC_CODE: Final = 0xFEED
VERSION: Final = 1
_HEADER_LAYOUT: Final = struct.Struct(">HBB")
_MIN_DATAGRAM_BYTES: Final = _HEADER_LAYOUT.size + 3


class Datagram(NamedTuple):
    is_addressed: bool
    feed: str
    sender: str
    to: str
    packet: bytes


def encode(datagram: Datagram) -> bytes:
    parts = [_HEADER_LAYOUT.pack(DATAGRAM_MAGIC_CODE, VERSION, datagram.is_addressed)]
    for text in (datagram.feed, datagram.sender, datagram.to):
        data = text.encode()
        parts += (bytes((len(data),)), data)
    parts.append(datagram.packet)
    return b"".join(parts)


def decode(data: bytes) -> Datagram | None:
    """Return None for anything that is not a datagram of ours: any host may send to the group."""
    if len(data) < _MIN_DATAGRAM_BYTES:
        return None
    magic, version, route = _HEADER_LAYOUT.unpack_from(data)
    if magic != DATAGRAM_MAGIC_CODE or version != VERSION or route > 1:
        return None
    at = _HEADER_LAYOUT.size
    texts = []
    try:
        for _ in range(3):
            end = at + 1 + data[at]
            texts.append(data[at + 1 : end].decode())
            at = end
    except (IndexError, UnicodeDecodeError):
        return None
    if at > len(data):
        return None
    feed, sender, to = texts
    return Datagram(bool(route), feed, sender, to, data[at:])
