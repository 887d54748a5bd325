"""A small world for members: one heap of events, seeded chance, stores in memory. Time is what the heap says.

It is for tests that look at one thing; the simulation of whole feeds under all faults is in `sim`.
"""

from collections.abc import Callable
from functools import reduce
from heapq import heappop, heappush
from itertools import count
from random import Random

from recado.feeds.block import BODY_INDEX, Block
from recado.feeds.boundary import (
    ArchiveQuery,
    ArchiveRead,
    ArchiveState,
    Broadcast,
    DeliverBatch,
    Effect,
    EntriesStored,
    Event,
    ListenToCoordinators,
    MessageBatch,
    PacketArrived,
    PacketRoute,
    PublishRequested,
    ReadArchive,
    ReportFailure,
    ReportLoss,
    ReportRecovered,
    ReportView,
    SendAcknowledgement,
    SendAddressed,
    StoreEntries,
    TimerFired,
)
from recado.feeds.member import FeedMember
from recado.feeds.options import FeedOptions
from recado.feeds.stack import ARCHIVE_STACK, PUBLISHER_STACK, SUBSCRIBER_STACK, Stack
from recado.feeds.vector import Vector, subtract_span
from recado.feeds.views import (
    AcknowledgementRecord,
    FoundRange,
    LostRange,
    MemberId,
    Role,
    ViewRecord,
    ViewStability,
)

TEXTS = {
    Role.PUBLISHER: PUBLISHER_STACK,
    Role.SUBSCRIBER: SUBSCRIBER_STACK,
    Role.ARCHIVE: ARCHIVE_STACK,
}


class Disk:
    """A store in memory; what it has is there after a restart."""

    def __init__(self) -> None:
        self.batches: list[tuple[int, MessageBatch]] = []
        self.records: list[
            ViewRecord | ViewStability | AcknowledgementRecord | LostRange | FoundRange
        ] = []
        self.vector: dict[bytes, int] = {}
        self.offset = 0

    def append(self, entries: list[object]) -> None:
        for entry in entries:
            if isinstance(entry, MessageBatch):
                known = self.vector.get(entry.publisher, entry.first - 1)
                found = FoundRange(entry.publisher, entry.first, entry.last) in self.records
                assert found or entry.first == known + 1
                self.batches.append((self.offset, entry))
                self.offset += entry.count
                self.vector[entry.publisher] = max(entry.last, known)
            elif isinstance(entry, LostRange):
                self.vector[entry.publisher] = entry.last
                self.records.append(entry)
            elif isinstance(entry, ViewRecord | ViewStability | AcknowledgementRecord | FoundRange):
                self.records.append(entry)

    def state(self) -> ArchiveState:
        return ArchiveState(
            Vector(self.vector),
            tuple(r for r in self.records if isinstance(r, ViewRecord)),
            tuple(r for r in self.records if isinstance(r, ViewStability)),
            tuple(r for r in self.records if isinstance(r, AcknowledgementRecord)),
            self.offset,
            tuple(self.lost()),
        )

    def lost(self) -> list[LostRange]:
        """What was not found since."""
        found = [r for r in self.records if isinstance(r, FoundRange)]
        return [
            LostRange(lost.publisher, *span)
            for lost in self.records
            if isinstance(lost, LostRange)
            for span in reduce(
                lambda spans, one: subtract_span(spans, one.first, one.last),
                [one for one in found if one.publisher == lost.publisher],
                [(lost.first, lost.last)],
            )
        ]

    def _in_order(self) -> list[tuple[int, MessageBatch]]:
        """What was found late is in its place."""
        batches = [batch for _, batch in self.batches]
        for publisher in {batch.publisher for batch in batches}:
            places = [i for i, batch in enumerate(batches) if batch.publisher == publisher]
            own = sorted((batches[i] for i in places), key=lambda batch: batch.first)
            for i, batch in zip(places, own, strict=True):
                batches[i] = batch
        return [(offset, batch) for (offset, _), batch in zip(self.batches, batches, strict=True)]

    def recall(self, number: int, query: ArchiveQuery) -> ArchiveRead:
        found: list[MessageBatch] = []
        size = 0
        for offset, batch in self._in_order():
            if offset < query.offset:
                continue
            if size > query.limit_bytes:
                return ArchiveRead(number, found, True, Vector(), offset)
            wanted = [*query.after.holes.get(batch.publisher, ())]
            wanted.append((query.after.last_of(batch.publisher) + 1, batch.last))
            if query.ranges:
                named = [one for one in query.ranges if one.publisher == batch.publisher]
                wanted = [(one.first, one.last) for one in named]
            for first, last in wanted:
                if batch.first <= last and batch.last >= first:
                    found.append(batch.clip(first, last))
                    size += len(batch.block.data)
        return ArchiveRead(number, found, False, Vector(self.vector), self.offset)


class Node:
    def __init__(self, member: FeedMember, me: MemberId, role: Role, disk: Disk | None) -> None:
        self.member = member
        self.me = me
        self.role = role
        self.disk = disk
        self.alive = True
        self.coordinates = False
        self.wakes: float | None = None
        self.got: list[MessageBatch] = []
        self.views: list[ReportView] = []
        self.gaps: list[LostRange] = []
        self.failed: str | None = None
        self.recovered: Vector | None = None
        self.log: list[Effect] = []

    def bodies(self) -> list[bytes]:
        return [body for batch in self.got for body in batch.block.values(BODY_INDEX)]

    def sequences(self, publisher: bytes) -> list[int]:
        return [s for b in self.got if b.publisher == publisher for s in range(b.first, b.last + 1)]


