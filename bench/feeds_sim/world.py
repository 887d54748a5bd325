"""A whole feed in one process: members, the medium between them, the faults of a script, on one schedule."""

from __future__ import annotations

import gc
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from hashlib import blake2b
from random import Random

import msgspec

from recado.feeds import wire
from recado.feeds.boundary import MessageBatch
from recado.feeds.delivery_records import DeliveryRecords
from recado.feeds.member import FeedMember
from recado.feeds.options import FeedOptions
from recado.feeds.options import RecoveryPolicy as Recovery
from recado.feeds.stack import Stack
from recado.feeds.vector import DeliveryProgress, Vector
from recado.feeds.views import LostRange, MemberId, Role
from recado.simulator.schedule import Schedule

from . import history as h
from .archive import Archive
from .company import ARCHIVES
from .facts import facts
from .faults import Faults
from .history import Incarnation, Policy
from .judge import judge
from .media import Address, Ether, Medium
from .nodes import MARKS, Node, Publisher, Subscriber, checks, written
from .plots import Plot
from .post import Post
from .script import (
    BEGIN,
    END,
    PATIENCE,
    QUIET,
    TROUBLE,
    Kind,
    Script,
    draw,
)
from .store import Store
from .verdict import Verdict

RECOVERIES = {
    Policy.NONE: Recovery.NONE,
    Policy.VECTOR: Recovery.VECTOR,
    Policy.PESSIMISTIC: Recovery.PESSIMISTIC,
    Policy.ARCHIVE: Recovery.ARCHIVE,
}


class Outcome(msgspec.Struct):
    seed: int
    verdict: Verdict
    faults: list[str]
    """Faults of the members besides those with messages."""
    trace: str
    """The same for all runs with this seed."""

    @property
    def problems(self) -> list[str]:
        return [*map(str, self.verdict.violations), *self.faults]


def live_through(seed: int, plot: Plot | None = None) -> Outcome:
    with at_ease():
        world = World(draw(seed, plot))
        world.run()
        verdict = Verdict() if world.faults else judge(world.history)
        return Outcome(seed, verdict, world.faults, world.trace())


@contextmanager
def at_ease() -> Iterator[None]:
    """Packets are immutable: each is decoded once for all receivers. And a world exists for less than a second:
    its garbage is collected when it is over."""
    read = wire.decode
    gc.disable()
    wire.decode = lru_cache(maxsize=256)(read)
    try:
        yield
    finally:
        wire.decode = read
        gc.enable()


