"""Loss of power at every moment of a workload: what was promised is there, what was never promised is not."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import pytest

from recado.amqp.events import ContentReceived
from recado.amqp.frames import body_of
from recado.amqp.properties import Properties
from recado.broker.arguments import QueueSettings
from recado.broker.broker import Broker
from recado.broker.channel import Settlement
from recado.journal.journal import Journal
from recado.server.ledger.cleaning import Cleaner
from recado.server.ledger.ledger import Ledger
from recado.server.ledger.recovery import recover
from recado.simulator.disk import SimulatedDisk

from ...broker.stage import Peer, new_broker, open_channel, published

PERSISTENT = Properties(delivery_mode=2)
NEVER = 1 << 62
NAMES = ("a", "b")


@dataclass
class Fate:
    """When things happened to a message, counted in operations of the disk."""

    queue: str
    group: int  # of messages that must be there all or not at all
    safe: int = NEVER  # it was promised
    settled: int = NEVER  # from here on it may be gone
    gone: int = NEVER  # from here on it must be


def opened(disk: SimulatedDisk) -> tuple[Ledger, Broker]:
    ledger = Ledger(Journal(disk, segment_size=1500), room=300)
    broker = new_broker(ledger)
    recover(ledger, broker, 0)
    return ledger, broker


class Workload:
    def __init__(self, seed: int, steps: int) -> None:
        self.random = Random(seed)
        self.disk = SimulatedDisk(seed)
        self.ledger, self.broker = opened(self.disk)
        self.cleaner = Cleaner(self.ledger, slice_size=400, spare_segments=0)
        self.peer = Peer()
        self.channel = open_channel(self.broker, self.peer)
        self.fates: dict[bytes, Fate] = {}
        self.held: dict[int, bytes] = {}
        self.moved = 0
        for name in NAMES:
            wanted = QueueSettings(durable=True)
            queue = self.broker.create_queue(self.broker.vhosts["/"], name, wanted, None, 0)
            self.broker.vhosts["/"].bind_queue(name, "amq.fanout", "")
            assert queue.lasting
        self.sync()
        self.declared = self.now
        actions = [self.sync, self.write, self.clean, self.commit]
        actions += [self.publish] * 4 + [self.ack] * 12
        for _ in range(steps):
            self.random.choice(actions)()

    @property
    def now(self) -> int:
        return len(self.disk.log)

    def _bodies(self, queue: str, group: int, count: int) -> list[bytes]:
        bodies = []
        for _ in range(count):
            body = f"{len(self.fates):05}".encode().ljust(self.random.choice((5, 40, 90)), b".")
            self.fates[body] = Fate(queue, group)
            bodies.append(body)
        return bodies

    def publish(self) -> None:
        name = self.random.choice((*NAMES, *NAMES[:1] * 6))
        for body in self._bodies(name, -1, self.random.randint(1, 3)):
            self.channel.publisher.publish(published(name, body, properties=PERSISTENT), 0)

    def commit(self) -> None:
        channel = open_channel(self.broker, number=2)
        channel.publisher.pending = []
        group = len(self.fates)
        for name in NAMES:
            bodies = self._bodies(name, group, 2)
            channel.publisher.publish(published(name, *bodies, properties=PERSISTENT), 0)
        channel.commit(0)

    def ack(self) -> None:
        """The second queue is hardly consumed, so that its messages hold segments."""
        name = self.random.choice((*NAMES, *NAMES[:1] * 8))
        tag = self.channel.next_tag
        if self.channel.get(self.broker.vhosts["/"].queues[name], no_ack=False, now=0):
            (event,) = self.peer.received()
            assert isinstance(event, ContentReceived)
            self.held[tag] = body_of(event.content)
        if self.held and self.random.random() < 0.9:
            tag = self.random.choice(list(self.held))
            self.fates[self.held.pop(tag)].settled = self.now
            self.channel.settle(Settlement.ACK, tag, 0, multiple=False)

    def write(self) -> None:
        self.ledger.write()

    def sync(self) -> None:
        self.ledger.write()
        settled = [fate for fate in self.fates.values() if fate.settled < NEVER]
        sync = self.ledger.begin_sync()
        sync.run()
        for fate in self.fates.values():
            fate.safe = min(fate.safe, self.now)
        for fate in settled:
            fate.gone = min(fate.gone, self.now)
        self.ledger.end_sync(sync)

    def clean(self) -> None:
        self.moved += self.cleaner.clean()
        self.ledger.write()


def contents(broker: Broker) -> dict[str, list[bytes]]:
    found: dict[str, list[bytes]] = {}
    for name, queue in broker.vhosts["/"].queues.items():
        peer = Peer()
        channel = open_channel(broker, peer)
        while channel.get(queue, no_ack=False, now=0):
            pass
        found[name] = [
            body_of(event.content)
            for event in peer.received()
            if isinstance(event, ContentReceived)
        ]
    return found


def check(work: Workload, moment: int, disk: SimulatedDisk) -> None:
    ledger, broker = opened(disk)
    for account in ledger.accounts.values():
        account.check()
    found = contents(broker)
    if moment >= work.declared:
        assert set(found) == set(NAMES)
    there = set()
    for name, bodies in found.items():
        assert bodies == sorted(set(bodies)), "in order, each once"
        there.update(bodies)
        assert all(work.fates[body].queue == name for body in bodies)
    groups: dict[int, set[bool]] = {}
    for body, fate in work.fates.items():
        if fate.safe <= moment < fate.settled:
            assert body in there, "a promise is broken"
        if fate.gone <= moment:
            assert body not in there, "what was settled is back"
        if fate.group >= 0 and moment < fate.settled:
            groups.setdefault(fate.group, set()).add(body in there)
    assert all(len(answers) == 1 for answers in groups.values()), "half a transaction"
    # It goes on from there, with places that nobody had.
    for name in found:
        channel = open_channel(broker)
        channel.publisher.publish(published(name, b"new", properties=PERSISTENT), 0)
    ledger.write()
    sync = ledger.begin_sync()
    sync.run()
    ledger.end_sync(sync)
    _, again = opened(disk.crash())
    assert contents(again) == {name: [*bodies, b"new"] for name, bodies in found.items()}


@pytest.mark.parametrize("seed", range(3))
def test_every_crash_leaves_what_was_promised(seed: int) -> None:
    work = Workload(seed, steps=400)
    for moment, disk in work.disk.crash_points(seed):
        check(work, moment, disk)


def test_the_workload_moves_messages() -> None:
    assert sum(Workload(seed, steps=400).moved for seed in range(4)) > 10
