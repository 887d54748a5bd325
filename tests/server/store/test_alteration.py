"""Alterations while the power fails, at every moment: a restart finds the old queue or the new one, whole."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest

from bench.powerloss.machine import Machine, PowerLost
from recado.amqp.frames import extract_body
from recado.amqp.properties import Properties
from recado.amqp.values import FieldTable
from recado.broker.alteration import alter
from recado.broker.arguments import QueueSettings, parse_queue_arguments
from recado.broker.channel import Channel, Settlement
from recado.broker.steps import run_to_completion
from recado.broker.work_queue import WorkQueue
from recado.journal.journal import Journal
from recado.journal.record import CorruptJournalError
from recado.server.store.compaction import Compactor
from recado.server.store.journal_store import JournalStore
from recado.server.store.recovery import restore_broker

from ...broker.stage import Peer, consume, new_broker, open_channel, published

PERSISTENT, TRANSIENT = Properties(delivery_mode=2), Properties()
SENT = [b"%03d" % i * 150 for i in range(18)]
IN_MEMORY = 1 << 30


def settings_of(
    queue_type: str = "classic", *, durable: bool = True, **arguments: object
) -> QueueSettings:
    table: FieldTable = {
        f"x-{key.replace('_', '-')}": value  # type: ignore[misc]
        for key, value in {"queue_type": queue_type, **arguments}.items()
    }
    return parse_queue_arguments(
        "q", "/", durable=durable, exclusive=False, auto_delete=False, arguments=table
    )


class Node:
    """A broker on a machine, with small segments."""

    def __init__(self, machine: Machine, room: int = IN_MEMORY) -> None:
        journal = Journal(machine.journal, segment_bytes=8000)
        self.store = JournalStore(journal, machine, page_out_bytes=room)
        self.broker = new_broker(self.store)
        restore_broker(self.store, self.broker, 0)
        self.channel = open_channel(self.broker)
        self._compactor = Compactor(self.store, slice_bytes=500, garbage_segments_min=0)

    @property
    def queue(self) -> WorkQueue:
        queue = self.broker.vhosts["/"].queues["q"]
        assert isinstance(queue, WorkQueue)
        return queue

    def declare(self, settings: QueueSettings) -> None:
        self.broker.create_queue(self.broker.vhosts["/"], "q", settings, None, 0)
        self.broker.vhosts["/"].bind_queue("q", "amq.fanout", "key")

    def publish(self, *bodies: bytes, properties: Properties = PERSISTENT) -> None:
        for body in bodies:
            self.channel.publisher.publish(published("q", body, properties=properties), 0)

    def sync(self) -> None:
        self.store.write()
        sync = self.store.begin_sync()
        sync.run()
        self.store.end_sync(sync)
        self._compactor.compact()
        for index in self.store.queue_indexes.values():
            index.check()

    def drain(self) -> list[tuple[bytes, bool]]:
        """Remove all ready messages; return each with its redelivered flag."""
        found = list(iter(lambda: self.queue.get(0), None))
        return [
            (extract_body(content), run.redelivered) for run in found for content in run.contents()
        ]

    def bindings(self) -> list[str]:
        vhost = self.broker.vhosts["/"]
        return [each.source for each in vhost.bindings_to(self.queue)]


def deliver(node: Node, count: int, number: int = 2) -> Channel:
    """Deliver the first messages to a channel that leaves them unacknowledged."""
    channel = open_channel(node.broker, Peer(), number)
    consume(channel, node.queue, f"c{number}", prefetch=count)
    return channel


def interfere(
    node: Node, first: Channel, second: Channel, properties: Properties
) -> Iterator[None]:
    """What clients do while the queue is altered."""
    yield
    node.publish(SENT[16], properties=properties)
    yield
    first.settle(Settlement.ACK, 2, 0, multiple=False)
    yield
    second.settle(Settlement.REQUEUE, 2, 0, multiple=False)


def scenario(
    machine: Machine, room: int, old: QueueSettings, new: QueueSettings, properties: Properties
) -> Iterator[str]:
    """Yield what has just become durable."""
    node = Node(machine, room)
    node.declare(old)
    for i in range(0, 16, 2):
        node.publish(*SENT[i : i + 2], properties=properties)
        node.sync()  # a record for two messages
    first = deliver(node, 3)
    second = deliver(node, 3, 3)
    first.settle(Settlement.ACK, 1, 0, multiple=False)  # 0 is gone, 6 is delivered in its place
    second.settle(Settlement.REQUEUE, 1, 0, multiple=False)
    node.sync()
    yield "sent"
    meanwhile = interfere(node, first, second, properties)
    for _ in alter(node.broker, node.queue, new):
        next(meanwhile, None)
        node.sync()
    node.sync()
    yield "altered"
    for _ in meanwhile:
        node.sync()
    node.publish(SENT[17], properties=properties)
    node.sync()
    yield "published"


CASES = {
    "quorum": (settings_of(), settings_of("quorum"), TRANSIENT),
    "durable": (settings_of(durable=False), settings_of(), PERSISTENT),
    "durable quorum": (settings_of(durable=False), settings_of("quorum"), TRANSIENT),
    "classic": (settings_of("quorum"), settings_of(max_length=100), PERSISTENT),
    "transient": (settings_of(), settings_of(durable=False), PERSISTENT),
    "priorities": (settings_of(), settings_of(max_priority=5), PERSISTENT),
    "no priorities": (settings_of(max_priority=5), settings_of(), PERSISTENT),
    "arguments": (
        settings_of(),
        settings_of(message_ttl=10**9, max_length_bytes=10**6),
        PERSISTENT,
    ),
}


def run_until_power_fails(case: str, room: int, moment: int) -> tuple[set[str], Node]:
    old, new, properties = CASES[case]
    machine = Machine(moment)
    machine.limit = moment
    done = set()
    try:
        for event in scenario(machine, room, old, new, properties):
            done.add(event)
    except PowerLost:
        pass
    return done, Node(machine.after_power_loss(), room)


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recado.server.store.journal_store.RECORDED_RANGES_PER_STEP", 1)
    for name in ("_READ_MIN_BYTES", "_READ_MAX_BYTES"):
        monkeypatch.setattr(f"recado.server.store.paged_out.{name}", 1000)
    monkeypatch.setattr("recado.server.store.paged_out.STEP_UNITS_MAX", 4)
    monkeypatch.setattr("recado.broker.work_queue._RUNS_PER_STEP", 4)
    monkeypatch.setattr("recado.broker.channel._LATE_MESSAGES_PER_STEP", 1)


@pytest.mark.no_cover  # as in test_power_loss.py
@pytest.mark.parametrize("room", [0, 1500, IN_MEMORY])
@pytest.mark.parametrize("case", CASES)
def test_the_power_fails_at_every_moment(case: str, room: int) -> None:
    old, new, properties = CASES[case]
    machine = Machine(0)
    assert list(scenario(machine, room, old, new, properties)) == ["sent", "altered", "published"]
    seen = set()
    for moment in range(machine.operations + 1):
        done, node = run_until_power_fails(case, room, moment)
        if not done:
            continue
        if "q" not in node.broker.vhosts["/"].queues:
            found = None
            assert not old.durable or not new.durable, moment
            assert "altered" not in done or not new.durable, moment
        else:
            found = node.queue.declared_settings
            assert found in (old, new), moment
            assert "altered" not in done or found == new, moment
            assert node.bindings().count("amq.fanout") == 1, moment
            check_messages(node, done, found == new, old, properties, moment)
        seen.add("gone" if found is None else "new" if found == new else "old")
    assert len(seen) == 2, "the alteration takes place at one of these moments"


def check_messages(
    node: Node,
    done: set[str],
    is_new: bool,
    old: QueueSettings,
    properties: Properties,
    moment: int,
) -> None:
    found = node.drain()
    bodies = [body for body, _ in found]
    assert bodies == [body for body in SENT if body in bodies], (moment, "in order, and each once")
    if not is_new and properties is TRANSIENT:
        return  # a restart of the old queue may lose them
    certain = SENT[2:18] if "published" in done else SENT[2:16]  # 1 is acknowledged meanwhile
    assert [body for body in certain if body not in bodies] == [], moment
    flags = dict(found)
    for body in SENT[2:6]:
        assert flags[body], (moment, "was delivered before")
    assert not flags[SENT[10]]
    assert SENT[0] not in flags


@pytest.mark.no_cover  # as in test_power_loss.py
@pytest.mark.parametrize(
    ("name", "case", "room"),
    [
        ("store_late", "durable", IN_MEMORY),
        ("store_late", "quorum", IN_MEMORY),
        ("store_paged_out_late", "durable", 0),
        ("_record_ranges", "quorum", IN_MEMORY),
    ],
)
def test_each_part_is_needed(
    name: str, case: str, room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without storing messages late, or without recording what is settled, the test above fails."""

    def do_nothing(self: JournalStore, *args: object) -> Iterator[int]:
        return iter(())

    monkeypatch.setattr(JournalStore, name, do_nothing)
    with pytest.raises((AssertionError, CorruptJournalError)):
        test_the_power_fails_at_every_moment(case, room)


