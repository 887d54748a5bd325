"""The simulated disk: synced data survives, the rest is random, and the same seed has the same outcome."""

from __future__ import annotations

from threading import Thread

import pytest

from recado.simulator.disk import SECTOR_BYTES, SimulatedDisk

DATA = bytes(range(1, 256)) * 9  # no zeros


def content(disk: SimulatedDisk, name: str = "a") -> bytes:
    return disk.open(name).read(0, 1 << 20)


@pytest.fixture
def disk() -> SimulatedDisk:
    disk = SimulatedDisk(7)
    disk.open("a", create=True)
    disk.sync_folder()
    return disk


def test_synced_data_survives(disk: SimulatedDisk) -> None:
    file = disk.open("a")
    file.write(0, b"hello")
    file.sync()
    for chance in range(20):
        assert content(disk.crash(chance)) == b"hello"


def test_unsynced_writes_survive_are_lost_or_torn(disk: SimulatedDisk) -> None:
    disk.open("a").write(0, DATA)
    outcomes = {content(disk.crash(chance)) for chance in range(300)}
    assert {b"", DATA} < outcomes
    assert any(DATA.startswith(found) and found != DATA for found in outcomes if found)  # the start
    assert any(found[:9] == bytes(9) and found.endswith(DATA[-9:]) for found in outcomes)  # the end
    assert any(found and not any(found) for found in outcomes)  # its space alone
    sectors = {found[:SECTOR_BYTES] for found in outcomes if len(found) > SECTOR_BYTES}
    assert {bytes(SECTOR_BYTES), DATA[:SECTOR_BYTES]} <= sectors
    for found in outcomes:
        assert all(a in (0, b) for a, b in zip(found, DATA, strict=False))


def test_writes_are_reordered(disk: SimulatedDisk) -> None:
    file = disk.open("a")
    for number in range(4):
        file.write(number, bytes([number + 1]))
    outcomes = {content(disk.crash(chance)).ljust(4, b"\0") for chance in range(300)}
    assert b"\0\0\0\4" in outcomes
    assert b"\1\0\3\0" in outcomes


def test_sizes_are_as_uncertain_as_data(disk: SimulatedDisk) -> None:
    file = disk.open("a")
    file.write(0, b"abcdef")
    file.sync()
    file.truncate(2)
    file.reserve(4)
    assert content(disk) == b"ab\0\0"
    outcomes = {content(disk.crash(chance)) for chance in range(50)}
    assert outcomes == {b"abcdef", b"ab", b"ab\0\0", b"abcd"}


def test_names_are_uncertain_until_they_are_synced(disk: SimulatedDisk) -> None:
    disk.open("b", create=True)
    disk.rename("a", "c")
    outcomes = {tuple(disk.crash(chance).names()) for chance in range(50)}
    assert outcomes == {("a",), ("a", "b"), ("c",), ("b", "c")}
    disk.sync_folder()
    assert disk.crash(survival_ratio=0).names() == ["b", "c"]
    disk.remove("b")
    assert disk.crash(survival_ratio=0).names() == ["b", "c"]
    assert disk.crash(survival_ratio=1).names() == ["c"]


def test_a_failed_sync_loses_its_data(
    disk: SimulatedDisk,
) -> None:
    file = disk.open("a")
    disk.fail_sync(after_syncs=1)
    file.write(0, b"one")
    file.sync()
    file.write(3, b"two")
    with pytest.raises(OSError, match="error"):
        file.sync()
    file.sync()  # it says that all is well
    assert content(disk) == b"onetwo"
    assert content(disk.crash(survival_ratio=1)) == b"one"


def test_names_that_could_not_be_synced_can_be_later(disk: SimulatedDisk) -> None:
    disk.open("b", create=True)
    disk.fail_sync()
    with pytest.raises(OSError, match="error"):
        disk.sync_folder()
    assert disk.crash(survival_ratio=0).names() == ["a"]
    disk.sync_folder()
    assert disk.crash(survival_ratio=0).names() == ["a", "b"]


def test_a_full_disk(disk: SimulatedDisk) -> None:
    file = disk.open("a")
    disk.fill(10)
    file.write(0, b"0123456")
    with pytest.raises(OSError, match="space"):
        file.reserve(20)
    assert (disk.free_bytes(), file.size()) == (3, 7)
    with pytest.raises(OSError, match="space"):
        file.write(7, b"789abc")
    assert content(disk) == b"0123456789"
    file.write(0, b"over")  # existing content can be overwritten
    with pytest.raises(OSError, match="space"):
        file.write(30, b"x")
    file.truncate(4)
    assert disk.free_bytes() == 6
    disk.remove("a")
    assert disk.free_bytes() == 10
    disk.fill(None)
    disk.open("b", create=True).reserve(1000)


def test_a_bit_rots_for_good(disk: SimulatedDisk) -> None:
    file = disk.open("a")
    file.write(0, b"aa")
    file.sync()
    file.write(2, b"a")
    disk.flip_bit("a", 9)
    disk.flip_bit("a", 16)
    assert content(disk) == b"ac`"
    assert content(disk.crash(survival_ratio=0)) == b"ac"


def test_the_same_seed_brings_the_same_fate(disk: SimulatedDisk) -> None:
    disk.open("a").write(0, DATA)
    assert len({content(disk.crash(5)) for _ in range(5)}) == 1


def test_every_moment_can_be_visited(disk: SimulatedDisk) -> None:
    file = disk.open("a")
    file.write(0, b"one")
    file.sync()
    disk.fill(1)
    with pytest.raises(OSError, match="space"):
        file.write(3, b"two")
    visited = [content(after) if "a" in after.names() else None for _, after in disk.crash_points()]
    assert len(visited) == len(disk.log) + 1 == 7
    assert visited[0] is None
    assert visited[4:6] == [b"one", b"one"]
    points = [point for point, _ in disk.crash_points()]
    assert points == list(range(7))


def test_after_a_crash_moments_are_counted_from_there(disk: SimulatedDisk) -> None:
    file = disk.open("a")
    file.write(0, b"before")
    file.sync()
    after = disk.crash()
    after.open("a").write(0, b"behind")
    assert next(content(found) for _, found in after.crash_points()) == b"before"


def test_a_crash_waits_for_the_operation_of_another_thread() -> None:
    disk = SimulatedDisk()
    file = disk.open("a", create=True)
    crashed: list[SimulatedDisk] = []
    crashing = Thread(target=lambda: crashed.append(disk.crash(survival_ratio=1.0)))

    with disk._lock:
        crashing.start()
        crashing.join(0.05)
        assert not crashed
        file.write(0, b"whole")
    crashing.join()
    assert crashed[0].open("a").read(0, 9) == b"whole"