class World:
    def __init__(
        self, seed: int = 0, *, loss: float = 0.0, double: float = 0.0, jitter: float = 0.0,
        ordered: bool = True, stacks: dict[Role, str] | None = None, **options: object
    ) -> None:  # fmt: skip
        self.random = Random(seed)
        self.loss, self.double, self.jitter = loss, double, jitter
        self.stacks = TEXTS | (stacks or {})
        self.options = {"heartbeat_interval": 0.1, "failure_timeout": 0.5, "view_change_timeout": 0.2,
                        "retry_interval": 0.05, "loss_timeout": 2.0,
                        "acknowledge_interval": 1.0, "recovery_timeout": 3.0,
                        "has_total_order": ordered} | options  # fmt: skip
        self.ordered = ordered
        self.now = 0.0
        self.nodes: list[Node] = []
        self.cut: Callable[[Node, Node], bool] = lambda one, other: False
        self._delayed_until = 0.0
        self._heap: list[tuple[float, int, Node, Event]] = []
        self._count = count()
        self._ids = count(1)

    def add(self, role: Role, name: str = "", disk: Disk | None = None, **options: object) -> Node:
        me = MemberId(name, next(self._ids).to_bytes(16))
        if role is Role.ARCHIVE:
            disk = disk or Disk()
        chosen = FeedOptions(**{**self.options, **options})  # type: ignore[arg-type]
        stack = Stack.parse(self.stacks[role])
        member = FeedMember(me, role, stack, chosen, disk.state() if disk else None)
        node = Node(member, me, role, disk)
        self.nodes.append(node)
        self._push(0.0, node, TimerFired())
        return node

    def publish(self, node: Node, *bodies: bytes) -> None:
        self.do(node, PublishRequested(Block.build(list(bodies))))

    def do(self, node: Node, event: Event) -> None:
        for effect in node.member.handle(event, self.now):
            self._act(node, effect)
        due = node.member.deadline()
        if due is not None and (node.wakes is None or due < node.wakes):
            node.wakes = max(due, self.now)
            self._push(node.wakes - self.now, node, TimerFired())

    def run(self, seconds: float, until: Callable[[], bool] | None = None) -> bool:
        end = self.now + seconds
        while self._heap and self._heap[0][0] <= end:
            if until is not None and until():
                return True
            self.now, _, node, event = heappop(self._heap)
            if isinstance(event, TimerFired):
                node.wakes = None
            if node.alive:
                self.do(node, event)
        self.now = end
        return until is not None and until()

    def kill(self, node: Node) -> None:
        node.alive = False

    def delay(self, seconds: float) -> None:
        """Nothing that is sent from now on arrives before so long, as if a broker were stopped."""
        self._delayed_until = self.now + seconds

    def _push(self, delay: float, node: Node, event: Event) -> None:
        heappush(self._heap, (self.now + delay, next(self._count), node, event))

    def _act(self, node: Node, effect: Effect) -> None:
        node.log.append(effect)
        match effect:
            case Broadcast(packet):
                for other in self.nodes:
                    hears = other.role is not Role.PUBLISHER or not self.ordered
                    if hears:
                        self._carry(
                            node,
                            other,
                            PacketArrived(PacketRoute.BROADCAST, node.me, packet),
                            self.ordered,
                        )
            case SendAddressed(to, packet):
                self._send(node, to, packet)
            case ListenToCoordinators(to_coordinators):
                node.coordinates = to_coordinators
            case SendAcknowledgement(packet):
                self._send(node, "archives", packet)
            case DeliverBatch(batch):
                node.got.append(batch)
            case ReportLoss(lost):
                node.gaps.append(lost)
            case ReportView():
                node.views.append(effect)
            case ReportRecovered(vector):
                node.recovered = vector
            case StoreEntries(entries):
                assert node.disk is not None
                node.disk.append(list(entries))
                stored = EntriesStored(Vector(node.disk.vector), node.disk.offset)
                self._push(0.003, node, stored)
            case ReadArchive(number, query):
                assert node.disk is not None
                self._push(0.002, node, node.disk.recall(number, query))
            case ReportFailure(reason):
                node.failed = reason

    def _send(self, node: Node, to: object, packet: bytes) -> None:
        for other in self.nodes:
            meant = other.me == to or (
                (to == "members" and other.role is not Role.PUBLISHER)
                or (to == "archives" and other.role is Role.ARCHIVE)
                or (to == "coordinators" and other.coordinates)
            )
            if meant and other is not node:
                self._carry(
                    node, other, PacketArrived(PacketRoute.ADDRESSED, node.me, packet), False
                )

    def _carry(self, node: Node, other: Node, event: Event, safe: bool) -> None:
        if node is not other and self.cut(node, other):
            return
        waits = max(0.0, self._delayed_until - self.now)
        if safe:
            self._push(waits + 0.002, other, event)
            return
        copies = (self.random.random() >= self.loss) + (self.random.random() < self.double)
        for _ in range(copies):
            self._push(waits + 0.001 + self.random.random() * self.jitter, other, event)


def together(world: World, *nodes: Node) -> bool:
    """Run until these, and no others, are in one view."""
    wanted = {node.me for node in nodes}

    def agreed() -> bool:
        last = [node.views[-1].view for node in nodes if node.views]
        return (
            len(last) == len(nodes)
            and len({view.id for view in last}) == 1
            and set(last[0].members()) == wanted
        )

    return world.run(15, agreed)
