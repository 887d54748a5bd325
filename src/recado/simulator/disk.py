"""A disk in memory that can lose unsynced data, tear writes, be full, fail to sync and flip bits.

It implements the `Disk` port of the journal. Every operation is recorded in `log`. `crash` returns another disk
with the content that a loss of power may leave now; `crash_points` yields such a disk for the start and for the
moment after each operation in the log. Neither changes this disk. The random choices of a crash depend only on
the seed, the number of operations and the variant, so repeating a run repeats its failures.

A crash treats each operation since the last sync independently:
- a write survives, is lost, or is torn by sectors or at a byte; its space may exist without its data, as zeros;
- a change of size survives or is lost, and so does the creation, renaming or removal of a file.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from random import Random
from threading import RLock
from types import MappingProxyType

Operation = tuple[object, ...]
SECTOR_BYTES = 512


class Inode:
    """A file without its name: its content, its durable content, and the changes between the two."""

    def __init__(self, content: bytes = b"") -> None:
        self.content = bytearray(content)
        self.durable = bytearray(content)
        self.unsynced: list[tuple[int, bytes | None]] = []
        """(offset, data) of writes, (size, None) of changes of size."""


class SimulatedFile:
    """An open file of a `SimulatedDisk`."""

    def __init__(self, disk: SimulatedDisk, number: int) -> None:
        self._disk = disk
        self._number = number

    def write(self, at: int, *parts: bytes) -> None:
        self._disk.perform("write", self._number, at, b"".join(parts))

    def read(self, at: int, size: int) -> bytes:
        return bytes(self._disk.inodes[self._number].content[at : at + size])

    def size(self) -> int:
        return len(self._disk.inodes[self._number].content)

    def reserve(self, size: int) -> None:
        if size > self.size():
            self._disk.perform("resize", self._number, size)

    def truncate(self, size: int) -> None:
        self._disk.perform("resize", self._number, size)

    def sync(self) -> None:
        self._disk.perform("sync", self._number)

    def close(self) -> None:
        pass


class SimulatedDisk:
    """A disk in memory with faults that are chosen by a seed."""

    folder = Path()

    def __init__(self, seed: int = 0, files: Mapping[str, bytes] = MappingProxyType({})) -> None:
        self.seed = seed
        self.log: list[Operation] = []
        self._files = files  # at the start of the log
        self.inodes = [Inode(content) for content in files.values()]
        self._names = {name: number for number, name in enumerate(files)}
        self._durable_names = dict(self._names)
        self._unsynced_names: list[dict[str, int | None]] = []  # None: removed
        self._free_bytes: int | None = None
        self._syncs_left: int | None = None
        self._locked = False
        self._lock = RLock()  # another thread may sync
        self.on_operation: Callable[[str], None] | None = None
        """Called with the name of each operation before it is performed; it may perform others or raise."""

    # -- the port (`recado.journal.disk.Disk`) -----------------------------------------------------

    def names(self) -> list[str]:
        return sorted(self._names)

    def open(self, name: str, *, create: bool = False) -> SimulatedFile:
        with self._lock:
            if name not in self._names:
                if not create:
                    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
                self.perform("create", name)
            return SimulatedFile(self, self._names[name])

    def remove(self, name: str) -> None:
        self.perform("remove", name)

    def rename(self, old: str, new: str) -> None:
        self.perform("rename", old, new)

    def sync_folder(self) -> None:
        self.perform("sync_folder")

    def free_bytes(self) -> int:
        return 1 << 62 if self._free_bytes is None else self._free_bytes

    def lock(self) -> None:
        if self._locked:  # not `FolderInUseError`: the simulator does not import the journal
            raise OSError(errno.EBUSY, "this simulated disk is in use")
        self._locked = True

    def close(self) -> None:
        self._locked = False

    # -- faults ------------------------------------------------------------------------------------

    def fill(self, free_bytes: int | None = 0) -> None:
        """Limit the free space; None removes the limit."""
        self.perform("fill", free_bytes)

    def fail_sync(self, after_syncs: int = 0) -> None:
        """Make the next sync of a file or of the folder fail, or the one after `after_syncs` others.

        Later syncs succeed. After a failed sync of a file, its unsynced writes can still be read, but no sync
        makes them durable any more; a crash loses them.
        """
        self.perform("fail_sync", after_syncs)

    def flip_bit(self, name: str, bit: int) -> None:
        """Invert one bit of a file."""
        self.perform("flip_bit", self._names[name], bit)

    def crash(self, variant: int = 0, survival_ratio: float | None = None) -> SimulatedDisk:
        """Return the disk after a loss of power at this moment. Each `variant` has another random outcome.

        `survival_ratio` is the probability that an unsynced operation survives; at 0 no part of any survives.
        The default is a random ratio.
        """
        with self._lock:  # another thread may be writing
            random = Random(f"{self.seed} {len(self.log)} {variant}")
            # Often choose the extremes (nothing or everything survives): mixtures do not find all bugs.
            if survival_ratio is None:
                survival_ratio = random.choice((0.0, 0.2, 0.5, 0.8, 1.0))
            names = dict(self._durable_names)
            for changes in self._unsynced_names:
                if random.random() < survival_ratio:
                    _apply_names(names, changes)
            files = {
                name: _surviving_content(self.inodes[number], random, survival_ratio)
                for name, number in sorted(names.items())
            }
            return SimulatedDisk(random.getrandbits(32), files)

    def crash_points(self, variant: int = 0) -> Iterator[tuple[int, SimulatedDisk]]:
        """Yield, for every moment of the log, the number of operations before it and the disk after a crash."""
        copy = SimulatedDisk(self.seed, self._files)
        yield 0, copy.crash(variant)
        for operation in self.log:
            copy.replay(operation)
            yield len(copy.log), copy.crash(variant)

    def replay(self, operation: Operation) -> None:
        """Perform an operation from the log of another disk; ignore an `OSError`, which occurred there too."""
        name, *arguments = operation
        with contextlib.suppress(OSError):
            self.perform(str(name), *arguments)

    # -- the operations ----------------------------------------------------------------------------

    def perform(self, name: str, *arguments: object) -> None:
        """Log and perform an operation: `perform("write", …)` calls `_write(…)`."""
        if self.on_operation is not None:
            self.on_operation(name)
        with self._lock:
            self.log.append((name, *arguments))
            getattr(self, f"_{name}")(*arguments)

    def _create(self, name: str) -> None:
        self.inodes.append(Inode())
        self._set_names({name: len(self.inodes) - 1})

    def _remove(self, name: str) -> None:
        self._allocate(-len(self.inodes[self._names[name]].content))
        self._set_names({name: None})

    def _rename(self, old: str, new: str) -> None:
        self._set_names({old: None, new: self._names[old]})

    def _set_names(self, changes: dict[str, int | None]) -> None:
        _apply_names(self._names, changes)
        self._unsynced_names.append(changes)

    def _allocate(self, size: int) -> None:
        if self._free_bytes is not None:
            if size > self._free_bytes:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            self._free_bytes -= size

    def _write(self, number: int, at: int, data: bytes) -> None:
        inode = self.inodes[number]
        end = len(inode.content)
        try:
            self._allocate(max(0, at + len(data) - end))
        except OSError:
            part = data[: max(0, end + self.free_bytes() - at)]
            if part:  # like a real disk, write as much as there is space for
                self._write(number, at, part)
            raise
        _apply_write(inode.content, at, data)
        inode.unsynced.append((at, data))

    def _resize(self, number: int, size: int) -> None:
        inode = self.inodes[number]
        self._allocate(size - len(inode.content))
        _apply_write(inode.content, size, None)
        inode.unsynced.append((size, None))

    def _sync(self, number: int) -> None:
        inode = self.inodes[number]
        unsynced, inode.unsynced = inode.unsynced, []
        self._fail_if_due()
        for at, data in unsynced:
            _apply_write(inode.durable, at, data)

    def _sync_folder(self) -> None:
        self._fail_if_due()
        self._durable_names = dict(self._names)
        self._unsynced_names.clear()

    def _fail_if_due(self) -> None:
        if self._syncs_left is not None:
            self._syncs_left -= 1
            if self._syncs_left < 0:
                self._syncs_left = None
                raise OSError(errno.EIO, os.strerror(errno.EIO))

    def _fill(self, free_bytes: int | None) -> None:
        self._free_bytes = free_bytes

    def _fail_sync(self, after_syncs: int) -> None:
        self._syncs_left = after_syncs

    def _flip_bit(self, number: int, bit: int) -> None:
        inode = self.inodes[number]
        for content in (inode.content, inode.durable):
            if bit // 8 < len(content):
                content[bit // 8] ^= 1 << bit % 8


def _apply_names(names: dict[str, int], changes: dict[str, int | None]) -> None:
    for name, number in changes.items():
        if number is None:
            names.pop(name, None)
        else:
            names[name] = number


def _apply_write(content: bytearray, at: int, data: bytes | None) -> None:
    """Write data at an offset; without data, change the size to the offset."""
    content.extend(bytes(max(0, at - len(content))))
    if data is None:
        del content[at:]
    else:
        content[at : at + len(data)] = data


def _surviving_content(inode: Inode, random: Random, survival_ratio: float) -> bytes:
    content = bytearray(inode.durable)
    for at, data in inode.unsynced:
        if random.random() < survival_ratio:
            _apply_write(content, at, data)
        elif data and survival_ratio:
            _tear(content, at, data, random)
    return bytes(content)


def _tear(content: bytearray, at: int, data: bytes, random: Random) -> None:
    cut = random.randrange(len(data))
    match random.choice(("nothing", "zeros", "start", "end", "sectors")):
        case "nothing":
            pass
        case "zeros":
            _apply_write(content, max(len(content), at + cut), None)
        case "start":
            _apply_write(content, at, data[:cut])
        case "end":
            _apply_write(content, at + cut, data[cut:])
        case _:
            for start in range(at - at % SECTOR_BYTES, at + len(data), SECTOR_BYTES):
                if random.random() < 0.5:
                    piece = data[max(start - at, 0) : start + SECTOR_BYTES - at]
                    _apply_write(content, max(start, at), piece)
