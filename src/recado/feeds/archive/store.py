"""The store: the one writer of an archive's folder.

S1  What `sync` covered is in the archive until it is collected, each row once: in a file or in the tail.
S2  Offsets are given in the order of `append`, without gaps, and name the same row after every restart. Only a
    repair of the journal leaves a gap, where it drops what is damaged.
S3  Of one publisher, sequences grow with offsets, except for rows that were recorded as lost and are found
    later: a record of that stands before them, and `recall` gives them in their place.
S4  Whoever reads by the manifest and up to the journal's mark sees all that was durable then.

`append` is for one thread, the loop's. All others may run beside it in threads of their own; those that change
files wait for each other.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from threading import Lock
from typing import TypeVar

from recado.journal.disk import Disk
from recado.journal.journal import SEGMENT_SIZE, Journal
from recado.journal.record import Corrupt
from recado.journal.segment import file_name

from ..block import Malformed
from ..boundary import ArchiveState, Batch, Entry, Query
from ..naming import exchange_p
from ..table import Table
from ..vector import Span, Vector, merged, within, without
from ..views import Found, Lost
from . import identity
from . import manifest as manifests
from .collection import NO_LIMITS, Limits, Report
from .damage import (
    Damage,
    Spans,
    missing,
    runs_in,
    spans_of_file,
    spans_of_runs,
    subtract,
    subtract_present,
)
from .errors import CorruptArchive, WrongArchive
from .keeping import Keeping, Merge
from .layout import JOURNAL, MANIFEST, RealTree, Tree
from .manifest import DataFile, Manifest
from .recall import Checkpoint, GroupCache, Recollection, Source, in_order, recall
from .records import StoredBatch, StoredRecord, decode, encode
from .repair import Repair, Repaired
from .repair import Source as RepairSource
from .tail import TailReader

SEAL_ROWS = 1_000_000
SEAL_SECONDS = 600.0
GRACE = 3600.0
CHECKPOINT_BYTES = 4 << 20
AT_A_TIME = 0.01
"""Seconds of sealing before a rest."""


T = TypeVar("T")


def unhurried(items: Iterable[T]) -> Iterator[T]:
    """As long as others work with some of them, all have a rest: sealing a million messages takes half a second
    of processor time, which those who listen may need, and nobody waits for it. A thread of a lower priority
    would be no help: while it has the interpreter and no processor, nothing else runs."""
    begun = time.perf_counter()
    for item in items:
        yield item
        worked = time.perf_counter() - begun
        if worked > AT_A_TIME:
            time.sleep(worked)
            begun = time.perf_counter()


class Store:
    def __init__(
        self,
        folder: Path | str,
        feed: str,
        *,
        archive_id: str | None = None,
        seal_rows: int = SEAL_ROWS,
        seal_seconds: float = SEAL_SECONDS,
        grace: float = GRACE,
        clock: Callable[[], float] = time.time,
        tree: Tree | None = None,
        segment_size: int = SEGMENT_SIZE,
    ) -> None:
        """Open the archive in a folder, or begin one there. A file holds about `seal_rows` rows at most.

        Raises InUse if another process writes it, WrongArchive if it is not the one meant, CorruptArchive.
        """
        self._tree: Tree = RealTree(Path(folder)) if tree is None else tree
        self._seal_rows = seal_rows
        self._seal_seconds = seal_seconds
        self._clock = clock
        self._guard = Lock()  # what follows, and the journal but for its `sync`
        self._syncing = Lock()
        self._maintaining = Lock()
        self._recalling = Lock()
        self._closed = False
        self._next = 0
        self._vector: dict[bytes, int] = {}
        self._table = Table()
        self._lost: list[tuple[int, Lost]] = []
        self._found: list[tuple[int, Found]] = []
        self._unsynced: list[tuple[bytes, int]] = []
        self._checkpoints: list[Checkpoint] = []
        self._tail_since: int | None = None
        self.durable_offset = 0
        """All rows before it are durable."""
        self.stable = Vector()
        """Of each publisher, up to where all is durable."""
        self._root: Disk = self._tree.disk(".")
        self._root.lock()
        self._journal_disk = self._tree.disk(JOURNAL)
        self._journal = Journal(self._journal_disk, segment_size=segment_size)
        try:
            self._keeping = Keeping(self._tree, self._root, self._manifest(feed, archive_id), grace)
            self._cache = GroupCache(self._tree)
            self._recover()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Make everything durable, and let go of the folder, when whatever runs in threads is done."""
        with self._maintaining, self._recalling, self._syncing, self._guard:
            if self._closed:
                return
            self._closed = True
            try:
                self._journal.close()
            finally:
                self._root.close()

    # -- opening -----------------------------------------------------------------------------------

    def _manifest(self, feed: str, archive_id: str | None) -> Manifest:
        identity.ensure(self._root)
        if MANIFEST not in self._root.names():
            new = Manifest(feed, archive_id or secrets.token_hex(16), exchange_p(feed))
            manifests.write(self._root, new.next(self._now()))
        manifest = manifests.read(self._root)
        for what, wanted, found in (
            ("of the feed", feed, manifest.feed),
            ("with the id", archive_id or manifest.archive, manifest.archive),
        ):
            if wanted != found:
                folder = self._root.folder
                raise WrongArchive(f"{folder} holds the archive {what} {found!r}, not {wanted!r}")
        return manifest

    def _recover(self) -> None:
        keeping = self._keeping
        tail = keeping.manifest.tail
        self._next = tail.offset
        self._vector = dict(keeping.vector)
        for stored in keeping.records:
            self._note(stored)
        self._checkpoints = [Checkpoint(tail.offset, tail.position, keeping.vector)]
        try:
            for position, payload in self._journal.recover():
                if position >= tail.position:
                    self._take_up(position, payload)
        except Corrupt as error:
            raise CorruptArchive(error.file, f"position {error.position}", error.what) from error
        if self._journal.position < tail.position:  # what it had is in files, and it begins anew
            keeping.move_tail(self._journal.position, self._now())
            self._checkpoints[0] = self._checkpoints[0]._replace(position=self._journal.position)
        self.stable = Vector(self._vector)
        self._unsynced.clear()
        self.durable_offset = self._next
        keeping.remove_strays()

    def _take_up(self, position: int, payload: bytes) -> None:
        """What was found in the journal."""
        path = self._journal_disk.folder / file_name(self._journal.segment_of(position))
        place = f"position {position}"
        try:
            stored = decode(payload)
        except Malformed as error:
            raise CorruptArchive(path, place, str(error)) from None
        if stored.offset < self._next:
            raise CorruptArchive(path, place, f"row {stored.offset} follows row {self._next - 1}")
        self._next = stored.offset  # where some are missing, a repair has dropped them
        self._note_position(position)
        if self._tail_since is None:
            self._tail_since = stored.stored
        if isinstance(stored, StoredRecord):
            self._note(stored)
        else:
            self._raise(stored.publisher, stored.last)
            self._next = stored.end

    def _note_position(self, position: int) -> None:
        """What is appended next begins there."""
        if position - self._checkpoints[-1].position >= CHECKPOINT_BYTES:
            self._checkpoints.append(Checkpoint(self._next, position, dict(self._vector)))

    def _note(self, stored: StoredRecord) -> None:
        record = stored.record
        self._table.add(record)
        if isinstance(record, Lost):
            self._lost.append((stored.offset, record))
            self._raise(record.publisher, record.last)
        elif isinstance(record, Found):
            self._found.append((stored.offset, record))

    def _raise(self, publisher: bytes, last: int) -> None:
        if last > self._vector.get(publisher, 0):
            self._vector[publisher] = last
            self._unsynced.append((publisher, last))

    # -- appending ---------------------------------------------------------------------------------

    def append(self, entries: Iterable[Entry]) -> int:
        """Store entries in this order; gives the next offset. They are durable after the next `sync`.

        After an OSError (the disk is full) they are stored all the same as soon as a later call succeeds.
        """
        with self._guard:
            entries, payloads, now = self._checked(entries), [], self._now()
            self._note_position(self._journal.position)
            for entry in entries:
                payloads.append(encode(entry, self._next, now))
                if isinstance(entry, Batch):
                    self._raise(entry.publisher, entry.last)
                    self._next += entry.count
                else:
                    self._note(StoredRecord(now, self._next, entry))
            self._journal.append(*payloads)
            if self._tail_since is None and payloads:
                self._tail_since = now
            self._journal.write()
            return self._next

    def _checked(self, entries: Iterable[Entry]) -> list[Entry]:
        """The entries, if none is there already: else nothing is stored."""
        checked = list(entries)
        last = dict[bytes, int]()
        found: Found | None = None
        for entry in checked:
            if isinstance(entry, Found):
                found = entry
            if isinstance(entry, Batch):
                known = last.get(entry.publisher) or self._vector.get(entry.publisher, 0)
                if found == Found(entry.publisher, entry.first, entry.last):
                    found = None
                    continue
                if entry.first <= known:
                    message = f"{entry.publisher.hex()}:{entry.first}"
                    raise ValueError(f"{message} is stored already, up to {known} (S3)")
                last[entry.publisher] = entry.last
        return checked

    def sync(self) -> None:
        """Make durable what was appended. For a thread of its own; calls wait for each other.

        After an OSError of the disk's nothing is promised any more: the store has to be closed.
        """
        with self._syncing:
            with self._guard:
                self._journal.write()
                offset = self._next
                unsynced, self._unsynced = self._unsynced, []
            self._journal.sync()
            with self._guard:
                if unsynced:
                    self.stable = self.stable.joined(dict(unsynced))
                self.durable_offset = offset

    @property
    def next_offset(self) -> int:
        return self._next

    def state(self) -> ArchiveState:
        """What the core begins with."""
        with self._guard:
            table = self._table
            return ArchiveState(
                vector=Vector(self._vector),
                views=tuple(table.views.values()),
                settled=tuple(table.settled.values()),
                acknowledged=tuple(table.acknowledged.values()),
                offset=self._next,
                lost=tuple(self._still_lost()),
            )

    def _still_lost(self) -> Iterator[Lost]:
        """Of two records about a message the later one counts; of two at one offset that is `Found`."""
        spans: dict[bytes, list[Span]] = {}
        records: list[tuple[int, Lost | Found]] = [*self._lost, *self._found]
        for _, record in sorted(records, key=lambda each: each[0]):
            known = spans.get(record.publisher, ())
            span = record.first, record.last
            if isinstance(record, Lost):
                spans[record.publisher] = merged([*known, span])
            else:
                spans[record.publisher] = without(known, *span)
        for publisher, left in spans.items():
            yield from (Lost(publisher, *span) for span in left)

    # -- reading -----------------------------------------------------------------------------------

    def recall(self, query: Query) -> Recollection:
        """What a query asks for of all that was appended before; what it gives is durable."""
        self.sync()
        answer = self._read(query)
        if query.ranges or not self._found:
            return answer
        return in_order(query, answer, tuple(self._found), self._read)

    def _read(self, query: Query) -> Recollection:
        while True:
            with self._guard:
                manifest = self._keeping.manifest
                source = Source(
                    self._cache,
                    manifest,
                    tuple(self._checkpoints),
                    tuple(self._lost),
                    self.durable_offset,
                )
                start = source.tail_start(query)
                tail = TailReader(self._journal_disk, start.position, self._journal.durable)
            try:
                with self._recalling:
                    return recall(source, query, tail, start)
            except FileNotFoundError as error:
                if manifest is self._keeping.manifest:
                    self._note_missing(manifest, error)
                # Else it was merged or collected meanwhile, with a grace period of nothing.
            finally:
                tail.close()

    def _note_missing(self, manifest: Manifest, error: FileNotFoundError) -> None:
        paths = {str(self._tree.path(file.path)): file for file in manifest.files}
        self._cache.note_damage(missing(self._tree, paths[error.filename]))

    # -- damage ------------------------------------------------------------------------------------

    def found_damages(self) -> list[Damage]:
        """Row groups that a `recall` could not read, each reported once."""
        with self._recalling:
            return self._cache.found_damages()

    def lost_with(self, damage: Damage) -> list[Lost]:
        """Messages that no other row has, and no record calls lost. For a thread."""
        with self._maintaining:  # so that no file is merged or deleted meanwhile
            if damage.file not in self.files:
                return []
            runs = runs_in(self._tree, damage)
            spans = spans_of_file(damage.file) if runs is None else spans_of_runs(runs)
            for lost in self.state().lost:
                subtract(spans, lost.publisher, lost.first, lost.last)
            self._subtract_present(spans)
        return [Lost(publisher, *span) for publisher, each in spans.items() for span in each]

    def _subtract_present(self, spans: Spans) -> None:
        """Take out of the spans what a sound row has."""
        with self._guard:
            manifest, durable = self._keeping.manifest, self._journal.durable
            tail = TailReader(self._journal_disk, manifest.tail.position, durable)
        try:
            subtract_present(spans, self._tree, manifest, tail.records(), self._cache.damaged)
        finally:
            tail.close()

    def repair(
        self, file: DataFile, sources: Sequence[RepairSource], *, drop: bool = False
    ) -> Repaired:
        """Replace a damaged file by one with the rows that can be read or restored; see `repair`.

        If not all rows can be restored the file stays as it is, unless the others are to be dropped.
        """
        with self._maintaining:
            repair = Repair(self._tree, file, self._journal_batches, sources)
            self._cache.damaged |= {damage.key for damage in repair.damages}
            self._subtract_never_stored(repair.wanted, file)
            self._subtract_present(repair.wanted)
            made = self._keeping.rewrite(file, repair.rows(), self._seal_rows)
            result = repair.result
            if result.lost and not drop:
                self._keeping.remove_strays()
                return result
            self.append(list(self._records_of(result)))
            self.sync()
            self._keeping.replace(file, made, self._now())
            return result

    def _subtract_never_stored(self, spans: Spans, file: DataFile) -> None:
        """Take out of the spans what was recorded as lost before the end of a file and not found in it."""
        for at, lost in self._lost:
            never = [(lost.first, lost.last)] if at < file.end else []
            for found_at, found in self._found:
                if file.first <= found_at < file.end and found.publisher == lost.publisher:
                    never = without(never, found.first, found.last)
            for span in never:
                subtract(spans, lost.publisher, *span)

    def _journal_batches(self) -> Iterator[StoredBatch]:
        """All that the journal still has, sealed or not."""
        with self._guard:
            durable = self._journal.durable
            base = min((segment.base for segment in self._journal.segments), default=durable)
            reader = TailReader(self._journal_disk, base, durable)
        try:
            for _, stored in reader.records():
                if isinstance(stored, StoredBatch):
                    yield stored
        finally:
            reader.close()

    def _records_of(self, repaired: Repaired) -> Iterator[Lost | Found]:
        """What has to be recorded: new losses, and rows restored that were recorded as lost."""
        known: Spans = {}
        for lost in self.state().lost:
            known.setdefault(lost.publisher, []).append((lost.first, lost.last))
        for lost in repaired.lost:
            new = [(lost.first, lost.last)]
            for span in known.get(lost.publisher, ()):
                new = without(new, *span)
            yield from (Lost(lost.publisher, *span) for span in new)
        for each in repaired.restored:
            spans = within(known.get(each.publisher, ()), each.first, each.last)
            yield from (Found(each.publisher, *span) for span in spans)

    # -- files -------------------------------------------------------------------------------------

    @property
    def wants_sealing(self) -> bool:
        """Whether the tail is long or old enough."""
        since = self._tail_since
        if since is None:
            return False
        rows = self._next - self._keeping.manifest.tail.offset
        age = abs(self._now() - since) / 1e6  # a clock may be set back
        return rows >= self._seal_rows or age >= self._seal_seconds

    def seal(self) -> None:
        """Bring what is in the journal into files; readers see one or the other. For a thread of its own."""
        with self._maintaining:
            self.sync()
            keeping = self._keeping
            with self._guard:
                durable = self._journal.durable
                tail = TailReader(self._journal_disk, keeping.manifest.tail.position, durable)
            try:
                records = unhurried(tail.records())
                keeping.seal(records, durable, self._seal_rows, self._now())
            finally:
                tail.close()
            self._journal.sync_mark()
            with self._guard:
                self._tail_moved()
            self._journal.let_go()
            keeping.merge(self._seal_rows, self._now())

    def _tail_moved(self) -> None:
        """Forget of the journal what is in files."""
        tail, journal = self._keeping.manifest.tail, self._journal
        for segment in list(journal.segments):
            if segment.end <= tail.position and segment.end < journal.durable:
                journal.drop(segment.base)
        later = [each for each in self._checkpoints if each.position > tail.position]
        self._checkpoints = [Checkpoint(tail.offset, tail.position, self._keeping.vector), *later]
        self._tail_since = self._now() if journal.position > tail.position else None

    def collect(self, limits: Limits = NO_LIMITS, *, grace: float | None = None) -> Report:
        """Let go of the oldest files until the archive is within its limits.

        They stay for `grace` seconds more, for those who are reading them; a later call deletes them.
        """
        with self._maintaining:
            return self._keeping.collect(limits, grace, self._now(), *self._extent())

    def surplus(self, limits: Limits) -> tuple[DataFile, ...]:
        """What `collect` would let go now."""
        with self._maintaining:
            return self._keeping.surplus(limits, self._now(), *self._extent())

    def _extent(self) -> tuple[int, int]:
        """The next offset, and how many bytes the journal has."""
        with self._guard:
            segments = self._journal.segments
            return self._next, sum(each.end - each.base for each in segments)

    @property
    def files(self) -> tuple[DataFile, ...]:
        return self._keeping.manifest.files

    def compact(self, merge: Merge, most_rows: int | None = None) -> list[list[DataFile]]:
        """Let `merge` make larger files of those that are small; gives the groups that became one each."""
        with self._maintaining:
            return self._keeping.compact(merge, most_rows or self._seal_rows, self._now())

    def _now(self) -> int:
        return int(self._clock() * 1e6)
