"""The folders of an archive on simulated disks, which lose what was not synced."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from recado.simulator.disk import SimulatedDisk


class SimulatedTree:
    def __init__(self, disks: dict[str, SimulatedDisk] | None = None, seed: int = 0) -> None:
        self.disks = disks or {}
        self._seed = seed
        self.watch: Callable[[str], None] | None = None

    def disk(self, folder: str) -> SimulatedDisk:
        if folder not in self.disks:
            self.disks[folder] = SimulatedDisk(self._seed + len(self.disks))
        disk = self.disks[folder]
        disk.on_operation = self._told
        return disk

    def _told(self, operation: str) -> None:
        if self.watch is not None:
            self.watch(operation)

    def crash(self, chance: int = 0, mercy: float | None = None) -> SimulatedTree:
        """All folders after a loss of power at this moment."""
        crashed = {name: disk.crash(chance, mercy) for name, disk in self.disks.items()}
        return SimulatedTree(crashed, self._seed)

    def folders(self, under: str) -> list[str]:
        return sorted(name for name in self.disks if name.startswith(f"{under}/"))

    def remove_empty(self, folder: str) -> None:
        pass

    def capacity_bytes(self) -> int:
        return 1_000_000

    def parquet(self, path: str) -> pa.NativeFile:
        return pa.BufferReader(self.content(path))

    def content(self, path: str) -> bytes:
        folder, _, name = path.rpartition("/")
        file = self.disk(folder or ".").open(name)
        return file.read(0, file.size())

    def path(self, path: str) -> Path:
        return Path(path)
