"""The message store: records in the journal, state in memory, and state after a restart."""

from __future__ import annotations

import copy

import pytest

from recado.amqp.events import ContentReceived
from recado.amqp.frames import extract_body
from recado.amqp.properties import Properties
from recado.amqp.values import FieldTable, Int8
from recado.broker.arguments import parse_queue_arguments
from recado.broker.channel import ATOMIC_UNITS_MAX, Settlement
from recado.broker.limits import VhostLimits
from recado.broker.queue import Queue
from recado.broker.steps import STEP_UNITS_MAX
from recado.broker.vhost import VhostSettings
from recado.journal.disk import MemoryDisk
from recado.journal.journal import Journal
from recado.journal.record import CorruptJournalError, UnknownFormatError
from recado.server.store import records
from recado.server.store.compaction import Compactor
from recado.server.store.journal_store import JournalStore
from recado.server.store.recovery import restore_broker

from ...broker.stage import Peer, new_broker, open_channel, published

PERSISTENT = Properties(delivery_mode=2)


class Node:
    """A broker and its store, which can be restarted."""

    def __init__(self, *, room: int = 1 << 30, segment_size: int = 1 << 20) -> None:
        self.disk = MemoryDisk()
        self.room = room
        self.segment_size = segment_size
        self._start()

    def flip_a_bit_of(self, part: bytes) -> None:
        """Return the stats of the only segment."""
        (name,) = [name for name in self.disk.files if name.endswith(".journal")]
        self.disk.files[name][self.disk.files[name].index(part)] ^= 1

    def restart(self, *, written: bool = True) -> None:
        if written:
            self.store.write()
        self._start()

    def _start(self) -> None:
        self.store = JournalStore(
            Journal(self.disk, segment_bytes=self.segment_size), page_out_bytes=self.room
        )
        self.broker = new_broker(self.store)
        restore_broker(self.store, self.broker, 0)
        self.peer = Peer()
        self.channel = open_channel(self.broker, self.peer)

    def queue(self, name: str = "q") -> Queue:
        return self.broker.vhosts["/"].queues[name]

    def declare(self, name: str = "q", *, durable: bool = True, **arguments: object) -> Queue:
        table: FieldTable = {
            f"x-{key.replace('_', '-')}": value  # type: ignore[misc]
            for key, value in arguments.items()
        }
        settings = parse_queue_arguments(
            name, "/", durable=durable, exclusive=False, auto_delete=False, arguments=table
        )
        return self.broker.create_queue(self.broker.vhosts["/"], name, settings, None, 0)

    def publish(
        self,
        *bodies: bytes,
        key: str = "q",
        exchange: str = "",
        properties: Properties = PERSISTENT,
    ) -> None:
        event = published(key, *bodies, exchange=exchange, properties=properties)
        self.channel.publisher.publish(event, 0)

    def get(self, name: str = "q", *, no_ack: bool = True) -> bytes | None:
        if not self.channel.get(self.queue(name), no_ack=no_ack, now=0):
            return None
        (event,) = self.peer.received()
        assert isinstance(event, ContentReceived)
        return extract_body(event.content)

    def bodies(self, name: str = "q") -> list[bytes]:
        found = []
        while (body := self.get(name)) is not None:
            found.append(body)
        return found

    def sync(self) -> None:
        self.store.write()
        sync = self.store.begin_sync()
        sync.run()
        self.store.end_sync(sync)

    def kinds(self) -> list[int]:
        """Return the records of the journal by kind."""
        self.store.write()
        journal = self.store.journal
        return [record[0] for _, record in journal.scan(0, journal.position)]

    def runs(self) -> list[bytes]:
        journal = self.store.journal
        return [
            record
            for _, record in journal.scan(0, journal.position)
            if record[0] <= records.MOVED_RUN
        ]


@pytest.fixture
def node() -> Node:
    return Node()


class Listener:
    def __init__(self) -> None:
        self.told = 0

    def on_durable(self) -> None:
        self.told += 1


# ── lsns ───────────────────────────────────────────────────────────────────────────────────────────────


def test_operations_made_during_a_sync_wait_for_the_next(node: Node) -> None:
    node.declare()
    first, second = Listener(), Listener()
    node.store.notify_when_durable(first)
    node.store.write()
    sync = node.store.begin_sync()
    node.publish(b"1")
    node.store.notify_when_durable(second)
    assert node.store.needs_sync
    sync.run()
    node.store.end_sync(sync)
    assert (first.told, second.told) == (1, 0)
    assert node.store.durable_lsn == sync.lsn == node.store.lsn - 1
    node.sync()
    assert (first.told, second.told) == (1, 1)
    assert node.store.is_durable


