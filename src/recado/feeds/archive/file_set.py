"""The set of files of an archive, as its manifest names them: sealing, merging, repair, retention.

Each change has the same three steps: write new files completely, replace the manifest atomically, then delete
files. After a crash in between there are files that no manifest names; the next start removes them. A file that
a manifest has named stays for the grace period after its removal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress

import msgspec

from recado.journal.disk import Disk

from ..delivery_records import DeliveryRecords
from ..views import AcknowledgementRecord, FoundRange, LostRange, ViewRecord, ViewStability
from . import manifest as manifests
from . import sealer, views_table
from .columns import RowConstants
from .errors import CorruptArchiveError
from .layout import (
    DATA_FOLDER,
    MANIFEST_FILE,
    PARQUET_SUFFIX,
    PART_SUFFIX,
    VIEWS_FOLDER,
    ArchiveTree,
)
from .manifest import DataFile, Manifest, RetiredFile, Tail, ViewsFile
from .records import StoredBatch, StoredEntry, StoredRecord
from .retention import RetentionLimits, RetentionReport, select_expired

MergeFunction = Callable[[Sequence[Sequence[DataFile]], int], Sequence[DataFile]]
"""Writes one file for each group, with the generation in its name; durable when it returns."""


class ArchiveFileSet:
    def __init__(self, tree: ArchiveTree, root: Disk, manifest: Manifest, grace: float) -> None:
        self.manifest = manifest
        self.records: list[StoredRecord] = views_table.read(tree, manifest.views)
        """All records in the views file."""
        self.vector = compute_tail_vector(manifest, self.records)
        self._tree = tree
        self._root_disk = root
        self._grace = grace
        self._constants = RowConstants(manifest.feed, manifest.exchange)

    def _write_manifest(self, now: int, **changes: object) -> None:
        manifest = self.manifest.successor(now, **changes)
        manifests.write(self._root_disk, manifest)
        self.manifest = manifest

    def remove_orphans(self) -> None:
        """Remove files that were being written when an earlier process ended."""
        manifest = self.manifest
        known = {file.path for file in manifest.files}
        known |= {each.path for each in manifest.retired}
        if manifest.views is not None:
            known.add(manifest.views.path)
        for folder in (*self._tree.folders(DATA_FOLDER), VIEWS_FOLDER):
            disk = self._tree.disk(folder)
            for name in disk.names():
                if (
                    name.endswith((PARQUET_SUFFIX, PARQUET_SUFFIX + PART_SUFFIX))
                    and f"{folder}/{name}" not in known
                ):
                    disk.remove(name)
        if MANIFEST_FILE + PART_SUFFIX in self._root_disk.names():
            self._root_disk.remove(MANIFEST_FILE + PART_SUFFIX)

    def move_tail(self, position: int, now: int) -> None:
        """Set the journal position at which the tail begins; its offset stays the same."""
        self._write_manifest(now, tail=Tail(self.manifest.tail.offset, position))

    # -- sealing ----------------------------------------------------------------------------------

    def seal(
        self, tail: Iterable[tuple[int, StoredEntry]], position: int, max_rows: int, now: int
    ) -> None:
        """Write the whole tail, which ends at a position of the journal, to files."""
        manifest = self.manifest
        records = list(self.records)

        def batches() -> Iterator[StoredBatch]:
            for _, stored in tail:
                if isinstance(stored, StoredRecord):
                    records.append(stored)
                else:
                    yield stored

        generation = manifest.generation + 1
        new_files = sealer.write_batches(
            self._tree, self._constants, batches(), generation, max_rows
        )
        files = (*manifest.files, *new_files)
        offset = files[-1].end if new_files else manifest.tail.offset
        changes: dict[str, object] = {"files": files, "tail": Tail(offset, position)}
        if len(records) > len(self.records):
            records = filter_needed(records, manifest)
            disk = self._tree.disk(VIEWS_FOLDER)
            changes["views"] = None
            if records:
                changes["views"] = views_table.write(disk, records, offset, generation)
            if manifest.views is not None:
                changes["retired"] = (*manifest.retired, self._retire(manifest.views, now))
        if changes["tail"] == manifest.tail:
            return
        self._write_manifest(now, **changes)
        self.records = records
        self.vector = compute_tail_vector(self.manifest, records)

    def merge(self, max_rows: int, now: int) -> None:
        """Merge the last files if they are small."""
        files = self.manifest.files
        count = sealer.count_mergeable(files, max_rows) if files else 0
        if count:
            parts = files[-count:]
            try:
                merged = sealer.merge_files(self._tree, parts, self.manifest.generation + 1)
            except (CorruptArchiveError, FileNotFoundError):
                return  # readers report the damage; new rows are stored all the same
            removed = [self._retire(part, now) for part in parts]
            retired = (*self.manifest.retired, *removed)
            self._write_manifest(now, files=(*files[:-count], merged), retired=retired)

    def compact(self, merge: MergeFunction, max_rows: int, now: int) -> list[list[DataFile]]:
        """Let `merge` combine groups of small files, and replace all of them in one new manifest; return the
        replaced groups."""
        groups = sealer.find_compactable(self.manifest.files, max_rows)
        if not groups:
            return []
        try:
            new_files = merge(groups, self.manifest.generation + 1)
        except BaseException:
            self.remove_orphans()
            raise
        for group, file in zip(groups, new_files, strict=True):
            assert (file.first, file.end) == (group[0].first, group[-1].end)
        parts = [part for group in groups for part in group]
        removed = {part.path for part in parts}
        files = [file for file in self.manifest.files if file.path not in removed]
        files = sorted((*files, *new_files), key=lambda file: file.first)
        retired = (*self.manifest.retired, *(self._retire(part, now) for part in parts))
        self._write_manifest(now, files=tuple(files), retired=retired)
        return groups

    # -- repair -----------------------------------------------------------------------------------

    def rewrite(self, file: DataFile, rows: Iterable[StoredBatch], max_rows: int) -> list[DataFile]:
        """Write rows of a file to new files, which no manifest names yet."""
        try:
            new_files = sealer.write_batches(
                self._tree, self._constants, rows, self.manifest.generation + 1, max_rows
            )
        except BaseException:
            self.remove_orphans()
            raise
        return [msgspec.structs.replace(each, stored=file.stored) for each in new_files]

    def replace(self, file: DataFile, new_files: Sequence[DataFile], now: int) -> None:
        """Replace a damaged file by new ones."""
        others = [each for each in self.manifest.files if each != file]
        files = sorted((*others, *new_files), key=lambda each: each.first)
        retired = (*self.manifest.retired, self._retire(file, now))
        self._write_manifest(now, files=tuple(files), retired=retired)
        self.vector = compute_tail_vector(self.manifest, self.records)

    # -- retention --------------------------------------------------------------------------------

    def select_expired(
        self, limits: RetentionLimits, now: int, end: int, journal_bytes: int
    ) -> tuple[DataFile, ...]:
        """Return the files beyond the limits."""
        return select_expired(
            self.manifest,
            limits,
            now=now,
            end=end,
            journal_bytes=journal_bytes,
            capacity=self._tree.capacity_bytes(),
        )

    def apply_retention(
        self, limits: RetentionLimits, grace: float | None, now: int, end: int, journal_bytes: int
    ) -> RetentionReport:
        manifest = self.manifest
        due = [each for each in manifest.retired if each.until <= now]
        dropped = self.select_expired(limits, now, end, journal_bytes)
        for each in due:
            self._delete(each)
        if due or dropped:
            remaining = [each for each in manifest.retired if each.until > now]
            remaining += [self._retire(file, now, grace) for file in dropped]
            first = dropped[-1].end if dropped else manifest.first
            begin = dict(manifest.begin)
            for file in dropped:
                for publisher, (_, last) in file.publishers.items():
                    begin[publisher] = max(last, begin.get(publisher, 0))
            for stored in self.records:
                if isinstance(stored.record, LostRange) and stored.offset <= first:
                    publisher, last = stored.record.publisher.hex(), stored.record.last
                    begin[publisher] = max(last, begin.get(publisher, 0))
            files = manifest.files[len(dropped) :]
            self._write_manifest(
                now, files=files, first=first, begin=begin, retired=tuple(remaining)
            )
        return RetentionReport(
            files=len(dropped),
            messages=sum(file.rows for file in dropped),
            bytes=sum(file.bytes for file in dropped),
            removed=len(due),
            freed=sum(each.bytes for each in due),
            first=self.manifest.first,
        )

    def _retire(
        self, file: DataFile | ViewsFile, now: int, grace: float | None = None
    ) -> RetiredFile:
        seconds = self._grace if grace is None else grace
        return RetiredFile(file.path, now + int(seconds * 1e6), file.bytes)

    def _delete(self, file: RetiredFile) -> None:
        folder, _, name = file.path.rpartition("/")
        # The file is missing if an earlier process was killed after deleting it.
        with suppress(FileNotFoundError, KeyError):
            self._tree.disk(folder).remove(name)
        self._tree.remove_empty(folder)


def filter_needed(records: list[StoredRecord], manifest: Manifest) -> list[StoredRecord]:
    """Return the records still needed: those that `DeliveryRecords` keeps, and lost or found ranges that end
    after the deleted messages."""
    table = DeliveryRecords(stored.record for stored in records)
    needed_records = []
    for stored in records:
        match stored.record:
            case ViewRecord(view):
                needed = table.view_records.get(view.id) == stored.record
            case ViewStability(view_id):
                needed = view_id in table.view_records
            case AcknowledgementRecord(member):
                needed = table.acknowledgements.get(member) == stored.record
            case LostRange(publisher, _, last) | FoundRange(publisher, _, last):
                needed = manifest.begin.get(publisher.hex(), 0) < last
        if needed:
            needed_records.append(stored)
    return needed_records


def compute_tail_vector(manifest: Manifest, records: Iterable[StoredRecord]) -> dict[bytes, int]:
    """Return the last sequence of each publisher before the tail."""
    texts = dict(manifest.begin)
    for file in manifest.files:
        for publisher, (_, last) in file.publishers.items():
            texts[publisher] = max(last, texts.get(publisher, 0))
    vector = {bytes.fromhex(text): last for text, last in texts.items()}
    for stored in records:
        if isinstance(stored.record, LostRange):
            lost = stored.record
            vector[lost.publisher] = max(lost.last, vector.get(lost.publisher, 0))
    return vector
