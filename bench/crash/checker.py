"""Checks from a history alone whether a broker has fulfilled its guarantees.

C1  lost        A confirmed or committed message is delivered until it is acked, in each of its queues (or, once
    it is dead-lettered, in the dead-letter queue).
C2  phantom     No message is delivered that was not sent to that queue, or was refused, returned, rolled back
    or never committed, or is transient and of an earlier incarnation, or was not dead-lettered.
C3  damaged     A delivered message has the bytes that were sent.
C4  disorder    First deliveries of the messages of a publisher are in the order of sending, per queue and
    priority; also over incarnations, and also, in each incarnation, among redeliveries.
C5  duplicate   A message is redelivered only if it was requeued, or its consumer or the broker ended and its
    ack may have been lost on the way.
C6  flag        A message is marked as redelivered if and only if it was delivered before.
C7  torn        All messages of a transaction arrive or none.
C8  topology    Declared objects exist, and deleted ones do not.

If a message was acked, but the ack may have been lost, it may be delivered again: that is counted, as `again`,
and no violation. Pure: no clock, no randomness, no files.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum, auto

from bench.crash import history as h
from bench.crash.history import Message
from bench.crash.verdict import Kind, Verdict, Violation


def check(events: Iterable[h.AnyEvent]) -> Verdict:
    """Check a complete history, in whose last incarnation all queues were emptied."""
    checker = Checker()
    for event in events:
        checker.feed(event)
    return checker.finish()


class State(Enum):
    """Of the copy of a message in one queue, as far as clients can know."""

    OUT = auto()
    RETURNED = auto()
    SETTLED = auto()
    KEPT = auto()


class Copy:
    """A message in one queue, once it was delivered there."""

    __slots__ = ("acked", "consumer", "entries", "incarnation", "rejects", "state")

    def __init__(self, incarnation: int, consumer: str) -> None:
        self.incarnation = incarnation
        self.consumer = consumer
        self.state = State.OUT
        self.acked = False
        self.rejects = 0
        self.entries = 1

    def out(self, incarnation: int, consumer: str) -> None:
        self.incarnation, self.consumer, self.state = incarnation, consumer, State.OUT


class Fate(Enum):
    """Of a sent message."""

    UNKNOWN = auto()
    KEPT = auto()
    REFUSED = auto()
    RETURNED = auto()


@dataclass(slots=True)
class Record:
    """What is known of a message, besides its copies."""

    sent: h.Sent
    fate: Fate = Fate.UNKNOWN


class Commit(Enum):
    ASKED = auto()
    DONE = auto()


@dataclass
class Heights:
    """The highest number of a publisher's first deliveries, by priority."""

    unflagged: dict[tuple[str, int], int] = field(default_factory=dict)
    """Of those that were not marked as redelivered."""
    any: dict[tuple[str, int], int] = field(default_factory=dict)
    """Of the messages that were not delivered in this incarnation."""