def test_restored_queues_do_not_count_as_created() -> None:
    node = Node()
    node.declare()
    assert node.broker.usage.queues_created == 1
    node.restart()
    assert node.broker.usage.queues_created == 0


def test_only_durable_operations_are_awaited(node: Node) -> None:
    node.declare()
    node.publish(b"1")
    node.sync()
    assert node.get(no_ack=False) == b"1"
    assert node.store.has_pending_writes
    assert not node.store.needs_sync
    node.store.write()
    assert not node.store.has_pending_writes


# ── records written ───────────────────────────────────────────────────────────────────────────────────────


def test_messages_settled_in_their_turn_are_not_written(node: Node) -> None:
    node.declare()
    node.sync()
    before = node.store.journal.position
    node.publish(b"1", b"2")
    assert node.bodies() == [b"1", b"2"]
    assert node.store.needs_sync
    node.sync()
    assert node.store.journal.position == before
    node.publish(b"3")
    node.restart()
    assert node.bodies() == [b"3"]


def test_a_run_of_which_a_part_is_settled_in_its_turn(node: Node) -> None:
    node.declare()
    node.publish(b"1", b"2", b"3")
    assert node.get() == b"1"
    node.restart()
    assert node.bodies() == [b"2", b"3"]


def test_many_queues_share_one_record(node: Node) -> None:
    for name in ("a", "b", "c"):
        node.declare(name, durable=name != "c")
        node.broker.vhosts["/"].bind_queue(name, "amq.fanout", "")
    node.publish(b"1", b"2", exchange="amq.fanout")
    node.store.write()
    (run,) = node.runs()
    assert len(records.decode_destinations(run)) == 2
    node.restart()
    assert node.bodies("a") == node.bodies("b") == [b"1", b"2"]


def test_single_messages_of_a_turn_are_one_record(node: Node) -> None:
    """Although a priority bucket extends the same lists meanwhile."""
    node.declare()
    node.declare("other")
    for body in (b"1", b"2", b"3"):
        node.publish(body)
    node.publish(b"4", key="other")
    node.publish(b"5")
    node.store.write()
    assert [len(records.decode_run(run).payloads) for run in node.runs()] == [3, 1, 1]
    node.restart()
    assert node.bodies() == [b"1", b"2", b"3", b"5"]
    assert node.bodies("other") == [b"4"]


def test_a_transaction_is_one_group(node: Node) -> None:
    node.declare()
    node.publish(b"0")
    node.channel.publisher.transaction = []
    assert node.get(no_ack=False) == b"0"
    node.publish(b"1")
    node.publish(b"2")
    node.channel.settle(Settlement.ACK, 1, 0, multiple=False)
    entries = node.store.durable_ops
    node.channel.commit(0)
    assert node.store.durable_ops > entries
    node.store.write()
    files, found = node.disk.files, set()
    for end in range(node.store.journal.position + 1):
        node.disk.files = {
            name: content[:end] if name.endswith(".journal") else bytearray(content)
            for name, content in files.items()
        }
        node.restart(written=False)
        if "q" in node.broker.vhosts["/"].queues:
            found.add(tuple(node.bodies()))
    assert found == {(), (b"0",), (b"1", b"2")}


def test_a_crash_during_a_large_commit_leaves_a_part_from_its_beginning(node: Node) -> None:
    """Acks follow the messages, so that none of the messages is missing where an ack is there."""
    node.declare()
    count = ATOMIC_UNITS_MAX + 100
    node.publish(*(b"%d" % i for i in range(count)))
    node.channel.publisher.transaction = []
    for _ in range(count):
        node.get(no_ack=False)
    for i in range(count):
        node.publish(b"new %d" % i)
        node.channel.settle(Settlement.ACK, i + 1, 0, multiple=False)
    node.store.write()
    disks = [copy.deepcopy(node.disk)]
    node.channel.commit(0)
    while node.broker.background:
        node.store.write()
        disks.append(copy.deepcopy(node.disk))
        node.broker.background.advance(STEP_UNITS_MAX)
    assert node.store.needs_sync
    node.store.write()
    found = []
    for disk in (*disks, node.disk):
        node.disk = disk
        node.restart(written=False)
        bodies = node.bodies()
        new = [body for body in bodies if body.startswith(b"new")]
        assert new == [b"new %d" % i for i in range(len(new))]
        found.append((len(new), len(bodies) - len(new)))
    assert found == sorted(found, key=lambda each: (each[0], -each[1]))
    assert all(new == count or old == count for new, old in found)
    assert (found[0], found[-1]) == ((0, count), (count, 0))
    assert len(set(found)) > 6


