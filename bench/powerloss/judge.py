"""The checker of `bench.crash`, for a broker that shares a process with its clients and loses power.

Additional rules:
P1  A message that was acked, or marked as delivered, stays so once an fsync covered it. Before that it may be
    delivered again, also unmarked; that is counted, as `again`. A message that was not delivered is never
    marked.
P2  A purged message, once the purge was answered, is never delivered again; and no message of a deleted queue
    is in a later one of its name.
P3  The acks and messages of a transaction are stored together or not at all.
P4  An offset of a stream always identifies the same message, offsets are consecutive, and confirmed messages
    are delivered. A trimmed stream has no gaps except before its first message.
P5  A stored value is recovered, or a later one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import msgspec

from bench.crash import history as h
from bench.crash.checker import Checker, Commit, Copy, Fate, Record, State, named, titled
from bench.crash.history import Message
from bench.crash.verdict import Kind, Verdict

from . import history as p
from .history import AnyEvent
from .topology import RECEIPTS

Place = tuple[str, Message]
"""A message in a queue."""


def judge(events: Iterable[AnyEvent]) -> Verdict:
    """Check a history whose last incarnation ended with every queue empty."""
    found = Judge()
    for event in events:
        found.feed(event)
    return found.finish()


class Judge(Checker):
    def __init__(self) -> None:
        super().__init__()
        self._index = 0
        # Effects that no fsync has covered yet, with their events.
        self._fresh_marks: dict[Place, tuple[int, bool]] = {}
        self._fresh_acks: dict[Place, int] = {}
        self._marked: set[Place] = set()
        self._marked_heights: dict[str, dict[tuple[str, int], int]] = defaultdict(dict)
        self._traits: dict[str, p.Trait] = defaultdict(lambda: p.Trait(""))
        self._purging: dict[str, set[Message]] = {}
        self._purged: set[Place] = set()
        self._excused: set[Place] = set()
        self._receipts: list[p.Receipted] = []
        self._receipt_of: dict[Place, int] = {}
        self._came_again: dict[int, set[Message]] = defaultdict(set)  # after that receipt
        self._shown: dict[str, dict[int, Message]] = defaultdict(dict)
        self._offsets: dict[tuple[str, Message], int] = {}
        self._first_shown: dict[str, dict[str, int]] = {}  # in the last incarnation, by publisher
        self._last_shown: dict[str, tuple[int, int]] = {}  # by stream: incarnation and offset
        self._notes: dict[str, tuple[int, int]] = {}  # stored, requested

    def feed(self, event: AnyEvent) -> None:
        match event:
            case p.Synced(count):
                self._sync(count)
            case p.Trait(queue):
                self._traits[queue] = event
            case p.Resent(incarnation, message):
                record = self._records[message]
                record.sent = msgspec.structs.replace(record.sent, incarnation=incarnation)
            case p.PurgeAsked(queue):
                self._purging[queue] = set(self._to_be_purged(queue))
                self._excused |= {(queue, each) for each in self._purging[queue]}
            case p.Purged(queue):
                self._purged |= {(queue, each) for each in self._purging.pop(queue)}
            case p.Unmarked(queue, message):
                self._fresh_marks.pop((queue, message), None)
            case p.Receipted():
                for each in event.messages:
                    self._receipt_of[event.queue, each] = len(self._receipts)
                self._receipts.append(event)
            case p.Shown():
                self._show(event)
            case p.Noted(name, value):
                self._notes[name] = (self._notes.get(name, (0, 0))[0], value)
            case p.NoteKept(name, value):
                self._notes[name] = (value, self._notes[name][1])
            case p.NoteFound(name, value):
                self._note_found(name, value)
            case _:
                self._note_marks(event)
                super().feed(event)
        self._index += 1

    # ── P1: what a sync covers ────────────────────────────────────────────────────────────────────

    def _note_marks(self, event: h.AnyEvent) -> None:
        match event:
            case h.Delivered(_, _, queue, message, redelivered):
                self._fresh_marks.setdefault((queue, message), (self._index, not redelivered))
            case h.Acked(queue, message):
                self._fresh_acks[queue, message] = self._index
            case h.Rejected(queue, message):
                if not self._traits[queue].at_least_once:
                    self._fresh_acks[queue, message] = self._index
            case _:
                pass

    def _sync(self, count: int) -> None:
        for place, (index, first) in list(self._fresh_marks.items()):
            if index >= count:
                break  # they are in order
            del self._fresh_marks[place]
            self._mark(place, first=first)
        for place, index in list(self._fresh_acks.items()):
            if index < count:
                del self._fresh_acks[place]
                copy = self._copies[place]
                if copy.state is State.SETTLED:
                    copy.state = State.KEPT

    def _mark(self, place: Place, *, first: bool) -> None:
        queue, (publisher, number) = place
        self._marked.add(place)
        record = self._records.get(place[1])
        if first and record is not None:
            key = (publisher, record.sent.priority)
            heights = self._marked_heights[queue]
            heights[key] = max(heights.get(key, 0), number)

    def _begin(self, incarnation: int) -> None:
        # Lower bounds are derived from marked deliveries; unmarked ones may be forgotten.
        self._heights.clear()
        for queue, heights in self._marked_heights.items():
            self._floors[queue].update(heights)
        self._fresh_marks.clear()
        self._fresh_acks.clear()
        self._purging.clear()
        super()._begin(incarnation)

    def _is_to_be_marked(self, event: h.Delivered, copy: Copy) -> bool:
        return copy.incarnation == event.incarnation or (event.queue, event.message) in self._marked

    def _first(self, event: h.Delivered, sent: h.Sent) -> None:
        if event.redelivered:
            self._blame(Kind.FLAG, f"{named(event)} as redelivered, for the first time")
        self._in_order(event, sent)

    def _in_order(self, event: h.Delivered, sent: h.Sent) -> None:
        if not self._traits[event.queue].unordered:
            super()._in_order(event, sent)

    def _again(self, event: h.Delivered, copy: Copy, sent: h.Sent) -> None:
        source = self._sources.get(event.queue)
        if copy.incarnation != event.incarnation and source is not None and source.expires:
            copy.entries = 1  # all copies are delivered in this incarnation
        receipt = self._receipt_of.get((event.queue, event.message))
        if receipt is not None:
            self._came_again[receipt].add(event.message)
        super()._again(event, copy, sent)

    def _died_again(self, event: h.Delivered, copy: Copy) -> bool:
        """A message that expires may expire again in every incarnation, and then be delivered twice in the last
        one."""
        source = self._sources.get(event.queue)
        if source is None or not source.expires:
            return super()._died_again(event, copy)
        return copy.entries <= event.incarnation - self._records[event.message].sent.incarnation

    def _whole(self, number: tuple[str, int], messages: list[Message]) -> None:
        """Of an unanswered transaction: messages delivered before the power loss may be lost."""
        sent = [self._records[each].sent for each in messages]
        copies = [self._copies.get((queue, each.message)) for each in sent for queue in each.queues]
        survived = any(
            copy is not None and copy.incarnation > sent[0].incarnation for copy in copies
        )
        if self._commits.get(number) is Commit.DONE or survived:
            super()._whole(number, messages)

    # ── P2: what is purged, or went with its queue ────────────────────────────────────────────────

    def _to_be_purged(self, queue: str) -> Iterable[Message]:
        """All that may be there, and is not out with a consumer."""
        for message, record in self._records.items():
            copy = self._copies.get((queue, message))
            if queue in record.sent.queues and (copy is None or self._is_back(queue, copy)):
                yield message

    def _is_back(self, queue: str, copy: Copy) -> bool:
        """Whether it is in its queue although it was delivered.

        An acked message is not; the ack may still be lost after a purge that found nothing.
        """
        gone = copy.incarnation != self._incarnation or copy.consumer in self._left[queue]
        return copy.state is State.RETURNED or (gone and copy.state is State.OUT)

    def _phantom(self, event: h.Delivered, record: Record) -> str | None:
        if (event.queue, event.message) in self._purged:
            return "it was purged"
        return super()._phantom(event, record)

    def _done(self, queue: str, message: Message) -> bool:
        return (
            (queue, message) in self._excused
            or self._there.get(f"queue {queue}") is False
            or (queue, message) in self._offsets
            or super()._done(queue, message)
        )

    # ── P3, P4, P5 ────────────────────────────────────────────────────────────────────────────────

    def finish(self) -> Verdict:
        for stream, trait in self._traits.items():
            if trait.trimmed:
                self._excuse_trimmed(stream)
        verdict = super().finish()
        for number, receipted in enumerate(self._receipts):
            self._together(receipted, self._came_again[number])
        return verdict

    def _together(self, event: p.Receipted, again: set[Message]) -> None:
        """Check that the acks and the receipt have the same outcome."""
        arrived = (RECEIPTS, event.receipt) in self._copies
        taken = [each for each in event.messages if each not in again and self._is_safe(each)]
        for message in sorted(again) if arrived else taken:
            what = "came again" if arrived else "was taken"
            text = f"{titled(message)} of {event.queue} {what}, and its receipt was"
            self._blame(Kind.TORN, f"{text} {'kept' if arrived else 'lost'}")

    def _is_safe(self, message: Message) -> bool:
        number = self._records[message].sent.transaction
        return number is not None and self._commits.get((message[0], number)) is Commit.DONE

    def _show(self, event: p.Shown) -> None:
        stream, offset, message = event.stream, event.offset, event.message
        shown = f"{stream} showed {titled(message)} at {offset} in incarnation {event.incarnation}"
        self._count("shown")
        record = self._records.get(message)
        told = h.Delivered(event.incarnation, stream, stream, message, redelivered=False)
        reason = "it was never sent" if record is None else self._phantom(told, record)
        if reason:
            self._blame(Kind.PHANTOM, f"{shown}, but {reason}")
            return
        there = self._shown[stream].setdefault(offset, message)
        if there != message:
            self._blame(Kind.DUPLICATE, f"{shown}, where {titled(there)} was")
        known = self._offsets.setdefault((stream, message), offset)
        if known != offset:
            if stream in self._sources:
                self._count("again")  # it may have died twice
            else:
                self._blame(Kind.DUPLICATE, f"{shown}, and at {known} before")
        incarnation, before = self._last_shown.get(stream, (0, 0))
        follows = offset > before if self._traits[stream].trimmed else offset == before + 1
        if incarnation == event.incarnation and not follows:
            self._blame(Kind.LOST, f"{shown} after {before}")
        if incarnation != event.incarnation:
            self._first_shown[stream] = {}
        self._first_shown[stream].setdefault(*message)
        self._last_shown[stream] = (event.incarnation, offset)

    def _excuse_trimmed(self, stream: str) -> None:
        """Excuse messages that are older than the first one delivered at the end."""
        oldest = self._first_shown.get(stream, {})
        for message, record in self._records.items():
            publisher, number = message
            if stream in record.sent.queues and number < oldest.get(publisher, 0):
                self._excused.add((stream, message))

    def _note_found(self, name: str, value: int) -> None:
        kept, asked = self._notes.get(name, (0, 0))
        if not kept <= value <= asked:
            told = f"note {name} was {kept} to {asked}, and is {value}"
            self._blame(Kind.TOPOLOGY, told)
        self._notes[name] = (value, value)

    def _decided(self, message: Message, fate: Fate) -> None:
        """A message sent again to where it is known was confirmed before."""
        if self._records[message].fate is not Fate.KEPT:
            super()._decided(message, fate)
