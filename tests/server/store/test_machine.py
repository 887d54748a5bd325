"""A broker on a store, restarted at any time, against a model.

The model is a list of messages for each queue, and a copy of it from the last time the store was written:
after a restart the broker must equal that copy without transient messages.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from recado.amqp.events import ContentReceived
from recado.amqp.frames import extract_body, extract_properties
from recado.amqp.methods import BasicGetOk
from recado.amqp.properties import Properties, decode_properties
from recado.amqp.values import FieldTable
from recado.broker.alteration import alter
from recado.broker.arguments import ConsumerSettings, QueueSettings
from recado.broker.broker import Broker
from recado.broker.channel import Channel, Settlement
from recado.journal.disk import MemoryDisk
from recado.journal.journal import Journal
from recado.server.store.compaction import Compactor
from recado.server.store.journal_store import JournalStore
from recado.server.store.recovery import restore_broker

from ...broker.stage import Peer, close_channel, new_broker, open_channel, published

NAMES = ("a", "b", "c")
names = st.sampled_from(NAMES)


@dataclass
class Message:
    body: bytes
    bucket: int
    persistent: bool
    """Whether it survives a restart, also in this queue."""
    priority: int
    is_sent_persistent: bool
    deliveries: int = 0
    returned: bool = False
    is_counted: bool = True
    """Whether the queue has counted all deliveries: a classic queue does not."""


@dataclass
class ModelQueue:
    durable: bool
    max_priority: int | None
    quorum: bool
    bound: bool = False
    messages: list[Message] = field(default_factory=list)
    out: dict[int, Message] = field(default_factory=dict)

    def keeps(self, persistent: bool) -> bool:
        """A quorum queue stores messages that are not persistent, too."""
        return self.durable and (persistent or self.quorum)

    def ready(self) -> list[Message]:
        """In the order in which they leave."""
        held = set(map(id, self.out.values()))
        ready = [each for each in self.messages if id(each) not in held]
        return sorted(ready, key=lambda each: -each.bucket)

    def after_restart(self) -> ModelQueue:
        kept = [each for each in self.messages if each.persistent]
        for each in kept:
            each.returned = each.deliveries > 0
        self.messages = kept
        self.out.clear()
        return self


Model = dict[str, ModelQueue]


def settings_of(durable: bool, max_priority: int | None, quorum: bool) -> QueueSettings:
    arguments: FieldTable = {}
    if max_priority is not None:
        arguments["x-max-priority"] = max_priority
    if quorum:
        arguments["x-queue-type"] = "quorum"
    return QueueSettings(
        durable=durable,
        max_priority=max_priority,
        queue_type="quorum" if quorum else "classic",
        arguments=arguments,
    )


def lasting(model: Model) -> Model:
    model = copy.deepcopy(model)
    return {name: queue.after_restart() for name, queue in model.items() if queue.durable}


class JournalStoreMachine(RuleBasedStateMachine):
    @initialize(
        room=st.sampled_from((0, 150, 1 << 30)), segment_size=st.sampled_from((400, 2000, 1 << 20))
    )
    def start(self, room: int, segment_size: int) -> None:
        self.room = room
        self.segment_size = segment_size
        self.disk = MemoryDisk()
        self.number = 0
        self.model: Model = {}
        self.written: Model = {}
        self._open(self.disk)

    def _open(self, disk: MemoryDisk) -> None:
        self.store, self.broker = self._recovered(disk)
        self.cleaner = Compactor(self.store, slice_bytes=300, garbage_segments_min=0)
        self.peer = Peer()
        self.channel = open_channel(self.broker, self.peer)

    def _recovered(self, disk: MemoryDisk) -> tuple[JournalStore, Broker]:
        store = JournalStore(
            Journal(disk, segment_bytes=self.segment_size), page_out_bytes=self.room
        )
        broker = new_broker(store)
        restore_broker(store, broker, 0)
        return store, broker

    # ── clients ─────────────────────────────────────────────────────────────────────────────────────

    @rule(
        name=names,
        durable=st.booleans() | st.just(True),
        max_priority=st.sampled_from((None, None, 2)),
        quorum=st.booleans(),
    )
    def declare(self, name: str, durable: bool, max_priority: int | None, quorum: bool) -> None:
        if name in self.model:
            return
        quorum &= durable and max_priority is None
        wanted = settings_of(durable, max_priority, quorum)
        self.broker.create_queue(self.broker.vhosts["/"], name, wanted, None, 0)
        self.model[name] = ModelQueue(durable, max_priority, quorum)

    @rule(
        name=names,
        durable=st.booleans() | st.just(True),
        max_priority=st.sampled_from((None, None, 1, 2)),
        quorum=st.booleans(),
        cleans=st.booleans(),
    )
    def alter(
        self, name: str, durable: bool, max_priority: int | None, quorum: bool, cleans: bool
    ) -> None:
        if name not in self.model:
            return
        model = self.model[name]
        quorum &= durable and max_priority is None
        if model.quorum and not quorum and not all(m.is_sent_persistent for m in model.messages):
            return  # whether a restart forgets transient messages then depends on compaction
        if (max_priority or 0) < (model.max_priority or 0) and model.out:
            return  # if they return, they come before messages on disk
        queue = self.broker.vhosts["/"].queues[name]
        for _ in alter(self.broker, queue, settings_of(durable, max_priority, quorum)):
            if cleans:
                self.cleaner.compact()
        model.durable, model.max_priority, model.quorum = durable, max_priority, quorum
        for message in model.messages:
            message.bucket = min(message.priority, max_priority or 0)
            message.persistent = model.keeps(message.is_sent_persistent)
            message.is_counted &= not message.deliveries
        self.write()

    @rule(name=names)
    def bind(self, name: str) -> None:
        if name in self.model and not self.model[name].bound:
            self.broker.vhosts["/"].bind_queue(name, "amq.fanout", "")
            self.model[name].bound = True

    @rule(name=names)
    def unbind(self, name: str) -> None:
        if name in self.model and self.model[name].bound:
            self.broker.vhosts["/"].unbind_queue(name, "amq.fanout", "")
            self.model[name].bound = False

    @rule(
        name=names | st.none(),
        sizes=st.lists(st.integers(0, 60), min_size=1, max_size=6),
        alike=st.booleans(),
        persistent=st.booleans() | st.just(True),
        priority=st.sampled_from((0, 0, 1, 3)),
    )
    def publish(
        self, name: str | None, sizes: list[int], alike: bool, persistent: bool, priority: int
    ) -> None:
        self._publish(self.channel, name, sizes, alike, persistent, priority)

    def _publish(
        self,
        channel: Channel,
        name: str | None,
        sizes: list[int],
        alike: bool,
        persistent: bool,
        priority: int,
    ) -> None:
        bodies = []
        for size in sizes:
            self.number += 1
            bodies.append(f"{self.number:04}".encode().ljust(sizes[0] if alike else size, b"."))
        properties = Properties(delivery_mode=2 if persistent else 1, priority=priority)
        exchange = "amq.fanout" if name is None else ""
        event = published(name or "", *bodies, exchange=exchange, properties=properties)
        channel.publisher.publish(event, 0)
        for key, queue in self.model.items():
            if key == name or (name is None and queue.bound):
                bucket = min(priority, queue.max_priority or 0)
                kept = queue.keeps(persistent)
                queue.messages += [
                    Message(body, bucket, kept, priority, persistent) for body in bodies
                ]

    @rule(name=names, no_ack=st.booleans())
    def get(self, name: str, no_ack: bool) -> None:
        if name not in self.model:
            return
        queue = self.model[name]
        ready = queue.ready()
        tag = self.channel.next_tag
        found = self.channel.get(self.broker.vhosts["/"].queues[name], no_ack=no_ack, now=0)
        assert found == bool(ready)
        if not found:
            return
        message = ready[0]
        assert self._received(self.peer) == (message.body, message.returned)
        if no_ack:
            queue.messages.remove(message)
        else:
            queue.out[tag] = message
            message.deliveries += 1

    @rule(name=names, acks=st.booleans(), hands=st.integers(1, 3))
    def consume(self, name: str, acks: bool, hands: int) -> None:
        """Several consumers get all ready messages round-robin; the first may ack its share, the other ones leave."""
        if name not in self.model:
            return
        queue, model = self.broker.vhosts["/"].queues[name], self.model[name]
        peers = [Peer() for _ in range(hands)]
        channels = [open_channel(self.broker, peer) for peer in peers]
        for channel in channels:
            channel.consume(queue, "c", ConsumerSettings(), no_ack=False, exclusive=False, now=0)
        queue.dispatch(0)
        by_body = {message.body: message for message in model.ready()}
        for peer in peers:
            for method, body in peer.delivered():
                message = by_body.pop(body)
                assert method.redelivered == message.returned
                message.deliveries += 1
                message.returned = True
                if acks and peer is peers[0]:
                    model.messages.remove(message)
        assert not by_body
        for channel in channels:
            if acks and channel is channels[0]:
                channel.settle(Settlement.ACK, 0, 0, multiple=True)
            channel.remove_consumer(channel.consumers["c"], 0)
        for channel in channels:
            close_channel(channel)

    def _received(self, peer: Peer) -> tuple[bytes, bool]:
        (event,) = peer.received()
        assert isinstance(event, ContentReceived)
        assert isinstance(event.method, BasicGetOk)
        return extract_body(event.content), event.method.redelivered

    def _outstanding(self) -> dict[int, tuple[ModelQueue, Message]]:
        return {
            tag: (queue, message)
            for queue in self.model.values()
            for tag, message in queue.out.items()
        }

    @rule(
        data=st.data(),
        how=st.sampled_from(
            (Settlement.ACK, Settlement.ACK, Settlement.REQUEUE, Settlement.REJECT)
        ),
        multiple=st.booleans(),
    )
    def settle(self, data: st.DataObject, how: Settlement, multiple: bool) -> None:
        outstanding = self._outstanding()
        if not outstanding:
            return
        tag = data.draw(st.sampled_from(sorted(outstanding)))
        self.channel.settle(how, tag, 0, multiple=multiple)
        for each, (queue, message) in outstanding.items():
            if each == tag or (multiple and each < tag):
                del queue.out[each]
                if how is Settlement.REQUEUE:
                    message.returned = True
                else:
                    queue.messages.remove(message)

    @rule(name=names)
    def purge(self, name: str) -> None:
        if name in self.model:
            queue = self.model[name]
            ready = queue.ready()
            assert self.broker.vhosts["/"].queues[name].purge() == len(ready)
            for message in ready:
                queue.messages.remove(message)

    @rule(name=names)
    def delete(self, name: str) -> None:
        if name in self.model:
            self.broker.delete_queue(self.broker.vhosts["/"].queues[name], 0)
            del self.model[name]
            self.channel.recover(0)  # tags of a queue that is gone
            for queue in self.model.values():
                for message in queue.out.values():
                    message.returned = True
                queue.out.clear()

    @rule(
        names=st.lists(names, min_size=1, max_size=3),
        sizes=st.lists(st.integers(0, 30), min_size=1, max_size=3),
    )
    def commit(self, names: list[str], sizes: list[int]) -> None:
        channel = open_channel(self.broker, number=2)
        channel.publisher.transaction = []
        for name in names:
            self._publish(channel, name, sizes, False, True, 0)
        channel.commit(0)

    # ── the server ───────────────────────────────────────────────────────────────────────────────────

    @rule()
    def write(self) -> None:
        self.store.write()
        self.written = copy.deepcopy(self.model)

    @rule()
    def sync(self) -> None:
        self.write()
        sync = self.store.begin_sync()
        sync.run()
        self.store.end_sync(sync)
        assert self.store.durable_lsn == sync.lsn

    @rule(times=st.integers(1, 5))
    def clean(self, times: int) -> None:
        for _ in range(times):
            self.cleaner.compact()
            self.write()

    @rule(short=st.booleans())
    def roll(self, short: bool) -> None:
        self.store.roll()
        self.cleaner.compact(low_on_disk=short)
        self.write()

    @rule()
    def look_after_crash(self) -> None:
        """Check the state that a restart would have."""
        disk = MemoryDisk()
        disk.files = {name: bytearray(content) for name, content in self.disk.files.items()}
        _, broker = self._recovered(disk)
        self._check(broker, lasting(self.written))

    @rule()
    def crash(self) -> None:
        self._open(self.disk)
        self.model = lasting(self.written)
        self.written = copy.deepcopy(self.model)

    def _check(self, broker: Broker, expected: Model) -> None:
        vhost = broker.vhosts["/"]
        assert set(vhost.queues) == set(expected)
        for name, model in expected.items():
            queue = vhost.queues[name]
            assert bool(vhost.bindings_to(queue)) == model.bound
            assert queue.ready == len(model.messages)
            peer = Peer()
            channel = open_channel(broker, peer)
            for message in model.ready():
                assert channel.get(queue, no_ack=True, now=0)
                (event,) = peer.received()
                assert isinstance(event, ContentReceived)
                assert isinstance(event.method, BasicGetOk)
                found = extract_body(event.content), event.method.redelivered
                assert found == (message.body, message.returned)
                if model.quorum and message.deliveries and message.is_counted:
                    properties = decode_properties(extract_properties(event.content))
                    assert (properties.headers or {})["x-delivery-count"] == message.deliveries
            assert not channel.get(queue, no_ack=True, now=0)

    @invariant()
    def is_consistent(self) -> None:
        if not hasattr(self, "store"):
            return
        live = dict.fromkeys(self.store.segments.all_stats(), 0)
        for index in self.store.queue_indexes.values():
            index.check()
            for extents in index.segment_extents:
                live[extents.stats] = live.get(extents.stats, 0) + extents.live_count
        for stats, count in live.items():
            assert stats.live_count == count


def test_a_restarted_broker_has_the_written_state() -> None:
    run_state_machine_as_test(
        JournalStoreMachine,
        settings=settings(max_examples=60, stateful_step_count=40, deadline=None),
    )