def test_a_commit_of_nothing_waits_for_nothing(node: Node) -> None:
    node.channel.publisher.transaction = []
    entries = node.store.durable_ops
    node.channel.commit(0)
    assert node.store.durable_ops == entries


# ── queues ────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_queue_that_is_declared_again_is_a_new_one(node: Node) -> None:
    node.declare()
    node.publish(b"old")
    node.broker.delete_queue(node.queue(), 0)
    node.declare()
    node.publish(b"new")
    node.restart()
    assert node.bodies() == [b"new"]
    node.broker.delete_queue(node.queue(), 0)
    node.restart()
    assert not node.broker.vhosts["/"].queues
    node.declare()
    node.restart()
    assert node.bodies() == []


def test_positions_and_queue_ids_are_never_reused() -> None:
    node = Node(segment_size=500)
    node.declare()
    node.declare("gone")
    node.broker.delete_queue(node.queue("gone"), 0)
    for i in range(40):
        node.publish(b"%d" % i)
        node.sync()
        assert node.bodies() == [b"%d" % i]
        node.sync()
    assert len(node.store.journal.segments) < 4
    node.restart()
    assert node.store.next_queue_id == 3
    node.publish(b"more")
    node.restart()
    (index,) = node.store.queue_indexes.values()
    assert index.stored_end == 41
    assert node.bodies() == [b"more"]


def test_arguments_return_as_they_came(node: Node) -> None:
    node.declare(max_length=Int8(5), unknown=[{"deep": None}, 2.5])
    node.restart()
    arguments = node.queue().declared_settings.arguments
    assert arguments == {"x-max-length": 5, "x-unknown": [{"deep": None}, 2.5]}
    assert isinstance(arguments["x-max-length"], Int8)


@pytest.mark.parametrize("end", ["exchange", "queue"])
def test_bindings_that_a_crash_left_behind_do_not_return(node: Node, end: str) -> None:
    """Those of a thing that was deleted, and declared again after the crash."""

    def declare() -> None:
        node.broker.vhosts["/"].declare_exchange("e", "direct", durable=True)
        if "q" not in node.broker.vhosts["/"].queues:
            node.declare()

    declare()
    for i in range(2000):
        node.broker.vhosts["/"].bind_queue("q", "e", f"{i}")
    if end == "exchange":
        node.broker.vhosts["/"].delete_exchange("e")
    else:
        node.broker.delete_queue(node.queue(), 0)
    assert node.broker.background
    node.restart()
    declare()
    assert not node.broker.vhosts["/"].exchanges["e"].bindings
    node.restart()
    assert not node.broker.vhosts["/"].exchanges["e"].bindings


@pytest.mark.parametrize("checkpoint", [False, True])
def test_topology_returns_in_its_order(node: Node, *, checkpoint: bool) -> None:
    vhost = node.broker.vhosts["/"]
    vhost.declare_exchange("gone", "direct", durable=True)
    vhost.declare_exchange("e", "topic", durable=True, internal=True, arguments={"a": Int8(1)})
    vhost.declare_exchange("f", "fanout", durable=True, auto_delete=True)
    vhost.declare_exchange("brief", "fanout")
    for name in ("b", "a", "c"):
        node.declare(name, durable=name != "c")
        vhost.bind_queue(name, "e", "k.*", {"x": name})
    vhost.bind_exchange("e", "f", "")
    vhost.bind_queue("a", "e", "other")
    vhost.unbind_queue("a", "e", "other")
    vhost.delete_exchange("gone")
    limits = VhostLimits(max_bindings=1)  # restored before the bindings, which all stay
    node.broker.configure_vhost("/", VhostSettings(limits=limits))
    if checkpoint:
        node.store.segments.checkpoint_due = True
    node.restart()
    vhost = node.broker.vhosts["/"]
    assert [name for name in vhost.exchanges if name and "amq" not in name] == ["e", "f"]
    exchange = vhost.exchanges["e"]
    assert exchange.declared_settings.internal
    assert exchange.declared_settings.arguments == {"a": 1}
    assert vhost.exchanges["f"].declared_settings.auto_delete
    assert [binding.destination.name for binding in exchange.bindings.values()] == ["b", "a"]
    assert [binding.arguments for binding in exchange.bindings.values()] == [{"x": "b"}, {"x": "a"}]
    assert [binding.destination.name for binding in vhost.exchanges["f"].bindings.values()] == ["e"]
    vhost.check()


