"""What is left out of the protocol to see whether the simulation notices: checks that look dispensable.

They are put in place of a method from here alone; the code of the feeds has no switch for them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import inf
from typing import Any

import msgspec
import pytest

from bench.feeds_sim import nodes, world
from bench.feeds_sim.archive import Archive
from bench.feeds_sim.verdict import Rule
from recado.feeds.layer import Layer, Site
from recado.feeds.layers import reach, settling
from recado.feeds.layers.archiver import Archiver
from recado.feeds.layers.fifo import Fifo
from recado.feeds.layers.nak import NakMember
from recado.feeds.layers.pulse import Pulse
from recado.feeds.layers.reach import Promise, Reach
from recado.feeds.layers.reception import Reception
from recado.feeds.layers.settling import Settling
from recado.feeds.layers.sync import Sync
from recado.feeds.layers.total import Total
from recado.feeds.layers.uniform import Uniform
from recado.feeds.lineage import Lineage
from recado.feeds.packet import NewView, Outlook, Prepared, Stable
from recado.feeds.table import Standing, Table
from recado.feeds.vector import Vector


class Mutation(msgspec.Struct, frozen=True):
    what: str
    owner: Any
    name: str
    """Of the attribute that is replaced."""
    instead: Any
    breaks: frozenset[Rule]
    """One of these rules must be seen to be broken."""
    seed: int | None = None
    """The first that showed it when 1 to 1,000 were last tried, which is not for every day; None: none did."""

    @contextmanager
    def in_place(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(self.owner, self.name, self.instead)
            yield


def _nothing(*_: object) -> None:
    pass


_take = Reception.take


def _take_as_it_comes(self: Reception, item: Any, now: float) -> list[Any]:
    _take(self, item, now)
    return [item] if self.limit is None else []


def _silence(self: Pulse, now: float) -> None:
    self._due = inf


def _pass_on(self: Any, event: Any, now: float = 0.0) -> None:
    Layer.up(self, event, now)


def _say_all_is_stable(self: Archiver, now: float) -> None:
    if self.site.view is not None:
        self.say(Stable(self.site.view.id, self.reception.passed()), "members", now)


def _settle_at_once(self: Archive) -> None:
    if self._unsettled:
        self.world.medium.settle(self.address, self._unsettled[-1][0])
        self._unsettled.clear()


def _all_missed(self: Table, name: str, without: object = None) -> Standing:
    return Standing([], [])


def _everything(self: Table, name: str, without: object = None) -> Vector:
    cuts = [record.cut for record in self.views.values()]
    return max(cuts, key=len, default=Vector())


_accept = Reach._accept


def _accept_any(self: Reach, new: NewView, now: float) -> None:
    answer = Prepared(new.view.id, self.site.role, self._view_id, self._since, {}, Outlook.CLEAR)
    self._promise = Promise(self.site.me, answer, now)
    _accept(self, new, now)


def _as_if_all_had_told(self: Settling, since: float, now: float) -> Vector | None:
    if now < since + self.site.options.suspect:
        return None
    return Vector(self.reception.known())


_start = Reach.start


def _start_at_once(self: Reach, now: float) -> None:
    since, self.reception.since = self.reception.since, None
    _start(self, now)
    self.reception.since = since


MUTATIONS = (
    Mutation(
        "messages pass in the order in which they come",
        Reception,
        "take",
        _take_as_it_comes,
        frozenset({Rule.FIFO, Rule.GAP, Rule.REPEAT, Rule.ARCHIVE}),
        seed=2,
    ),
    Mutation(
        "a cut is what nobody said",
        reach,
        "raise_to",
        _nothing,
        frozenset({Rule.VIEWS, Rule.GAP, Rule.REPEAT}),
        seed=3,
    ),
    Mutation(
        "who has promised goes on delivering",
        Reception,
        "freeze",
        _nothing,
        frozenset({Rule.VIEWS}),
        seed=3,
    ),
    Mutation(
        "archives say that they have what they were only given",
        Archiver,
        "_tell_stable",
        _say_all_is_stable,
        frozenset({Rule.UNIFORM}),
        seed=4,
    ),
    Mutation(
        "one archive is enough for uniform delivery",
        Site,
        "copies",
        lambda *_: 1,
        frozenset({Rule.UNIFORM}),
        seed=4,
    ),
    Mutation(
        "what is uniform is delivered as it comes",
        Uniform,
        "up",
        _pass_on,
        frozenset({Rule.UNIFORM}),
        seed=4,
    ),
    Mutation(
        "each has an order of its own",
        Total,
        "up",
        _pass_on,
        frozenset({Rule.TOTAL}),
        seed=6,
    ),
    Mutation(
        "live messages do not wait for recovery",
        Sync,
        "_hold",
        _pass_on,
        frozenset({Rule.GAP, Rule.FIFO, Rule.REPEAT, Rule.VIEWS}),
        seed=1,
    ),
    Mutation(
        "whoever was away is said to have missed everything",
        Table,
        "standing",
        _all_missed,
        frozenset({Rule.MARK, Rule.CERTAINTY}),
        seed=1,
    ),
    Mutation(
        "whoever returns is thought to have got all before its view",
        Table,
        "start",
        _everything,
        frozenset({Rule.GAP, Rule.BEHIND}),
        seed=9,
    ),
    Mutation(
        "an archive does not answer who recovers",
        Archiver,
        "_recover",
        _nothing,
        frozenset({Rule.BEHIND}),
        seed=1,
    ),
    Mutation(
        "what was delivered is acknowledged before the application has it",
        nodes.Subscriber,
        "acknowledge",
        nodes.Node.acknowledge,
        frozenset({Rule.GAP, Rule.CERTAINTY, Rule.BEHIND}),
        seed=34,
    ),
    Mutation(
        "an archive settles what it has not stored",
        Archive,
        "_settle",
        _settle_at_once,
        frozenset({Rule.LOST, Rule.CONVERGE, Rule.ARCHIVE}),
        seed=132,
    ),
    Mutation(
        "a publisher does not tell its last",
        Pulse,
        "tick",
        _silence,
        frozenset({Rule.LOST, Rule.BEHIND, Rule.CONVERGE}),
        seed=301,
    ),
    Mutation(
        "a gap is taken for a loss before the absent are back",
        world,
        "PATIENCE",
        0.1,
        frozenset({Rule.LOST, Rule.CONVERGE, Rule.ARCHIVE, Rule.BEHIND}),
        seed=6,
    ),
    Mutation(
        "nobody asks for what is missing",
        NakMember,
        "deadline",
        _nothing,
        frozenset({Rule.BEHIND, Rule.LOST, Rule.CONVERGE, Rule.VIEWS}),
        seed=2,
    ),
    Mutation(
        "an archive that knows of a view thinks the failed got nothing behind its cut",
        settling,
        "_known",
        lambda *_: 0,
        frozenset({Rule.CERTAINTY, Rule.MARK}),
        seed=1,
    ),
    Mutation(
        "a publisher that is silent is thought to have stopped",
        Settling,
        "_reach",
        _as_if_all_had_told,
        frozenset({Rule.CERTAINTY, Rule.MARK}),
    ),
    Mutation(
        "every view is thought to have all in it who live",
        Reach,
        "_outlook",
        lambda *_: Outlook.CLEAR,
        frozenset({Rule.CERTAINTY, Rule.MARK}),
        seed=51,
    ),
    Mutation(
        "who hears nothing at all takes it for silence",
        Reach,
        "_is_hearing",
        lambda *_: True,
        frozenset({Rule.CERTAINTY, Rule.MARK}),
        seed=225,
    ),
    Mutation(
        "a view is the end of whoever is not in it, wherever they were",
        Lineage,
        "_follows",
        lambda *_: True,
        frozenset({Rule.CERTAINTY, Rule.MARK}),
    ),
    Mutation(
        "an archive that was away thinks that nobody was there meanwhile",
        Lineage,
        "holes",
        lambda *_: [],
        frozenset({Rule.CERTAINTY, Rule.MARK}),
    ),
    Mutation(
        "what comes live to one that returns is thought to be new to it",
        Sync,
        "_marked",
        lambda _, batch: [batch],
        frozenset({Rule.MARK}),
        seed=403,
    ),
    Mutation(
        "who begins where others lag takes what old publishers still keep",
        Fifo,
        "_meet_at",
        _nothing,
        frozenset({Rule.REPEAT}),
        seed=437,
    ),
    Mutation(
        "who begins joins before it has heard what was published",
        Reach,
        "start",
        _start_at_once,
        frozenset({Rule.REPEAT}),
        seed=560,
    ),
    Mutation(
        "a view is taken whether it was promised or not",
        Reach,
        "_accept",
        _accept_any,
        frozenset({Rule.VIEWS}),
        seed=1,
    ),
)
