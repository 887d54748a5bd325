"""The store: the only writer of an archive's folder.

ASR1  Synced rows stay in the archive until retention deletes them, each row once: in a file or in the tail.
ASR2  Offsets are assigned in the order of `append`, without gaps, and name the same row after every restart.
     Only a repair leaves a gap, where it drops damaged rows or records of the journal.
ASR3  Sequences of one publisher grow with offsets, except for rows that were recorded as lost and found later:
     a FoundRange record precedes them, and `query` returns them in order of sequences.
ASR4  A reader that uses the manifest and the journal up to its durable mark sees everything that was durable
     then.

`append` is called by one thread, that of the event loop. All other methods may run concurrently in other
threads; those that change files exclude each other. Locks are taken in this order: maintenance, read, sync,
state.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from threading import Lock
from typing import NamedTuple, TypeVar

from recado.journal.disk import Disk
from recado.journal.journal import SEGMENT_BYTES, Journal
from recado.journal.record import CorruptJournalError
from recado.journal.segment import file_name

from ..block import MalformedDataError
from ..boundary import ArchiveEntry, ArchiveQuery, ArchiveState, MessageBatch
from ..delivery_records import DeliveryRecords
from ..naming import broadcast_exchange
from ..vector import Span, Vector, clip_spans, merge_spans, subtract_span
from ..views import FoundRange, LostRange
from . import identity
from . import manifest as manifests
from .damage import (
    FileDamage,
    Spans,
    file_spans,
    merge_runs,
    missing_file,
    read_runs,
    subtract_from,
    subtract_present,
)
from .errors import ArchiveMismatchError, CorruptArchiveError
from .file_set import ArchiveFileSet, MergeFunction
from .layout import JOURNAL_FOLDER, MANIFEST_FILE, ArchiveTree, FolderTree
from .manifest import DataFile, Manifest
from .query import QueryResult, QuerySource, RowGroupCache, TailCheckpoint, insert_found, run_query
from .records import StoredBatch, StoredRecord, decode, encode
from .repair import FileRepair, RepairResult
from .repair import RepairSource as RepairSource
from .retention import NO_LIMITS, RetentionLimits, RetentionReport
from .tail import TailReader

SEAL_ROW_COUNT = 1_000_000
SEAL_INTERVAL_S = 600.0
GRACE_PERIOD_S = 3600.0
CHECKPOINT_BYTES = 4 << 20
"""Distance between checkpoints in the journal, from which queries can start reading the tail."""
SEAL_SLICE_S = 0.01
"""Time of sealing between pauses."""


T = TypeVar("T")


def throttle(items: Iterable[T]) -> Iterator[T]:
    """Pause between items for as long as they took to process: sealing a million messages takes 0.5 s of CPU
    time, which latency-sensitive work may need, and no caller waits for it. A thread of lower priority does not
    help: while it holds the GIL without a CPU, nothing else runs."""
    started = time.perf_counter()
    for item in items:
        yield item
        elapsed = time.perf_counter() - started
        if elapsed > SEAL_SLICE_S:
            time.sleep(elapsed)
            started = time.perf_counter()


class ArchiveProgress(NamedTuple):
    """How far an archive is: what is on disk, and what is not yet."""

    first_offset: int
    """Retention has deleted the rows before it."""
    sealed_offset: int
    """Rows before it are in Parquet files, later ones in the journal."""
    durable_offset: int
    """Rows before it are on disk."""
    unsynced_count: int
    """Rows that were appended, but are not yet on disk."""
    lag_s: float
    """Seconds since the oldest entry was appended that is not yet on disk; 0 if all are."""


class ArchiveStore:
    def __init__(
        self,
        folder: Path | str,
        feed: str,
        *,
        archive_name: str | None = None,
        seal_rows: int = SEAL_ROW_COUNT,
        seal_interval: float = SEAL_INTERVAL_S,
        grace: float = GRACE_PERIOD_S,
        clock: Callable[[], float] = time.time,
        tree: ArchiveTree | None = None,
        segment_size: int = SEGMENT_BYTES,
    ) -> None:
        """Open the archive in a folder, or create it. A file holds about `seal_rows` rows at most.

        Raises `FolderInUseError` if another process writes it, `ArchiveMismatchError` if it is another archive,
        `CorruptArchiveError`.
        """
        self._tree: ArchiveTree = FolderTree(Path(folder)) if tree is None else tree
        self._seal_rows = seal_rows
        self._seal_interval = seal_interval
        self._clock = clock
        self._state_lock = Lock()  # guards the state below, and the journal except for its `sync`
        self._sync_lock = Lock()  # one `sync` at a time
        self._maintenance_lock = Lock()  # one change of files at a time: seal, repair, retention
        self._read_lock = Lock()  # one query at a time, because queries share the row group cache
        self._closed = False
        self._next_offset = 0
        self._vector: dict[bytes, int] = {}
        self._records = DeliveryRecords()
        self._lost_ranges: list[tuple[int, LostRange]] = []
        self._found_ranges: list[tuple[int, FoundRange]] = []
        self._unsynced: list[tuple[bytes, int]] = []
        self._checkpoints: list[TailCheckpoint] = []
        self._tail_started_us: int | None = None
        self._unsynced_since_us: int | None = None
        self._syncing_since_us: int | None = None
        """When the first of the entries was appended that no sync covers, and of those that a running sync covers."""
        self.durable_offset = 0
        """All rows before it are durable."""
        self.durable_vector = Vector()
        """The durable messages."""
        self._root: Disk = self._tree.disk(".")
        self._root.lock()
        self._journal_disk = self._tree.disk(JOURNAL_FOLDER)
        self._journal = Journal(self._journal_disk, segment_bytes=segment_size)
        try:
            self._files = ArchiveFileSet(
                self._tree, self._root, self._open_manifest(feed, archive_name), grace
            )
            self._cache = RowGroupCache(self._tree)
            self._recover()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> ArchiveStore:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Make everything durable and release the folder, after running operations of other threads."""
        with self._maintenance_lock, self._read_lock, self._sync_lock, self._state_lock:
            if self._closed:
                return
            self._closed = True
            try:
                self._journal.close()
            finally:
                self._root.close()

    # -- opening ----------------------------------------------------------------------------------

    def _open_manifest(self, feed: str, archive_name: str | None) -> Manifest:
        identity.ensure(self._root)
        if MANIFEST_FILE not in self._root.names():
            new = Manifest(feed, archive_name or secrets.token_hex(16), broadcast_exchange(feed))
            manifests.write(self._root, new.successor(self._now_us()))
        manifest = manifests.read(self._root)
        for what, wanted, found in (
            ("of the feed", feed, manifest.feed),
            ("with the name", archive_name or manifest.archive, manifest.archive),
        ):
            if wanted != found:
                folder = self._root.folder
                raise ArchiveMismatchError(
                    f"{folder} contains the archive {what} {found!r}, not {wanted!r}"
                )
        return manifest

    def _recover(self) -> None:
        files = self._files
        tail = files.manifest.tail
        self._next_offset = tail.offset
        self._vector = dict(files.vector)
        for stored in files.records:
            self._apply_record(stored)
        self._checkpoints = [TailCheckpoint(tail.offset, tail.position, files.vector)]
        try:
            for position, payload in self._journal.recover():
                if position >= tail.position:
                    self._replay(position, payload)
        except CorruptJournalError as error:
            raise CorruptArchiveError(
                error.file, f"position {error.position}", error.reason
            ) from error
        if self._journal.position < tail.position:  # its records are sealed, and it starts anew
            files.move_tail(self._journal.position, self._now_us())
            self._checkpoints[0] = self._checkpoints[0]._replace(position=self._journal.position)
        self.durable_vector = Vector(self._vector)
        self._unsynced.clear()
        self.durable_offset = self._next_offset
        files.remove_orphans()

    def _replay(self, position: int, payload: bytes) -> None:
        """Apply a record of the journal."""
        path = self._journal_disk.folder / file_name(self._journal.segment_base(position))
        location = f"position {position}"
        try:
            stored = decode(payload)
        except MalformedDataError as error:
            raise CorruptArchiveError(path, location, str(error)) from None
        if stored.offset < self._next_offset:
            raise CorruptArchiveError(
                path, location, f"row {stored.offset} after row {self._next_offset - 1}"
            )
        self._next_offset = stored.offset  # a gap: a repair has dropped records
        self._add_checkpoint(position)
        if self._tail_started_us is None:
            self._tail_started_us = stored.stored_us
        if isinstance(stored, StoredRecord):
            self._apply_record(stored)
        else:
            self._advance(stored.publisher, stored.last)
            self._next_offset = stored.end

    def _add_checkpoint(self, position: int) -> None:
        """Add a checkpoint for the next append, if the last one is far enough back."""
        if position - self._checkpoints[-1].position >= CHECKPOINT_BYTES:
            self._checkpoints.append(
                TailCheckpoint(self._next_offset, position, dict(self._vector))
            )

    def _apply_record(self, stored: StoredRecord) -> None:
        record = stored.record
        self._records.add(record)
        if isinstance(record, LostRange):
            self._lost_ranges.append((stored.offset, record))
            self._advance(record.publisher, record.last)
        elif isinstance(record, FoundRange):
            self._found_ranges.append((stored.offset, record))

    def _advance(self, publisher: bytes, last: int) -> None:
        if last > self._vector.get(publisher, 0):
            self._vector[publisher] = last
            self._unsynced.append((publisher, last))

    # -- appending --------------------------------------------------------------------------------

    def append(self, entries: Iterable[ArchiveEntry]) -> int:
        """Append entries in this order; return the next offset. They are durable after the next `sync`.

        After an OSError (disk full) they are written as soon as a later call succeeds.
        """
        with self._state_lock:
            entries, payloads, now = self._check_new(entries), [], self._now_us()
            self._add_checkpoint(self._journal.position)
            for entry in entries:
                payloads.append(encode(entry, self._next_offset, now))
                if isinstance(entry, MessageBatch):
                    self._advance(entry.publisher, entry.last)
                    self._next_offset += entry.count
                else:
                    self._apply_record(StoredRecord(now, self._next_offset, entry))
            self._journal.append(*payloads)
            if self._tail_started_us is None and payloads:
                self._tail_started_us = now
            if self._unsynced_since_us is None and payloads:
                self._unsynced_since_us = now
            self._journal.write()
            return self._next_offset

    def _check_new(self, entries: Iterable[ArchiveEntry]) -> list[ArchiveEntry]:
        """Return the entries; raise `ValueError` if one is stored already."""
        checked = list(entries)
        last = dict[bytes, int]()
        found: FoundRange | None = None
        for entry in checked:
            if isinstance(entry, FoundRange):
                found = entry
            if isinstance(entry, MessageBatch):
                known = last.get(entry.publisher) or self._vector.get(entry.publisher, 0)
                if found == FoundRange(entry.publisher, entry.first, entry.last):
                    found = None
                    continue
                if entry.first <= known:
                    message = f"{entry.publisher.hex()}:{entry.first}"
                    raise ValueError(
                        f"message {message} is already stored: the last sequence is {known} (ASR3)"
                    )
                last[entry.publisher] = entry.last
        return checked

    def sync(self) -> None:
        """Make appended entries durable. Runs in a thread; concurrent calls wait for each other.

        After an OSError nothing is guaranteed any more: the store has to be closed.
        """
        with self._sync_lock:
            with self._state_lock:
                self._journal.write()
                offset = self._next_offset
                unsynced, self._unsynced = self._unsynced, []
                self._syncing_since_us, self._unsynced_since_us = self._unsynced_since_us, None
            self._journal.sync()
            with self._state_lock:
                self._syncing_since_us = None
                if unsynced:
                    self.durable_vector = self.durable_vector.merge(dict(unsynced))
                self.durable_offset = offset

    @property
    def next_offset(self) -> int:
        return self._next_offset

    def measure_progress(self) -> ArchiveProgress:
        """Return how far the archive is. It waits for no lock, so a disk that hangs does not delay the caller."""
        manifest, durable = self._files.manifest, self.durable_offset
        oldest_us = self._syncing_since_us or self._unsynced_since_us
        return ArchiveProgress(
            first_offset=manifest.first,
            sealed_offset=manifest.tail.offset,
            durable_offset=durable,
            unsynced_count=max(self._next_offset - durable, 0),
            lag_s=0.0 if oldest_us is None else max(self._now_us() - oldest_us, 0) / 1e6,
        )

    @property
    def delivery_records(self) -> DeliveryRecords:
        """The recorded views and acknowledgements, to be read on the thread that appends."""
        return self._records

    def archive_state(self) -> ArchiveState:
        """Return the state with which the member starts."""
        with self._state_lock:
            table = self._records
            return ArchiveState(
                vector=Vector(self._vector),
                views=tuple(table.view_records.values()),
                stability=tuple(table.stability.values()),
                acknowledgements=tuple(table.acknowledgements.values()),
                next_offset=self._next_offset,
                lost=tuple(self._compute_lost()),
            )

    def _compute_lost(self) -> Iterator[LostRange]:
        """Yield the ranges that are still lost. Of several records about a message, the one with the highest
        offset counts; at equal offsets, the `FoundRange`."""
        spans: dict[bytes, list[Span]] = {}
        records: list[tuple[int, LostRange | FoundRange]] = [
            *self._lost_ranges,
            *self._found_ranges,
        ]
        for _, record in sorted(records, key=lambda each: each[0]):
            known = spans.get(record.publisher, ())
            span = record.first, record.last
            if isinstance(record, LostRange):
                spans[record.publisher] = merge_spans([*known, span])
            else:
                spans[record.publisher] = subtract_span(known, *span)
        for publisher, left in spans.items():
            yield from (LostRange(publisher, *span) for span in left)

    # -- reading ----------------------------------------------------------------------------------

    def query(self, query: ArchiveQuery) -> QueryResult:
        """Run a query on everything appended before; the result is durable."""
        self.sync()
        answer = self._run_query(query)
        if query.ranges or not self._found_ranges:
            return answer
        return insert_found(query, answer, tuple(self._found_ranges), self._run_query)

    def _run_query(self, query: ArchiveQuery) -> QueryResult:
        while True:
            with self._state_lock:
                manifest = self._files.manifest
                source = QuerySource(
                    self._cache,
                    manifest,
                    tuple(self._checkpoints),
                    tuple(self._lost_ranges),
                    self.durable_offset,
                )
                start = source.find_tail_start(query)
                tail = TailReader(
                    self._journal_disk, start.position, self._journal.durable_position
                )
            try:
                with self._read_lock:
                    return run_query(source, query, tail, start)
            except FileNotFoundError as error:
                if manifest is self._files.manifest:
                    self._note_missing(manifest, error)
                # Otherwise it was merged or deleted concurrently, with a grace period of 0.
            finally:
                tail.close()

    def _note_missing(self, manifest: Manifest, error: FileNotFoundError) -> None:
        paths = {str(self._tree.path(file.path)): file for file in manifest.files}
        self._cache.note_damage(missing_file(self._tree, paths[error.filename]))

    # -- damage -----------------------------------------------------------------------------------

    def take_new_damages(self) -> list[FileDamage]:
        """Return row groups that a `query` could not read, each once."""
        with self._read_lock:
            return self._cache.take_new_damages()

    def find_lost(self, damage: FileDamage) -> list[LostRange]:
        """Return the damaged messages that no other row contains and no record calls lost. Runs in a thread."""
        with self._maintenance_lock:  # no file is merged or deleted meanwhile
            if damage.file not in self.files:
                return []
            runs = read_runs(self._tree, damage)
            spans = file_spans(damage.file) if runs is None else merge_runs(runs)
            for lost in self.archive_state().lost:
                subtract_from(spans, lost.publisher, lost.first, lost.last)
            self._subtract_present(spans)
        return [LostRange(publisher, *span) for publisher, each in spans.items() for span in each]

    def _subtract_present(self, spans: Spans) -> None:
        """Remove messages that an intact row contains from the spans."""
        with self._state_lock:
            manifest, durable = self._files.manifest, self._journal.durable_position
            tail = TailReader(self._journal_disk, manifest.tail.position, durable)
        try:
            subtract_present(spans, self._tree, manifest, tail.records(), self._cache.damaged)
        finally:
            tail.close()

    def repair(
        self, file: DataFile, sources: Sequence[RepairSource], *, drop: bool = False
    ) -> RepairResult:
        """Replace a damaged file by one with the rows that can be read or restored; see the module `repair`.

        If some rows cannot be restored, the file stays as it is, unless `drop` is set.
        """
        with self._maintenance_lock:
            repair = FileRepair(self._tree, file, self._journal_batches, sources)
            self._cache.damaged |= {damage.key for damage in repair.damages}
            self._subtract_never_stored(repair.wanted, file)
            self._subtract_present(repair.wanted)
            made = self._files.rewrite(file, repair.read_rows(), self._seal_rows)
            result = repair.result
            if result.lost and not drop:
                self._files.remove_orphans()
                return result
            self.append(list(self._repair_records(result)))
            self.sync()
            self._files.replace(file, made, self._now_us())
            return result

    def _subtract_never_stored(self, spans: Spans, file: DataFile) -> None:
        """Remove from the spans the messages that the file never contained: they were recorded as lost before
        its end, and were not found within it."""
        for at, lost in self._lost_ranges:
            never = [(lost.first, lost.last)] if at < file.end else []
            for found_at, found in self._found_ranges:
                if file.first <= found_at < file.end and found.publisher == lost.publisher:
                    never = subtract_span(never, found.first, found.last)
            for span in never:
                subtract_from(spans, lost.publisher, *span)

    def _journal_batches(self) -> Iterator[StoredBatch]:
        """Yield everything that the journal still has, sealed or not."""
        with self._state_lock:
            durable = self._journal.durable_position
            base = min((segment.base for segment in self._journal.segments), default=durable)
            reader = TailReader(self._journal_disk, base, durable)
        try:
            for _, stored in reader.records():
                if isinstance(stored, StoredBatch):
                    yield stored
        finally:
            reader.close()

    def _repair_records(self, repaired: RepairResult) -> Iterator[LostRange | FoundRange]:
        """Yield the records to append: new losses, and restored rows that were recorded as lost."""
        known: Spans = {}
        for lost in self.archive_state().lost:
            known.setdefault(lost.publisher, []).append((lost.first, lost.last))
        for lost in repaired.lost:
            new = [(lost.first, lost.last)]
            for span in known.get(lost.publisher, ()):
                new = subtract_span(new, *span)
            yield from (LostRange(lost.publisher, *span) for span in new)
        for each in repaired.restored:
            spans = clip_spans(known.get(each.publisher, ()), each.first, each.last)
            yield from (FoundRange(each.publisher, *span) for span in spans)

    # -- files ------------------------------------------------------------------------------------

    @property
    def needs_sealing(self) -> bool:
        """Whether the tail is long or old enough."""
        since = self._tail_started_us
        if since is None:
            return False
        rows = self._next_offset - self._files.manifest.tail.offset
        age = abs(self._now_us() - since) / 1e6  # the clock may have been set back
        return rows >= self._seal_rows or age >= self._seal_interval

    def seal(self) -> None:
        """Write the tail to files; readers see either the tail or the files. Runs in a thread."""
        with self._maintenance_lock:
            self.sync()
            files = self._files
            with self._state_lock:
                durable = self._journal.durable_position
                tail = TailReader(self._journal_disk, files.manifest.tail.position, durable)
            try:
                records = throttle(tail.records())
                files.seal(records, durable, self._seal_rows, self._now_us())
            finally:
                tail.close()
            self._journal.sync_mark()
            with self._state_lock:
                self._forget_sealed()
            self._journal.close_dropped()
            files.merge(self._seal_rows, self._now_us())

    def _forget_sealed(self) -> None:
        """Drop sealed segments and checkpoints of the journal."""
        tail, journal = self._files.manifest.tail, self._journal
        for segment in list(journal.segments):
            if segment.end <= tail.position and segment.end < journal.durable_position:
                journal.drop(segment.base)
        later = [each for each in self._checkpoints if each.position > tail.position]
        self._checkpoints = [TailCheckpoint(tail.offset, tail.position, self._files.vector), *later]
        self._tail_started_us = self._now_us() if journal.position > tail.position else None

    def apply_retention(
        self, limits: RetentionLimits = NO_LIMITS, *, grace: float | None = None
    ) -> RetentionReport:
        """Remove the oldest files until the archive is within its limits.

        They are deleted `grace` seconds later, by a later call, so that readers can finish.
        """
        with self._maintenance_lock:
            return self._files.apply_retention(limits, grace, self._now_us(), *self._size())

    def select_expired(self, limits: RetentionLimits) -> tuple[DataFile, ...]:
        """Return the files that `apply_retention` would remove now."""
        with self._maintenance_lock:
            return self._files.select_expired(limits, self._now_us(), *self._size())

    def _size(self) -> tuple[int, int]:
        """Return the next offset and the size of the journal."""
        with self._state_lock:
            segments = self._journal.segments
            return self._next_offset, sum(each.end - each.base for each in segments)

    @property
    def files(self) -> tuple[DataFile, ...]:
        return self._files.manifest.files

    def compact(self, merge: MergeFunction, max_rows: int | None = None) -> list[list[DataFile]]:
        """Let `merge` combine small files; return the groups that became one file each."""
        with self._maintenance_lock:
            return self._files.compact(merge, max_rows or self._seal_rows, self._now_us())

    def _now_us(self) -> int:
        return int(self._clock() * 1e6)
