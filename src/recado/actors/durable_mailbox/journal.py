"""The journal of durable mailboxes: one for all mailboxes of a system, so that they share its syncs.

    MessageStored       [1, id, mailbox, origin, attempts, sender, is_ask, format, manifest, body, asker]
    AttemptStarted      [2, id]                      a handler is about to begin
    MessageHandled      [3, id]                      it has ended, or there are no more attempts
    Snapshot            [4, next id, {incarnation: ranges}]     replaces the records before it
    SequencesCompacted  [5, incarnation, ranges]                the sequence set of one sender

Records are MessagePack; `ranges` are [floor, starts, ends, excluded]. An id is used once, and is the order of a
mailbox. An `origin` is the sender's (incarnation, sequence number). An `asker` says where the reply goes,
[node, client id, incarnation, ask id]; nil if the asker is not on another node. Records of earlier versions
without it are read as if it were nil.

MR1  A message that `when_synced` has reported is found again until it is handled, after a crash of the process
     or of the machine.
MR2  Attempts and handled messages survive a crash of the process. After a power failure they may be lost: then
     a message is attempted once more.
MR3  The same origin is stored once, however often it is redelivered, also in later incarnations, as long as the
     incarnation of its sender is remembered.
MR4  A segment is dropped when it is the oldest, and its pending messages were stored again behind it. Segments
     are dropped one at a time with a sync between two, because a MessageStored that survives without its
     MessageHandled would be delivered again.
MR5  After a failed sync nothing is reported as stored any more.
MR6  Compaction of a sequence set (MR7) must not make a new message look like a duplicate. A message that this
     incarnation has received and not settled is stored when it is put here, however many other messages its
     sender has sent meanwhile, to any actor. A message that an earlier incarnation left unsettled is stored if
     it is redelivered before a compaction settles its number; that is so because a broker's queue redelivers
     it before later messages.
MR7  The sequence set of a sender is bounded by compaction (sequence_set.py). It is compacted only at runtime,
     where `received_from` knows which numbers are not settled, and the result is recorded: recovery treats no
     number as settled that was not recorded.

All methods may be called from any thread. A thread syncs the journal; callers that arrive meanwhile share the
next sync.
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
INCARNATIONS_MAX: Final = 1_000  # senders that are remembered; the least recent one is dropped

log = logging.getLogger("recado.actors")


class MessageStored(msgspec.Struct, array_like=True, tag=1, frozen=True):
    message_id: int
    mailbox: str
    origin: Origin | None
    attempts: int
    sender: str
    """The address of the sender; empty if there is none."""
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
    """A message that is not handled yet: the position of its record, and the number of attempts."""

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
    """The `received_from` of a journal without a remote layer."""


class MailboxJournal:
    def __init__(
        self,
        disk: Disk,
        segment_bytes: int = SEGMENT_BYTES,
        received_from: Callable[[bytes], ReceivedSequences | None] = _nothing_received,
        ranges_max: int = RANGES_MAX,
    ) -> None:
        """Open the journal and replay it. `received_from` returns the sequence numbers received from a sender;
        it is called by `append`, in the caller's thread, for messages from other nodes.

        Raises the errors of recado.journal if another process uses the disk, or if the journal is damaged.
        """
        self._disk = disk
        self._received_from = received_from
        self._ranges_max = ranges_max
        self._segment_bytes = segment_bytes
        self._lock = threading.Condition()
        self._next_id = 1
        self._pending: dict[int, PendingMessage] = {}  # in the order of their positions
        self._pending_bytes = 0
        # The size of the last Snapshot; a new one is written before segments are dropped.
        self._snapshot_bytes = 0
        self._sequences: OrderedDict[bytes, SequenceSet] = OrderedDict()
        self._sync_callbacks: list[StoredCallback] = []
        self._failure: BaseException | None = None
        # Set if much was written since the last sync, and no callback waits for one.
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
        self._thread = threading.Thread(
            target=self._sync_loop, name="recado-mailboxes", daemon=True
        )
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
                if pending := self._pending.get(record.message_id):
                    pending.attempts += 1
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

    # ── storing ───────────────────────────────────────────────────────────────────────────────────────────

    def append(self, create_record: Callable[[int], MessageStored]) -> PendingMessage | None:
        """Append the record that `create_record(message_id)` returns; return None if its origin is known (MR3).

        Raises SystemClosedError.
        """
        with self._lock:
            if self._is_closing:
                raise SystemClosedError("the journal of durable mailboxes is closed")
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
        # In a replay the record may be a copy that `_copy_forward` has written: it replaces the original.
        self._untrack(record.message_id)
        pending = PendingMessage(
            record.message_id, record.mailbox, record.attempts, position, size_bytes
        )
        self._pending[record.message_id] = pending
        self._pending_bytes += size_bytes
        return pending

    def _sequences_of(self, incarnation: bytes) -> SequenceSet:
        """Return the sequence set of a sender; a new one is created if it is not remembered."""
        sequences = self._sequences.get(incarnation)
        if sequences is None:
            sequences = self._sequences[incarnation] = SequenceSet(self._ranges_max)
            if len(self._sequences) > INCARNATIONS_MAX:
                self._sequences.popitem(last=False)
        self._sequences.move_to_end(incarnation)
        return sequences

    def _compact_sequences(self, incarnation: bytes, sequence: int, sequences: SequenceSet) -> None:
        """Compact a sequence set with too many ranges (MR7). At most once in some thousand messages of a
        sender."""
        received = self._received_from(incarnation)
        if received is None:
            sequences.compact(sequence)
        else:
            sequences.compact(received.highest(), received.settled_ranges(), received.unsettled())
        self._journal.append(_encode(SequencesCompacted(incarnation, sequences.to_ranges())))

    def when_synced(self, on_synced: StoredCallback) -> None:
        """Call `on_synced`, in the journal's thread, when all appended records are on disk, or cannot be
        written."""
        with self._lock:
            if not self._is_closing:
                self._sync_callbacks.append(on_synced)
                self._lock.notify()
                return
        on_synced(SystemClosedError("the journal of durable mailboxes is closed"))

    # ── handling ──────────────────────────────────────────────────────────────────────────────────────────

    def record_attempt(self, pending: PendingMessage) -> None:
        """Record that a handler is about to begin (MR2)."""
        with self._lock:
            if self._is_closing:  # called by an abandoned thread
                return
            pending.attempts += 1
            self._journal.append(_encode(AttemptStarted(pending.message_id)))
            self._flush_locked()

    def record_handled(self, pending: PendingMessage, *, next_follows: bool = False) -> None:
        """Record that the handler has ended. With `next_follows` the record is written together with the next
        attempt: 13 µs instead of 17."""
        with self._lock:
            if self._is_closing:
                return
            self._untrack(pending.message_id)
            self._journal.append(_encode(MessageHandled(pending.message_id)))
            self._request_sync_if_large()
            if not next_follows:
                self._flush_locked()

    def flush(self) -> None:
        """Write all records to the file, so that they survive a crash of the process (MR2)."""
        with self._lock:
            if not self._is_closing:
                self._flush_locked()

    def _request_sync_if_large(self) -> None:
        """Request a sync if `segment_bytes` were appended since the last one. Without `tell_wait` no caller
        waits for a sync, and old segments are dropped only after a sync."""
        if (
            not self._sync_requested
            and self._journal.position - self._synced_position >= self._segment_bytes
        ):
            self._sync_requested = True
            self._lock.notify()

    def _untrack(self, message_id: int) -> None:
        pending = self._pending.pop(message_id, None)
        if pending is not None:
            self._pending_bytes -= pending.size_bytes

    def _flush_locked(self) -> None:
        """Write the buffered records. After an error they are retried with the next write; callbacks of
        `when_synced` get the error."""
        try:
            self._journal.write()
        except OSError as error:
            log.error("write to the journal of durable mailboxes failed (error=%s)", error)

    # ── reading ───────────────────────────────────────────────────────────────────────────────────────────

    def pending_of(self, mailbox: str) -> list[tuple[PendingMessage, MessageStored]]:
        """Return the messages of a mailbox, in order."""
        with self._lock:
            messages = sorted(
                (pending for pending in self._pending.values() if pending.mailbox == mailbox),
                key=lambda pending: pending.message_id,
            )
            return [(pending, self._read(pending)) for pending in messages]

    def pending_counts(self) -> dict[str, int]:
        """Return the number of messages in each mailbox that has any."""
        with self._lock:
            counts: dict[str, int] = {}
            for pending in self._pending.values():
                counts[pending.mailbox] = counts.get(pending.mailbox, 0) + 1
            return counts

    def _read(self, pending: PendingMessage) -> MessageStored:
        record = _decode(self._journal.read(pending.position))
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
                except Exception:
                    # The loop of the caller may be closed. The other callbacks must run.
                    log.exception("error in a callback after a sync of durable mailboxes")

    def _sync(self) -> BaseException | None:
        if self._failure is not None:
            return self._failure
        try:
            with self._lock:
                self._journal.write()
        except OSError as error:  # a full disk, perhaps: the next sync tries again
            return error
        try:
            self._journal.sync()
            while self._drop_oldest_segments():
                pass
        except Exception as error:  # noqa: BLE001 - every callback must get the failure
            log.critical(
                "sync of durable mailboxes failed: no message is stored any more (error=%s)", error
            )
            self._failure = error
        return self._failure

    def _drop_oldest_segments(self) -> bool:
        with self._lock:
            return self._drop_oldest_segments_locked()

    def _drop_oldest_segments_locked(self) -> bool:
        """Drop the oldest segments if more than half of the journal is obsolete (MR4). Returns whether it
        dropped any; then there may be more.

        The threshold counts three times the snapshot as live, because each drop writes another one.
        """
        journal, snapshot_bytes = self._journal, self._snapshot_bytes
        segments = journal.segments
        size = journal.position - segments[0].base if segments else 0
        if size < 2 * self._pending_bytes + 6 * snapshot_bytes + self._segment_bytes:
            return False
        oldest: list[Segment] = []
        for segment in segments[:-1]:
            oldest.append(segment)
            # Each drop writes a snapshot. Unless that is small compared to the dropped segments, the journal
            # grows.
            if segment.end - oldest[0].base >= 4 * snapshot_bytes:
                break
        if not oldest:
            return False
        for pending in list(self._pending.values()):
            if pending.position >= oldest[-1].end:
                break
            self._copy_forward(pending)
        sequences = {incarnation: each.to_ranges() for incarnation, each in self._sequences.items()}
        record = _encode(Snapshot(self._next_id, sequences))
        self._snapshot_bytes = len(record)
        journal.append(record)
        try:
            journal.write()
        except OSError:  # a full disk: the pending messages are still in the old segments, too
            return False
        journal.sync()
        journal.sync_mark()
        for segment in oldest:
            journal.drop(segment.base)
            journal.close_dropped()
            journal.sync()
        return True

    def _copy_forward(self, pending: PendingMessage) -> None:
        """Append a pending message again, at the end of the journal."""
        record = msgspec.structs.replace(self._read(pending), attempts=pending.attempts)
        payload = _encode(record)
        (pending.position,) = self._journal.append(payload)
        self._pending_bytes += len(payload) - pending.size_bytes
        pending.size_bytes = len(payload)
        self._pending[pending.message_id] = self._pending.pop(pending.message_id)

    def close(self) -> None:
        """Sync the journal, call the callbacks, and unlock the folder."""
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