class World:
    medium: Medium

    def __init__(self, script: Script) -> None:
        self.script = script
        self.schedule = Schedule()
        self.random = Random(f"{script.seed} world")
        self.history: list[h.AnyEvent] = []
        self.faults: list[str] = []
        self._digest = blake2b(digest_size=12)
        chance = Random(f"{script.seed} network")
        self.ether: Ether | None = None
        self.post: Post | None = None
        if script.kind is Kind.ETHER:
            self.medium = self.ether = Ether(self.schedule, chance, self)
            self.ether.network.conditions = script.weather
        else:
            one_order = script.kind is Kind.RECADO
            self.medium = self.post = Post(self.schedule, chance, self, one_order=one_order)
        self.nodes: dict[str, Node] = {}
        """The running nodes, by name."""
        self.stores = {name: Store() for name in ARCHIVES}
        self._incarnations: dict[str, int] = {}
        self._saved: dict[str, Vector] = {}
        self._members: dict[bytes, tuple[Incarnation, MemberId]] = {}
        self._ids: dict[str, MemberId] = {}
        self.is_settled = False
        """No faults happen any more."""

    def run(self) -> None:
        try:
            self._set_up()
            self.schedule.run(TROUBLE)
            self._settle()
            self.schedule.run(TROUBLE + QUIET)
            for name in self.script.publishers:
                if name not in self.script.silent:
                    self._publish(name)
            self.schedule.run(TROUBLE + END)
            self._close()
        except Exception as error:  # noqa: BLE001 (whatever a member raises is a fault of it)
            where = "".join(traceback.format_exception(error))
            self.faults.append(f"at {self.schedule.now:.3f} s: {where}")

    def _set_up(self) -> None:
        schedule, random = self.schedule, self.random
        for name in ARCHIVES:
            schedule.call_at(random.uniform(0.0, 0.2), self.start, name)
        for name in self.script.subscribers:
            schedule.call_at(random.uniform(0.3, 3.0), self.start, name)
        for name in self.script.publishers:
            begin = random.uniform(BEGIN, 3.0)
            schedule.call_at(begin, self.start, name)
            schedule.call_at(begin + 0.1, self._publish_on, name)
        faults = Faults(self)
        for moment, fault in self.script.faults:
            schedule.call_at(moment, faults.befall, fault)

    # ── what nodes need ───────────────────────────────────────────────────────────────────────────

    def record(self, event: h.AnyEvent) -> None:
        self.history.append(event)

    def gave_up(self, incarnation: Incarnation, reason: str) -> None:
        """During the faults it stays down; afterwards it is restarted, and must not fail again."""
        self.record(h.GaveUp(self.schedule.now, incarnation, reason))
        if self.is_settled:
            self.schedule.call_later(0.5, self._start_again, incarnation)

    def overheard(self, packet: bytes) -> None:
        self._digest.update(packet)

    def label(self, publisher: bytes) -> str:
        return h.named(self._members[publisher][0])

    def incarnation(self, member: MemberId) -> Incarnation:
        return self._members[member.incarnation][0]

    def text(self, member: MemberId) -> str:
        return h.named(self.incarnation(member))

    def arrived(self, node: Address, on_a: bool, sender: Address, packet: bytes, tag: int) -> None:
        self.nodes[node.name].arrived(on_a, self._ids[sender.text], packet, tag)

    def confirmed(self, node: Address, upto: int) -> None:
        self.nodes[node.name].confirmed(upto)

    def cast_again(self, node: Address) -> None:
        self.record(h.CastAgain(self.schedule.now, node.text))

    def trace(self) -> str:
        encode = msgspec.msgpack.Encoder().encode
        for event in self.history:
            self._digest.update(encode(event))
        self._digest.update(encode([self.schedule.executed_count, self.faults]))
        return self._digest.hexdigest()

    # ── incarnations ─────────────────────────────────────────────────────────────────────────────────────

    def start(self, name: str) -> None:
        if name in self.nodes or (self.is_settled and name in self.script.absent):
            return
        incarnation = (name, self._incarnations.get(name, 0) + 1)
        self._incarnations[name] = incarnation[1]
        own_id = blake2b(f"{self.script.seed} {incarnation}".encode(), digest_size=16).digest()
        is_publisher = name in self.script.publishers
        me = MemberId("" if is_publisher else name, own_id)
        self._members[own_id] = (incarnation, me)
        address = Address(h.named(incarnation), name, not is_publisher, name in ARCHIVES)
        self._ids[address.text] = me
        if is_publisher:
            node: Node = self._new_publisher(address, incarnation, me)
        elif address.is_archive:
            node = self._new_archive(address, incarnation, me)
        else:
            node = self._new_subscriber(address, incarnation, me)
        self.nodes[name] = node
        node.start()

    def _options(self, **recovery: object) -> FeedOptions:
        script = self.script
        options = FeedOptions(
            has_total_order=script.kind is not Kind.ETHER,
            max_packet_bytes=script.packet,
            archive_count=len(ARCHIVES) if script.counted else 0,
            heartbeat_interval=1.0,
            failure_timeout=2.5,
            loss_timeout=PATIENCE,
        )
        return msgspec.structs.replace(options, **recovery)

    def _stack(self) -> Stack:
        """The layers of each role."""
        script = self.script
        qualities = ["UNIFORM"] * script.uniform + ["TOTAL"] * script.total
        layers = [
            "DISPATCH",
            "SYNC",
            "ARCHIVER",
            *qualities,
            "PULL",
            "FRAG",
            "FIFO",
            "NAK",
            "MEMBERSHIP",
        ]
        return Stack.parse(":".join([*layers, "UDP" if self.ether else "AMQP"]))

    def _member(
        self, me: MemberId, role: Role, options: FeedOptions, store: Store | None
    ) -> FeedMember:
        return FeedMember(me, role, self._stack(), options, store.state() if store else None)

    def _new_publisher(self, address: Address, incarnation: Incarnation, me: MemberId) -> Publisher:
        member = self._member(me, Role.PUBLISHER, self._options(), None)
        node = Publisher(self, address, incarnation, member)
        node.promised = self.post is not None
        return node

    def _new_archive(self, address: Address, incarnation: Incarnation, me: MemberId) -> Archive:
        name = incarnation[0]
        store = self.stores[name] = self.stores[name].after_crash(self.random)
        for _, batch in store.batches():
            label = self.label(batch.publisher)
            self.record(h.Kept(self.schedule.now, name, label, batch.first, batch.count))
        member = self._member(me, Role.ARCHIVE, self._options(), store)
        piece = self.random.choice((60, 400, 1 << 20))
        return Archive(self, address, incarnation, member, store, piece, self.script.disk)

    def _new_subscriber(
        self, address: Address, incarnation: Incarnation, me: MemberId
    ) -> Subscriber:
        name = incarnation[0]
        policy = self.script.policies[name]
        if incarnation[1] == 1 and policy is not Policy.NONE:
            policy = Policy.VECTOR  # from the beginning; there is no vector yet
        saved = self._saved.get(name, Vector())
        vector = saved if policy is Policy.VECTOR else Vector()
        self._classify(name)
        options = self._options(recovery=RECOVERIES[policy], start_vector=vector)
        member = self._member(me, Role.SUBSCRIBER, options, None)
        script = self.script
        self.record(
            h.Began(
                self.schedule.now,
                incarnation,
                policy,
                {self.label(publisher): last for publisher, last in vector.items()},
                {self.label(publisher): spans for publisher, spans in vector.holes.items()},
                total=script.total,
                uniform=script.uniform,
                copies=len(ARCHIVES) // 2 + 1 if script.counted else 0,
            )
        )
        slow = name in script.slow_readers

        def pace() -> float:
            return self.random.uniform(0.0, 0.2) if slow and not self.is_settled else 0.0

        node = Subscriber(self, address, incarnation, member, pace)
        node.taken = DeliveryProgress(vector)
        return node

    def _classify(self, subscriber: str) -> None:
        """Ask the archives to classify the messages for a subscriber that is down."""
        for name in ARCHIVES:
            if name not in self.nodes:
                continue
            standing = self._table(name).delivery_status(subscriber)
            for publisher, last in self.stores[name].state().vector.items():
                label = self.label(publisher)
                for first, end, certainty in standing.split(publisher, 1, last):
                    said = (label, first, end - first + 1, MARKS[certainty])
                    self.record(h.Classified(self.schedule.now, name, subscriber, *said))

    def _table(self, archive: str) -> DeliveryRecords:
        state = self.stores[archive].state()
        return DeliveryRecords([*state.views, *state.stability, *state.acknowledgements])

    def crash(self, name: str) -> None:
        self._end(name, leaves=False)

    def leave(self, name: str) -> None:
        self._end(name, leaves=True)

    def _end(self, name: str, *, leaves: bool) -> None:
        node = self.nodes.get(name)
        if node is None:
            return
        if leaves:
            node.leave()
        else:
            node.end()
        del self.nodes[name]
        now = self.schedule.now
        match node:
            case Publisher():
                self.record(h.PublisherEnded(now, h.named(node.incarnation)))
            case Subscriber():
                if self.random.random() < 0.7:  # else it has saved no vector since the last time
                    self._saved[name] = node.taken.snapshot()
                self.record(h.Ended(now, node.incarnation))
            case _:
                pass

    def _start_again(self, incarnation: Incarnation) -> None:
        if self.nodes[incarnation[0]].incarnation == incarnation:
            self.crash(incarnation[0])
            self.start(incarnation[0])

    # ── publishing ────────────────────────────────────────────────────────────────────────────────

    def _publish_on(self, name: str) -> None:
        """Now and then, and sometimes much at once."""
        if self.is_settled:
            return
        if name in self.nodes:
            self._publish(name)
        seconds = self.random.choice((0.02, 0.3, 0.3, 1.0, 2.0)) * self.random.random()
        self.schedule.call_later(seconds, self._publish_on, name)

    def _publish(self, name: str) -> None:
        node = self.nodes.get(name)
        if not isinstance(node, Publisher):
            return
        random = self.random
        count = random.choice((1, 1, 2, 5))
        size = 1000 if random.random() < 0.1 else 8
        bodies = [
            f"{h.named(node.incarnation)}:{node.published + number}".encode().ljust(size, b".")
            for number in range(1, count + 1)
        ]
        keys = [random.choice((b"x", b"y")) for _ in bodies]
        node.publish(bodies, keys)

    # ── the end ───────────────────────────────────────────────────────────────────────────────────

    def _settle(self) -> None:
        self.is_settled = True
        self.record(h.Settled(self.schedule.now))
        self.medium.calm()
        for node in self.nodes.values():
            node.stalled_until = min(node.stalled_until, self.schedule.now)
        for name, node in list(self.nodes.items()):
            if name in self.script.absent or node.member.context.has_failed:
                self.crash(name)
        for name in (*ARCHIVES, *self.script.subscribers, *self.script.publishers):
            if name not in self.script.absent:
                self.start(name)

    def _close(self) -> None:
        for name in self.script.absent:
            self._classify(name)
        alive = [node.incarnation for node in self.nodes.values()]
        for name in ARCHIVES:
            messages, lost = [], []
            for entry in self.stores[name].entries:
                if isinstance(entry, MessageBatch):
                    label, view = self.label(entry.publisher), written(entry.view)
                    for sequence, check in enumerate(checks(entry.block), entry.first):
                        messages.append((label, sequence, check, view))
                elif isinstance(entry, LostRange):
                    lost.append((self.label(entry.publisher), entry.first, entry.last))
            self.record(h.ArchiveRead(self.schedule.now, name, tuple(messages), tuple(lost)))
            known = facts(self._table(name), self, alive)
            self.record(h.Recorded(self.schedule.now, name, known))
