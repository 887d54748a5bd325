"""What a core asks of the code that runs it, besides what is particular to the core."""

from typing import Generic, TypeVar

from msgspec import Struct

from .peer_address import PeerAddress

Message = TypeVar("Message")


class SendTo(Struct, Generic[Message], frozen=True):
    """Send a message to a peer. It may arrive never, once or twice, and out of order."""

    to: PeerAddress
    message: Message


class SetTimer(Struct, frozen=True):
    """Hand a `TimerExpired` with this name to the core after a delay; replaces the timer with the same name."""

    name: str
    delay: float


class TimerExpired(Struct, frozen=True):
    """The event of a timer. A core ignores one that it has replaced or no longer needs."""

    name: str
