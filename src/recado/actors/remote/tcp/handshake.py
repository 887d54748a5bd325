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

from recado.actors.remote.errors import InvalidFrameError

MAGIC: Final = b"recado-a"
CHALLENGE_BYTES: Final = 16
HELLO_BYTES: Final = len(MAGIC) + CHALLENGE_BYTES
PROOF_BYTES: Final = 16


class CookieProver(Protocol):
    """Who has the cookie."""

    def make_proof(self, text: bytes) -> bytes: ...

    def accepted_proofs(self, text: bytes) -> list[bytes]: ...


class StreamMac:
    """For all that one end has sent so far: by macs between what it sends, each of everything before it."""

    __slots__ = ("_hash",)

    def __init__(self, key: bytes) -> None:
        self._hash = blake2b(key=key, digest_size=PROOF_BYTES)

    def update(self, data: bytes) -> None:
        self._hash.update(data)

    def digest(self) -> bytes:
        return self._hash.copy().digest()


class Handshake:
    """One end of a connection; `calls` if it is the one that made it."""

    def __init__(self, prover: CookieProver, challenge: bytes, *, is_initiator: bool) -> None:
        self._prover = prover
        self._our_challenge = challenge
        self._peer_challenge = b""
        self.is_initiator = is_initiator
        self.hello = MAGIC + challenge

    def respond(self, hello: bytes) -> bytes:
        """Our proof. Raises BadFrame if it is not the greeting of a node."""
        if not hello.startswith(MAGIC):
            raise InvalidFrameError("not a node of actors")
        self._peer_challenge = hello[len(MAGIC) :]
        return self._prover.make_proof(self._transcript(of_initiator=self.is_initiator))

    def outgoing_mac(self) -> StreamMac:
        """For what we send."""
        return StreamMac(
            self._prover.make_proof(b"frames: " + self._transcript(of_initiator=self.is_initiator))
        )

    def verify_proof(self, proof: bytes) -> StreamMac | None:
        """What must be with all that the other end sends; None if it has no cookie that is accepted."""
        text = self._transcript(of_initiator=not self.is_initiator)
        keys = self._prover.accepted_proofs(b"frames: " + text)
        for accepted, key in zip(self._prover.accepted_proofs(text), keys, strict=True):
            if compare_digest(accepted, proof):
                return StreamMac(key)
        return None

    def _transcript(self, *, of_initiator: bool) -> bytes:
        """What the one who called proves, or the other."""
        ours_first = (
            self._our_challenge + self._peer_challenge
            if self.is_initiator
            else self._peer_challenge + self._our_challenge
        )
        return (b"I called " if of_initiator else b"I was called ") + ours_first