def test_a_vhost_is_there_as_long_as_something_is_in_it(node: Node) -> None:
    node.broker.add_vhost("other")
    node.broker.vhosts["other"].declare_exchange("e", "direct", durable=True)
    node.restart()
    assert "e" in node.broker.vhosts["other"].exchanges


@pytest.mark.parametrize("checkpoint", [False, True])
def test_traits_are_remembered(node: Node, *, checkpoint: bool) -> None:
    node.store.set_metadata("kind", "/", "a", b"1")
    node.store.set_metadata("kind", "/", "a", b"2")
    node.store.set_metadata("kind", "/", "b", b"3")
    node.store.set_metadata("kind", "/", "b", None)
    entries = node.store.durable_ops
    node.store.set_metadata("kind", "/", "a", b"2")
    node.store.set_metadata("kind", "/", "never", None)
    assert node.store.durable_ops == entries, "nothing has changed"
    if checkpoint:
        node.store.segments.checkpoint_due = True
    node.restart()
    assert node.store.metadata == {("kind", "/", "a"): b"2"}


def test_an_unknown_record_is_not_skipped(node: Node) -> None:
    node.store.append_record(b"\xff")
    with pytest.raises(UnknownFormatError, match="later release"):
        node.restart()


# ── paging ────────────────────────────────────────────────────────────────────────────────────────────────


def test_messages_paged_out_in_a_turn_can_be_read_in_it() -> None:
    node = Node(room=0)
    node.declare()
    for i in range(3):
        node.publish(b"%d" % i)
    assert node.get() == b"0"
    node.store.write()
    node.publish(b"3")
    assert node.bodies() == [b"1", b"2", b"3"]
    node.restart()
    assert node.bodies() == []


@pytest.mark.parametrize("durable", [True, False])
def test_spilled_transients_are_forgotten_at_a_restart(*, durable: bool) -> None:
    node = Node(room=0)
    node.declare(durable=durable)
    fleeting = Properties(delivery_mode=1)
    entries = node.store.durable_ops
    for i in range(4):
        node.publish(b"%d" % i, properties=fleeting)
        node.store.write()
    assert node.store.durable_ops == entries
    assert node.get() == b"0"
    node.store.write()
    if durable:
        node.restart()
        assert node.bodies() == []
        node.publish(b"new")
        node.restart()
        assert node.bodies() == [b"new"]
    else:
        assert node.bodies() == [b"1", b"2", b"3"]
        node.broker.delete_queue(node.queue(), 0)
        node.store.write()
        assert not node.store.queue_indexes


def test_spilled_transients_stay_settled_when_their_segment_is_dropped() -> None:
    node = Node(room=0, segment_size=3000)
    node.declare()
    node.declare("other")
    node.publish(b"a")
    node.publish(b"transient", properties=Properties(delivery_mode=1))
    node.publish(b"b")
    for _ in range(34):  # the last segment is not full, so that there is no other checkpoint
        node.publish(bytes(100), key="other")
        node.store.write()
    node.sync()
    node.restart()
    node.bodies("other")
    node.sync()
    cleaner = Compactor(node.store, slice_bytes=300, garbage_segments_min=0)
    while cleaner.compact():
        node.sync()
    node.sync()
    assert node.store.journal.segments[0].base > 0, "the spilled transient is in none of them"
    node.restart()
    assert node.bodies() == [b"a", b"b"]


@pytest.mark.parametrize("written", [True, False])
@pytest.mark.parametrize("max_priority", [0, 3])
def test_a_purge_empties_paged_out_messages(max_priority: int, *, written: bool) -> None:
    node = Node(room=0)
    node.declare(max_priority=max_priority)
    for i in range(6):
        node.publish(b"%d" % i, properties=Properties(delivery_mode=2, priority=i % 3))
    first = node.get(no_ack=False)
    assert first is not None
    if written:
        node.store.write()
        node.publish(b"6")
    assert node.queue().purge() == 5 + written
    node.publish(b"new")
    node.restart()
    assert node.bodies() == [first, b"new"]


def test_messages_return_as_runs() -> None:
    node = Node(room=0)
    node.declare()
    for i in range(100):
        node.publish(b"%d" % i)
    node.store.write()
    runs = node.store.page_in(node.queue(), 0)
    assert [len(run) for run in runs] == [100]
    assert [extract_body(content) for content in runs[0].contents()] == [
        b"%d" % i for i in range(100)
    ]
    assert runs[0].stored


