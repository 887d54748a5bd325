"""The journal beneath durable mailboxes: one for all those of a system, so that they share its syncs.

    Entered    [1, number, box, origin, attempts, sender, asked, serialisation, manifest, body, asker]
    Attempted  [2, number]                      a handler is about to begin
    Handled    [3, number]                      it has ended, or nobody shall try again
    Summary    [4, next number, {incarnation: [floor, starts, ends, held]}]   what was written before, in short
    Narrowed   [5, incarnation, [floor, starts, ends, held]]                  what is known of one sender now

Records are msgpack. A `number` is given once, and is the order of a mailbox; an `origin` is the sender's
(incarnation, sequence); an `asker` is where its answer goes, [node, client, incarnation, number], nil if the
asker is not on another node. Records without it, of earlier versions, are read as if it were nil.

MR1  What `when_safe` reported is found again until it is handled, whatever ends, the process or the power.
MR2  What was attempted or handled is known after the end of the process. After that of the power, perhaps not:
     then a message is attempted once more.
MR3  The same origin enters once, however often it comes, also in later lives, as long as its incarnation is
     remembered.
MR4  A segment is dropped when it is the oldest, and what lives in it was entered again behind it. One at a
     time, with a sync between two: an Entered that comes back without its Handled would raise the dead.
MR5  After a failed sync nothing is reported safe any more.
MR6  What came in this life and is not settled enters when it is put here, however much else its sender has sent
     meanwhile, and to whomever. So does what an earlier life left unsettled, if it comes before what was sent
     later, as from a queue, or not too far behind it.
MR7  What is known of a sender is bounded (settled.py). It is narrowed in life only, where `heard` knows what is
     not settled, and noted behind what entered: recovery takes nothing for settled that was not noted.

All calls may come from any thread. One of its own syncs, and whoever comes meanwhile shares the next sync.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, TypeAlias

import msgspec

from recado.actors.errors import SystemClosed
from recado.actors.others import Asker, Heard
from recado.actors.running.mailbox import Origin, Then
from recado.journal.disk import Disk
from recado.journal.journal import Journal
from recado.journal.segment import Segment

from .settled import GAPS, Ranges, Settled

SEGMENT_SIZE: Final = 16 << 20
NOWHERE: Final[Origin] = (b"", 0)
INCARNATIONS: Final = 1_000  # whose sequences are remembered; the longest silent is forgotten

log = logging.getLogger("recado.actors")


class Entered(msgspec.Struct, array_like=True, tag=1, frozen=True):
    number: int
    box: str
    origin: Origin | None
    attempts: int
    sender: str
    """An address, or nothing."""
    asked: bool
    serialisation: int
    manifest: str
    body: bytes
    asker: Asker | None = None


class Attempted(msgspec.Struct, array_like=True, tag=2, frozen=True):
    number: int


class Handled(msgspec.Struct, array_like=True, tag=3, frozen=True):
    number: int


class Summary(msgspec.Struct, array_like=True, tag=4, frozen=True):
    next: int
    origins: dict[bytes, Ranges]


class Narrowed(msgspec.Struct, array_like=True, tag=5, frozen=True):
    incarnation: bytes
    ranges: Ranges


Record: TypeAlias = Entered | Attempted | Handled | Summary | Narrowed

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Record).decode


class Entry:
    """A message that is not handled yet: where its record is, and how often a handler began with it."""

    __slots__ = ("attempts", "box", "number", "position", "size")

    def __init__(self, number: int, box: str, attempts: int, position: int, size: int) -> None:
        self.number = number
        self.box = box
        self.attempts = attempts
        self.position = position
        self.size = size


def _nothing_heard(incarnation: bytes) -> None:
    """For a room that no other node sends to."""


class Mailroom:
    def __init__(
        self,
        disk: Disk,
        segment_size: int = SEGMENT_SIZE,
        heard: Callable[[bytes], Heard | None] = _nothing_heard,
        gaps: int = GAPS,
    ) -> None:
        """Find what the last life left. `heard` knows all that came of a sender; who enters something from
        there is in the thread that may ask it. Raises InUse, Corrupt."""
        self._disk = disk
        self._heard = heard
        self._gaps = gaps
        self._segment_size = segment_size
        self._lock = threading.Condition()
        self._next = 1
        self._live: dict[int, Entry] = {}  # in the order of their positions
        self._live_bytes = 0
        # Of the last Summary, which is written anew with each segment that goes.
        self._known_bytes = 0
        self._origins: OrderedDict[bytes, Settled] = OrderedDict()
        self._waiting: list[Then] = []
        self._failure: BaseException | None = None
        # Much was written since, and nobody waits for it.
        self._due = False
        self._closing = False
        disk.lock()
        self._journal = Journal(disk, segment_size=segment_size)
        try:
            for position, payload in self._journal.recover():
                self._take_up(position, payload)
        except BaseException:
            self._journal.close()
            disk.close()
            raise
        self._synced = self._journal.position
        self._thread = threading.Thread(target=self._work, name="recado-mailroom", daemon=True)
        self._thread.start()

    def _take_up(self, position: int, payload: bytes) -> None:
        record: Record = _decode(payload)
        match record:
            case Entered():
                self._note(record, position, len(payload))
                if record.origin is not None:
                    self._known_of(record.origin[0]).add(record.origin[1])
                self._next = max(self._next, record.number + 1)
            case Attempted():
                self._next = max(self._next, record.number + 1)
                if entry := self._live.get(record.number):
                    entry.attempts += 1
            case Handled():
                self._next = max(self._next, record.number + 1)
                self._forget(record.number)
            case Summary():
                self._known_bytes = len(payload)
                self._next = max(self._next, record.next)
                self._origins.clear()
                for incarnation, ranges in record.origins.items():
                    self._origins[incarnation] = Settled.of(ranges, self._gaps)
            case Narrowed(incarnation, ranges):
                self._origins[incarnation] = Settled.of(ranges, self._gaps)

    # ── entering ──────────────────────────────────────────────────────────────────────────────────────────

    def enter(self, make: Callable[[int], Entered]) -> Entry | None:
        """Take up what is made with a number; None if its origin is known (MR3). Raises SystemClosed."""
        with self._lock:
            if self._closing:
                raise SystemClosed("the mailroom is closed")
            record = make(self._next)
            incarnation, sequence = record.origin or NOWHERE
            known = self._known_of(incarnation) if incarnation else None
            if known is not None and sequence in known:
                return None
            self._next += 1
            payload = _encode(record)
            (position,) = self._journal.append(payload)
            if known is not None and known.add(sequence):
                self._narrow(incarnation, sequence, known)
            self._look_at_size()
            return self._note(record, position, len(payload))

    def _note(self, record: Entered, position: int, size: int) -> Entry:
        self._forget(record.number)  # a segment that was about to go has it, too
        entry = Entry(record.number, record.box, record.attempts, position, size)
        self._live[record.number] = entry
        self._live_bytes += size
        return entry

    def _known_of(self, incarnation: bytes) -> Settled:
        """It is remembered from now on."""
        known = self._origins.get(incarnation)
        if known is None:
            known = self._origins[incarnation] = Settled(self._gaps)
            if len(self._origins) > INCARNATIONS:
                self._origins.popitem(last=False)
        self._origins.move_to_end(incarnation)
        return known

    def _narrow(self, incarnation: bytes, sequence: int, known: Settled) -> None:
        """There are too many gaps (MR7): once in some thousand messages of a sender, or never."""
        heard = self._heard(incarnation)
        if heard is None:
            known.narrow(sequence)
        else:
            known.narrow(heard.reach(), heard.known(), heard.unsettled())
        self._journal.append(_encode(Narrowed(incarnation, known.state())))

    def when_safe(self, then: Then) -> None:
        """Call it, in this mailroom's thread, when all that entered so far is safe, or cannot be made so."""
        with self._lock:
            if not self._closing:
                self._waiting.append(then)
                self._lock.notify()
                return
        then(SystemClosed("the mailroom is closed"))

    # ── handling ──────────────────────────────────────────────────────────────────────────────────────────

    def attempt(self, entry: Entry) -> None:
        """A handler is about to begin (MR2)."""
        with self._lock:
            if self._closing:  # a thread that was left behind
                return
            entry.attempts += 1
            self._journal.append(_encode(Attempted(entry.number)))
            self._write()

    def handled(self, entry: Entry, *, more: bool = False) -> None:
        """It has ended. If `more` is to be attempted now, it is written with that: 13 µs instead of 17."""
        with self._lock:
            if self._closing:
                return
            self._forget(entry.number)
            self._journal.append(_encode(Handled(entry.number)))
            self._look_at_size()
            if not more:
                self._write()

    def write(self) -> None:
        """Let the end of the process change nothing any more (MR2)."""
        with self._lock:
            if not self._closing:
                self._write()

    def _look_at_size(self) -> None:
        """Who only tells and handles waits for no sync, but without one nothing is ever dropped."""
        if not self._due and self._journal.position - self._synced >= self._segment_size:
            self._due = True
            self._lock.notify()

    def _forget(self, number: int) -> None:
        entry = self._live.pop(number, None)
        if entry is not None:
            self._live_bytes -= entry.size

    def _write(self) -> None:
        """What is not written now is with the next; whoever waits for it to be safe is told of the failure."""
        try:
            self._journal.write()
        except OSError as error:
            log.error("the journal of durable mailboxes cannot be written: %s", error)

    # ── finding again ─────────────────────────────────────────────────────────────────────────────────────

    def left(self, box: str) -> list[tuple[Entry, Entered]]:
        """What is in a mailbox, in order."""
        with self._lock:
            entries = sorted(
                (entry for entry in self._live.values() if entry.box == box),
                key=lambda entry: entry.number,
            )
            return [(entry, self._read(entry)) for entry in entries]

    def boxes(self) -> dict[str, int]:
        """How much is in each mailbox that has something."""
        with self._lock:
            counts: dict[str, int] = {}
            for entry in self._live.values():
                counts[entry.box] = counts.get(entry.box, 0) + 1
            return counts

    def _read(self, entry: Entry) -> Entered:
        record = _decode(self._journal.read(entry.position))
        assert isinstance(record, Entered)
        return record

    # ── the thread ────────────────────────────────────────────────────────────────────────────────────────

    def _work(self) -> None:
        while True:
            with self._lock:
                while not self._waiting and not self._due and not self._closing:
                    self._lock.wait()
                waiting, self._waiting = self._waiting, []
                if not waiting and self._closing:
                    return
                self._due, self._synced = False, self._journal.position
            failure = self._sync()
            for then in waiting:
                try:
                    then(failure)
                # A loop that is closed, perhaps: the others have to be told as well.
                except Exception:
                    log.exception("nobody could be told what is safe")

    def _sync(self) -> BaseException | None:
        if self._failure is not None:
            return self._failure
        try:
            with self._lock:
                self._journal.write()
        except OSError as error:  # a full disk: it may have room when the next one comes
            return error
        try:
            self._journal.sync()
            while self._cleaned():
                pass
        except Exception as error:  # noqa: BLE001 - whatever it is, everybody who waits must hear of it
            log.critical("durable mailboxes can promise nothing any more: %s", error)
            self._failure = error
        return self._failure

    def _cleaned(self) -> bool:
        with self._lock:
            return self._clean()

    def _clean(self) -> bool:
        """Drop the oldest segments if more than half of the journal is of no use any more (MR4). Whether it
        did; perhaps there are more then."""
        journal, known = self._journal, self._known_bytes
        segments = journal.segments
        size = journal.position - segments[0].base if segments else 0
        if size < 2 * self._live_bytes + 6 * known + self._segment_size:
            return False
        oldest: list[Segment] = []
        for segment in segments[:-1]:
            oldest.append(segment)
            # What is known goes along each time: it must be little beside what is dropped, or this only grows.
            if segment.end - oldest[0].base >= 4 * known:
                break
        if not oldest:
            return False
        for entry in list(self._live.values()):
            if entry.position >= oldest[-1].end:
                break
            self._move(entry)
        origins = {incarnation: each.state() for incarnation, each in self._origins.items()}
        record = _encode(Summary(self._next, origins))
        self._known_bytes = len(record)
        journal.append(record)
        try:
            journal.write()
        except OSError:  # a full disk: all that lives is still where it was, too
            return False
        journal.sync()
        journal.sync_mark()
        for segment in oldest:
            journal.drop(segment.base)
            journal.let_go()
            journal.sync()
        return True

    def _move(self, entry: Entry) -> None:
        """Behind all others."""
        record = msgspec.structs.replace(self._read(entry), attempts=entry.attempts)
        payload = _encode(record)
        (entry.position,) = self._journal.append(payload)
        self._live_bytes += len(payload) - entry.size
        entry.size = len(payload)
        self._live[entry.number] = self._live.pop(entry.number)

    def close(self) -> None:
        """Make everything safe, tell those who wait for it, and let go of the folder."""
        with self._lock:
            if self._closing:
                return
            self._closing = True
            self._lock.notify()
        self._thread.join()
        try:
            self._journal.close()
        finally:
            self._disk.close()
