"""What takes the place of a check that is left out of the protocol."""

from __future__ import annotations

from math import inf
from typing import Any

from bench.feeds_sim.archive import Archive
from recado.feeds.layer import Layer
from recado.feeds.layers.agreement import Agreement
from recado.feeds.layers.archiver import Archiver
from recado.feeds.layers.fifo import Fifo
from recado.feeds.layers.pull import PullLayer
from recado.feeds.layers.pulse import Pulse
from recado.feeds.layers.reach import Promise, Reach
from recado.feeds.layers.reception import ORDERS, Reception
from recado.feeds.layers.settling import Settling
from recado.feeds.layers.sync import Sync
from recado.feeds.layers.total import Total
from recado.feeds.lineage import Interval, Lineage
from recado.feeds.packet import NewView, Outlook, Prepare, Prepared, Stable
from recado.feeds.table import Standing, Table
from recado.feeds.vector import Progress, Vector
from recado.feeds.views import NO_VIEW, OPEN, MemberId, View, ViewId, ViewRecord


def nothing(*_: object) -> None:
    pass


_take = Reception.take


def take_as_it_comes(self: Reception, item: Any, now: float) -> list[Any]:
    _take(self, item, now)
    return [item] if self.limit is None else []


def begin_behind_the_cut(self: Reception, publisher: bytes) -> int:
    return self.tracks[publisher].next - 1


def skip_and_forget(self: Progress, publisher: bytes, first: int, last: int) -> None:
    self.entries[publisher] = max(last, self.entries.get(publisher, 0))


def begin_as_if_new(self: Fifo, record: ViewRecord, first: bool, now: float) -> None:
    self._seated = set(record.view.members())
    _meet_at(self, record, first, now)


_meet_at = Fifo._meet_at


def silence(self: Pulse, now: float) -> None:
    self._due = inf


def pass_on(self: Any, event: Any, now: float = 0.0) -> None:
    Layer.up(self, event, now)


def say_all_is_stable(self: Archiver, now: float) -> None:
    if self.site.view is not None:
        self.say(Stable(self.site.view.id, self.reception.passed()), "members", now)


def settle_at_once(self: Archive) -> None:
    if self._unsettled:
        self.world.medium.settle(self.address, self._unsettled[-1][0])
        self._unsettled.clear()


def all_missed(self: Table, name: str, without: object = None) -> Standing:
    return Standing([], [])


def everything(self: Table, name: str, without: object = None) -> Vector:
    cuts = [record.cut for record in self.views.values()]
    return max(cuts, key=len, default=Vector())


_accept = Reach._accept


def accept_any(self: Reach, new: NewView, now: float) -> None:
    answer = Prepared(new.view.id, self.site.role, self._view_id, self._since, {}, Outlook.CLEAR)
    self._promise = Promise(self.site.me, answer, 1, 1.0, now)
    _accept(self, new, now)


def as_if_all_had_told(self: Settling, since: float, now: float) -> Vector | None:
    if now < since + self.site.options.suspect:
        return None
    return Vector(self.reception.known())


_consider = Reach._consider


def consider_any(self: Reach, sender: MemberId, prepare: Prepare, *rest: Any) -> None:
    self._promised = NO_VIEW
    _consider(self, sender, prepare, *rest)


def keep_the_cut(self: Agreement, answers: object) -> dict[bytes, int]:
    return dict(self.cut)


_finish_if_done = Sync._finish_if_done


def finish_at_once(self: Sync, now: float) -> None:
    self._target = {}
    _finish_if_done(self, now)


_turn = Total._turn


def turn_as_it_came(self: Total, view: View, now: float) -> None:
    for pending in self._pending.values():
        for event in pending:
            self._above(event, now)
    self._pending = {}
    _turn(self, view, now)


_received = Reception.received


def received_without_places(self: Reception) -> dict[bytes, int]:
    return {p: last for p, last in _received(self).items() if not p.startswith(ORDERS)}


def drain_by_name(self: Total, now: float) -> None:
    """As if no place were ever missing: what has none passes as it comes."""
    for publisher in sorted(self._pending):
        pending = self._pending.pop(publisher)
        for event in pending:
            self._above(event, now)


def ask_nobody(self: PullLayer, now: float) -> None:
    self._due = now + self.site.options.again


def as_if_known(self: Lineage, id_: ViewId) -> list[Interval]:
    known = [each for each in self._views[id_].previous if each in self._views]
    return [hole for each in known for hole in self._between(each, id_)]


def as_if_named(self: Sync, publisher: bytes, now: float) -> int:
    return OPEN if self._bound is None else self._bound.get(publisher, 0)