class Checker:
    def __init__(self) -> None:
        self._verdict = Verdict()
        self._records: dict[Message, Record] = {}
        self._transactions: dict[tuple[str, int], list[Message]] = defaultdict(list)
        self._commits: dict[tuple[str, int], Commit] = {}
        self._copies: dict[tuple[str, Message], Copy] = {}
        self._sources: dict[str, h.Lettered] = {}
        """By the queue for the dead."""
        self._targets: dict[str, str] = {}
        self._there: dict[str, bool | None] = {}
        # Of the present incarnation: the deliveries of each consumer, and all deliveries; of all earlier ones: the
        # positions.
        self._incarnation = 0
        self._heights: dict[tuple[str, str], Heights] = defaultdict(Heights)
        self._left: dict[str, set[str]] = defaultdict(set)
        self._floors: dict[str, dict[tuple[str, int], int]] = defaultdict(dict)

    # ── what happens ──────────────────────────────────────────────────────────────────────────────

    def feed(self, event: h.AnyEvent) -> None:
        match event:
            case h.Sent():
                self._count("sent")
                self._records[event.message] = Record(event)
                if event.transaction is not None:
                    publisher = event.message[0]
                    self._transactions[publisher, event.transaction].append(event.message)
            case h.Confirmed(message):
                self._count("confirmed")
                self._decided(message, Fate.KEPT)
            case h.Refused(message):
                self._count("refused")
                self._decided(message, Fate.REFUSED)
            case h.Returned(message):
                self._count("returned")
                self._decided(message, Fate.RETURNED)
            case h.CommitAsked(publisher, number):
                self._commits[publisher, number] = Commit.ASKED
            case h.Committed(publisher, number):
                self._count("committed")
                self._commits[publisher, number] = Commit.DONE
            case h.RolledBack(_, _):
                self._count("rolled_back")
            case h.Delivered():
                self._delivered(event)
            case h.Damaged(queue, body):
                self._blame(Kind.DAMAGED, f"{queue} gave {body}")
            case h.Acked(queue, message):
                self._count("acked")
                copy = self._copies[queue, message]
                copy.state, copy.acked = State.SETTLED, True
            case h.Rejected(queue, message):
                self._count("rejected")
                copy = self._copies[queue, message]
                copy.state, copy.rejects = State.SETTLED, copy.rejects + 1
            case h.Requeued(queue, message):
                self._count("requeued")
                self._copies[queue, message].state = State.RETURNED
            case h.Kept(queue, messages):
                for message in messages:
                    self._copies[queue, message].state = State.KEPT
            case h.Gone(_, consumer, queue):
                self._left[queue].add(consumer)
            case h.Began(incarnation):
                self._count("incarnations")
                self._begin(incarnation)
            case h.Died(_):
                pass
            case h.Lettered(queue, target, _):
                self._sources[target] = event
                self._targets[queue] = target
            case _:
                self._topology(event)

    def _topology(self, event: h.Asked | h.Declared | h.Deleted | h.Found | h.Missed) -> None:
        thing = event.thing
        match event:
            case h.Asked():
                self._there[thing] = None
            case h.Declared():
                self._there[thing] = True
            case h.Deleted():
                self._there[thing] = False
            case h.Found():
                if self._there.get(thing) is False:
                    self._blame(Kind.TOPOLOGY, f"{thing} was deleted, and exists")
                self._there[thing] = True
            case h.Missed():
                if self._there.get(thing) is True:
                    self._blame(Kind.TOPOLOGY, f"{thing} was declared, and is not there")
                self._there[thing] = False

    def _decided(self, message: Message, fate: Fate) -> None:
        """A returned message is confirmed as well, afterwards: it stays returned."""
        record = self._records[message]
        if record.fate is not Fate.RETURNED:
            record.fate = fate

    def _begin(self, incarnation: int) -> None:
        for (queue, _), heights in self._heights.items():
            floor = self._floors[queue]
            for key, number in heights.unflagged.items():
                floor[key] = max(floor.get(key, 0), number)
        self._heights.clear()
        self._left.clear()
        self._incarnation = incarnation

    # ── deliveries ────────────────────────────────────────────────────────────────────────────────

    def _delivered(self, event: h.Delivered) -> None:
        self._count("delivered")
        if event.redelivered:
            self._count("redelivered")
        record = self._records.get(event.message)
        reason = "it was never sent" if record is None else self._phantom(event, record)
        if record is None or reason:
            self._blame(Kind.PHANTOM, f"{named(event)}, but {reason}")
            # The methods that settle it must find it.
            self._copies.setdefault(
                (event.queue, event.message), Copy(event.incarnation, event.consumer)
            )
            return
        copy = self._copies.get((event.queue, event.message))
        if copy is None:
            self._copies[event.queue, event.message] = Copy(event.incarnation, event.consumer)
            self._first(event, record.sent)
        else:
            self._again(event, copy, record.sent)

    def _phantom(self, event: h.Delivered, record: Record) -> str | None:
        """Why it must not be delivered, if it must not."""
        sent = record.sent
        if event.queue not in sent.queues:
            reason = self._alive(event, sent)
            if reason:
                return reason
        if record.fate is Fate.REFUSED:
            return "it was refused"
        if record.fate is Fate.RETURNED:
            return "it was returned"
        if not sent.persistent and event.incarnation != sent.incarnation:
            return f"it is transient, of incarnation {sent.incarnation}"
        number = (event.message[0], sent.transaction)
        if sent.transaction is not None and number not in self._commits:
            return "it was not committed"
        return None

    def _alive(self, event: h.Delivered, sent: h.Sent) -> str | None:
        """Why it does not belong into a queue that it was not sent to: only the dead may go elsewhere."""
        source = self._sources.get(event.queue)
        if source is None or source.queue not in sent.queues:
            return f"it was sent to {', '.join(sent.queues) or 'nowhere'}"
        if source.expires or self._rejects(source.queue, event.message):
            return None
        return f"it did not die in {source.queue}"

    def _rejects(self, queue: str, message: Message) -> int:
        copy = self._copies.get((queue, message))
        return copy.rejects if copy else 0

    def _first(self, event: h.Delivered, sent: h.Sent) -> None:
        """The first delivery of a message in this queue."""
        if (
            event.redelivered
            and sent.incarnation == event.incarnation
            and not self._left[event.queue]
        ):
            self._blame(Kind.FLAG, f"{named(event)} as redelivered, for the first time")
        self._in_order(event, sent)

    def _again(self, event: h.Delivered, copy: Copy, sent: h.Sent) -> None:
        anew = copy.incarnation != event.incarnation
        reason = self._not_due(event, copy)
        unmarked = not event.redelivered and self._is_to_be_marked(event, copy)
        if (reason or unmarked) and self._died_again(event, copy):
            self._count("again")
            copy.entries += 1
        elif reason:
            self._blame(Kind.DUPLICATE, f"{named(event)}, but {reason}")
        elif unmarked:
            self._blame(Kind.FLAG, f"{named(event)}, not marked as redelivered")
        elif copy.state is State.SETTLED:
            self._count("again")
        copy.out(event.incarnation, event.consumer)
        if anew:
            self._in_order(event, sent)

    def _is_to_be_marked(self, event: h.Delivered, copy: Copy) -> bool:
        """Whether the broker must know that it was delivered before."""
        return True

    def _not_due(self, event: h.Delivered, copy: Copy) -> str | None:
        """Return why it must not be redelivered; None if it may."""
        if copy.state is State.RETURNED:
            return None
        if copy.state is State.KEPT:
            return "it was settled durably"
        same = (
            copy.incarnation == event.incarnation and copy.consumer not in self._left[event.queue]
        )
        if not same:
            return None
        if copy.state is State.OUT:
            return f"{copy.consumer} still has it"
        return f"{copy.consumer} settled it"

    def _died_again(self, event: h.Delivered, copy: Copy) -> bool:
        """Whether this may be another copy of a message that was dead-lettered more than once: redelivered
        because its reject was lost on the way, or expired again after a crash."""
        source = self._sources.get(event.queue)
        if source is None:
            return False
        if copy.entries < self._rejects(source.queue, event.message):
            return True
        return source.expires and copy.incarnation != event.incarnation

    def _in_order(self, event: h.Delivered, sent: h.Sent) -> None:
        """Check messages that are delivered for the first time in this incarnation."""
        queue = event.queue
        if queue in self._sources:
            return  # in the order in which they died
        publisher, number = event.message
        key = (publisher, sent.priority)
        heights = self._heights[queue, event.consumer]
        # Unread deliveries of a consumer that disconnected are redelivered like the rest, but observed late.
        if not self._left[queue]:
            if number < heights.any.get(key, 0):
                self._disorder(event, heights.any[key])
            else:
                heights.any[key] = number
        if not event.redelivered:
            floor = self._floors[queue].get(key, 0)
            if number < heights.unflagged.get(key, 0):
                if self._left[queue]:
                    self._disorder(event, heights.unflagged[key])
            elif number < floor:
                self._disorder(event, floor)
            else:
                heights.unflagged[key] = number

    # ── in the end ────────────────────────────────────────────────────────────────────────────────

    def finish(self) -> Verdict:
        for message, record in self._records.items():
            sent = record.sent
            if record.fate is Fate.KEPT and sent.persistent:
                for queue in sent.queues:
                    if not self._done(queue, message):
                        self._lost(Kind.LOST, queue, message)
        for number, messages in self._transactions.items():
            self._whole(number, messages)
        return self._verdict

    def _done(self, queue: str, message: Message) -> bool:
        """Whether it was acked, here or in the dead-letter queue."""
        copy = self._copies.get((queue, message))
        if copy is not None and copy.acked:
            return True
        target = self._targets.get(queue)
        return target is not None and self._done(target, message)

    def _whole(self, number: tuple[str, int], messages: list[Message]) -> None:
        commit = self._commits.get(number)
        if commit is None:
            return
        copies = [(queue, each) for each in messages for queue in self._records[each].sent.queues]
        lost = [copy for copy in copies if not self._done(*copy)]
        if commit is Commit.DONE:
            for queue, message in lost:
                self._lost(Kind.LOST, queue, message)
        elif any(copy in self._copies for copy in copies):
            for queue, message in lost:
                self._lost(Kind.TORN, queue, message)

    def _lost(self, kind: Kind, queue: str, message: Message) -> None:
        copy = self._copies.get((queue, message))
        seen = (
            "never delivered" if copy is None else f"not acked since incarnation {copy.incarnation}"
        )
        incarnation = self._records[message].sent.incarnation
        self._blame(
            kind, f"{titled(message)}, sent to {queue} in incarnation {incarnation}, {seen}"
        )

    # ── words ─────────────────────────────────────────────────────────────────────────────────────

    def _count(self, what: str) -> None:
        self._verdict.counts[what] += 1

    def _disorder(self, event: h.Delivered, number: int) -> None:
        self._blame(Kind.DISORDER, f"{named(event)} after number {number}")

    def _blame(self, kind: Kind, text: str) -> None:
        self._verdict.violations.append(Violation(kind, text))


def titled(message: Message) -> str:
    publisher, number = message
    return f"{publisher} {number}"


def named(event: h.Delivered) -> str:
    where = f"{event.queue} gave {titled(event.message)} to {event.consumer}"
    return f"{where} in incarnation {event.incarnation}"
