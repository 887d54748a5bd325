"""An archive of a simulated feed: its store takes time to sync; packets on P are settled when they are safe."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from recado.feeds.boundary import (
    ArchiveEntry,
    DeliverBatch,
    EntriesStored,
    ReadArchive,
    ReportLoss,
    ReportRecovered,
    StoreEntries,
)
from recado.feeds.member import FeedMember
from recado.feeds.vector import Vector
from recado.feeds.views import LostRange, MemberId
from recado.feeds.wire import read_message_extent

from . import history as h
from .history import Incarnation
from .media import UNTAGGED, Address
from .nodes import Node, Surroundings
from .store import Store


class Archive(Node):
    def __init__(
        self,
        world: Surroundings,
        address: Address,
        incarnation: Incarnation,
        member: FeedMember,
        store: Store,
        piece: int,
        disk: float,
    ) -> None:
        """`piece` is the maximal size of a read in bytes, `disk` the usual duration of a sync in seconds."""
        super().__init__(world, address, incarnation, member)
        self.store = store
        self._piece = piece
        self._disk = disk
        self._syncing = False
        self._unsettled: deque[tuple[int, tuple[bytes, int] | None]] = deque()

    def arrived(self, on_a: bool, sender: MemberId, packet: bytes, tag: int) -> None:
        super().arrived(on_a, sender, packet, tag)
        if tag != UNTAGGED and not self.is_over:
            self._unsettled.append((tag, read_message_extent(packet)))
            self._settle()

    def _settle(self) -> None:
        settled = UNTAGGED
        while self._unsettled:
            tag, covered = self._unsettled[0]
            if covered is not None and self.store.stable.get(covered[0], 0) < covered[1]:
                break
            settled = tag
            self._unsettled.popleft()
        if settled != UNTAGGED:
            self.world.medium.settle(self.address, settled)

    def own(
        self, effect: DeliverBatch | ReportLoss | ReportRecovered | StoreEntries | ReadArchive
    ) -> None:
        match effect:
            case StoreEntries(entries):
                self.store.append(entries)
                self._tell_lost(entries)
                if not self._syncing:
                    self._sync()
            case ReadArchive(number, query):
                answer = self.store.recall(number, query, self._piece)
                self.world.schedule.call_later(self._slowness(0.005), self.handle, answer)
            case _:
                pass

    def _tell_lost(self, entries: Sequence[ArchiveEntry]) -> None:
        now = self.world.schedule.now
        for entry in entries:
            if isinstance(entry, LostRange):
                label = self.world.label(entry.publisher)
                self.world.record(
                    h.RecordedLost(now, self.incarnation, label, entry.first, entry.last)
                )

    def _slowness(self, usual: float) -> float:
        """Of the disk, which now and then is busy, while anything may go wrong."""
        random = self.world.random
        seconds = usual * random.random()
        is_busy = random.random() < 0.02 and not self.world.is_settled
        return 20.0 * seconds if is_busy else seconds

    def _sync(self) -> None:
        self._syncing = True
        count = len(self.store.entries)
        self.world.schedule.call_later(self._slowness(self._disk), self._synced, count)

    def _synced(self, count: int) -> None:
        if self.is_over:
            return
        for batch in self.store.synced(count):
            label = self.world.label(batch.publisher)
            now = self.world.schedule.now
            self.world.record(h.Kept(now, self.incarnation[0], label, batch.first, batch.count))
        self._syncing = False
        self._settle()
        self.handle(EntriesStored(Vector(self.store.stable), self.store.stable_offset))
        if len(self.store.entries) > self.store.durable and not self._syncing:
            self._sync()
