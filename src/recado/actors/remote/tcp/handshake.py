"""How a connection begins: each end has the other prove that it has the cookie, and that it is there now.

    | "recado-a" | challenge 16 |   each to the other, at once
    | proof 16 |                    when the other's challenge has come; frames behind it

A proof is the mac of both challenges and of the side that gives it, so it fits one end of one connection. So do
the keys by which each end vouches for what it sends.

HS1  Of what was recorded on one connection nothing is taken on another, not even by the next life of a node,
     and not if somebody between two ends adds it to what they say.
HS2  Who cannot prove itself is not heard, but told so: its frames are refused.
"""

from __future__ import annotations

from hashlib import blake2b
from hmac import compare_digest
from typing import Final, Protocol

from recado.actors.remote.faults import BadFrame

MAGIC: Final = b"recado-a"
CHALLENGE: Final = 16
GREETING: Final = len(MAGIC) + CHALLENGE
PROOF: Final = 16


class Prover(Protocol):
    """Who has the cookie."""

    def prove(self, text: bytes) -> bytes: ...

    def proofs(self, text: bytes) -> list[bytes]: ...


class Vouching:
    """For all that one end has sent so far: by macs between what it sends, each of everything before it."""

    __slots__ = ("_sent",)

    def __init__(self, key: bytes) -> None:
        self._sent = blake2b(key=key, digest_size=PROOF)

    def take(self, data: bytes) -> None:
        self._sent.update(data)

    def mac(self) -> bytes:
        return self._sent.copy().digest()


class Handshake:
    """One end of a connection; `calls` if it is the one that made it."""

    def __init__(self, prover: Prover, challenge: bytes, *, calls: bool) -> None:
        self._prover = prover
        self._ours = challenge
        self._theirs = b""
        self.calls = calls
        self.greeting = MAGIC + challenge

    def answer(self, greeting: bytes) -> bytes:
        """Our proof. Raises BadFrame if it is not the greeting of a node."""
        if not greeting.startswith(MAGIC):
            raise BadFrame("not a node of actors")
        self._theirs = greeting[len(MAGIC) :]
        return self._prover.prove(self._text(calls=self.calls))

    def vouching(self) -> Vouching:
        """For what we send."""
        return Vouching(self._prover.prove(b"frames: " + self._text(calls=self.calls)))

    def accepts(self, proof: bytes) -> Vouching | None:
        """What must be with all that the other end sends; None if it has no cookie that is accepted."""
        text = self._text(calls=not self.calls)
        keys = self._prover.proofs(b"frames: " + text)
        for accepted, key in zip(self._prover.proofs(text), keys, strict=True):
            if compare_digest(accepted, proof):
                return Vouching(key)
        return None

    def _text(self, *, calls: bool) -> bytes:
        """What the one who called proves, or the other."""
        ours_first = self._ours + self._theirs if self.calls else self._theirs + self._ours
        return (b"I called " if calls else b"I was called ") + ours_first
