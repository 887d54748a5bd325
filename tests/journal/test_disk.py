"""The disk and its pair: the same tests for a folder, for memory and for the simulator's."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from recado.journal import disk as disk_module
from recado.journal.disk import LOCK_FILE, Disk, FolderDisk, FolderInUseError, MemoryDisk
from recado.simulator.disk import SimulatedDisk


@pytest.fixture(params=["folder", "memory", "simulated"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Disk:
    makers: dict[str, Callable[[], Disk]] = {
        "folder": lambda: FolderDisk(tmp_path / "data"),
        "memory": MemoryDisk,
        "simulated": SimulatedDisk,
    }
    return makers[request.param]()


def test_written_bytes_are_read_back(disk: Disk) -> None:
    file = disk.open("a", create=True)
    file.write(0, b"hello world")
    file.write(6, b"there")
    assert file.read(0, 100) == b"hello there"
    assert file.read(6, 2) == b"th"
    assert file.read(11, 5) == b""
    assert file.size() == 11
    file.sync()
    file.close()
    assert disk.open("a").read(0, 5) == b"hello"


def test_between_writes_there_are_zeros(disk: Disk) -> None:
    file = disk.open("a", create=True)
    file.write(3, b"x")
    assert file.read(0, 9) == b"\0\0\0x"


def test_reserved_space_is_zeros_and_preserves_content(disk: Disk) -> None:
    file = disk.open("a", create=True)
    file.write(0, b"abc")
    file.reserve(6)
    assert file.read(0, 9) == b"abc\0\0\0"
    file.reserve(2)
    assert file.size() == 6


def test_truncating_cuts_the_end_off(disk: Disk) -> None:
    file = disk.open("a", create=True)
    file.write(0, b"abcdef")
    file.truncate(2)
    file.sync()
    file.sync()
    assert file.read(0, 9) == b"ab"
    file.write(4, b"x")
    assert file.read(0, 9) == b"ab\0\0x"


def test_files_have_names(disk: Disk) -> None:
    disk.open("b", create=True).write(0, b"1")
    disk.open("a", create=True).write(0, b"2")
    assert disk.names() == ["a", "b"]
    disk.rename("b", "a")
    disk.sync_folder()
    assert disk.names() == ["a"]
    assert disk.open("a", create=True).read(0, 9) == b"1"
    disk.remove("a")
    assert disk.names() == []
    with pytest.raises(FileNotFoundError):
        disk.open("a")


def test_there_is_room(disk: Disk) -> None:
    assert disk.free_bytes() > 0


def test_only_one_has_the_lock(disk: Disk) -> None:
    disk.lock()
    other = FolderDisk(disk.folder) if isinstance(disk, FolderDisk) else disk
    with pytest.raises(OSError, match="in use"):
        other.lock()
    disk.close()
    other.lock()
    other.close()
    other.close()


def test_a_locked_folder_names_its_process(tmp_path: Path) -> None:
    disk = FolderDisk(tmp_path)
    disk.lock()
    with pytest.raises(FolderInUseError, match=f"{tmp_path} is in use by process {os.getpid()}"):
        FolderDisk(tmp_path).lock()
    disk.close()


def test_a_lock_outlives_no_process(tmp_path: Path) -> None:
    child = os.fork()
    if child == 0:
        FolderDisk(tmp_path).lock()
        os._exit(0)
    os.waitpid(child, 0)
    disk = FolderDisk(tmp_path)
    disk.lock()
    disk.close()


def test_a_long_write_goes_on_where_the_system_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = FolderDisk(tmp_path).open("a", create=True)
    write = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda *a: write(a[0], bytes(a[1])[:4], a[2]))
    monkeypatch.setattr(os, "pwritev", lambda *a: write(a[0], b"".join(a[1])[:4], a[2]))
    file.write(2, b"01", b"234", b"56789")
    assert file.read(0, 99) == b"\0\x000123456789"


def test_errors_of_an_open_file_name_its_path(tmp_path: Path) -> None:
    """/dev/full refuses every write, as a full disk does, and can be neither synced nor resized."""
    (tmp_path / "a").symlink_to("/dev/full")
    file = FolderDisk(tmp_path).open("a")
    with pytest.raises(OSError, match="No space left") as full:
        file.write(0, b"x")
    assert full.value.errno == errno.ENOSPC
    refused = [full.value.filename]
    for act in (file.sync, lambda: file.reserve(1), lambda: file.truncate(1)):
        with pytest.raises(OSError) as error:  # noqa: PT011 (which one differs between systems)
            act()
        refused.append(error.value.filename)
    assert refused == [str(tmp_path / "a")] * 4
    file.close()


def test_a_folder_that_cannot_be_synced_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_descriptor: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    disk = FolderDisk(tmp_path)
    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(OSError, match=re.escape(str(tmp_path))):
        disk.sync_folder()


def test_where_nothing_can_be_reserved_files_grow_as_they_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_module, "_reserve_descriptor", None)
    file = FolderDisk(tmp_path).open("a", create=True)
    file.reserve(100)
    assert file.size() == 0


def test_the_name_of_a_new_folder_is_synced_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(disk_module, "_sync_folder", synced.append)
    FolderDisk(tmp_path / "a" / "b")
    assert synced == [tmp_path / "a", tmp_path]
    FolderDisk(tmp_path / "a" / "b")
    assert len(synced) == 2


def test_a_lock_whose_file_cannot_be_written_is_released(tmp_path: Path) -> None:
    disk = FolderDisk(tmp_path)
    (tmp_path / LOCK_FILE).mkdir()
    with pytest.raises(IsADirectoryError):
        disk.lock()
    (tmp_path / LOCK_FILE).rmdir()
    disk.lock()
    disk.close()
