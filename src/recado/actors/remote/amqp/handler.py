"""What a bridge has for whoever uses it: messages that came, messages that came back, and how it stands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from recado.amqp.errors import ProtocolError
from recado.amqp.properties import decode_properties


class Arrival:
    """A message that the broker delivered. It comes again, unless it is settled, once."""

    __slots__ = ("_settle", "_tag", "body", "header")

    def __init__(
        self, settle: Callable[[int, bool], None], tag: int, header: bytes, body: bytes
    ) -> None:
        self._settle = settle
        self._tag = tag
        self.header = header
        self.body = body

    def settle(self, taken: bool) -> None:
        """True: the broker may forget it. False: nobody wants it, and it is not to come again."""
        self._settle(self._tag, taken)

    @property
    def client(self) -> str:
        """The id of the client bridge that sent it, as it says; empty if it says none."""
        return client_of(self.header)


def client_of(header: bytes) -> str:
    try:
        return decode_properties(header, max_entries=64).reply_to or ""
    except ProtocolError:
        return ""


class MessageHandler(Protocol):
    def received(self, messages: list[Arrival]) -> bool:
        """True: acknowledge them. False: not now; who has them settles each, or it comes again.

        They came together, at least one.
        """

    def rejected(self, key: str, body: bytes, reason: str) -> None:
        """The broker gave this back: nobody has a queue for it, or it was refused."""


class Watcher(Protocol):
    """Who is told how a bridge stands; the application, in the end."""

    def lost(self, reason: str) -> None:
        """It has no way to the broker, or the broker none to the node. It is being rebuilt."""

    def healed(self) -> None: ...

    def gone(self, reason: str) -> None:
        """It was not rebuilt in time, and nobody tries any more."""
