"""What is left out of the protocol to see whether the simulation notices.

They are put in place of a method from here alone; the code of the overlay has no switch for them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest

from bench.overlay_sim.verdict import Rule
from recado.overlay.answer_table import AnswerTable
from recado.overlay.command import Answer, TopicCommand
from recado.overlay.configuration import Arc, Configuration
from recado.overlay.delivery import MatcherGroup, NotificationDispatcher, NotificationInbox
from recado.overlay.messages import (
    Accept,
    Accepted,
    AcceptedDecision,
    Notification,
    Notify,
    PrepareBallot,
    Promised,
)
from recado.overlay.outstanding_commands import OutstandingCommands
from recado.overlay.owner import Owner
from recado.overlay.range_map import RangeMap
from recado.overlay.range_state import RangeState
from recado.overlay.reconfiguration import Reconfiguration
from recado.overlay.replica import Replica
from recado.overlay.replication import Replication
from recado.overlay.topic import Topic


class Mutation(msgspec.Struct, frozen=True):
    what: str
    owner: Any
    name: str
    """Of the attribute that is replaced."""
    instead: Any
    breaks: frozenset[Rule]
    """One of these rules must be seen to be broken."""
    seed: int | None
    """The first that shows it, as `python -m tests.overlay.sim.test_mutations` finds it. None if it needs a rare
    order of messages; then the random walks find it, or a test in `test_mutations.py`."""
    raises: bool = False
    """An assertion of the protocol itself notices it as well."""

    @contextmanager
    def in_place(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(self.owner, self.name, self.instead)
            yield


# ── replica and reconfiguration ───────────────────────────────────────────────────────────────────


def _promise_without_sealing(self: Replica, message: PrepareBallot) -> Promised | None:
    if not self.is_voter or self.state is None or self.decision is not None:
        return None
    return Promised(self.range_id, message.ballot, self.log.end, self.accepted)


def _accept_without_the_log(self: Replica, message: Accept) -> Accepted | None:
    if not self.is_voter or self.state is None or self.decision is not None:
        return None
    self.promised = message.ballot
    self.accepted = AcceptedDecision(message.ballot, message.decision)
    return Accepted(self.range_id, message.ballot)


def _take_the_shortest_log(self: Reconfiguration) -> int:
    return min(promise.end for promise in self._promises.values())


def _one_is_a_majority(self: Configuration, peers: Any) -> bool:
    return any(member in peers for member in self.members)


def _commit_all(self: Owner) -> None:
    self.replica.commit(self.replica.log.end)


def _install_anything(self: Replica, state: RangeState, entries: Any) -> bool:
    self.state = state
    self.log.__init__(state.position)  # type: ignore[misc]
    self.log.extend(state.position, entries)
    return True


def _derive_from_the_lower(
    self: Replication, replica: Replica, successor: Configuration
) -> RangeState | None:
    if not replica.is_final or replica.state is None:
        return None
    return replica.state.copy(successor.arc)


# ── state ─────────────────────────────────────────────────────────────────────────────────────────


def _find_nothing(self: AnswerTable, command: TopicCommand) -> Answer | None:
    return None


_find = AnswerTable.find


def _find_without_order(self: AnswerTable, command: TopicCommand) -> Answer | None:
    record = self._origins.get(command.id.origin.node_id)
    if record is not None:
        known = record.answers.get(command.id.number)
        return known.answer if known is not None else None
    return None


_copy = RangeState.copy


def _copy_without_answers(self: RangeState, arc: Arc | None = None) -> RangeState:
    copy = _copy(self, arc)
    copy.answers = AnswerTable()
    return copy


def _copy_and_restart(self: RangeState, arc: Arc | None = None) -> RangeState:
    copy = _copy(self, arc)
    copy.pending = {}
    return copy


def _share_topics(self: RangeState, name: str) -> Topic:
    return self.topics[name]


# ── owner and delivery ────────────────────────────────────────────────────────────────────────────


def _read_at_once(self: Owner) -> None:
    state = self.replica.state
    assert state is not None
    while self._reads:
        read = self._reads.popleft()
        command = read.waiting.command
        self.answers.append((command.id, state.read(command, read.operation)))


def _never_wait(self: Owner, command: TopicCommand) -> bool:
    return False


def _nothing(*_: object) -> None:
    pass


def _deliver_all(self: NotificationInbox, notification: Notification) -> list[Any]:
    return [(each, notification) for each in notification.subscriptions]


_receive = NotificationInbox.receive


def _receive_any(self: NotificationInbox, sender: Any, message: Notify) -> Any:
    self._next[sender, message.range_id] = max(
        message.first, self._next.get((sender, message.range_id), 1)
    )
    return _receive(self, sender, message)


def _keep_the_group(group: MatcherGroup, position: int) -> MatcherGroup:
    return group


_matcher = NotificationDispatcher._matcher


def _keep_the_matcher(self: NotificationDispatcher, topic: Topic) -> Any:
    return self._matchers.get(topic.name) or _matcher(self, topic)


def _acknowledge_all(self: NotificationDispatcher, peer: Any, message: Any) -> None:
    stream = self._streams.get(peer)
    while stream is not None and stream.in_flight:
        item = stream.in_flight.popleft()
        stream.acknowledged += 1
        stream.removed(item)
        self._finish(item)


# ── commands ──────────────────────────────────────────────────────────────────────────────────────


def _submit_at_once(self: OutstandingCommands, command: Any) -> None:
    self._waiting.setdefault(command.topic, deque()).append(command)
    self._ready[command.topic] = None


MUTATIONS = (
    Mutation(
        "a promise does not seal",
        Replica,
        "prepare",
        _promise_without_sealing,
        frozenset({Rule.LOST, Rule.FIELD, Rule.MISSED, Rule.TWICE, Rule.OWNER}),
        None,
        raises=True,
    ),
    Mutation(
        "the shortest log is taken",
        Reconfiguration,
        "_longest_log",
        _take_the_shortest_log,
        frozenset({Rule.LOST, Rule.FIELD, Rule.MISSED}),
        None,
        raises=True,
    ),
    Mutation(
        "one member is a majority",
        Configuration,
        "is_majority",
        _one_is_a_majority,
        frozenset({Rule.LOST, Rule.FIELD, Rule.MISSED, Rule.OWNER}),
        None,
        raises=True,
    ),
    Mutation(
        "the owner commits alone",
        Owner,
        "commit",
        _commit_all,
        frozenset({Rule.LOST, Rule.FIELD, Rule.MISSED}),
        None,
        raises=True,
    ),
    Mutation(
        "a decision is accepted without the log",
        Replica,
        "accept",
        _accept_without_the_log,
        frozenset({Rule.LOST, Rule.FIELD, Rule.MISSED, Rule.PROGRESS, Rule.PLACED}),
        None,
        raises=True,
    ),
    Mutation(
        "an accepted decision is ignored",
        Reconfiguration,
        "_highest_accepted",
        lambda self: None,
        frozenset({Rule.LOST, Rule.FIELD, Rule.OWNER, Rule.MISSED}),
        None,
        raises=True,
    ),
    Mutation(
        "epochs that are over are entered again",
        RangeMap,
        "is_superseded",
        lambda *_: False,
        frozenset({Rule.LOST, Rule.FIELD, Rule.OWNER, Rule.PLACED, Rule.PROGRESS}),
        1,
        raises=True,
    ),
    Mutation(
        "state is dropped before the successors have it",
        Replication,
        "_is_confirmed",
        lambda *_: True,
        frozenset({Rule.LOST, Rule.PROGRESS, Rule.PLACED}),
        5,
    ),
    Mutation(
        "an older state is installed",
        Replica,
        "install",
        _install_anything,
        frozenset({Rule.LOST, Rule.FIELD, Rule.MISSED}),
        None,
        raises=True,
    ),
    Mutation(
        "commands are executed as often as they arrive",
        AnswerTable,
        "find",
        _find_nothing,
        frozenset({Rule.TWICE}),
        3,
    ),
    Mutation(
        "late copies of commands that were given up are executed",
        AnswerTable,
        "find",
        _find_without_order,
        frozenset({Rule.TWICE, Rule.ORDER}),
        None,
    ),
    Mutation(
        "answers do not move with a range",
        RangeState,
        "copy",
        _copy_without_answers,
        frozenset({Rule.TWICE}),
        10,
    ),
    Mutation(
        "unfinished deliveries do not move with a range",
        RangeState,
        "copy",
        _copy_and_restart,
        frozenset({Rule.MISSED}),
        None,
    ),
    Mutation(
        "copies of a range share topics that change",
        RangeState,
        "_own",
        _share_topics,
        frozenset({Rule.TWICE, Rule.LOST, Rule.FIELD}),
        None,
        raises=True,
    ),
    Mutation(
        "reads need no majority",
        Owner,
        "_read",
        _read_at_once,
        frozenset({Rule.FIELD, Rule.LOST, Rule.ORDER}),
        None,
    ),
    Mutation(
        "commands of upper layers are interrupted",
        Owner,
        "_must_wait",
        _never_wait,
        frozenset({Rule.LOST, Rule.TWICE}),
        1,
    ),
    Mutation(
        "a new owner does not resume deliveries",
        Owner,
        "_resume_deliveries",
        _nothing,
        frozenset({Rule.MISSED}),
        None,
    ),
    Mutation(
        "a subscriber does not recognize what it has had",
        NotificationInbox,
        "_unseen",
        _deliver_all,
        frozenset({Rule.REPEATED}),
        4,
    ),
    Mutation(
        "a subscriber takes notifications as they come",
        NotificationInbox,
        "receive",
        _receive_any,
        frozenset({Rule.MISSED, Rule.ORDER}),
        3,
    ),
    Mutation(
        "a subscription gets what was published before it",
        NotificationDispatcher,
        "_older",
        staticmethod(_keep_the_group),
        frozenset({Rule.PHANTOM}),
        10,
    ),
    Mutation(
        "matchers are not renewed",
        NotificationDispatcher,
        "_matcher",
        _keep_the_matcher,
        frozenset({Rule.MISSED, Rule.REPORT}),
        1,
    ),
    Mutation(
        "any acknowledgement is for all",
        NotificationDispatcher,
        "acknowledge",
        _acknowledge_all,
        frozenset({Rule.MISSED}),
        3,
    ),
    Mutation(
        "batches of one topic overtake each other",
        OutstandingCommands,
        "submit",
        _submit_at_once,
        frozenset({Rule.ORDER, Rule.PERMISSION, Rule.PROGRESS}),
        None,
        raises=True,
    ),
    Mutation(
        "a merge forgets the upper range",
        Replication,
        "_derive",
        _derive_from_the_lower,
        frozenset({Rule.LOST, Rule.FIELD, Rule.TWICE, Rule.MISSED, Rule.PROGRESS}),
        4,
    ),
    Mutation(
        "the upper range does not go on alone",
        Replication,
        "_continue_alone",
        _nothing,
        frozenset({Rule.PROGRESS}),
        None,
    ),
    Mutation(
        "permissions are not checked",
        Topic,
        "refusal",
        _nothing,
        frozenset({Rule.PERMISSION}),
        1,
    ),
)
