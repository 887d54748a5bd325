"""A disk that loses what was not synced, tears it, fills up, fails and rots.

It has the methods of the journal's disk. Everything that is done to it is an operation in `log`; `crash` gives
the disk as a loss of power may leave it now, `crash_points` one for every moment of the log. Both leave this
one as it is, and chance is decided by seed and moment alone: the same run meets the same failures.

What a crash does to each operation since the last sync, independently of the others:
- a write is kept, lost, torn by sectors or torn at a byte; its room may be there without its data, as zeros;
- a change of size is kept or lost, and so is a creation, renaming or removal.
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
    """A file without its name: as programs see it, as the medium has it, and what lies between the two."""

    def __init__(self, content: bytes = b"") -> None:
        self.content = bytearray(content)
        self.durable = bytearray(content)
        self.unsynced: list[tuple[int, bytes | None]] = []
        """(offset, data) of writes, (size, None) of changes of size."""


class SimulatedFile:
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
    folder = Path()

    def __init__(self, seed: int = 0, files: Mapping[str, bytes] = MappingProxyType({})) -> None:
        self.seed = seed
        self.log: list[Operation] = []
        self._files = files  # before the log
        self.inodes = [Inode(content) for content in files.values()]
        self._names = {name: number for number, name in enumerate(files)}
        self._durable_names = dict(self._names)
        self._unsynced_names: list[dict[str, int | None]] = []  # None: the name is gone
        self._free_bytes: int | None = None
        self._syncs_left: int | None = None
        self._locked = False
        self._lock = RLock()  # syncs come from another thread
        self.on_operation: Callable[[str], None] | None = None
        """Told of each operation before it is done: it may do others first, or raise instead."""

    # -- as a disk ---------------------------------------------------------------------------------

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
        self.perform("sync_names")

    def free_bytes(self) -> int:
        return 1 << 62 if self._free_bytes is None else self._free_bytes

    def lock(self) -> None:
        if self._locked:
            raise OSError(errno.EBUSY, "this simulated disk is in use")
        self._locked = True

    def close(self) -> None:
        self._locked = False

    # -- what befalls it ---------------------------------------------------------------------------

    def fill(self, free_bytes: int | None = 0) -> None:
        """Leave room for so many bytes more; None: any number."""
        self.perform("fill", free_bytes)

    def fail_sync(self, after_syncs: int = 0) -> None:
        """Let a sync fail, this one or a later one. What it should have written is lost; the next is silent."""
        self.perform("fail_sync", after_syncs)

    def flip_bit(self, name: str, bit: int) -> None:
        """Let one bit of a file rot."""
        self.perform("flip", self._names[name], bit)

    def crash(self, variant: int = 0, survival_ratio: float | None = None) -> SimulatedDisk:
        """The disk after a loss of power at this moment; another `chance`, another outcome.

        `mercy` is how much of what was not synced survives: 0 nothing, 1 everything.
        """
        with self._lock:  # another thread may be writing
            random = Random(f"{self.seed} {len(self.log)} {variant}")
            # All or nothing is as likely as every mixture: syncs protect from both, and bugs hide in either.
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
        """For every moment of the log: how many operations were done, and the disk after a crash then."""
        again = SimulatedDisk(self.seed, self._files)
        yield 0, again.crash(variant)
        for operation in self.log:
            again.replay(operation)
            yield len(again.log), again.crash(variant)

    def replay(self, operation: Operation) -> None:
        """Do again what another disk's log says; it fails again where it failed."""
        name, *arguments = operation
        with contextlib.suppress(OSError):
            self.perform(str(name), *arguments)

    # -- the operations ----------------------------------------------------------------------------

    def perform(self, name: str, *arguments: object) -> None:
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
            part = data[
                : max(0, end + self.free_bytes() - at)
            ]  # is written, as far as there is room
            if part:
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

    def _sync_names(self) -> None:
        self._fail_if_due()
        self._durable_names = dict(self._names)
        self._unsynced_names.clear()

    def _fail_if_due(self) -> None:
        if self._syncs_left is not None:
            self._syncs_left -= 1
            if self._syncs_left < 0:
                self._syncs_left = None
                raise OSError(errno.EIO, os.strerror(errno.EIO))

    def _fill(self, room: int | None) -> None:
        self._free_bytes = room

    def _fail_sync(self, after: int) -> None:
        self._syncs_left = after

    def _flip(self, number: int, bit: int) -> None:
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
    """A write at an offset, or without data a change of size to it."""
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
