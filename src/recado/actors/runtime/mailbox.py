"""What waits for an actor, and what a mailbox has to be able to do.

The usual one is Python's own SimpleQueue: anybody may put, from any thread, and an empty one takes 180 bytes
where a deque takes 790 (100,000 actors: 18 MB and 79 MB), for 35 ns more per message. How many may wait is
not its matter but the cell's (`capacity`, pressure.py), so each kind of mailbox can be bounded.

MB1  `put` never waits and never fails; whatever was put is got once, in order.
MB2  Only who runs the cell gets, one at a time; unless a dispatcher says otherwise by stealing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:
    from recado.actors.ref import ActorRef, Reply

# A plain tuple is made in 30 ns, a class of ours in 150: (message, sender, where the answer goes).
MessageEnvelope: TypeAlias = "tuple[Any, ActorRef[Any] | None, Reply | None]"


class Mailbox(Protocol):
    def put(self, envelope: MessageEnvelope) -> None:
        """From any thread."""

    def get_nowait(self) -> MessageEnvelope:
        """queue.Empty if there is none."""

    def qsize(self) -> int: ...


# Of a message from another node: the incarnation of who sent it, and its number there.
Origin: TypeAlias = tuple[bytes, int]
StoredCallback: TypeAlias = Callable[[BaseException | None], object]


class DurableMailboxPort(Mailbox, Protocol):
    """One that remembers: the cell tells it what became of each message, and when its actor has stopped."""

    def attach(self, wake: Callable[[], None]) -> None:
        """`wake` is for what comes by another way than the actor's own reference. From any thread."""

    def put_durably(
        self, envelope: MessageEnvelope, origin: Origin | None, on_stored: StoredCallback | None
    ) -> None:
        """Put one, and call `then` when it is safe, or cannot be made so. One with an origin may come again: if
        that is known already, only `then` is called."""

    def when_stored(self, on_stored: StoredCallback) -> None:
        """Call `then` when all that was put so far is safe, or cannot be made so."""

    def acknowledge(self, envelope: MessageEnvelope, failure: BaseException | None) -> bool:
        """The handler of what `get_nowait` gave has ended. False: it failed, and will be given again."""

    def close(self) -> None: ...


# Called for each new actor. `deque` would do as well if it had other names for the same.
MailboxFactory: TypeAlias = Callable[[], Mailbox]
UnboundedMailbox: MailboxFactory = SimpleQueue


class DurableMailboxesPort(Protocol):
    """Where lasting ones come from, by name; recado.actors.durable_mailbox has them."""

    def mailbox(self, name: str, *, attempts_max: int = ...) -> MailboxFactory:
        """For `spawn`."""

    def pending_counts(self) -> dict[str, int]:
        """How much is in each mailbox that has something."""


class RequeueMailbox:
    """A mailbox with something before it: what was put back."""

    __slots__ = ("_mailbox", "_requeued", "put")

    def __init__(self, mailbox: Mailbox) -> None:
        self._requeued: list[MessageEnvelope] = []  # the first is the last
        self._mailbox = mailbox
        self.put = mailbox.put

    def requeue(self, envelopes: Iterable[MessageEnvelope]) -> None:
        """Before everything else, in this order."""
        self._requeued.extend(reversed(list(envelopes)))

    def get_nowait(self) -> MessageEnvelope:
        try:
            return self._requeued.pop()
        except IndexError:
            return self._mailbox.get_nowait()

    def qsize(self) -> int:
        return len(self._requeued) + self._mailbox.qsize()


def drain(mailbox: Mailbox) -> list[MessageEnvelope]:
    """All that is in it, taken out."""
    envelopes = []
    while mailbox.qsize():
        try:
            envelopes.append(mailbox.get_nowait())
        except Empty:  # stolen meanwhile
            break
    return envelopes
