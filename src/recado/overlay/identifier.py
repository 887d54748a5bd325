"""Ids of nodes and keys of topics: positions on a ring of 2**128.

A topic belongs to the node nearest to its key, in either direction of the ring; of two nodes at the same distance to
the one with the numerically smaller id.

A node does not choose its id. The id is an HMAC-SHA256 of the node's address under the secret of the network, so

- without the secret nobody can compute an id, or find an address whose id is near a given topic;
- every peer verifies the id of a node before it enters the node into its view (`node_id` of the claimed address must
  be the claimed id), and a node is only reachable at the address that it claims;
- a restarted node gets its old id and so its old topics: the incarnation is not part of the id.

An address must be in canonical form, since otherwise one node could choose among the ids of `127.0.0.1:4000`,
`127.1:4000` and `localhost.:4000`. A program that has the secret, and many addresses, can still choose among the ids of
those; the secret must be kept.

ID1  Of all nodes exactly one is nearest to a key.
ID2  Going clockwise from node a to the next node b, keys before `boundary(a, b)` are nearest to a, the others to b.
"""

from __future__ import annotations

import hmac
import re
from hashlib import sha256
from ipaddress import IPv6Address, ip_address
from typing import Final

from .errors import InvalidAddressError

RING_MODULUS: Final = 1 << 128
ID_BYTES: Final = 16
DIGIT_BITS: Final = 4
"""Pastry's b: routing uses digits in base 2**b. 4 is the value of its authors' measurements."""
DIGITS_COUNT: Final = 128 // DIGIT_BITS
DIGIT_VALUES_COUNT: Final = 1 << DIGIT_BITS
ADDRESS_CHARACTERS_MAX: Final = 255

_HOST_NAME = re.compile(
    r"(?=.{1,249}\Z)[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?)*"
)
_NUMERIC_END = re.compile(r"(.*\.)?[0-9]+|(.*\.)?0x[0-9a-f]*")
"""Names that resolvers read as an IPv4 address: 127.1 or 0x7f000001."""
_PORT = re.compile(r"[1-9][0-9]{0,4}")
_ID_CONTEXT = b"recado overlay node id\0"


class NodeId(int):
    """The id of a node. Its hexadecimal form is the one in logs."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"{self:032x}"

    __str__ = __repr__


class TopicKey(int):
    """The position of a topic on the ring."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"{self:032x}"

    __str__ = __repr__


def topic_key(name: str) -> TopicKey:
    """Return the first 128 bits of the SHA-256 of the name in UTF-8."""
    return TopicKey.from_bytes(sha256(name.encode()).digest()[:ID_BYTES], "big")


def node_id(secret: bytes, address: str) -> NodeId:
    """Return the id of the node at an address, in the networks with this secret.

    Raises InvalidAddressError if the address is not in canonical form.
    """
    if not is_canonical(address):
        raise InvalidAddressError(
            f"address {address!r} is not in canonical form: HOST:PORT with a lower-case name, "
            "an IPv4 address or an IPv6 address in brackets and in its short form"
        )
    digest = hmac.digest(secret, _ID_CONTEXT + address.encode(), "sha256")
    return NodeId.from_bytes(digest[:ID_BYTES], "big")


def is_canonical(address: str) -> bool:
    """Whether the address is HOST:PORT in the only accepted spelling."""
    host, _, port = address.rpartition(":")
    if len(address) > ADDRESS_CHARACTERS_MAX or not _PORT.fullmatch(port) or int(port) > 65_535:
        return False
    if host.startswith("["):
        return host.endswith("]") and _is_ip_address(host[1:-1], version=6)
    if _NUMERIC_END.fullmatch(host):
        return _is_ip_address(host, version=4)
    return _HOST_NAME.fullmatch(host) is not None


def _is_ip_address(text: str, version: int) -> bool:
    try:
        parsed = ip_address(text)
    except ValueError:
        return False
    if isinstance(parsed, IPv6Address) and (parsed.ipv4_mapped or parsed.scope_id is not None):
        return False
    return parsed.version == version and str(parsed) == text


# ── the ring ──────────────────────────────────────────────────────────────────────────────────────


def clockwise(start: int, end: int) -> int:
    """Return the distance from start to end in the direction of growing ids."""
    return (end - start) % RING_MODULUS


def distance(one: int, other: int) -> int:
    """Return the distance of two positions, in the shorter direction."""
    ahead = (one - other) % RING_MODULUS
    return min(ahead, RING_MODULUS - ahead)


def closeness(key: int, node: int) -> tuple[int, int]:
    """Return a sort key: the node nearest to the key has the smallest."""
    return distance(key, node), node


def boundary(node: int, successor: int) -> int:
    """Return the first key clockwise from a node that is nearer to its successor on the ring.

    With one node only, which is its own successor, all keys are its own; the result is then its own position.
    """
    gap = clockwise(node, successor)
    if gap == 0:
        return int(node)
    half = gap // 2
    keeps_half = gap % 2 == 1 or node < successor
    return (node + half + keeps_half) % RING_MODULUS


# ── digits ────────────────────────────────────────────────────────────────────────────────────────


def digit(position: int, place: int) -> int:
    """Return the digit at a place; place 0 is the most significant."""
    return position >> (128 - DIGIT_BITS * (place + 1)) & (DIGIT_VALUES_COUNT - 1)


def shared_digits(one: int, other: int) -> int:
    """Return the length of the common prefix, in digits."""
    return (128 - (one ^ other).bit_length()) // DIGIT_BITS


# ── the wire ──────────────────────────────────────────────────────────────────────────────────────


def encode_identifier(value: object) -> bytes:
    """Encode an id or key as 16 bytes: the `enc_hook` of msgspec."""
    if isinstance(value, NodeId | TopicKey):
        return value.to_bytes(ID_BYTES, "big")
    raise NotImplementedError(f"cannot encode {type(value).__name__}")


def decode_identifier(kind: type, value: object) -> NodeId | TopicKey:
    """Decode an id or key: the `dec_hook` of msgspec."""
    if kind not in (NodeId, TopicKey):
        raise NotImplementedError(f"cannot decode {kind.__name__}")
    if not isinstance(value, bytes) or len(value) != ID_BYTES:
        raise ValueError(f"an id has {ID_BYTES} bytes")
    number = int.from_bytes(value, "big")
    return NodeId(number) if kind is NodeId else TopicKey(number)
