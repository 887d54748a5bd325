"""The free space of a disk, and the ballast."""

from __future__ import annotations

import errno

import pytest

from recado.journal.disk import DiskFile
from recado.journal.disk_space import BALLAST_FILE, DiskSpace
from recado.simulator.disk import SimulatedDisk


def test_there_is_room_until_too_little_is_free() -> None:
    disk = SimulatedDisk()
    room = DiskSpace(disk, min_free_bytes=1000, ballast_bytes=500)
    assert not room.is_low()
    assert disk.names() == [BALLAST_FILE]
    disk.fill(999)
    assert room.is_low()


def test_the_ballast_is_released_and_restored() -> None:
    disk = SimulatedDisk()
    room = DiskSpace(disk, ballast_bytes=500)
    disk.fill(0)
    room.release_ballast()
    room.release_ballast()
    assert disk.names() == []
    assert disk.free_bytes() == 500
    assert room.is_low()
    disk.fill(499)
    room.restore_ballast()
    assert room.is_low()
    assert disk.names() == []
    disk.fill(500)
    room.restore_ballast()
    room.restore_ballast()
    assert not room.is_low()


def test_a_ballast_that_cannot_even_be_opened_is_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object, **__: object) -> DiskFile:
        raise OSError(errno.EMFILE, "too many open files")

    disk = SimulatedDisk()
    with monkeypatch.context() as patch:
        patch.setattr(disk, "open", fail)
        room = DiskSpace(disk, ballast_bytes=500)
        assert room.is_low()
        room.restore_ballast()
        assert room.is_low()
    room.restore_ballast()
    assert not room.is_low()


def test_it_is_there_already_after_a_restart() -> None:
    disk = SimulatedDisk()
    DiskSpace(disk, ballast_bytes=500)
    disk.fill(0)
    assert not DiskSpace(disk, ballast_bytes=500).is_low()
