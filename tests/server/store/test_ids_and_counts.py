"""Message ids and delivery counts over restarts and power failures."""

import copy
from itertools import count

import pytest

from recado.amqp.properties import Properties
from recado.amqp.values import FieldTable
from recado.broker.arguments import DeduplicationSettings, parse_queue_arguments
from recado.broker.broker import Broker
from recado.broker.queue import Queue
from recado.journal.disk import Disk, MemoryDisk
from recado.journal.journal import Journal
from recado.server.store import journal_store as store_module
from recado.server.store.journal_store import JournalStore
from recado.server.store.recovery import restore_broker
from recado.server.store.streams import StreamFolders
from recado.simulator.disk import SimulatedDisk
from tests.broker.stage import GUEST, Peer, consume, new_queue, open_channel, run_of
from tests.broker.test_deduplication import WANTED, bodies_in, publish
from tests.broker.test_delivery_count import counts, requeue, seen

SEGMENT = 1 << 16
ARGUMENTS = {"x-queue-type": "quorum", "x-delivery-limit": 3}


class Node:
    """A broker on a disk, as it is there."""

    def __init__(self, disk: Disk, folders: StreamFolders | None = None) -> None:
        self.store = JournalStore(Journal(disk, segment_bytes=SEGMENT), folders)
        self.broker = Broker(map(str, count(1)).__next__, store=self.store)
        self.broker.add_user(GUEST)
        restore_broker(self.store, self.broker, 0)

    @property
    def queue(self) -> Queue:
        return self.broker.vhosts["/"].queues["q"]

    def sync(self) -> None:
        self.store.write()
        sync = self.store.begin_sync()
        sync.run()
        self.store.end_sync(sync)


# ── counts ────────────────────────────────────────────────────────────────────────────────────────────────


def quorum(disk: Disk) -> Node:
    node = Node(disk)
    new_queue(
        node.broker,
        durable=True,
        queue_type="quorum",
        delivery_limit=3,
        arguments=ARGUMENTS,
    )
    return node


def test_how_often_a_message_returned_is_known_after_a_restart() -> None:
    disk = MemoryDisk()
    node = quorum(disk)
    channel = open_channel(node.broker)
    node.queue.publish(run_of([b"one", b"two"], Properties(delivery_mode=2)), 0)
    consume(channel, node.queue, prefetch=1)
    requeue(channel)
    node.sync()
    for expected in ([2, None], [3, 1]):  # the one that was out when the broker died has come back
        node = Node(disk)
        peer = Peer()
        consume(open_channel(node.broker, peer), node.queue, prefetch=len(expected))
        assert counts(peer) == expected
        node.sync()
    node, peer = Node(disk), Peer()
    consume(open_channel(node.broker, peer), node.queue)
    assert [(body, again) for body, again, _ in seen(peer)] == [(b"two", True)]
    node.sync()
    assert Node(disk).queue.ready == 1


# ── ids ───────────────────────────────────────────────────────────────────────────────────────────────────


def sifting(disk: Disk, where: str) -> Node:
    """With a queue that is sifted: by itself, or by the exchange before it."""
    node = Node(disk)
    of_queue = WANTED if where == "queue" else {}
    window = DeduplicationSettings(10_000, None) if where == "queue" else None
    new_queue(node.broker, durable=True, deduplication=window, arguments=of_queue)
    vhost = node.broker.vhosts["/"]
    of_exchange = WANTED if where == "exchange" else {}
    vhost.declare_exchange("x", "fanout", durable=True, arguments=of_exchange)
    vhost.bind_queue("q", "x", "")
    node.sync()
    return node


both = pytest.mark.parametrize("where", ["queue", "exchange"])


