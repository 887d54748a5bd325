"""The handshake of a TCP connection: both ends prove that they have the cookie, by challenge and response.

    | "recado-a" | challenge 16 |   hello: both ends send it at once
    | proof 16 |                    sent after the peer's hello; frames may follow immediately

A proof is the MAC of both challenges and of the role of its sender, so it is valid for one end of one
connection only. The keys of the MACs that protect the frames (`StreamMac`) are derived in the same way.

HS1  Nothing recorded on one connection is accepted on another one, not even by the next incarnation of a node,
     and not if an attacker between the two ends inserts it.
HS2  Frames of a peer without a valid proof are not processed; each is answered by a refusal.
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
    """Makes and checks proofs of having the cookie; the node implements it."""

    def make_proof(self, text: bytes) -> bytes: ...

    def accepted_proofs(self, text: bytes) -> list[bytes]:
        """Return the valid proofs: with our cookie, and with none unless one is required, always in this order."""


class StreamMac:
    """A running MAC over all bytes sent by one end of a connection."""

    __slots__ = ("_hash",)

    def __init__(self, key: bytes) -> None:
        self._hash = blake2b(key=key, digest_size=PROOF_BYTES)

    def update(self, data: bytes) -> None:
        self._hash.update(data)

    def digest(self) -> bytes:
        """Return the MAC of everything so far."""
        return self._hash.copy().digest()


class Handshake:
    """One end of the handshake; the initiator is the end that opened the connection."""

    def __init__(self, prover: CookieProver, challenge: bytes, *, is_initiator: bool) -> None:
        self._prover = prover
        self._our_challenge = challenge
        self._peer_challenge = b""
        self.is_initiator = is_initiator
        self.hello = MAGIC + challenge

    def respond(self, hello: bytes) -> bytes:
        """Return our proof for the peer's hello. Raises InvalidFrameError if that is not from a node."""
        if not hello.startswith(MAGIC):
            raise InvalidFrameError("the peer is not a recado actor node")
        self._peer_challenge = hello[len(MAGIC) :]
        return self._prover.make_proof(self._transcript(of_initiator=self.is_initiator))

    def outgoing_mac(self) -> StreamMac:
        """Return the MAC for the frames that we send."""
        transcript = self._transcript(of_initiator=self.is_initiator)
        return StreamMac(self._prover.make_proof(b"frames: " + transcript))

    def verify_proof(self, proof: bytes) -> StreamMac | None:
        """Return the MAC for the frames of the peer; None if its cookie is not accepted."""
        transcript = self._transcript(of_initiator=not self.is_initiator)
        keys = self._prover.accepted_proofs(b"frames: " + transcript)
        for accepted, key in zip(self._prover.accepted_proofs(transcript), keys, strict=True):
            if compare_digest(accepted, proof):
                return StreamMac(key)
        return None

    def _transcript(self, *, of_initiator: bool) -> bytes:
        """Return the text over which the proof of the initiator, or of the other end, is made."""
        if self.is_initiator:
            challenges = self._our_challenge + self._peer_challenge
        else:
            challenges = self._peer_challenge + self._our_challenge
        return (b"I called " if of_initiator else b"I was called ") + challenges
