"""Messages that entered queues and are not in the journal yet, and messages that are nowhere else."""

from typing import TYPE_CHECKING

import msgspec

from recado.amqp.facts import Facts
from recado.broker.run import Origin, Run

from .records import NEVER

if TYPE_CHECKING:
    from .account import Account, Stretch


class Entered(msgspec.Struct):
    """The messages in one of their queues."""

    account: "Account"
    first: int
    expires: int
    loan: bool


class Gathered(msgspec.Struct):
    """Messages, once for all their queues.

    A lane may append to the list of tails: only the first `count` are these.
    """

    origin: Origin
    facts: Facts
    channel: int
    frame_max: int
    head: bytes
    tails: list[bytes]
    count: int
    entered: list[Entered]

    def run(self, entered: Entered) -> Run:
        """As it entered one of the queues."""
        return Run(
            *(self.origin, self.facts, self.channel, self.frame_max, self.head),
            tails=self.tails[: self.count],
            owned=True,
            first=entered.first,
            expires=None if entered.expires == NEVER else entered.expires,
            kept=True,
        )


class Shelf:
    """What of a lane is on disk only: all that is live from the place `next` on."""

    __slots__ = ("next", "portion", "position", "stored", "stretch", "waiting")

    def __init__(self, first: int) -> None:
        self.next = first
        self.stretch: Stretch | None = None
        self.position = 0
        """The stretch that was read last, and how far it was."""
        self.stored = 0
        """Messages that can be read from the journal."""
        self.waiting: list[tuple[Gathered, Entered]] = []
        """Behind those: not rendered yet."""
        self.portion = 0
        """Bytes that were fetched last; who fetches again gets more at a time."""
