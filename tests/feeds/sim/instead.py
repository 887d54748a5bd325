"""What takes the place of a check that is left out of the protocol."""

from __future__ import annotations

from math import inf
from typing import Any

from bench.feeds_sim.archive import Archive
from recado.feeds.delivery_records import DeliveryRecords, DeliveryStatus
from recado.feeds.incarnation_history import IncarnationHistory, Interval
from recado.feeds.layer import Layer
from recado.feeds.layers.agreed_view import AgreedView
from recado.feeds.layers.archiver import ArchiverLayer
from recado.feeds.layers.fifo import FifoLayer
from recado.feeds.layers.membership import MembershipLayer, ViewPromise
from recado.feeds.layers.publisher_heartbeat import PublisherHeartbeatLayer
from recado.feeds.layers.pull import PullLayer
from recado.feeds.layers.receive_buffer import ORDER_PREFIX, ReceiveBuffer
from recado.feeds.layers.stability import StabilityTracker
from recado.feeds.layers.sync import SyncLayer
from recado.feeds.layers.total import TotalLayer
from recado.feeds.packet import DurableReport, NewView, OutsiderReport, Prepare, Prepared
from recado.feeds.vector import DeliveryProgress, Vector
from recado.feeds.views import NO_VIEW, UNBOUNDED, MemberId, View, ViewId, ViewRecord


def nothing(*_: object) -> None:
    pass


_take = ReceiveBuffer.receive


def take_as_it_comes(self: ReceiveBuffer, item: Any, now: float) -> list[Any]:
    _take(self, item, now)
    return [item] if self.release_limit is None else []


def begin_behind_the_cut(self: ReceiveBuffer, publisher: bytes) -> int:
    return self.publishers[publisher].next - 1


def skip_and_forget(self: DeliveryProgress, publisher: bytes, first: int, last: int) -> None:
    self.entries[publisher] = max(last, self.entries.get(publisher, 0))


def begin_as_if_new(self: FifoLayer, record: ViewRecord, first: bool, now: float) -> None:
    self._last_members = set(record.view.members())
    _meet_at(self, record, first, now)


_meet_at = FifoLayer._set_starts


def silence(self: PublisherHeartbeatLayer, now: float) -> None:
    self._next_heartbeat = inf


def pass_on(self: Any, event: Any, now: float = 0.0) -> None:
    Layer.up(self, event, now)


def say_all_is_stable(self: ArchiverLayer, now: float) -> None:
    if self.context.agreed_view is not None:
        self.send(
            DurableReport(self.context.agreed_view.id, self.receive_buffer.released_sequences()),
            "members",
            now,
        )


def settle_at_once(self: Archive) -> None:
    if self._unsettled:
        self.world.medium.settle(self.address, self._unsettled[-1][0])
        self._unsettled.clear()


def all_missed(self: DeliveryRecords, name: str, without: object = None) -> DeliveryStatus:
    return DeliveryStatus([], [])


def everything(self: DeliveryRecords, name: str, without: object = None) -> Vector:
    cuts = [record.cut for record in self.view_records.values()]
    return max(cuts, key=len, default=Vector())


_accept = MembershipLayer._accept_view


def accept_any(self: MembershipLayer, new: NewView, now: float) -> None:
    answer = Prepared(
        new.view.id,
        self.context.role,
        self.detector.view_id,
        self.detector.since_view,
        {},
        OutsiderReport.NONE,
    )
    self._promise = ViewPromise(self.context.member_id, answer, 1, 1.0, now)
    _accept(self, new, now)


def as_if_all_had_told(self: StabilityTracker, since: float, now: float) -> Vector | None:
    if now < since + self.context.options.failure_timeout:
        return None
    return Vector(self.receive_buffer.highest_known_sequences())


_consider = MembershipLayer._handle_prepare


def consider_any(self: MembershipLayer, sender: MemberId, prepare: Prepare, *rest: Any) -> None:
    self._promised_round = NO_VIEW
    _consider(self, sender, prepare, *rest)


def keep_the_cut(self: AgreedView, answers: object) -> dict[bytes, int]:
    return dict(self.cut)


_finish_if_done = SyncLayer._finish_if_complete


def finish_at_once(self: SyncLayer, now: float) -> None:
    self._recovery_target = {}
    _finish_if_done(self, now)


_turn = TotalLayer._switch_view


def turn_as_it_came(self: TotalLayer, view: View, now: float) -> None:
    for pending in self._pending.values():
        for event in pending:
            self._pass_up(event, now)
    self._pending = {}
    _turn(self, view, now)


_received = ReceiveBuffer.received_sequences


def received_without_places(self: ReceiveBuffer) -> dict[bytes, int]:
    return {p: last for p, last in _received(self).items() if not p.startswith(ORDER_PREFIX)}


def drain_by_name(self: TotalLayer, now: float) -> None:
    """As if no place were ever missing: what has none passes as it comes."""
    for publisher in sorted(self._pending):
        pending = self._pending.pop(publisher)
        for event in pending:
            self._pass_up(event, now)


def ask_nobody(self: PullLayer, now: float) -> None:
    self._retry_at = now + self.context.options.retry_interval


def as_if_known(self: IncarnationHistory, id_: ViewId) -> list[Interval]:
    known = [each for each in self._views[id_].previous_views if each in self._views]
    return [hole for each in known for hole in self._unseen_between(each, id_)]


def as_if_named(self: SyncLayer, publisher: bytes, now: float) -> int:
    return UNBOUNDED if self._delivery_bound is None else self._delivery_bound.get(publisher, 0)