@both
def test_a_duplicate_is_known_after_a_restart_though_its_message_is_long_gone(where: str) -> None:
    disk = MemoryDisk()
    node = sifting(disk, where)
    for first in range(0, 1500, 100):  # over many segments, which are dropped
        ids = [f"{number:060}" for number in range(first, first + 100)]
        publish(open_channel(node.broker), *ids, exchange="x")
        node.sync()
        assert len(bodies_in(node.broker, node.queue)) == 100
        node.sync()
    assert sum(map(len, disk.files.values())) < 20 * SEGMENT
    again = [f"{number:060}" for number in range(1502)]
    for new in (2, 0):
        node = Node(disk)
        publish(open_channel(node.broker), *again, exchange="x")
        assert len(bodies_in(node.broker, node.queue)) == new
        node.sync()


@both
def test_deleted_entities_forget_their_ids(where: str) -> None:
    disk = MemoryDisk()
    node = sifting(disk, where)
    publish(open_channel(node.broker), "a", exchange="x")
    node.sync()
    node.broker.delete_queue(node.queue, 0)
    node.broker.vhosts["/"].delete_exchange("x")
    node.sync()
    for _ in range(2):
        node = sifting(disk, where)
        assert node.queue.ready == 0
        publish(open_channel(node.broker), "a", exchange="x")
        node.broker.delete_queue(node.queue, 0)
        node.broker.vhosts["/"].delete_exchange("x")
        node.sync()


@both
@pytest.mark.parametrize("chance", range(12))
def test_whenever_the_power_fails_each_message_is_there_once_when_all_are_sent_again(
    where: str, chance: int
) -> None:
    disk = SimulatedDisk(chance)
    node = sifting(disk, where)
    declared = len(disk.log)
    a, b, c, d, e = every = [letter * 200 for letter in "abcde"]  # in several sectors of a disk
    confirmed = {}
    channel = open_channel(node.broker)
    for ids in ((a, b), (c, a, d), (), (e,)):
        publish(channel, *ids, exchange="x")
        node.sync()
        confirmed[len(disk.log)] = ids
    for point, after in disk.crash_points(chance):
        if point < declared:
            continue
        node = Node(after)
        safe = {each for end, ids in confirmed.items() if end <= point for each in ids}
        there = bodies_in(node.broker, node.queue)
        assert len(there) == len(set(there))
        assert safe <= {body.decode() for body in there}
        publish(open_channel(node.broker), *every, exchange="x")
        there += bodies_in(node.broker, node.queue)
        assert sorted(there) == [each.encode() for each in every]


# ── ids of messages in streams, which have another journal ────────────────────────────────────────────────


class SimulatedFolders:
    def __init__(self) -> None:
        self.disks: dict[str, SimulatedDisk] = {}

    def list_names(self) -> list[str]:
        return sorted(self.disks)

    def open(self, name: str) -> Disk:
        return self.disks.setdefault(name, SimulatedDisk())

    def remove(self, name: str) -> None:
        del self.disks[name]

    def crash(self) -> "SimulatedFolders":
        after = SimulatedFolders()
        after.disks = {name: disk.crash(survival_ratio=0.0) for name, disk in self.disks.items()}
        return after


def streaming(disk: Disk, folders: SimulatedFolders) -> Node:
    """A stream bound to a deduplicating exchange."""
    node = Node(disk, folders)
    arguments: FieldTable = {"x-queue-type": "stream"}
    settings = parse_queue_arguments(
        "q", "/", durable=True, exclusive=False, auto_delete=False, arguments=arguments
    )
    vhost = node.broker.vhosts["/"]
    node.broker.create_queue(vhost, "q", settings, None, 0)
    vhost.declare_exchange("x", "fanout", durable=True, arguments=WANTED)
    vhost.bind_queue("q", "x", "")
    node.sync()
    return node


@pytest.mark.parametrize("checkpoint", [False, True])
@pytest.mark.parametrize("ids", ["a", "aa"])
def test_an_id_is_not_on_disk_before_its_message_in_a_stream(ids: str, checkpoint: bool) -> None:
    disk, folders = SimulatedDisk(), SimulatedFolders()
    node = streaming(disk, folders)
    publish(open_channel(node.broker), *ids, exchange="x")
    node.store.segments.checkpoint_due = checkpoint
    node.store.write()
    node.store.begin_sync().journal.sync()  # the power fails before the stream's own is
    node = Node(disk.crash(survival_ratio=0.0), folders.crash())
    assert node.queue.ready == 0
    publish(open_channel(node.broker), "a", exchange="x")
    assert node.queue.ready == 1


