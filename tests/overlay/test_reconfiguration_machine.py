"""Three members and any order of messages: what is delivered, repeated and lost, who proposes and who crashes is chosen
by Hypothesis, and by random walks with a seed, which are many more in the same time."""

from __future__ import annotations

from random import Random
from typing import Final

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    rule,
)

from recado.overlay.command import CommandId, Refused, SetField, TopicCommand
from recado.overlay.configuration import WHOLE_RING, Configuration
from recado.overlay.identifier import NodeId, topic_key
from recado.overlay.messages import (
    Accept,
    Accepted,
    Append,
    Canvass,
    Decided,
    Decision,
    FetchLog,
    LogMissing,
    LogSuffix,
    Outvoted,
    PrepareBallot,
    Promised,
    RangeMessage,
    Stored,
    Willing,
)
from recado.overlay.owner import Owner
from recado.overlay.peer_address import Incarnation, NetworkId, PeerAddress
from recado.overlay.range_state import CommandEntry, Entry, RangeState
from recado.overlay.reconfiguration import Reconfiguration, Stage
from recado.overlay.replica import Replica

from .sim.mutations import MUTATIONS

NODES: Final = tuple(
    PeerAddress(NodeId(number << 120), Incarnation(1), NetworkId(1), f"n{number}:1")
    for number in (1, 2, 3)
)
FIRST: Final = Configuration(WHOLE_RING, 1, NODES, NODES[0])


class Members:
    def __init__(self) -> None:
        self.now = 0.0
        self.replicas = {node: Replica(FIRST, node, RangeState()) for node in NODES}
        self.owner = Owner(self.replicas[NODES[0]], NODES[0], {}, self.now)
        self.attempts: dict[PeerAddress, Reconfiguration] = {}
        self.crashed: PeerAddress | None = None
        self.post: list[tuple[PeerAddress, PeerAddress, RangeMessage]] = []
        self.logs: dict[PeerAddress, list[Entry]] = {}
        self.answered: list[CommandId] = []
        self.decisions: list[Decision] = []
        self.submitted = 0

    # ── what the members do ───────────────────────────────────────────────────────────────────────

    def _collect(self) -> None:
        """Post what the members want to send, and note what they answer and decide."""
        if self.crashed != NODES[0]:
            self.owner.execute(self.now)
            self.owner.flush(self.now)
            self.post += [(NODES[0], to, message) for to, message in self.owner.outbox]
            self.owner.outbox.clear()
            for command, answer in self.owner.answers:
                assert isinstance(answer, Refused), "there is no topic; that is an answer as well"
                self.answered.append(command)
            self.owner.answers.clear()
        for node, attempt in list(self.attempts.items()):
            self.post += [(node, to, message) for to, message in attempt.outbox]
            attempt.outbox.clear()
            if attempt.stage is Stage.DECIDED and attempt.decision is not None:
                del self.attempts[node]
                self._decide(node, attempt.decision)

    def _decide(self, node: PeerAddress, decision: Decision) -> None:
        replica = self.replicas[node]
        self.decisions.append(decision)
        first = replica.log.first
        entries = replica.log.entries(first, decision.end - first)
        self.logs[node] = list(entries)
        self.post += [(node, to, Decided(FIRST, decision, first, entries)) for to in NODES]

    def submit(self, count: int) -> None:
        if self.crashed == NODES[0] or not self.owner.replica.is_open:
            return
        for _ in range(count):
            self.submitted += 1
            command = CommandId(NODES[1], self.submitted)
            self.owner.submit(
                TopicCommand(command, f"t{self.submitted}", topic_key("t"), SetField("f", b"v")),
                self.now,
            )
        self._collect()

    def propose(self, number: int) -> None:
        node = NODES[number]
        replica = self.replicas[node]
        if node == self.crashed or node in self.attempts or replica.decision is not None:
            return

        def choose(end: int, promised: list[PeerAddress]) -> Decision:
            successor = Configuration(WHOLE_RING, 2, tuple(sorted(promised, key=NODES.index)), node)
            return Decision(end, (successor,))

        self.attempts[node] = Reconfiguration(replica, node, choose, self.now)
        self._collect()

    def wait(self, seconds: float) -> None:
        self.now += seconds
        for attempt in self.attempts.values():
            attempt.tick(self.now)
        self._collect()

    def crash(self, number: int) -> None:
        if self.crashed is None:
            self.crashed = NODES[number]
            self.attempts.pop(self.crashed, None)

    # ── the network ───────────────────────────────────────────────────────────────────────────────

    def deliver(self, at: int, keep: bool = False) -> None:
        if at < len(self.post):
            self._deliver(*(self.post[at] if keep else self.post.pop(at)))

    def lose(self, at: int) -> None:
        if at < len(self.post):
            del self.post[at]

    def _deliver(self, source: PeerAddress, target: PeerAddress, message: RangeMessage) -> None:
        if target == self.crashed:
            return
        replica, attempt = self.replicas[target], self.attempts.get(target)
        answer: RangeMessage | None = None
        match message:
            case Append():
                answer = replica.store(message)
            case Stored():
                self.owner.stored(source, message, self.now)
            case Canvass() if replica.decision is None:
                answer = Willing(replica.range_id)
            case PrepareBallot():
                answer = replica.prepare(message)
            case Accept():
                answer = replica.accept(message)
            case FetchLog(range_id, first):
                answer = LogSuffix(range_id, first, replica.log.entries(first))
            case Decided(_, decision, first, entries):
                replica.learn(decision, first, entries)
                self.decisions.append(decision)
            case Canvass():
                pass  # it is decided
            case _ if attempt is None:
                pass
            case Willing():
                attempt.willing(source, self.now)
            case Promised():
                attempt.promised(source, message, self.now)
            case Accepted(_, ballot):
                attempt.accepted(source, ballot, self.now)
            case Outvoted():
                attempt.outvoted(message, self.now)
            case LogMissing():
                attempt.log_missing(source, message)
            case LogSuffix():
                attempt.fetched(message, self.now)
            case _:
                raise AssertionError(message)
        if answer is not None:
            self.post.append((target, source, answer))
        self._collect()

    # ── the guarantees ────────────────────────────────────────────────────────────────────────────

    def check(self) -> None:
        assert len({(each.end, each.successors) for each in self.decisions}) <= 1
        for entries in self.logs.values():
            final = [each.command.id for each in entries if isinstance(each, CommandEntry)]
            assert set(self.answered) <= set(final), "answered commands are in the final log"
        for decision in self.decisions[:1]:
            holders = [
                replica
                for replica in self.replicas.values()
                if replica.accepted is not None
                and replica.accepted.decision == decision
                and replica.log.end >= decision.end
            ]
            assert len(holders) >= FIRST.majority, "who accepts has the final state"


