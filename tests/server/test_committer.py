"""Group commit: what is told when, a full disk, a failed sync, and the end."""

from __future__ import annotations

import asyncio
import contextlib
import threading

import pytest

from recado.amqp.properties import Properties
from recado.broker.arguments import QueueSettings
from recado.journal.disk_space import DiskSpace
from recado.journal.journal import Journal
from recado.server import committer as module
from recado.server.committer import Committer
from recado.server.store import segments
from recado.server.store.journal_store import JournalStore
from recado.server.store.recovery import restore_broker
from recado.server.store.sync import SyncJob
from recado.simulator.disk import SimulatedDisk

from ..broker.stage import new_broker, open_channel, published
from .rim import in_the_loop, skip, soon, turns

PERSISTENT = Properties(delivery_mode=2)


class Told:
    """Somebody who waits, and can be waited for."""

    def __init__(self) -> None:
        self.at = asyncio.get_running_loop().create_future()

    def on_durable(self) -> None:
        self.at.set_result(None)


class Rim:
    """A broker with its ledger on a simulated disk, and a loop that commits."""

    def __init__(self) -> None:
        self.disk = SimulatedDisk()
        self.folder = SimulatedDisk()
        self.found_full = 0
        self.failures: list[str] = []
        self.failed = asyncio.get_running_loop().create_future()
        self.ledger = JournalStore(Journal(self.disk, segment_bytes=2000))
        self.broker = new_broker(self.ledger)
        restore_broker(self.ledger, self.broker, 0)
        self.committer = Committer(
            self.ledger,
            asyncio.get_running_loop(),
            self._fail,
            DiskSpace(self.folder, min_free_bytes=1000, ballast_bytes=500),
            self._note_full,
        )
        wanted = QueueSettings(durable=True)
        self.queue = self.broker.create_queue(self.broker.vhosts["/"], "q", wanted, None, 0)
        self.channel = open_channel(self.broker)

    def _note_full(self) -> None:
        self.found_full += 1

    def _fail(self, reason: str) -> None:
        self.failures.append(reason)
        self.failed.set_result(None)

    def publish(self, *bodies: bytes) -> Told:
        self.channel.publisher.publish(published("q", *bodies, properties=PERSISTENT), 0)
        told = Told()
        self.ledger.notify_when_durable(told)
        return told

    def count_after_power_loss(self) -> int:
        ledger = JournalStore(Journal(self.disk.crash(survival_ratio=0.0), segment_bytes=2000))
        broker = new_broker(ledger)
        restore_broker(ledger, broker, 0)
        return broker.vhosts["/"].queues["q"].ready


THREAD, AT_ONCE = 0.0, 100.0  # how long a sync may take to be made at once, in seconds