def test_a_fetch_begins_with_little_and_goes_on_where_it_ended() -> None:
    node = Node(room=0)
    node.declare()
    node.declare("other")
    for i in range(600):
        node.publish(b"%d" % i, bytes(1000))
        node.publish(bytes(3000), key="other")
    node.store.write()
    counts: list[int] = []
    while sum(counts) < 1200:
        counts.append(sum(len(run) for run in node.store.page_in(node.queue(), 0)))
    assert counts[0] < counts[1] < counts[2]
    assert sum(counts) == 1200


@pytest.mark.parametrize("max_priority", [0, 2])
@pytest.mark.parametrize("together", [1, 50])
def test_settled_messages_are_skipped_however_many(together: int, max_priority: int) -> None:
    """Far more than the first fetches read lies between the first message and the next live one."""
    node = Node()
    node.declare(max_priority=max_priority)
    bodies = [b"%d" % i + bytes(4000) for i in range(400)]
    for at in range(0, 400, together):
        node.publish(*bodies[at : at + together])
    node.store.write()
    for _ in bodies:
        node.get(no_ack=False)
    for tag in (*range(2, 201), *range(202, 400, 2)):
        node.channel.settle(Settlement.ACK, tag, 0, multiple=False)
    node.restart()
    assert node.bodies() == [bodies[0], *bodies[200:400:2], bodies[399]]
    node.restart()
    assert node.bodies() == []


def test_only_delivered_messages_are_redelivered() -> None:
    node = Node()
    node.declare()
    node.publish(b"0", b"1", b"2", b"3")
    node.get(no_ack=False)
    node.get(no_ack=False)
    node.channel.settle(Settlement.ACK, 1, 0, multiple=False)
    node.restart()
    runs = node.store.page_in(node.queue(), 0)
    assert [(run.first_position, len(run), run.redelivered) for run in runs] == [
        (1, 1, True),
        (2, 2, False),
    ]


def test_a_message_that_cannot_be_read_is_reported() -> None:
    node = Node(room=0)
    node.declare()
    node.publish(b"wanted")
    node.store.write()
    reasons: list[str] = []
    node.store.on_failure = reasons.append
    node.flip_a_bit_of(b"wanted")
    with pytest.raises(CorruptJournalError):
        node.get()
    assert "'q'" in reasons[0]


def test_little_memory_makes_little_room(node: Node) -> None:
    ample = node.store.page_out_bytes
    node.store.set_memory_pressure(active=True)
    assert node.store.page_out_bytes < ample
    node.store.set_memory_pressure(active=False)
    assert node.store.page_out_bytes == ample
    assert node.store.disk_shortage() is None


# ── segments ──────────────────────────────────────────────────────────────────────────────────────────────


def test_segments_are_dropped_when_nothing_in_them_is_live() -> None:
    node = Node(segment_size=1000)
    node.declare()
    for i in range(100):
        node.publish(b"%d" % i)
        node.sync()
        node.bodies()
        node.sync()
    assert len(node.store.journal.segments) < 4
    assert len(node.store.segments.all_stats()) < 4


@pytest.mark.parametrize("room", [0, 1 << 30])
def test_a_queue_without_consumers_retains_no_segments(room: int) -> None:
    node = Node(segment_size=1000, room=room)
    cleaner = Compactor(node.store, slice_bytes=500)
    node.declare()
    node.declare("idle")
    idle = []
    for i in range(100):
        node.publish(b"%d" % i, bytes(50), bytes(50))
        if i % 10 == 0:
            idle.append(b"idle %d" % i)
            node.publish(idle[-1], key="idle")
        node.sync()
        node.bodies()
        node.sync()
        while cleaner.compact():
            pass
        node.sync()
    assert len(node.store.journal.segments) < 10
    if room:
        assert node.get("idle", no_ack=False) == idle[0]
    node.restart()
    assert node.bodies("idle") == idle


def test_paged_out_messages_can_be_read_while_they_are_moved() -> None:
    node = Node(segment_size=1500, room=0)
    cleaner = Compactor(node.store, slice_bytes=1, garbage_segments_min=0)
    node.declare()
    node.declare("idle")
    idle = []
    for i in range(60):
        node.publish(b"%d" % i)
        if i % 6 == 0:
            idle.append(b"idle %d" % i)
            node.publish(idle[-1], key="idle")
        node.store.write()
    node.bodies()
    node.sync()
    found = []
    while (body := node.get("idle")) is not None:
        found.append(body)
        node.store.write()
        cleaner.compact()
        node.sync()
    assert found == idle
