"""The room on a disk, and the ballast."""

from __future__ import annotations

import errno

import pytest

from recado.journal.disk import File
from recado.journal.room import BALLAST, Room
from recado.simulator.disk import SimulatedDisk


def test_there_is_room_until_too_little_is_free() -> None:
    disk = SimulatedDisk()
    room = Room(disk, least_free=1000, size=500)
    assert not room.is_short()
    assert disk.names() == [BALLAST]
    disk.fill(999)
    assert room.is_short()


def test_the_ballast_is_given_up_and_comes_back() -> None:
    disk = SimulatedDisk()
    room = Room(disk, size=500)
    disk.fill(0)
    room.give_up()
    room.give_up()
    assert disk.names() == []
    assert disk.free() == 500
    assert room.is_short()
    disk.fill(499)
    room.restore()
    assert room.is_short()
    assert disk.names() == []
    disk.fill(500)
    room.restore()
    room.restore()
    assert not room.is_short()


def test_a_ballast_that_cannot_even_be_opened_is_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object, **__: object) -> File:
        raise OSError(errno.EMFILE, "too many open files")

    disk = SimulatedDisk()
    with monkeypatch.context() as patch:
        patch.setattr(disk, "open", fail)
        room = Room(disk, size=500)
        assert room.is_short()
        room.restore()
        assert room.is_short()
    room.restore()
    assert not room.is_short()


def test_it_is_there_already_after_a_restart() -> None:
    disk = SimulatedDisk()
    Room(disk, size=500)
    disk.fill(0)
    assert not Room(disk, size=500).is_short()
