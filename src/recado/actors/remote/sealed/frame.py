"""Frames: what goes between nodes, sealed with the cookie that they share and that is never sent.

    | version u8 | incarnation 16 | sequence u64 | mac 16 | envelope |      version 1
    | 0 u8       | incarnation 16 | sequence u64 | reason u8 | why … |      a refusal of that frame

The mac is BLAKE2b, keyed with the cookie, over all but itself. A refusal has none: it goes to those who do not
have the key. It names 16 random bytes that only the two ends have seen, so nobody else can make one up. `why`
is UTF-8 of at most WHY_BYTES_MOST, and is there only if the refused frame had the seal.

An *incarnation* is one life of a sender towards one peer; its sequence begins at 1. A refusal of sequence 0 is
one of all its frames: another node of the same name has replaced it.

F1  `Seal.open` gives an envelope only if it is sealed with a key that this node accepts; nothing is decoded.
F2  A sealer never uses a sequence twice.
F3  What proves that somebody has the cookie is no mac of any frame.
F4  A frame is never larger than the limit, neither one that is sealed nor one that is opened.
"""

from __future__ import annotations

from hashlib import blake2b
from hmac import compare_digest
from typing import Final, NamedTuple, TypeAlias

from recado.actors.remote.faults import BadFrame, CannotSerialise, Refusal

VERSION: Final = 1
REFUSAL: Final = 0
INCARNATION: Final = 16
HEAD: Final = 1 + INCARNATION + 8
MAC: Final = 16
OVERHEAD: Final = HEAD + MAC
REFUSAL_SIZE: Final = HEAD + 1
ALL_FRAMES: Final = 0
WHY_BYTES_MOST: Final = 512
_PROOF: Final = b"recado actors, a proof: "


Opened: TypeAlias = tuple[bytes, int, bytes]
"""Incarnation, sequence and envelope. A plain tuple: one with names takes 0.3 µs longer, for each frame."""


class RefusedFrame(NamedTuple):
    incarnation: bytes
    sequence: int
    reason: Refusal
    why: str = ""


class WrongSeal(BadFrame):
    """Not sealed with a key that is accepted. What it says of itself is good for a refusal, and no more."""

    def __init__(self, incarnation: bytes, sequence: int) -> None:
        super().__init__("not sealed with the cookie of this node")
        self.incarnation = incarnation
        self.sequence = sequence


def _keyed(cookie: str) -> blake2b:
    if not cookie:
        return blake2b(digest_size=MAC)
    # A cookie may be longer than a key may be.
    key = blake2b(cookie.encode(), digest_size=32, person=b"recado-actors").digest()
    return blake2b(digest_size=MAC, key=key)


class Seal:
    """Makes and checks macs. Without `required`, frames of those who have no cookie are accepted too."""

    def __init__(self, cookie: str = "", *, required: bool = False, limit: int = 1 << 20) -> None:
        if required and not cookie:
            raise ValueError("a node that requires a cookie must have one")
        self.limit = limit
        # A copy of a hash that has taken in its key costs 0.7 µs, a new one 1.2 (150 bytes).
        self.keyed = _keyed(cookie)
        self._accepted = [self.keyed]
        if cookie and not required:
            self._accepted.append(_keyed(""))

    def prove(self, text: bytes) -> bytes:
        """That we have the cookie. No frame begins as this does, so no mac of one is a proof of anything."""
        mac = self.keyed.copy()
        mac.update(_PROOF + text)
        return mac.digest()

    def proofs(self, text: bytes) -> list[bytes]:
        """Those that are accepted, one for each cookie: always in the same order."""
        macs = [keyed.copy() for keyed in self._accepted]
        for mac in macs:
            mac.update(_PROOF + text)
        return [mac.digest() for mac in macs]

    def open(self, frame: bytes) -> Opened:
        """Raises BadFrame, and WrongSeal if it is a frame, but not for us to look into."""
        head = frame[:HEAD]
        if not OVERHEAD <= len(frame) <= self.limit or head[0] != VERSION:
            raise BadFrame(f"{len(frame)} bytes that begin with {frame[:1]!r} are no frame")
        envelope = frame[OVERHEAD:]
        said = frame[HEAD:OVERHEAD]
        for keyed in self._accepted:
            mac = keyed.copy()
            mac.update(head)
            mac.update(envelope)
            if compare_digest(mac.digest(), said):
                return head[1:17], int.from_bytes(head[17:]), envelope
        raise WrongSeal(head[1:17], int.from_bytes(head[17:]))


class Sealer:
    """One incarnation: seals envelopes with ever higher sequences."""

    __slots__ = ("_keyed", "_most", "_prefix", "incarnation", "sequence")

    def __init__(self, seal: Seal, incarnation: bytes) -> None:
        if len(incarnation) != INCARNATION:
            raise ValueError(f"an incarnation has {INCARNATION} bytes")
        self._keyed = seal.keyed
        self._most = seal.limit - OVERHEAD
        self._prefix = bytes([VERSION]) + incarnation
        self.incarnation = incarnation
        self.sequence = 0  # of the last frame

    def seal(self, envelope: bytes) -> bytes:
        """Raises CannotSerialise if it would be too large."""
        if len(envelope) > self._most:
            raise CannotSerialise(
                f"an envelope of {len(envelope)} bytes is more than the {self._most} of a frame",
                "Raise frame_limit on both nodes, or send less at a time",
            )
        self.sequence = sequence = self.sequence + 1
        head = self._prefix + sequence.to_bytes(8)
        mac = self._keyed.copy()
        mac.update(head)
        mac.update(envelope)
        return head + mac.digest() + envelope


def refuse(incarnation: bytes, sequence: int, reason: Refusal, why: str = "") -> bytes:
    said = why.encode(errors="replace")[:WHY_BYTES_MOST]
    return bytes([REFUSAL]) + incarnation + sequence.to_bytes(8) + bytes([reason]) + said


def is_refusal(frame: bytes) -> bool:
    return 0 <= len(frame) - REFUSAL_SIZE <= WHY_BYTES_MOST and frame[0] == REFUSAL


def open_refusal(frame: bytes) -> RefusedFrame:
    """Raises BadFrame."""
    try:
        reason = Refusal(frame[HEAD])
    except ValueError:
        raise BadFrame(f"a refusal for an unknown reason, {frame[HEAD]}") from None
    return RefusedFrame(
        frame[1 : 1 + INCARNATION],
        int.from_bytes(frame[1 + INCARNATION : HEAD]),
        reason,
        frame[REFUSAL_SIZE:].decode(errors="ignore"),
    )
