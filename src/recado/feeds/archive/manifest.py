"""The manifest: a small JSON file that lists the contents of an archive.

    {"checksum":"0a1b2c3d",
    "format":"recado-archive","version":1, …}

The checksum is the CRC-32 of everything after the first line. A manifest file is never modified: the next
manifest is written to another file, synced, and replaces the last one by an atomic rename. So readers always see
a complete manifest, and the files that it names exist: a file is complete before a manifest names it, and stays
for a grace period after its removal.

MF1  `files` are in order: each begins at the offset where the previous one ends, or later where a repair has
     dropped rows. Offsets within a file have no gap.
MF2  Rows before `first` were deleted; those before `tail.offset` are in files, all others in the journal, in
     records from `tail.position` on.
MF3  `generation` grows by one with each manifest.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Final, Self

import msgspec

from recado.journal.checksum import crc32
from recado.journal.disk import Disk

from .errors import ArchiveNotFoundError, CorruptArchiveError, UnsupportedVersionError
from .layout import MANIFEST_FILE, PART_SUFFIX, ReadableDisk

FORMAT: Final = "recado-archive"
VERSION: Final = 1
_FIRST_LINE_BYTES = len('{"checksum":"0a1b2c3d",\n')


class DataFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A Parquet file with the rows [first, end)."""

    path: str
    """Relative to the folder of the archive, with `/`."""
    date: str
    """The UTC day on which the archive stored the rows."""
    first: int
    end: int
    bytes: int
    crc32: str
    """CRC-32 of the whole file."""
    footer: str
    """CRC-32 of the footer, which has no checksum in Parquet."""
    stored: tuple[int, int]
    """When the earliest and the latest row were stored, in µs by the archive's clock."""
    timestamps: tuple[int, int]
    """The lowest and the highest timestamp, in µs by the publishers' clocks."""
    publishers: dict[str, tuple[int, int]]
    """First and last sequence of each publisher."""

    @property
    def rows(self) -> int:
        return self.end - self.first


class ViewsFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The Parquet file of the records before `tail.offset`."""

    path: str
    rows: int
    bytes: int
    crc32: str
    footer: str


class Tail(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where the journal continues after the files."""

    offset: int = 0
    position: int = 0


class RetiredFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file that is no longer part of the archive; it is deleted after `until`, in µs."""

    path: str
    until: int
    bytes: int


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    feed: str
    archive: str
    """The name of the archive in its feed."""
    exchange: str
    generation: int = 0
    written: int = 0
    """When this manifest was written, in µs."""
    first: int = 0
    """The offset of the first row (MF2)."""
    tail: Tail = Tail()
    files: tuple[DataFile, ...] = ()
    views: ViewsFile | None = None
    begin: dict[str, int] = {}
    """Last sequence of each publisher before `first`."""
    retired: tuple[RetiredFile, ...] = msgspec.field(default=(), name="collected")
    """Files that are no longer part of the archive, but stay on disk until their grace period ends, because readers
    with an earlier manifest may still use them."""

    def check(self) -> str | None:
        """Return what is wrong with the manifest, or None."""
        ends = [(self.first, self.first), *((file.first, file.end) for file in self.files)]
        for (_, end), (first, after) in pairwise(ends):
            if first < end or after <= first:
                return f"file with rows [{first}, {after}) does not follow row {end} (MF1)"
        if ends[-1][1] > self.tail.offset:
            return f"files end at row {ends[-1][1]}, after the tail at {self.tail.offset} (MF2)"
        return None

    def successor(self, written: int, **changes: object) -> Self:
        changed = msgspec.structs.replace(
            self, generation=self.generation + 1, written=written, **changes
        )
        assert changed.check() is None, changed.check()
        return changed


class _ManifestDocument(Manifest, frozen=True, forbid_unknown_fields=True, kw_only=True):
    format: str
    version: int


class _VersionHeader(msgspec.Struct):
    """Fields of every version, to recognise manifests of later releases."""

    format: str
    version: int
    feed: str = ""


def encode(manifest: Manifest) -> bytes:
    fields = {"format": FORMAT, "version": VERSION, **msgspec.to_builtins(manifest)}
    rest = msgspec.json.format(msgspec.json.encode(fields), indent=1)[1:].lstrip()
    return b'{"checksum":"%08x",\n' % crc32(rest) + rest


def decode(data: bytes, file: object) -> Manifest:
    """Decode a manifest; raise an ArchiveError that names the location in the file."""
    head, rest = data[:_FIRST_LINE_BYTES], data[_FIRST_LINE_BYTES:]
    try:
        known = msgspec.json.decode(data, type=_VersionHeader)
        if known.format != FORMAT:
            raise ArchiveNotFoundError(
                f"{file} is not the manifest of an archive: format {known.format!r}"
            )
        if known.version > VERSION:
            raise UnsupportedVersionError(
                f"{file} has version {known.version}, this release supports up to {VERSION}: "
                "read the archive with the later release of recado that has written it"
            )
        if head != b'{"checksum":"%08x",\n' % crc32(rest):
            raise CorruptArchiveError(str(file), "byte 0", "wrong checksum")
        found = msgspec.json.decode(b"{" + rest, type=_ManifestDocument)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CorruptArchiveError(
            str(file), _error_location(str(error), len(data)), str(error)
        ) from None
    wrong = found.check()
    if wrong is not None:
        raise CorruptArchiveError(str(file), "`files`", wrong)
    names = Manifest.__struct_fields__
    return Manifest(**{name: getattr(found, name) for name in names})


def _error_location(error_text: str, size: int) -> str:
    """Extract the location from an error of msgspec: a byte of the text, or a path in the document."""
    _, found, byte = error_text.partition("(byte ")
    if found:
        return f"byte {byte.rstrip(')')}"
    _, found, path = error_text.partition(" - at `$.")
    return f"`{path}" if found else f"byte {size}"


def read(disk: ReadableDisk) -> Manifest:
    path = disk.folder / MANIFEST_FILE
    try:
        file = disk.open(MANIFEST_FILE)
    except FileNotFoundError:
        raise ArchiveNotFoundError(
            f"no archive in {disk.folder}: {MANIFEST_FILE} is missing"
        ) from None
    try:
        return decode(file.read(0, file.size()), path)
    finally:
        file.close()


def write(disk: Disk, manifest: Manifest) -> None:
    """Replace the manifest; durable when this returns."""
    part = MANIFEST_FILE + PART_SUFFIX
    if part in disk.names():
        disk.remove(part)
    file = disk.open(part, create=True)
    try:
        file.write(0, encode(manifest))
        file.sync()
    finally:
        file.close()
    disk.rename(part, MANIFEST_FILE)
    disk.sync_folder()