@pytest.mark.parametrize("closed", [False, True])
def test_the_id_of_a_stream_message_is_known_after_a_restart(closed: bool) -> None:
    disk, folders = SimulatedDisk(), SimulatedFolders()
    node = streaming(disk, folders)
    publish(open_channel(node.broker), "a", exchange="x")
    if closed:
        node.store.close()
    else:
        node.sync()
        assert node.store.has_pending_writes
        node.sync()
    node = Node(disk.crash(survival_ratio=0.0), folders.crash())
    publish(open_channel(node.broker), "a", "b", exchange="x")
    assert node.queue.ready == 2


def test_an_unsynced_id_is_forgotten_with_its_exchange() -> None:
    disk, folders = SimulatedDisk(), SimulatedFolders()
    node = streaming(disk, folders)
    publish(open_channel(node.broker), "a", exchange="x")
    vhost = node.broker.vhosts["/"]
    vhost.delete_exchange("x")
    vhost.declare_exchange("x", "fanout", durable=True, arguments=WANTED)
    vhost.bind_queue("q", "x", "")
    node.sync()
    node.sync()
    node = Node(disk.crash(survival_ratio=0.0), folders.crash())
    publish(open_channel(node.broker), "a", exchange="x")
    assert node.queue.ready == 2


def sifting_twice(disk: Disk) -> Node:
    """With a queue and exchanges that find duplicates."""
    node = Node(disk)
    new_queue(node.broker, durable=True)
    new_queue(
        node.broker,
        "once",
        durable=True,
        deduplication=DeduplicationSettings(capacity=1000, ttl_ms=None),
        arguments={**WANTED, "x-cache-size": 1000},
    )
    for name in ("x", "y"):
        vhost = node.broker.vhosts["/"]
        vhost.declare_exchange(name, "fanout", durable=True, arguments=WANTED)
        vhost.bind_queue("q", name, "")
    return node


def publish_twice(node: Node, *ids: str) -> None:
    channel = open_channel(node.broker)
    publish(channel, *ids, exchange="x")
    publish(channel, *ids, key="once")


def test_a_checkpoint_writes_many_ids_in_several_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a crash at any time all ids are known, also if the segments before the checkpoint are gone."""
    monkeypatch.setattr(store_module, "IDS_PER_STEP", 10)
    monkeypatch.setattr(store_module, "REWRITE_UNITS_MAX", 1)
    disk = MemoryDisk()
    node = sifting_twice(disk)
    known = [f"early {i}" for i in range(100)]
    publish_twice(node, *known)
    publish(open_channel(node.broker), "gone", exchange="y")
    node.sync()
    base = node.store.journal.segments[0].base
    for name in ("q", "once"):
        node.broker.vhosts["/"].queues[name].purge()
    node.store.roll()
    crashes: list[tuple[MemoryDisk, list[str]]] = []
    while node.store.segments.checkpoint_due:
        node.sync()
        assert node.store.has_deferred_writes is node.store.segments.checkpoint_due
        crashes.append((copy.deepcopy(disk), [*known]))
        known.append(f"new {len(crashes)}")
        publish_twice(node, known[-1])
        if len(crashes) == 3:
            node.broker.vhosts["/"].delete_exchange("y")
            node.store.journal.roll()  # the ids are in two segments
    assert len(crashes) > 20
    for _ in range(2):
        node.sync()
    assert base not in [segment.base for segment in node.store.journal.segments]
    for after, ids in (*crashes, (disk, known)):
        node = Node(after)
        queues = [node.broker.vhosts["/"].queues[name] for name in ("q", "once")]
        before = [queue.ready for queue in queues]
        publish_twice(node, *ids)
        assert [queue.ready for queue in queues] == before
        publish_twice(node, "unknown")
        assert [queue.ready for queue in queues] == [count + 1 for count in before]
