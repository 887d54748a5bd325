"""A computer whose power fails: the disk of the journal, those of streams, and the moment of the failure.

All disks share one count of operations, so a moment is a number; the power fails before the next operation,
wherever that is: in a write of several parts, an fsync, the removal of segments, recovery.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random

from recado.simulator.disk import SimulatedDisk

NEVER = 1 << 62
SYNCS = ("sync", "sync_folder")


class PowerLost(BaseException):
    """Not an Exception: only the code that runs the machine may handle it."""


class Machine:
    def __init__(self, seed: int, journal: SimulatedDisk | None = None) -> None:
        self.seed = seed
        self.journal = journal or SimulatedDisk(seed)
        self.operations = 0
        self.limit: int | None = None
        """The number of operations before the power fails."""
        self.meanwhile: Callable[[], None] | None = None
        """What clients do while a thread waits for an fsync; called at the next one."""
        self._folders: dict[str, SimulatedDisk] = {}
        self._removed: dict[str, SimulatedDisk] = {}  # a crash may bring them back
        self._watch(self.journal)

    def _watch(self, disk: SimulatedDisk) -> SimulatedDisk:
        disk.on_operation = self._before
        return disk

    def _before(self, operation: str) -> None:
        if self.limit is not None and self.operations >= self.limit:
            raise PowerLost
        self.operations += 1
        if self.meanwhile is not None and operation in SYNCS:
            act, self.meanwhile = self.meanwhile, None
            act()

    # ── folders of streams, as the store uses them ───────────────────────────────────────────────

    def list_names(self) -> list[str]:
        return sorted(self._folders)

    def open(self, name: str) -> SimulatedDisk:
        found = self._folders.get(name)
        if found is None:
            self._before("create")
            found = self._folders[name] = self._watch(SimulatedDisk(self.seed + len(name)))
            self._removed.clear()  # creating a folder syncs its parent
        return found

    def remove(self, name: str) -> None:
        disk = self._removed[name] = self._folders.pop(name)
        for each in disk.names():
            disk.remove(each)

    # ── what befalls it ───────────────────────────────────────────────────────────────────────────

    def disks(self) -> Iterator[SimulatedDisk]:
        yield self.journal
        yield from self._folders.values()

    def named_disks(self) -> Iterator[tuple[str, SimulatedDisk]]:
        yield "journal", self.journal
        yield from self._folders.items()

    def fill(self, room: int | None) -> None:
        """Limit the free space on each disk to so many bytes."""
        for disk in self.disks():
            disk.fill(room)

    def after_power_loss(self) -> Machine:
        """The same machine when the power is back."""
        random = Random(f"{self.seed} {self.operations}")
        after = Machine(random.getrandbits(32), self.journal.crash())
        for name, disk in self._folders.items():
            after._folders[name] = after._watch(disk.crash())
        for name, disk in self._removed.items():
            if name not in self._folders and random.random() < 0.5:
                after._folders[name] = after._watch(disk.crash())
        return after

    def after_kill(self) -> Machine:
        """Only the process has ended: the system still has all that was written."""
        self.limit = self.meanwhile = None
        for disk in self.disks():
            disk.on_operation = None
            disk.fill(None)
            disk.fail_sync(NEVER)
            self._watch(disk)
        return self

    def copy(self) -> Machine:
        """Another one with the same files, all of them durable."""
        after = Machine(self.seed, _copied(self.journal))
        for name, disk in self._folders.items():
            after._folders[name] = after._watch(_copied(disk))
        return after


def _copied(disk: SimulatedDisk) -> SimulatedDisk:
    files = {}
    for name in disk.names():
        file = disk.open(name)
        files[name] = file.read(0, file.size())
    return SimulatedDisk(disk.seed, files)