def test_bindings_of_a_queue_that_became_transient_do_not_return() -> None:
    """Not even to another queue of this name."""
    machine = Machine(0)
    node = Node(machine)
    node.declare(settings_of())
    vhost = node.broker.vhosts["/"]
    for key in "abc":
        vhost.bind_queue("q", "amq.topic", key)
    steps = alter(node.broker, node.queue, settings_of(durable=False))
    next(steps)
    vhost.unbind_queue("q", "amq.topic", "c")
    vhost.bind_queue("q", "amq.topic", "new")
    run_to_completion(steps)
    node.broker.delete_queue(node.queue, 0)
    node.declare(settings_of())
    node.sync()
    node.store.close()
    assert sorted(Node(machine).bindings()) == ["amq.fanout"]


def test_bindings_of_a_queue_that_becomes_durable() -> None:
    machine = Machine(0)
    node = Node(machine)
    node.declare(settings_of(durable=False))
    vhost = node.broker.vhosts["/"]
    vhost.declare_exchange("transient", "topic")
    for source in ("amq.topic", "transient"):
        for key in "abc":
            vhost.bind_queue("q", source, key)
    steps = alter(node.broker, node.queue, settings_of())
    while not node.queue.stores_bindings:
        next(steps)
    vhost.unbind_queue("q", "amq.topic", "a")
    vhost.bind_queue("q", "amq.topic", "new")
    run_to_completion(steps)
    vhost.unbind_queue("q", "amq.topic", "b")
    node.sync()
    node.store.close()
    assert sorted(Node(machine).bindings()) == ["amq.fanout", "amq.topic", "amq.topic"]


