"""Loss of power at every moment of a workload, and again soon after the restart."""

from __future__ import annotations

from random import Random

import pytest

from recado.journal.journal import Journal
from recado.simulator.disk import SimulatedDisk

SEGMENT = 256

Record = tuple[int, bytes]


class Workload:
    """Append, write, sync and drop at random, and record what was durable when."""

    def __init__(self, seed: int, steps: int) -> None:
        self.random = Random(seed)
        self.disk = SimulatedDisk(seed)
        self.promises: list[tuple[int, int]] = []  # (operations done, durable position then)
        self.drops: list[tuple[int, int, int]] = []  # (operations done before, base, end)
        self.groups: list[list[Record]] = []
        self.journal = Journal(self.disk, segment_bytes=SEGMENT)
        assert list(self.journal.recover()) == []
        for _ in range(steps):
            self.random.choice((self.append, self.append, self.write, self.sync, self.drop))()

    def append(self) -> None:
        # Few sizes, so that records of an earlier incarnation are where new records begin.
        records = [
            self.random.randbytes(self.random.choice((7, 7, 55)))
            for _ in range(self.random.choice((1, 1, 2)))
        ]
        self.groups.append(list(zip(self.journal.append(*records), records, strict=True)))

    def write(self) -> None:
        self.journal.write()

    def sync(self) -> None:
        durable = self.journal.sync()
        self.promises.append((len(self.disk.log), durable))

    def drop(self) -> None:
        done = [part for part in self.journal.segments if part.end < self.journal.durable_position]
        if done:
            segment = self.random.choice(done)
            self.drops.append((len(self.disk.log), segment.base, segment.end))
            self.journal.drop(segment.base)


def check_recovered(
    work: Workload, moment: int, disk: SimulatedDisk
) -> tuple[Journal, list[Record]]:
    journal = Journal(disk, segment_bytes=SEGMENT)
    found = list(journal.recover())
    promised = max((durable for at, durable in work.promises if at <= moment), default=0)
    assert journal.position >= promised
    dropped = [(base, end) for at, base, end in work.drops if at < moment]
    whole = [group for group in work.groups if group[-1][0] < journal.position]
    assert found == [
        (at, payload)
        for group in whole
        for at, payload in group
        if (at, payload) in found or not any(base <= at < end for base, end in dropped)
    ]
    return journal, found


@pytest.mark.parametrize("seed", range(6))
def test_durable_records_survive_every_crash(seed: int) -> None:
    work = Workload(seed, steps=120)
    for chance in range(4):
        for moment, disk in work.disk.crash_points(chance):
            journal, found = check_recovered(work, moment, disk)
            before = len(found)
            # Go on a little, and lose power again.
            for _ in range(3):
                payload = bytes([chance]) * 7
                found.append((journal.append(payload)[0], payload))
                if journal.position % 2:
                    journal.write()
            journal.write()
            if journal.position % 3:
                journal.sync()
                before = len(found)
            again = Journal(disk.crash(chance), segment_bytes=SEGMENT)
            survived = list(again.recover())
            assert survived == found[: len(survived)]
            assert len(survived) >= before


def test_recovery_can_be_cut_short_as_often_as_fate_likes() -> None:
    work = Workload(9, steps=60)
    for moment, disk in work.disk.crash_points(1):
        recovered, _ = check_recovered(work, moment, disk)
        for chance in range(3):
            for step, again in disk.crash_points(chance):
                journal, _ = check_recovered(work, moment, again)
                assert step < len(disk.log) or journal.position >= recovered.position
