"""How a connection begins: each end has the other prove that it has the cookie, and that it is there now.

    | "recado-a" | challenge 16 |   each to the other, at once
    | proof 16 |                    when the other's challenge has come; frames behind it

A proof is the mac of both challenges and of the side that gives it, so it fits one end of one connection.

HS1  Of what was recorded on one connection nothing is taken on another, not even by the next life of a node.
HS2  Who cannot prove itself is not heard, but told so: its frames are refused.
"""

from __future__ import annotations

from typing import Final, Protocol

from recado.actors.remote.faults import BadFrame

MAGIC: Final = b"recado-a"
CHALLENGE: Final = 16
GREETING: Final = len(MAGIC) + CHALLENGE
PROOF: Final = 16


class Prover(Protocol):
    """Who has the cookie."""

    def prove(self, text: bytes) -> bytes: ...

    def is_proved(self, text: bytes, proof: bytes) -> bool: ...


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

    def accepts(self, proof: bytes) -> bool:
        return self._prover.is_proved(self._text(calls=not self.calls), proof)

    def _text(self, *, calls: bool) -> bytes:
        """What the one who called proves, or the other."""
        ours_first = self._ours + self._theirs if self.calls else self._theirs + self._ours
        return (b"I called " if calls else b"I was called ") + ours_first