def test_ids_of_deduplication_of_a_queue_that_becomes_durable() -> None:
    machine = Machine(0)
    node = Node(machine)
    node.declare(settings_of(durable=False, message_deduplication=True))
    for i in range(100):
        node.publish(b"%d" % i, properties=Properties(delivery_mode=2, message_id=f"{i}"))
    for _ in alter(node.broker, node.queue, settings_of(message_deduplication=True)):
        node.sync()
    node.publish(b"new", properties=Properties(delivery_mode=2, message_id="new"))
    node.sync()
    node.store.close()
    node = Node(machine)
    for message_id in ("0", "99", "new", "other"):
        properties = Properties(delivery_mode=2, message_id=message_id)
        node.publish(b"again", properties=properties)
    assert node.queue.ready == 102


# ── priorities ──────────────────────────────────────────────────────────────────────────────────────


def with_priority(number: int, mode: int) -> Properties:
    return Properties(delivery_mode=mode, priority=number % 7)


def body_of(number: int) -> bytes:
    return b"%03d" % number * 20


def in_order(numbers: Iterable[int], highest: int) -> list[bytes]:
    """Return the messages as a queue delivers them."""
    ranked = sorted(numbers, key=lambda number: (-min(number % 7, highest), number))
    return [body_of(number) for number in ranked]


def priorities(highest: int, *, durable: bool) -> QueueSettings:
    if highest:
        return settings_of(durable=durable, max_priority=highest)
    return settings_of(durable=durable)


@pytest.mark.parametrize("room", [0, 600, 2000, IN_MEMORY])
@pytest.mark.parametrize(("before", "after"), [(0, 5), (5, 0), (5, 3), (3, 6), (2, 0)])
@pytest.mark.parametrize("mode", [1, 2])
@pytest.mark.parametrize("durable", [True, False])
def test_priorities(room: int, before: int, after: int, mode: int, durable: bool) -> None:
    """The queue is used while its priorities change; the order afterwards is that of the new ones."""
    machine = Machine(0)
    node = Node(machine, room)
    node.declare(priorities(before, durable=durable))
    for i in range(60):
        node.publish(body_of(i), properties=with_priority(i, mode))
        if i % 3 == 0:
            node.sync()
    channel = deliver(node, 4)
    left = set(range(60)) - {number_of(body) for body in unacked(channel)}
    taken = 0
    for number, _ in enumerate(alter(node.broker, node.queue, priorities(after, durable=durable))):
        i = 60 + number
        node.publish(body_of(i), properties=with_priority(i, mode))
        left.add(i)
        run = node.queue.get(0)
        if run is not None:
            taken += 1
            left -= {number_of(extract_body(content)) for content in run.contents()}
            node.queue.settle(run)
        node.sync()
    assert taken
    node.publish(body_of(999), properties=with_priority(999, mode))
    left.add(999)
    node.sync()
    assert node.queue.ready == len(left)
    assert node.queue.declared_settings == priorities(after, durable=durable)
    if durable and mode == 2:
        node.store.close()
        restarted = Node(machine, room)
        back = left | {number_of(body) for body in unacked(channel)}
        assert [body for body, _ in restarted.drain()] == in_order(back, after)
        return
    assert [body for body, _ in node.drain()] == in_order(left, after)
    channel.settle(Settlement.REQUEUE, 0, 0, multiple=True)
    assert node.queue.ready + node.queue.unacked == 4


def unacked(channel: Channel) -> list[bytes]:
    return [
        extract_body(content)
        for entry, low, high in channel.unacked.spans(0, channel.next_tag)
        for run in entry.unsettled_runs(low, high)
        for content in run.contents()
    ]


def number_of(body: bytes) -> int:
    return int(body[:3])
