"""A power failure at every step of a spool: acknowledged messages are stored exactly once."""

from __future__ import annotations

from random import Random

import pytest

from recado.journal.disk import Disk
from recado.pipeline.queue.spool import Spool
from recado.simulator.disk import SimulatedDisk

from .deliveries import deliveries

ID = b"0123456789abcdef"
SEGMENT = 1500


class Life:
    """Takes, syncs, acknowledges and commits as chance has it, and remembers what held when."""

    def __init__(self, seed: int, steps: int) -> None:
        self.random = Random(seed)
        self.disk = SimulatedDisk(seed)
        self.sent = 0
        self.acknowledged: list[tuple[int, int]] = []  # (operations done, all before this number)
        self.committed: list[tuple[int, int]] = []  # (operations done before, all before this one)
        self.spool = opened(self.disk)
        for _ in range(steps):
            self.random.choice((self.take, self.take, self.save, self.commit))()

    def take(self) -> None:
        numbers = range(self.sent, self.sent + self.random.randint(1, 8))
        self.sent = numbers.stop
        assert self.spool.append(deliveries(numbers), received_us=1) == len(numbers)

    def save(self) -> None:
        self.spool.write()
        durable = self.spool.sync()
        self.acknowledged.append((len(self.disk.log), durable))
        self.spool.remove_committed()

    def commit(self) -> None:
        offset = self.random.randint(self.spool.committed, self.spool.durable)
        self.committed.append((len(self.disk.log), offset))
        self.spool.commit(offset)


def opened(disk: Disk) -> Spool:
    spool = Spool(disk, window_size=10_000, segment_bytes=SEGMENT)
    spool.recover("orders", lambda: ID)
    return spool


@pytest.mark.parametrize("seed", range(4))
def test_what_was_acknowledged_survives_every_crash_and_is_not_taken_again(seed: int) -> None:
    life = Life(seed, steps=60)
    assert life.sent > 100
    for chance in range(2):
        for moment, disk in life.disk.crash_points(chance):
            safe = max((upto for at, upto in life.acknowledged if at <= moment), default=0)
            let_go = max((upto for at, upto in life.committed if at <= moment), default=0)
            spool = opened(disk)
            assert spool.id == ID
            assert spool.end >= safe
            assert spool.committed <= let_go
            spool.slice_rows(let_go, spool.end, 1)  # all that a reader may still ask for
            # The broker gives again what was not acknowledged, and nothing is lost or doubled by that.
            taken = spool.end
            assert (
                spool.append(deliveries(range(safe, life.sent)), received_us=2) == life.sent - taken
            )
            spool.write()
            assert spool.sync() == life.sent
            spool.close()


def test_a_failed_sync_is_not_tried_again() -> None:
    disk = SimulatedDisk(1)
    spool = opened(disk)
    spool.append(deliveries(range(5)), received_us=1)
    spool.write()
    disk.fail_sync()
    with pytest.raises(OSError, match=r"."):
        spool.sync()
    assert spool.durable == 0
    with pytest.raises(OSError, match=r"."):
        spool.sync()


def test_a_full_disk_loses_nothing() -> None:
    disk = SimulatedDisk(1)
    spool = opened(disk)
    spool.append(deliveries(range(5)), received_us=1)
    disk.fill(10)
    spool.append(deliveries(range(5, 60)), received_us=1)
    with pytest.raises(OSError, match="space"):
        spool.write()
    disk.fill(None)
    spool.write()
    assert spool.sync() == 60
    assert opened(disk.crash(0)).end == 60
