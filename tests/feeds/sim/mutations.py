"""What is left out of the protocol to see whether the simulation notices: checks that look dispensable.

They are put in place of a method from here alone; the code of the feeds has no switch for them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest

from bench.feeds_sim import nodes, plots, world
from bench.feeds_sim.archive import Archive
from bench.feeds_sim.plots import Plot
from bench.feeds_sim.verdict import Rule
from recado.feeds import delivery_records
from recado.feeds.clock import MemberClock
from recado.feeds.delivery_records import DeliveryRecords
from recado.feeds.incarnation_history import IncarnationHistory
from recado.feeds.layer import MemberContext
from recado.feeds.layers import stability
from recado.feeds.layers.agreed_view import AgreedView
from recado.feeds.layers.archiver import ArchiverLayer
from recado.feeds.layers.failure_detector import FailureDetector
from recado.feeds.layers.fifo import FifoLayer
from recado.feeds.layers.membership import MembershipLayer
from recado.feeds.layers.nak import NakMemberLayer, NakPublisherLayer
from recado.feeds.layers.publisher_heartbeat import PublisherHeartbeatLayer
from recado.feeds.layers.publisher_state import PublisherState
from recado.feeds.layers.pull import PullLayer
from recado.feeds.layers.receive_buffer import ReceiveBuffer
from recado.feeds.layers.stability import StabilityTracker
from recado.feeds.layers.sync import SyncLayer
from recado.feeds.layers.total import TotalLayer
from recado.feeds.layers.uniform import UniformLayer
from recado.feeds.packet import OutsiderReport
from recado.feeds.vector import DeliveryProgress, Vector

from . import instead


class Mutation(msgspec.Struct, frozen=True):
    what: str
    owner: Any
    name: str
    """Of the attribute that is replaced."""
    instead: Any
    breaks: frozenset[Rule]
    """One of these rules must be seen to be broken."""
    seed: int
    """The first that shows it, as `python -m tests.feeds.sim.test_mutations` finds it."""
    plot: Plot | None = None
    """The faults of that world, if those that seeds choose seldom show the mutation."""

    @contextmanager
    def in_place(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(self.owner, self.name, self.instead)
            yield


MUTATIONS = (
    Mutation(
        "messages pass in the order in which they come",
        ReceiveBuffer,
        "receive",
        instead.take_as_it_comes,
        frozenset({Rule.FIFO, Rule.GAP, Rule.REPEAT, Rule.ARCHIVE}),
        seed=2,
    ),
    Mutation(
        "a cut is that of the last view, whatever members have received since",
        AgreedView,
        "merge_received",
        instead.keep_the_cut,
        frozenset({Rule.VIEWS, Rule.GAP, Rule.REPEAT}),
        seed=1,
    ),
    Mutation(
        "who has promised goes on delivering",
        ReceiveBuffer,
        "freeze",
        instead.nothing,
        frozenset({Rule.VIEWS}),
        seed=1,
    ),
    Mutation(
        "who has promised itself to a round takes up an older one",
        MembershipLayer,
        "_handle_prepare",
        instead.consider_any,
        frozenset({Rule.VIEWS}),
        seed=26,
    ),
    Mutation(
        "a view does not wait for all that is before it",
        ReceiveBuffer,
        "has_reached",
        lambda *_: True,
        frozenset({Rule.VIEWS}),
        seed=2,
    ),
    Mutation(
        "archives say that they have what they were only given",
        ArchiverLayer,
        "_report_durable",
        instead.say_all_is_stable,
        frozenset({Rule.UNIFORM}),
        seed=4,
    ),
    Mutation(
        "one archive is enough for uniform delivery",
        MemberContext,
        "required_copies",
        lambda *_: 1,
        frozenset({Rule.UNIFORM}),
        seed=4,
    ),
    Mutation(
        "what is uniform is delivered as it comes",
        UniformLayer,
        "up",
        instead.pass_on,
        frozenset({Rule.UNIFORM}),
        seed=4,
    ),
    Mutation(
        "an archive gives what only it has to who returns",
        ArchiverLayer,
        "_uniform_limit",
        instead.nothing,
        frozenset({Rule.UNIFORM}),
        seed=12,
    ),
    Mutation(
        "each has an order of its own",
        TotalLayer,
        "up",
        instead.pass_on,
        frozenset({Rule.TOTAL}),
        seed=6,
    ),
    Mutation(
        "what has no place at the end of a view passes as it came",
        TotalLayer,
        "_switch_view",
        instead.turn_as_it_came,
        frozenset({Rule.TOTAL}),
        seed=10,
    ),
    Mutation(
        "a view does not say which places in the order were before it",
        ReceiveBuffer,
        "received_sequences",
        instead.received_without_places,
        frozenset({Rule.TOTAL}),
        seed=10,
    ),
    Mutation(
        "what has no place yet passes as it comes",
        TotalLayer,
        "_deliver_ordered",
        instead.drain_by_name,
        frozenset({Rule.TOTAL}),
        seed=6,
    ),
    Mutation(
        "the places in the orders of other views are waited for",
        ReceiveBuffer,
        "skip_foreign_orders",
        instead.nothing,
        frozenset({Rule.LOST, Rule.BEHIND, Rule.CONVERGE}),
        seed=6,
    ),
    Mutation(
        "a place in the order does not show that a message is missing",
        ReceiveBuffer,
        "note_mentioned",
        lambda *_: True,
        frozenset({Rule.LOST, Rule.BEHIND, Rule.CONVERGE}),
        seed=6,
        plot=plots.untold,
    ),
    Mutation(
        "live messages do not wait for recovery",
        SyncLayer,
        "_hold",
        instead.pass_on,
        frozenset({Rule.GAP, Rule.FIFO, Rule.REPEAT, Rule.VIEWS}),
        seed=1,
    ),
    Mutation(
        "an answer of an archive is taken for all that there is",
        SyncLayer,
        "_finish_if_complete",
        instead.finish_at_once,
        frozenset({Rule.GAP}),
        seed=11,
    ),
    Mutation(
        "whoever was away is said to have missed everything",
        DeliveryRecords,
        "delivery_status",
        instead.all_missed,
        frozenset({Rule.MARK, Rule.CERTAINTY}),
        seed=1,
    ),
    Mutation(
        "whoever returns is thought to have got all before its view",
        DeliveryRecords,
        "last_acknowledged",
        instead.everything,
        frozenset({Rule.GAP, Rule.BEHIND}),
        seed=9,
    ),
    Mutation(
        "an archive does not answer who recovers",
        ArchiverLayer,
        "_start_recovery_read",
        instead.nothing,
        frozenset({Rule.BEHIND}),
        seed=1,
    ),
    Mutation(
        "what was delivered is acknowledged before the application has it",
        nodes.Subscriber,
        "acknowledge",
        nodes.Node.acknowledge,
        frozenset({Rule.GAP, Rule.CERTAINTY, Rule.BEHIND}),
        seed=37,
    ),
    Mutation(
        "an archive settles what it has not stored",
        Archive,
        "_settle",
        instead.settle_at_once,
        frozenset({Rule.LOST, Rule.CONVERGE, Rule.ARCHIVE}),
        seed=12,
        plot=plots.power_cuts,
    ),
    Mutation(
        "a publisher does not tell its last",
        PublisherHeartbeatLayer,
        "tick",
        instead.silence,
        frozenset({Rule.LOST, Rule.BEHIND, Rule.CONVERGE}),
        seed=3,
        plot=plots.muted,
    ),
    Mutation(
        "a gap is taken for a loss before the absent are back",
        world,
        "PATIENCE",
        0.1,
        frozenset({Rule.LOST, Rule.CONVERGE, Rule.ARCHIVE, Rule.BEHIND}),
        seed=2,
        plot=plots.partly_heard,
    ),
    Mutation(
        "a subscriber with recovery gives up what an absent archive may have",
        FifoLayer,
        "_must_ask_archives",
        lambda *_: False,
        frozenset({Rule.LOST}),
        seed=12,
        plot=plots.away_from_broker,
    ),
    Mutation(
        "what a subscriber has passed over counts as delivered",
        DeliveryProgress,
        "skip",
        instead.skip_and_forget,
        frozenset({Rule.CERTAINTY, Rule.BEHIND}),
        seed=4,
        plot=plots.vanished,
    ),
    Mutation(
        "who begins without recovery takes what archives that return know of old publishers",
        FifoLayer,
        "_set_starts",
        instead.begin_as_if_new,
        frozenset({Rule.HISTORY}),
        seed=3,
        plot=plots.newcomers,
    ),
    Mutation(
        "archives do not ask each other for what they have recorded as lost",
        ArchiverLayer,
        "_request_lost",
        instead.nothing,
        frozenset({Rule.CONVERGE}),
        seed=2,
        plot=plots.mistaken,
    ),
    Mutation(
        "time in which a member was stopped counts towards its timeouts",
        MemberClock,
        "observe",
        lambda *_: 0.0,
        frozenset({Rule.EARLY}),
        seed=3,
        plot=plots.stops_without_broker,
    ),
    Mutation(
        "nobody asks for what is missing",
        NakMemberLayer,
        "deadline",
        instead.nothing,
        frozenset({Rule.BEHIND, Rule.LOST, Rule.CONVERGE, Rule.VIEWS}),
        seed=2,
    ),
    Mutation(
        "a publisher casts nothing again",
        NakPublisherLayer,
        "_retransmit",
        instead.nothing,
        frozenset({Rule.BEHIND, Rule.LOST, Rule.CONVERGE}),
        seed=3,
    ),
    Mutation(
        "archives and members are not asked for what is missing",
        PullLayer,
        "_request",
        instead.ask_nobody,
        frozenset({Rule.BEHIND, Rule.LOST, Rule.CONVERGE}),
        seed=8,
    ),
    Mutation(
        "archives do not compare what they know of views",
        ArchiverLayer,
        "_send_summary",
        instead.nothing,
        frozenset({Rule.CONVERGE}),
        seed=1,
    ),
    Mutation(
        "an archive that knows of a view thinks the failed got nothing behind its cut",
        stability,
        "_highest_known",
        lambda *_: 0,
        frozenset({Rule.CERTAINTY, Rule.MARK}),
        seed=1,
    ),
    Mutation(
        "a publisher that is silent is thought to have stopped",
        StabilityTracker,
        "_compute_bound",
        instead.as_if_all_had_told,
        frozenset({Rule.CERTAINTY, Rule.MARK}),
        seed=3,
        plot=plots.machine_lost,
    ),
    Mutation(
        "a publisher that is heard late is thought to have begun late",
        StabilityTracker,
        "_raise_bound",
        lambda *_: Vector(),
        frozenset({Rule.CERTAINTY, Rule.MARK}),
        seed=2,
        plot=plots.heard_late,
    ),
    Mutation(
        "of two ends that archives found the one that was told last counts",
        delivery_records,
        "_merge_bounds",
        lambda _, told: told,
        frozenset({Rule.CONVERGE}),
        seed=3,
    ),
    Mutation(
        "every view is thought to have all in it who live",
        FailureDetector,
        "report_outsiders",
        lambda *_: OutsiderReport.NONE,
        frozenset({Rule.CERTAINTY, Rule.MARK}),
        seed=12,
        plot=plots.by_turns,
    ),
    Mutation(
        "who has just come says that nobody else is there",
        FailureDetector,
        "has_listened",
        lambda *_: True,
        frozenset({Rule.CERTAINTY, Rule.MARK}),
        seed=12,
        plot=plots.by_turns,
    ),
    Mutation(
        "who hears nothing at all takes it for silence",
        FailureDetector,
        "_is_hearing",
        lambda *_: True,
        frozenset({Rule.CERTAINTY, Rule.MARK}),
        seed=12,
        plot=plots.laggards,
    ),
    Mutation(
        "a view is the end of whoever is not in it, wherever they were",
        IncarnationHistory,
        "_follows",
        lambda *_: True,
        frozenset({Rule.CERTAINTY, Rule.MARK}),
        seed=2,
        plot=plots.halves,
    ),
    Mutation(
        "an archive that was away thinks that nobody was there meanwhile",
        IncarnationHistory,
        "unseen_intervals",
        lambda *_: [],
        frozenset({Rule.CERTAINTY, Rule.MARK}),
        seed=2,
        plot=plots.by_turns,
    ),
    Mutation(
        "archives that were left out of a view are thought to have met nobody",
        IncarnationHistory,
        "_unseen_between",
        lambda *_: [],
        frozenset({Rule.CERTAINTY, Rule.MARK}),
        seed=2,
        plot=plots.by_turns,
    ),
    Mutation(
        "a view before this one that is not known is thought to have been nobody's",
        IncarnationHistory,
        "_unseen_before",
        instead.as_if_known,
        frozenset({Rule.CERTAINTY, Rule.MARK}),
        seed=6,
        plot=plots.witnesses,
    ),
    Mutation(
        "what comes live to one that returns is thought to be new to it",
        SyncLayer,
        "_mark_uncertain",
        lambda _, batch, __: [batch],
        frozenset({Rule.MARK}),
        seed=3,
        plot=plots.machine_lost,
    ),
    Mutation(
        "a publisher that no archive has named is thought to be new to one that returns",
        SyncLayer,
        "_max_delivered_earlier",
        instead.as_if_named,
        frozenset({Rule.MARK}),
        seed=3,
        plot=plots.half_back,
    ),
    Mutation(
        "who is heard for the first time is thought to have just begun",
        ReceiveBuffer,
        "_note_new_publisher",
        instead.nothing,
        frozenset({Rule.REPEAT}),
        seed=5,
        plot=plots.half_back,
    ),
    Mutation(
        "who begins where others lag takes what old publishers still keep",
        FifoLayer,
        "_set_starts",
        instead.nothing,
        frozenset({Rule.REPEAT}),
        seed=5,
        plot=plots.newcomers,
    ),
    Mutation(
        "who begins thinks that those it joins know all that was published",
        ReceiveBuffer,
        "choose_start",
        instead.begin_behind_the_cut,
        frozenset({Rule.REPEAT}),
        seed=10,
        plot=plots.newcomers,
    ),
    Mutation(
        "the age that a publisher tells is believed, however long the report was under way",
        PublisherState,
        "is_age_reliable",
        lambda *_: True,
        frozenset({Rule.REPEAT}),
        seed=1,
        plot=plots.held_up,
    ),
    Mutation(
        "a view is taken whether it was promised or not",
        MembershipLayer,
        "_accept_view",
        instead.accept_any,
        frozenset({Rule.VIEWS}),
        seed=3,
    ),
)