@pytest.fixture(params=[THREAD, AT_ONCE], autouse=True)
def quick(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> float:
    monkeypatch.setattr(module, "INLINE_SYNC_MAX_S", request.param)
    return float(request.param)


@in_the_loop
async def test_whoever_waits_is_told_when_it_is_durable() -> None:
    rim = Rim()
    told = [rim.publish(b"1"), rim.publish(b"2", b"3")]
    rim.committer.commit()
    for each in told:
        await soon(each.at)
    assert rim.count_after_power_loss() == 3
    await rim.committer.close()
    assert rim.failures == []


@in_the_loop
async def test_those_who_come_meanwhile_share_the_next_sync() -> None:
    rim = Rim()
    first = rim.publish(b"1")
    rim.committer.commit()
    others = [rim.publish(b"%d" % i) for i in range(2, 5)]
    rim.committer.commit()
    await soon(asyncio.gather(first.at, *(each.at for each in others)))
    assert rim.ledger.durable_lsn <= 2
    assert rim.count_after_power_loss() == 4
    await rim.committer.close()


@in_the_loop
async def test_what_is_not_written_when_a_sync_ends_is_not_told() -> None:
    """Others may be in the midst of a turn then."""
    rim = Rim()
    first = rim.publish(b"1")
    rim.committer.commit()
    second = rim.publish(b"2")
    await soon(first.at)
    rim.committer.commit()
    await soon(second.at)
    assert rim.count_after_power_loss() == 2
    await rim.committer.close()


@in_the_loop
async def test_what_came_to_nothing_needs_no_sync() -> None:
    rim = Rim()
    await until_durable(rim)
    operations = len(rim.disk.log)
    told = rim.publish(b"1")
    assert rim.channel.get(rim.queue, no_ack=True, now=0)
    rim.committer.commit()
    await soon(told.at)
    assert len(rim.disk.log) == operations
    await rim.committer.close()


async def until_durable(rim: Rim) -> None:
    """Let the ledger write, and sync, what it has."""
    told = Told()
    rim.ledger.notify_when_durable(told)
    rim.committer.commit()
    await soon(told.at)


@in_the_loop
async def test_acks_become_durable_within_a_second() -> None:
    rim = Rim()
    told = rim.publish(b"1")
    rim.committer.commit()
    await soon(told.at)
    assert rim.channel.get(rim.queue, no_ack=True, now=0)
    rim.committer.commit()
    assert not rim.ledger.is_durable
    rim.committer.maintain()
    await rim.committer.close()
    assert rim.count_after_power_loss() == 0


@in_the_loop
async def test_a_full_disk_is_waited_for() -> None:
    rim = Rim()
    first = rim.publish(b"1")
    rim.committer.commit()
    await soon(first.at)
    rim.disk.fill(0)
    second = rim.publish(bytes(3000))
    for _ in range(3):
        rim.committer.commit()
        rim.committer.maintain()
        await turns()
    assert not second.at.done()
    assert rim.found_full == 1
    assert rim.folder.names() == [], "the ballast was given up"
    assert rim.committer.disk_shortage() == rim.ledger.disk_shortage() == "low on disk"
    assert rim.count_after_power_loss() == 1
    rim.disk.fill(None)
    rim.committer.maintain()
    rim.committer.commit()
    await soon(second.at)
    assert rim.committer.disk_shortage() == "low on disk", "until there is ballast again"
    rim.committer.maintain()
    assert rim.committer.disk_shortage() is None
    assert rim.count_after_power_loss() == 2
    await rim.committer.close()
    assert rim.failures == []


@in_the_loop
async def test_a_full_disk_is_freed_of_what_was_settled_before() -> None:
    """M2, though the room that was kept for such an hour is gone."""
    rim = Rim()
    rim.folder.fill(999)
    for _ in range(20):
        rim.publish(bytes(300))
        await until_durable(rim)
    rim.committer.maintain()
    while rim.channel.get(rim.queue, no_ack=True, now=0):
        pass
    rim.committer.write_deferred()
    assert not rim.ledger.is_durable, "or the segments would be gone already"
    before = len(rim.ledger.journal.segments)
    rim.disk.fill(0)
    told = rim.publish(bytes(3000))
    rim.committer.commit()
    assert rim.committer.disk_shortage()
    ended = sync_ended(rim)
    rim.committer.maintain()
    await soon(ended)
    assert not told.at.done()
    assert len(rim.ledger.journal.segments) < before
    assert rim.count_after_power_loss() == 0, "they are gone for good"
    rim.committer.maintain()
    rim.committer.commit()
    await soon(told.at)
    assert rim.count_after_power_loss() == 1
    await rim.committer.close()
    assert rim.failures == []


@pytest.mark.parametrize("deleted", [False, True])
@in_the_loop
async def test_a_full_disk_keeps_what_was_settled_too_late(*, deleted: bool) -> None:
    """Its end is not on disk, nor what may have become of it: a dead letter, for instance."""
    rim = Rim()
    rim.folder.fill(999)
    for _ in range(20):
        rim.publish(bytes(300))
        await until_durable(rim)
    rim.committer.maintain()
    rim.disk.fill(0)
    if deleted:
        rim.broker.delete_queue(rim.queue, 0)
        rim.broker.create_queue(rim.broker.vhosts["/"], "q", QueueSettings(durable=True), None, 0)
    rim.publish(bytes(3000))
    rim.committer.commit()
    while rim.channel.get(rim.queue, no_ack=True, now=0):
        pass
    for _ in range(3):
        rim.committer.maintain()
        await turns()
    assert rim.count_after_power_loss() == 20
    rim.disk.fill(None)
    rim.committer.maintain()
    await rim.committer.close()
    assert rim.count_after_power_loss() == (1 if deleted else 0)


def sync_ended(rim: Rim) -> asyncio.Future[None]:
    """Done when the next sync is, and what it left empty is dropped."""
    ended = asyncio.get_running_loop().create_future()
    end_sync = rim.ledger.end_sync

    def end(sync: SyncJob) -> None:
        end_sync(sync)
        ended.set_result(None)
        rim.ledger.end_sync = end_sync  # type: ignore[method-assign]

    rim.ledger.end_sync = end  # type: ignore[method-assign]
    return ended


@in_the_loop
async def test_publishers_wait_before_the_disk_is_full() -> None:
    rim = Rim()
    assert rim.committer.disk_shortage() is None
    rim.folder.fill(999)
    assert rim.committer.disk_shortage() == "low on disk"
    await rim.committer.close()


@in_the_loop
async def test_after_a_failed_sync_nothing_is_promised() -> None:
    rim = Rim()
    first = rim.publish(b"1")
    rim.committer.commit()
    await soon(first.at)
    rim.disk.fail_sync()
    second = rim.publish(b"2")
    rim.committer.commit()
    await soon(rim.failed)
    assert "nothing can be confirmed any more" in rim.failures[0]
    third = rim.publish(b"3")
    rim.committer.commit()
    rim.committer.maintain()
    await turns()
    assert not second.at.done()
    assert not third.at.done()
    await rim.committer.close()
    assert len(rim.failures) == 1


@in_the_loop
async def test_closing_makes_everything_durable() -> None:
    rim = Rim()
    told = rim.publish(b"1")
    rim.committer.commit()
    rim.publish(b"2")
    await rim.committer.close()
    assert rim.count_after_power_loss() == 2
    await soon(told.at)


class Broken:
    """Somebody who waits, and fails when told."""

    def on_durable(self) -> None:
        raise ValueError("broken")


@in_the_loop
async def test_closing_does_not_wait_for_one_who_failed() -> None:
    rim = Rim()
    reported: list[object] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda _, context: reported.append(context["exception"])
    )
    rim.ledger.notify_when_durable(Broken())
    told = rim.publish(b"1")
    with contextlib.suppress(ValueError):  # it comes out here, or out of the loop
        rim.committer.commit()
    await soon(rim.committer.close())
    assert told.at.done()
    assert [str(error) for error in reported] in ([], ["broken"])
    assert rim.count_after_power_loss() == 1


