"""The journal beneath durable mailboxes: one for all those of a system, so that they share its syncs.

    Entered    [1, number, box, origin, attempts, sender, asked, serialisation, manifest, body, asker]
    Attempted  [2, number]                      a handler is about to begin
    Handled    [3, number]                      it has ended, or nobody shall try again
    Summary    [4, next number, {incarnation: [floor, starts, ends, held]}]   what was written before, in short
    Narrowed   [5, incarnation, [floor, starts, ends, held]]                  what is known of one sender now

Records are msgpack. A `number` is given once, and is the order of a mailbox; an `origin` is the sender's
(incarnation, sequence); an `asker` is where its answer goes, [node, client, incarnation, number], nil if the
asker is not on another node. Records without it, of earlier versions, are read as if it were nil.

MR1  What `when_synced` reported is found again until it is handled, whatever ends, the process or the power.
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

from recado.actors.errors import SystemClosedError
from recado.actors.remote_port import Asker, ReceivedSequences
from recado.actors.runtime.mailbox import Origin, StoredCallback
from recado.journal.disk import Disk
from recado.journal.journal import Journal
from recado.journal.segment import Segment

from .sequence_set import RANGES_MAX, SequenceRanges, SequenceSet

SEGMENT_BYTES: Final = 16 << 20
NO_ORIGIN: Final[Origin] = (b"", 0)
INCARNATIONS_MAX: Final = 1_000  # whose sequences are remembered; the longest silent is forgotten

log = logging.getLogger("recado.actors")


class MessageStored(msgspec.Struct, array_like=True, tag=1, frozen=True):
    message_id: int
    mailbox: str
    origin: Origin | None
    attempts: int
    sender: str
    """An address, or nothing."""
    is_ask: bool
    format_id: int
    manifest: str
    body: bytes
    asker: Asker | None = None


class AttemptStarted(msgspec.Struct, array_like=True, tag=2, frozen=True):
    message_id: int


class MessageHandled(msgspec.Struct, array_like=True, tag=3, frozen=True):
    message_id: int


class Snapshot(msgspec.Struct, array_like=True, tag=4, frozen=True):
    next_id: int
    sequences: dict[bytes, SequenceRanges]


class SequencesCompacted(msgspec.Struct, array_like=True, tag=5, frozen=True):
    incarnation: bytes
    ranges: SequenceRanges


Record: TypeAlias = MessageStored | AttemptStarted | MessageHandled | Snapshot | SequencesCompacted

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Record).decode


class PendingMessage:
    """A message that is not handled yet: where its record is, and how often a handler began with it."""

    __slots__ = ("attempts", "mailbox", "message_id", "position", "size_bytes")

    def __init__(
        self, message_id: int, mailbox: str, attempts: int, position: int, size_bytes: int
    ) -> None:
        self.message_id = message_id
        self.mailbox = mailbox
        self.attempts = attempts
        self.position = position
        self.size_bytes = size_bytes


def _nothing_received(incarnation: bytes) -> None:
    """For a room that no other node sends to."""


class MailboxJournal:
    def __init__(
        self,
        disk: Disk,
        segment_bytes: int = SEGMENT_BYTES,
        received_from: Callable[[bytes], ReceivedSequences | None] = _nothing_received,
        ranges_max: int = RANGES_MAX,
    ) -> None:
        """Find what the last life left. `heard` knows all that came of a sender; who enters something from
        there is in the thread that may ask it. Raises InUse, Corrupt."""
        self._disk = disk
        self._received_from = received_from
        self._ranges_max = ranges_max
        self._segment_bytes = segment_bytes
        self._lock = threading.Condition()
        self._next_id = 1
        self._pending: dict[int, PendingMessage] = {}  # in the order of their positions
        self._pending_bytes = 0
        # Of the last Summary, which is written anew with each segment that goes.
        self._snapshot_bytes = 0
        self._sequences: OrderedDict[bytes, SequenceSet] = OrderedDict()
        self._sync_callbacks: list[StoredCallback] = []
        self._failure: BaseException | None = None
        # Much was written since, and nobody waits for it.
        self._sync_requested = False
        self._is_closing = False
        disk.lock()
        self._journal = Journal(disk, segment_bytes=segment_bytes)
        try:
            for position, payload in self._journal.recover():
                self._replay(position, payload)
        except BaseException:
            self._journal.close()
            disk.close()
            raise
        self._synced_position = self._journal.position
        self._thread = threading.Thread(target=self._sync_loop, name="recado-mailroom", daemon=True)
        self._thread.start()

    def _replay(self, position: int, payload: bytes) -> None:
        record: Record = _decode(payload)
        match record:
            case MessageStored():
                self._track(record, position, len(payload))
                if record.origin is not None:
                    self._sequences_of(record.origin[0]).add(record.origin[1])
                self._next_id = max(self._next_id, record.message_id + 1)
            case AttemptStarted():
                self._next_id = max(self._next_id, record.message_id + 1)
                if entry := self._pending.get(record.message_id):
                    entry.attempts += 1
            case MessageHandled():
                self._next_id = max(self._next_id, record.message_id + 1)
                self._untrack(record.message_id)
            case Snapshot():
                self._snapshot_bytes = len(payload)
                self._next_id = max(self._next_id, record.next_id)
                self._sequences.clear()
                for incarnation, ranges in record.sequences.items():
                    self._sequences[incarnation] = SequenceSet.from_ranges(ranges, self._ranges_max)
            case SequencesCompacted(incarnation, ranges):
                self._sequences[incarnation] = SequenceSet.from_ranges(ranges, self._ranges_max)

    # ── entering ──────────────────────────────────────────────────────────────────────────────────────────

    def append(self, create_record: Callable[[int], MessageStored]) -> PendingMessage | None:
        """Take up what is made with a number; None if its origin is known (MR3). Raises SystemClosed."""
        with self._lock:
            if self._is_closing:
                raise SystemClosedError("the mailroom is closed")
            record = create_record(self._next_id)
            incarnation, sequence = record.origin or NO_ORIGIN
            sequences = self._sequences_of(incarnation) if incarnation else None
            if sequences is not None and sequence in sequences:
                return None
            self._next_id += 1
            payload = _encode(record)
            (position,) = self._journal.append(payload)
            if sequences is not None and sequences.add(sequence):
                self._compact_sequences(incarnation, sequence, sequences)
            self._request_sync_if_large()
            return self._track(record, position, len(payload))

    def _track(self, record: MessageStored, position: int, size_bytes: int) -> PendingMessage:
        self._untrack(record.message_id)  # a segment that was about to go has it, too
        entry = PendingMessage(
            record.message_id, record.mailbox, record.attempts, position, size_bytes
        )
        self._pending[record.message_id] = entry
        self._pending_bytes += size_bytes
        return entry

    def _sequences_of(self, incarnation: bytes) -> SequenceSet:
        """It is remembered from now on."""
        sequences = self._sequences.get(incarnation)
        if sequences is None:
            sequences = self._sequences[incarnation] = SequenceSet(self._ranges_max)
            if len(self._sequences) > INCARNATIONS_MAX:
                self._sequences.popitem(last=False)
        self._sequences.move_to_end(incarnation)
        return sequences

    def _compact_sequences(self, incarnation: bytes, sequence: int, sequences: SequenceSet) -> None:
        """There are too many gaps (MR7): once in some thousand messages of a sender, or never."""
        received = self._received_from(incarnation)
        if received is None:
            sequences.compact(sequence)
        else:
            sequences.compact(received.highest(), received.settled_ranges(), received.unsettled())
        self._journal.append(_encode(SequencesCompacted(incarnation, sequences.to_ranges())))

    def when_synced(self, on_synced: StoredCallback) -> None:
        """Call it, in this mailroom's thread, when all that entered so far is safe, or cannot be made so."""
        with self._lock:
            if not self._is_closing:
                self._sync_callbacks.append(on_synced)
                self._lock.notify()
                return
        on_synced(SystemClosedError("the mailroom is closed"))

    # ── handling ──────────────────────────────────────────────────────────────────────────────────────────

    def record_attempt(self, entry: PendingMessage) -> None:
        """A handler is about to begin (MR2)."""
        with self._lock:
            if self._is_closing:  # a thread that was left behind
                return
            entry.attempts += 1
            self._journal.append(_encode(AttemptStarted(entry.message_id)))
            self._flush_locked()

    def record_handled(self, entry: PendingMessage, *, next_follows: bool = False) -> None:
        """It has ended. If `more` is to be attempted now, it is written with that: 13 µs instead of 17."""
        with self._lock:
            if self._is_closing:
                return
            self._untrack(entry.message_id)
            self._journal.append(_encode(MessageHandled(entry.message_id)))
            self._request_sync_if_large()
            if not next_follows:
                self._flush_locked()

    def flush(self) -> None:
        """Let the end of the process change nothing any more (MR2)."""
        with self._lock:
            if not self._is_closing:
                self._flush_locked()

    def _request_sync_if_large(self) -> None:
        """Who only tells and handles waits for no sync, but without one nothing is ever dropped."""
        if (
            not self._sync_requested
            and self._journal.position - self._synced_position >= self._segment_bytes
        ):
            self._sync_requested = True
            self._lock.notify()

    def _untrack(self, message_id: int) -> None:
        entry = self._pending.pop(message_id, None)
        if entry is not None:
            self._pending_bytes -= entry.size_bytes

    def _flush_locked(self) -> None:
        """What is not written now is with the next; whoever waits for it to be safe is told of the failure."""
        try:
            self._journal.write()
        except OSError as error:
            log.error("the journal of durable mailboxes cannot be written: %s", error)

    # ── finding again ─────────────────────────────────────────────────────────────────────────────────────

    def pending_of(self, mailbox: str) -> list[tuple[PendingMessage, MessageStored]]:
        """What is in a mailbox, in order."""
        with self._lock:
            entries = sorted(
                (entry for entry in self._pending.values() if entry.mailbox == mailbox),
                key=lambda entry: entry.message_id,
            )
            return [(entry, self._read(entry)) for entry in entries]

    def pending_counts(self) -> dict[str, int]:
        """How much is in each mailbox that has something."""
        with self._lock:
            counts: dict[str, int] = {}
            for entry in self._pending.values():
                counts[entry.mailbox] = counts.get(entry.mailbox, 0) + 1
            return counts

    def _read(self, entry: PendingMessage) -> MessageStored:
        record = _decode(self._journal.read(entry.position))
        assert isinstance(record, MessageStored)
        return record

    # ── the thread ────────────────────────────────────────────────────────────────────────────────────────

    def _sync_loop(self) -> None:
        while True:
            with self._lock:
                while (
                    not self._sync_callbacks and not self._sync_requested and not self._is_closing
                ):
                    self._lock.wait()
                callbacks, self._sync_callbacks = self._sync_callbacks, []
                if not callbacks and self._is_closing:
                    return
                self._sync_requested, self._synced_position = False, self._journal.position
            failure = self._sync()
            for callback in callbacks:
                try:
                    callback(failure)
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
            while self._drop_oldest_segments():
                pass
        except Exception as error:  # noqa: BLE001 - whatever it is, everybody who waits must hear of it
            log.critical("durable mailboxes can promise nothing any more: %s", error)
            self._failure = error
        return self._failure

    def _drop_oldest_segments(self) -> bool:
        with self._lock:
            return self._drop_oldest_segments_locked()

    def _drop_oldest_segments_locked(self) -> bool:
        """Drop the oldest segments if more than half of the journal is of no use any more (MR4). Whether it
        did; perhaps there are more then."""
        journal, known = self._journal, self._snapshot_bytes
        segments = journal.segments
        size = journal.position - segments[0].base if segments else 0
        if size < 2 * self._pending_bytes + 6 * known + self._segment_bytes:
            return False
        oldest: list[Segment] = []
        for segment in segments[:-1]:
            oldest.append(segment)
            # What is known goes along each time: it must be little beside what is dropped, or this only grows.
            if segment.end - oldest[0].base >= 4 * known:
                break
        if not oldest:
            return False
        for entry in list(self._pending.values()):
            if entry.position >= oldest[-1].end:
                break
            self._copy_forward(entry)
        origins = {incarnation: each.to_ranges() for incarnation, each in self._sequences.items()}
        record = _encode(Snapshot(self._next_id, origins))
        self._snapshot_bytes = len(record)
        journal.append(record)
        try:
            journal.write()
        except OSError:  # a full disk: all that lives is still where it was, too
            return False
        journal.sync()
        journal.sync_mark()
        for segment in oldest:
            journal.drop(segment.base)
            journal.close_dropped()
            journal.sync()
        return True

    def _copy_forward(self, entry: PendingMessage) -> None:
        """Behind all others."""
        record = msgspec.structs.replace(self._read(entry), attempts=entry.attempts)
        payload = _encode(record)
        (entry.position,) = self._journal.append(payload)
        self._pending_bytes += len(payload) - entry.size_bytes
        entry.size_bytes = len(payload)
        self._pending[entry.message_id] = self._pending.pop(entry.message_id)

    def close(self) -> None:
        """Make everything safe, tell those who wait for it, and let go of the folder."""
        with self._lock:
            if self._is_closing:
                return
            self._is_closing = True
            self._lock.notify()
        self._thread.join()
        try:
            self._journal.close()
        finally:
            self._disk.close()
