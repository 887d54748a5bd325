"""Group commit: notifications, a full disk, a failed sync, and closing."""

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
from .harness import in_the_loop, skip, soon, turns

PERSISTENT = Properties(delivery_mode=2)


class Told:
    """A listener that tests can await."""

    def __init__(self) -> None:
        self.at = asyncio.get_running_loop().create_future()

    def on_durable(self) -> None:
        self.at.set_result(None)


class CommitterHarness:
    """A broker with its store on a simulated disk, and a loop that commits."""

    def __init__(self) -> None:
        self.disk = SimulatedDisk()
        self.folder = SimulatedDisk()
        self.found_full = 0
        self.failures: list[str] = []
        self.failed = asyncio.get_running_loop().create_future()
        self.store = JournalStore(Journal(self.disk, segment_bytes=2000))
        self.broker = new_broker(self.store)
        restore_broker(self.store, self.broker, 0)
        self.committer = Committer(
            self.store,
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
        self.store.notify_when_durable(told)
        return told

    def count_after_power_loss(self) -> int:
        store = JournalStore(Journal(self.disk.crash(survival_ratio=0.0), segment_bytes=2000))
        broker = new_broker(store)
        restore_broker(store, broker, 0)
        return broker.vhosts["/"].queues["q"].ready


THREAD, AT_ONCE = 0.0, 100.0  # how long a sync may take to be made at once, in seconds


@pytest.fixture(params=[THREAD, AT_ONCE], autouse=True)
def quick(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> float:
    monkeypatch.setattr(module, "INLINE_SYNC_MAX_S", request.param)
    return float(request.param)


@in_the_loop
async def test_waiters_are_notified_when_durable() -> None:
    harness = CommitterHarness()
    told = [harness.publish(b"1"), harness.publish(b"2", b"3")]
    harness.committer.commit()
    for each in told:
        await soon(each.at)
    assert harness.count_after_power_loss() == 3
    await harness.committer.close()
    assert harness.failures == []


@in_the_loop
async def test_syncs_are_measured() -> None:
    harness = CommitterHarness()
    await soon(_committed(harness, b"1"))  # and the declaration of the queue
    await soon(_committed(harness, b"2", b"3", b"4"))
    sizes, durations = harness.committer.commit_sizes, harness.committer.sync_durations
    assert (sizes.count, sizes.total) == (2, 5)
    assert durations.count == harness.committer.sync_count == 2
    assert durations.total == harness.committer.sync_seconds > 0
    harness.store.acknowledge(harness.queue, 0, 1, 1)  # no client waits for it
    harness.committer.maintain()
    await harness.committer.close()
    assert durations.count > sizes.count == 2


async def _committed(harness: CommitterHarness, *bodies: bytes) -> None:
    told = harness.publish(*bodies)
    harness.committer.commit()
    await told.at


@in_the_loop
async def test_operations_during_a_sync_share_the_next_one() -> None:
    harness = CommitterHarness()
    first = harness.publish(b"1")
    harness.committer.commit()
    others = [harness.publish(b"%d" % i) for i in range(2, 5)]
    harness.committer.commit()
    await soon(asyncio.gather(first.at, *(each.at for each in others)))
    assert harness.store.durable_lsn <= 2
    assert harness.count_after_power_loss() == 4
    await harness.committer.close()


@in_the_loop
async def test_unwritten_operations_are_not_reported_when_a_sync_ends() -> None:
    """The loop may be within a turn then."""
    harness = CommitterHarness()
    first = harness.publish(b"1")
    harness.committer.commit()
    second = harness.publish(b"2")
    await soon(first.at)
    harness.committer.commit()
    await soon(second.at)
    assert harness.count_after_power_loss() == 2
    await harness.committer.close()


@in_the_loop
async def test_messages_settled_in_their_turn_need_no_sync() -> None:
    harness = CommitterHarness()
    await until_durable(harness)
    operations = len(harness.disk.log)
    told = harness.publish(b"1")
    assert harness.channel.get(harness.queue, no_ack=True, now=0)
    harness.committer.commit()
    await soon(told.at)
    assert len(harness.disk.log) == operations
    await harness.committer.close()


async def until_durable(harness: CommitterHarness) -> None:
    """Write and sync everything in the store."""
    told = Told()
    harness.store.notify_when_durable(told)
    harness.committer.commit()
    await soon(told.at)


@in_the_loop
async def test_acks_become_durable_within_a_second() -> None:
    harness = CommitterHarness()
    told = harness.publish(b"1")
    harness.committer.commit()
    await soon(told.at)
    assert harness.channel.get(harness.queue, no_ack=True, now=0)
    harness.committer.commit()
    assert not harness.store.is_durable
    harness.committer.maintain()
    await harness.committer.close()
    assert harness.count_after_power_loss() == 0


@in_the_loop
async def test_a_full_disk_is_waited_for() -> None:
    harness = CommitterHarness()
    first = harness.publish(b"1")
    harness.committer.commit()
    await soon(first.at)
    harness.disk.fill(0)
    second = harness.publish(bytes(3000))
    for _ in range(3):
        harness.committer.commit()
        harness.committer.maintain()
        await turns()
    assert not second.at.done()
    assert harness.found_full == 1
    assert harness.folder.names() == [], "the ballast was given up"
    assert harness.committer.disk_shortage() == harness.store.disk_shortage() == "low on disk"
    assert harness.count_after_power_loss() == 1
    harness.disk.fill(None)
    harness.committer.maintain()
    harness.committer.commit()
    await soon(second.at)
    assert harness.committer.disk_shortage() == "low on disk", "until there is ballast again"
    harness.committer.maintain()
    assert harness.committer.disk_shortage() is None
    assert harness.count_after_power_loss() == 2
    await harness.committer.close()
    assert harness.failures == []


@in_the_loop
async def test_a_full_disk_is_freed_of_messages_settled_before() -> None:
    """CM2, although the ballast is used up."""
    harness = CommitterHarness()
    harness.folder.fill(999)
    for _ in range(20):
        harness.publish(bytes(300))
        await until_durable(harness)
    harness.committer.maintain()
    while harness.channel.get(harness.queue, no_ack=True, now=0):
        pass
    harness.committer.write_deferred()
    assert not harness.store.is_durable, "or the segments would be gone already"
    before = len(harness.store.journal.segments)
    harness.disk.fill(0)
    told = harness.publish(bytes(3000))
    harness.committer.commit()
    assert harness.committer.disk_shortage()
    ended = sync_ended(harness)
    harness.committer.maintain()
    await soon(ended)
    assert not told.at.done()
    assert len(harness.store.journal.segments) < before
    assert harness.count_after_power_loss() == 0, "they are gone for good"
    harness.committer.maintain()
    harness.committer.commit()
    await soon(told.at)
    assert harness.count_after_power_loss() == 1
    await harness.committer.close()
    assert harness.failures == []


@pytest.mark.parametrize("deleted", [False, True])
@in_the_loop
async def test_a_full_disk_retains_messages_settled_too_late(*, deleted: bool) -> None:
    """Neither its settlement is on disk nor its dead letter."""
    harness = CommitterHarness()
    harness.folder.fill(999)
    for _ in range(20):
        harness.publish(bytes(300))
        await until_durable(harness)
    harness.committer.maintain()
    harness.disk.fill(0)
    if deleted:
        harness.broker.delete_queue(harness.queue, 0)
        harness.broker.create_queue(
            harness.broker.vhosts["/"], "q", QueueSettings(durable=True), None, 0
        )
    harness.publish(bytes(3000))
    harness.committer.commit()
    while harness.channel.get(harness.queue, no_ack=True, now=0):
        pass
    for _ in range(3):
        harness.committer.maintain()
        await turns()
    assert harness.count_after_power_loss() == 20
    harness.disk.fill(None)
    harness.committer.maintain()
    await harness.committer.close()
    assert harness.count_after_power_loss() == (1 if deleted else 0)


def sync_ended(harness: CommitterHarness) -> asyncio.Future[None]:
    """Wait for the next sync, after which empty segments are dropped."""
    ended = asyncio.get_running_loop().create_future()
    end_sync = harness.store.end_sync

    def end(sync: SyncJob) -> None:
        end_sync(sync)
        ended.set_result(None)
        harness.store.end_sync = end_sync  # type: ignore[method-assign]

    harness.store.end_sync = end  # type: ignore[method-assign]
    return ended


@in_the_loop
async def test_publishers_wait_before_the_disk_is_full() -> None:
    harness = CommitterHarness()
    assert harness.committer.disk_shortage() is None
    harness.folder.fill(999)
    assert harness.committer.disk_shortage() == "low on disk"
    await harness.committer.close()


@in_the_loop
async def test_after_a_failed_sync_nothing_is_promised() -> None:
    harness = CommitterHarness()
    first = harness.publish(b"1")
    harness.committer.commit()
    await soon(first.at)
    harness.disk.fail_sync()
    second = harness.publish(b"2")
    harness.committer.commit()
    await soon(harness.failed)
    assert "nothing can be confirmed any more" in harness.failures[0]
    third = harness.publish(b"3")
    harness.committer.commit()
    harness.committer.maintain()
    await turns()
    assert not second.at.done()
    assert not third.at.done()
    await harness.committer.close()
    assert len(harness.failures) == 1


@in_the_loop
async def test_closing_makes_everything_durable() -> None:
    harness = CommitterHarness()
    told = harness.publish(b"1")
    harness.committer.commit()
    harness.publish(b"2")
    await harness.committer.close()
    assert harness.count_after_power_loss() == 2
    await soon(told.at)


class Broken:
    """A listener that raises when it is notified."""

    def on_durable(self) -> None:
        raise ValueError("broken")


@in_the_loop
async def test_closing_does_not_wait_for_a_failed_listener() -> None:
    harness = CommitterHarness()
    reported: list[object] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda _, context: reported.append(context["exception"])
    )
    harness.store.notify_when_durable(Broken())
    told = harness.publish(b"1")
    with contextlib.suppress(ValueError):  # it comes out here, or out of the loop
        harness.committer.commit()
    await soon(harness.committer.close())
    assert told.at.done()
    assert [str(error) for error in reported] in ([], ["broken"])
    assert harness.count_after_power_loss() == 1


async def leave_garbage(harness: CommitterHarness, count: int) -> None:
    """Segments with little in them that is live."""
    wanted = QueueSettings(durable=True)
    harness.broker.create_queue(harness.broker.vhosts["/"], "idle", wanted, None, 0)
    for i in range(count):
        harness.publish(bytes(300))
        if i % 6 == 0:
            harness.channel.publisher.publish(published("idle", b"1", properties=PERSISTENT), 0)
        await until_durable(harness)
        assert harness.channel.get(harness.queue, no_ack=True, now=0)
        await until_durable(harness)


@in_the_loop
async def test_a_segment_that_lacks_messages_ends_the_node() -> None:
    harness = CommitterHarness()
    await leave_garbage(harness, 60)
    for page in harness.store.segments.all_stats():
        page.live_count += 1
        page.stored_count += 10
    for _ in range(30):
        harness.committer.maintain()
        await skip(1)
    await soon(harness.failed)
    assert "not in their segment" in harness.failures[0]
    await harness.committer.close()


@in_the_loop
async def test_segments_are_freed() -> None:
    """Those that one message holds, too."""
    harness = CommitterHarness()
    await leave_garbage(harness, 200)
    before = len(harness.store.journal.segments)
    for _ in range(30):
        harness.committer.maintain()
        await skip(1)
        await until_durable(harness)
    assert len(harness.store.journal.segments) < before / 2
    await harness.committer.close()


@pytest.mark.parametrize("others", [0, 1])
@in_the_loop
async def test_a_disk_short_of_room_gets_back_that_of_the_last_segment(
    monkeypatch: pytest.MonkeyPatch, others: int
) -> None:
    monkeypatch.setattr(segments, "ROLL_GAIN_MIN_BYTES", 200)
    harness = CommitterHarness()
    wanted = QueueSettings(durable=True)
    harness.broker.create_queue(harness.broker.vhosts["/"], "idle", wanted, None, 0)
    for _ in range(others):
        harness.channel.publisher.publish(published("idle", b"1", properties=PERSISTENT), 0)
    for _ in range(5):
        harness.publish(bytes(100))
    await until_durable(harness)
    (last,) = harness.store.journal.segments
    harness.disk.fill(5000)
    harness.folder.fill(999)
    harness.committer.maintain()
    await until_durable(harness)
    assert harness.store.journal.segments == [last], "all of it is live"
    harness.queue.purge()
    for _ in range(4):
        harness.committer.maintain()
        await skip(1)
        await until_durable(harness)
    (segment,) = harness.store.journal.segments
    assert segment.base > last.base
    assert harness.count_after_power_loss() == 0
    assert harness.broker.vhosts["/"].queues["idle"].ready == others
    end = segment.end
    for _ in range(3):
        harness.committer.maintain()
        await until_durable(harness)
    assert harness.store.journal.segments == [segment], "another would free nothing more"
    assert segment.end == end
    await harness.committer.close()
    assert harness.failures == []


@in_the_loop
async def test_space_is_freed_also_without_a_sync(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Published and settled in one turn, which needs no sync, after a sync that left segments empty."""
    harness = CommitterHarness()
    while not harness.store.segments.find_empty():
        told = harness.publish(bytes(300))
        harness.committer.commit()
        await soon(told.at)
        harness.queue.purge()
    harness.store.write()
    harness.store.journal.sync()
    given_back = threading.Event()
    monkeypatch.setattr(harness.store.journal, "close_dropped", given_back.set)
    before = len(harness.store.journal.segments)
    told = harness.publish(b"x")
    harness.queue.purge()
    harness.committer.commit()
    await soon(told.at)
    assert len(harness.store.journal.segments) < before
    assert given_back.wait(60)
    monkeypatch.undo()
    await harness.committer.close()