PLACES = st.integers(0, 30)


class MembersMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.members = Members()

    @rule(count=st.integers(1, 3))
    def submit(self, count: int) -> None:
        self.members.submit(count)

    @rule(number=st.integers(0, 2))
    def propose(self, number: int) -> None:
        self.members.propose(number)

    @rule(seconds=st.sampled_from((0.25, 1.0, 2.0)))
    def wait(self, seconds: float) -> None:
        self.members.wait(seconds)

    @rule(number=st.integers(0, 2))
    def crash(self, number: int) -> None:
        self.members.crash(number)

    @rule(at=PLACES, keep=st.booleans())
    def deliver(self, at: int, keep: bool) -> None:
        self.members.deliver(at, keep)

    @rule(count=st.integers(1, 12))
    def deliver_oldest(self, count: int) -> None:
        for _ in range(count):
            self.members.deliver(0)

    @rule(at=PLACES)
    def lose(self, at: int) -> None:
        self.members.lose(at)

    @invariant()
    def check(self) -> None:
        self.members.check()


MembersMachine.TestCase.settings = settings(
    max_examples=60,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
TestMembers = MembersMachine.TestCase


def walk(seed: int) -> None:
    """Take random steps; most deliver a message, and some members have bad links."""
    random = Random(seed)
    members = Members()
    lossy = random.choice((0.0, 0.1, 0.4))
    for _ in range(random.randint(20, 80)):
        draw = random.random()
        if draw < 0.06:
            members.submit(random.randint(1, 2))
        elif draw < 0.11:
            members.propose(random.randrange(3))
        elif draw < 0.15:
            members.wait(random.choice((0.25, 1.0)))
        elif draw < 0.155:
            members.crash(random.randrange(3))
        elif members.post:
            at = random.randrange(min(len(members.post), random.choice((1, 4, 30))))
            if random.random() < lossy:
                members.lose(at)
            else:
                members.deliver(at, keep=random.random() < 0.05)
    members.check()


def test_random_walks_decide_once_and_lose_nothing() -> None:
    for seed in range(1_500):
        walk(seed)


WALKED: Final = (
    "a promise does not seal",
    "the shortest log is taken",
    "one member is a majority",
    "the owner commits alone",
    "a decision is accepted without the log",
    "an accepted decision is ignored",
)


@pytest.mark.parametrize("what", WALKED)
def test_random_walks_notice_what_is_left_out(what: str) -> None:
    (mutation,) = (each for each in MUTATIONS if each.what == what)
    with mutation.in_place(), pytest.raises(AssertionError):
        _walk_often()


def _walk_often() -> None:
    for seed in range(20_000):
        walk(seed)
