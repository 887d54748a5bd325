"""Messages that entered queues and are not in the journal yet, and messages that are nowhere else."""

from typing import TYPE_CHECKING

import msgspec

from recado.amqp.facts import Facts
from recado.broker.run import Origin, Run

from .records import NEVER

if TYPE_CHECKING:
    from .account import Account, Stretch


_MOST = 1024  # messages that came one by one are told together


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
    owned: bool = False
    """The list of tails is nobody else's."""
    shelved: bool = False
    """A shelf has them by themselves, so no others may join them."""

    def precedes(self, account: "Account", run: Run) -> bool:
        """Whether other messages can be told together with these: alike, and behind them in the same queue."""
        if self.origin is not run.origin or len(self.entered) != 1 or self.shelved:
            return False
        (here,) = self.entered
        expires = NEVER if run.expires is None else run.expires
        return (
            here.account is account
            and not here.loan
            and here.first + self.count == run.first
            and here.expires == expires
            and self.facts is run.facts
            and self.channel == run.channel
            and self.frame_max == run.frame_max
            and self.head == run.head
            and self.count < _MOST
        )

    def take(self, tails: list[bytes]) -> None:
        """Add those that follow; the list is ours from now on."""
        if not self.owned:
            self.tails = self.tails[: self.count]
            self.owned = True
        self.tails += tails
        self.count += len(tails)

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
