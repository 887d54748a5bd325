"""Mailboxes: the queue of an actor, and the interfaces that other kinds of mailboxes implement.

The default is Python's SimpleQueue. Any thread may put into it, and an empty one takes 180 bytes where a deque
takes 790 (100,000 actors: 18 MB instead of 79 MB), for 35 ns more per message. A mailbox does not know its
bound: the cell has the `capacity` and applies backpressure (backpressure.py), so every kind of mailbox can be
bounded.

MB1  `put` never blocks and never fails; every envelope that was put is returned once by `get_nowait`, in order.
MB2  Only the holder of the cell's claim calls `get_nowait`. There are two exceptions: the other actors of a work
     stealing pool, and the dead letter office, which drains the mailbox of a stopped cell.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:
    from recado.actors.ref import ActorRef, Reply

# (message, sender, reply). Creating a tuple takes 30 ns, an instance of a class 150 ns.
MessageEnvelope: TypeAlias = "tuple[Any, ActorRef[Any] | None, Reply | None]"


class Mailbox(Protocol):
    def put(self, envelope: MessageEnvelope) -> None:
        """Append an envelope. From any thread."""

    def get_nowait(self) -> MessageEnvelope:
        """Remove and return the first envelope. Raises queue.Empty."""

    def qsize(self) -> int: ...


# Called for each new actor.
MailboxFactory: TypeAlias = Callable[[], Mailbox]
UnboundedMailbox: MailboxFactory = SimpleQueue

# Identifies a message from another node: the incarnation of its sender, and its sequence number there.
Origin: TypeAlias = tuple[bytes, int]
# Called with None when a message is on disk, or with the reason why it cannot be stored.
StoredCallback: TypeAlias = Callable[[BaseException | None], object]


class DurableMailboxPort:
    """A mailbox that stores its messages. The cell notifies it of the outcome of each message, and closes it
    when the actor has stopped.

    A plain class and no ABC, because `isinstance` is on the path of every spawn (40 ns instead of 200).
    """

    def attach(self, wake: Callable[[], None]) -> None:
        """Set the function that wakes the cell. The mailbox calls it, from any thread, when it gets a message
        that was not delivered by this cell, such as one for an earlier actor with the same mailbox."""
        raise NotImplementedError

    def put(self, envelope: MessageEnvelope) -> None:
        raise NotImplementedError

    def get_nowait(self) -> MessageEnvelope:
        raise NotImplementedError

    def qsize(self) -> int:
        raise NotImplementedError

    def put_durably(
        self, envelope: MessageEnvelope, origin: Origin | None, on_stored: StoredCallback | None
    ) -> None:
        """Put an envelope, and call `on_stored` when it is on disk or cannot be stored. An envelope with an
        origin may be redelivered: if the origin is known, the envelope is dropped and only `on_stored` is
        called."""
        raise NotImplementedError

    def when_stored(self, on_stored: StoredCallback) -> None:
        """Call `on_stored` when everything that was put so far is on disk, or cannot be stored."""
        raise NotImplementedError

    def acknowledge(self, envelope: MessageEnvelope, failure: BaseException | None) -> bool:
        """Report that the handler of an envelope has ended. Returns False if it failed and the message will be
        retried."""
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError


class DurableMailboxesPort(Protocol):
    """The durable mailboxes of a system, by name; implemented by recado.actors.durable_mailbox."""

    def mailbox(self, name: str, *, attempts_max: int = ...) -> MailboxFactory:
        """Return the factory of one mailbox, for `spawn`."""

    def pending_counts(self) -> dict[str, int]:
        """Return the number of messages in each mailbox that has any."""


class RequeueMailbox:
    """Wraps a mailbox, and returns requeued envelopes before those of the mailbox."""

    __slots__ = ("_mailbox", "_requeued", "put")

    def __init__(self, mailbox: Mailbox) -> None:
        self._requeued: list[MessageEnvelope] = []  # in reverse order: the next one is the last
        self._mailbox = mailbox
        self.put = mailbox.put

    def requeue(self, envelopes: Iterable[MessageEnvelope]) -> None:
        """Put envelopes before everything else, in this order."""
        self._requeued.extend(reversed(list(envelopes)))

    def get_nowait(self) -> MessageEnvelope:
        try:
            return self._requeued.pop()
        except IndexError:
            return self._mailbox.get_nowait()

    def qsize(self) -> int:
        return len(self._requeued) + self._mailbox.qsize()


def drain(mailbox: Mailbox) -> list[MessageEnvelope]:
    """Remove and return everything that is in a mailbox."""
    envelopes = []
    while mailbox.qsize():
        try:
            envelopes.append(mailbox.get_nowait())
        except Empty:  # stolen by another actor meanwhile
            break
    return envelopes