async def leave_garbage(rim: Rim, count: int) -> None:
    """Segments with little in them that is live."""
    wanted = QueueSettings(durable=True)
    rim.broker.create_queue(rim.broker.vhosts["/"], "idle", wanted, None, 0)
    for i in range(count):
        rim.publish(bytes(300))
        if i % 6 == 0:
            rim.channel.publisher.publish(published("idle", b"1", properties=PERSISTENT), 0)
        await until_durable(rim)
        assert rim.channel.get(rim.queue, no_ack=True, now=0)
        await until_durable(rim)


@in_the_loop
async def test_a_segment_that_lacks_messages_ends_the_node() -> None:
    rim = Rim()
    await leave_garbage(rim, 60)
    for page in rim.ledger.segments.all_stats():
        page.live_count += 1
        page.stored_count += 10
    for _ in range(30):
        rim.committer.maintain()
        await skip(1)
    await soon(rim.failed)
    assert "not in their segment" in rim.failures[0]
    await rim.committer.close()


@in_the_loop
async def test_segments_are_freed() -> None:
    """Those that one message holds, too."""
    rim = Rim()
    await leave_garbage(rim, 200)
    before = len(rim.ledger.journal.segments)
    for _ in range(30):
        rim.committer.maintain()
        await skip(1)
        await until_durable(rim)
    assert len(rim.ledger.journal.segments) < before / 2
    await rim.committer.close()


@pytest.mark.parametrize("others", [0, 1])
@in_the_loop
async def test_a_disk_short_of_room_gets_back_that_of_the_last_segment(
    monkeypatch: pytest.MonkeyPatch, others: int
) -> None:
    monkeypatch.setattr(segments, "ROLL_GAIN_MIN_BYTES", 200)
    rim = Rim()
    wanted = QueueSettings(durable=True)
    rim.broker.create_queue(rim.broker.vhosts["/"], "idle", wanted, None, 0)
    for _ in range(others):
        rim.channel.publisher.publish(published("idle", b"1", properties=PERSISTENT), 0)
    for _ in range(5):
        rim.publish(bytes(100))
    await until_durable(rim)
    (last,) = rim.ledger.journal.segments
    rim.disk.fill(5000)
    rim.folder.fill(999)
    rim.committer.maintain()
    await until_durable(rim)
    assert rim.ledger.journal.segments == [last], "all of it is live"
    rim.queue.purge()
    for _ in range(4):
        rim.committer.maintain()
        await skip(1)
        await until_durable(rim)
    (segment,) = rim.ledger.journal.segments
    assert segment.base > last.base
    assert rim.count_after_power_loss() == 0
    assert rim.broker.vhosts["/"].queues["idle"].ready == others
    end = segment.end
    for _ in range(3):
        rim.committer.maintain()
        await until_durable(rim)
    assert rim.ledger.journal.segments == [segment], "another would free nothing more"
    assert segment.end == end
    await rim.committer.close()
    assert rim.failures == []


@in_the_loop
async def test_room_is_given_back_also_when_all_came_to_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Entered and settled in one turn, which needs no sync, behind one that left segments empty."""
    rim = Rim()
    while not rim.ledger.segments.find_empty():
        told = rim.publish(bytes(300))
        rim.committer.commit()
        await soon(told.at)
        rim.queue.purge()
    rim.ledger.write()
    rim.ledger.journal.sync()
    given_back = threading.Event()
    monkeypatch.setattr(rim.ledger.journal, "close_dropped", given_back.set)
    before = len(rim.ledger.journal.segments)
    told = rim.publish(b"x")
    rim.queue.purge()
    rim.committer.commit()
    await soon(told.at)
    assert len(rim.ledger.journal.segments) < before
    assert given_back.wait(60)
    monkeypatch.undo()
    await rim.committer.close()
