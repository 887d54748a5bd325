"""Messages that are held back while later ones of their sender are stored: they are stored at last, and none
twice."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from recado.actors.durable_mailbox import journal
from recado.actors.durable_mailbox.journal import MailboxJournal, MessageStored, PendingMessage
from recado.actors.durable_mailbox.sequence_set import RANGES_MAX
from recado.actors.remote.inbound.deduplication import Deduplicator, FrameStatus
from recado.journal.disk import Disk, MemoryDisk
from recado.simulator.disk import SimulatedDisk
from tests.actors.durable_mailbox.test_journal import opened, wait_until_synced

SENDER = b"s" * 16
FEW = 4


def enter(mailbox_journal: MailboxJournal, number: int) -> PendingMessage | None:
    return mailbox_journal.append(
        lambda n: MessageStored(n, "box", (SENDER, number), 0, "", False, 1, "", b"")
    )


class Quiet(MailboxJournal):
    """It syncs when it is asked to, and at no other time: so a run can be repeated."""

    def _request_sync_if_large(self) -> None:
        pass


class Incarnation:
    """Of a node with a durable mailbox: what it knows of what came, and what its disk knows."""

    def __init__(self, disk: Disk, gaps: int = FEW) -> None:
        self.replay = Deduplicator(ranges_max=gaps)
        self.mailbox_journal = Quiet(disk, 400, self.replay.received_from, gaps)

    def comes(self, number: int) -> None:
        assert self.replay.history_of(SENDER).status_of(number) is FrameStatus.NEW
        self.replay.mark_pending(SENDER, number)

    def settle(self, number: int) -> None:
        self.replay.history_of(SENDER).settle(number)


class HeldBack(RuleBasedStateMachine):
    """A sender counts what it sends through a broker, which gives again what was not settled, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.number = 0
        # Came and is not settled; whether it is for a durable mailbox.
        self.held: dict[int, bool] = {}
        self.entered: list[int] = []  # and perhaps not on disk
        self.settled: list[int] = []
        self.plain: list[int] = []
        self.handled: set[int] = set()
        self.most = 0  # unsettled at a time
        # Given, to later incarnations: until all have come, there may be so many more ranges.
        self.again = 0

    @initialize(seed=st.integers(0, 1000))
    def begin(self, seed: int) -> None:
        self.disk = SimulatedDisk(seed)
        self.incarnation = Incarnation(self.disk)

    @rule(count=st.integers(1, 3))
    def lose(self, count: int) -> None:
        """It is never seen: the sender had no space for it."""
        self.number += count

    @rule(durables=st.lists(st.booleans(), min_size=1, max_size=3))
    def hold(self, durables: list[bool]) -> None:
        for durable in durables:
            self.number += 2
            self.incarnation.comes(self.number)
            self.held[self.number] = durable

    @rule(durable=st.booleans(), times=st.integers(1, 2 * FEW))
    def take(self, durable: bool, times: int) -> None:
        """In turns with the other kind, so that there are gaps."""
        for turn in range(times):
            self.number += 1
            self.incarnation.comes(self.number)
            self._take(self.number, durable=durable is bool(turn % 2))

    def _take(self, number: int, *, durable: bool) -> None:
        if durable:
            assert enter(self.incarnation.mailbox_journal, number) is not None
            self.entered.append(number)
        else:
            self.incarnation.settle(number)
            self.plain.append(number)

    @precondition(lambda self: self.held)
    @rule(which=st.integers(0, 1000))
    def release(self, which: int) -> None:
        number = sorted(self.held)[which % len(self.held)]
        self._take(number, durable=self.held.pop(number))

    @rule()
    def sync(self) -> None:
        assert wait_until_synced(self.incarnation.mailbox_journal) is None
        for number in self.entered:
            self.incarnation.settle(number)
        self.settled += self.entered
        self.entered.clear()

    @rule()
    def write(self) -> None:
        self.incarnation.mailbox_journal.flush()

    @rule(count=st.integers(1, 5))
    def handle(self, count: int) -> None:
        for entry, record in self.incarnation.mailbox_journal.pending_of("box")[:count]:
            assert record.origin is not None
            self.incarnation.mailbox_journal.record_handled(entry)
            self.handled.add(record.origin[1])

    @rule()
    def repeat(self) -> None:
        """Whatever came before."""
        look = self.incarnation.replay.history_of(SENDER).status_of
        assert all(look(number) is FrameStatus.SETTLED for number in self.plain)
        assert all(look(number) is FrameStatus.PENDING for number in [*self.held, *self.entered])
        assert all(
            enter(self.incarnation.mailbox_journal, n) is None
            for n in [*self.entered, *self.settled]
        )

    @rule(waits=st.booleans())
    def close(self, waits: bool) -> None:
        before = self._known()
        self.incarnation.mailbox_journal.close()
        self.incarnation = Incarnation(self.disk)
        assert self._known() == before
        self._given_again(waits)

    def _known(self) -> set[int]:
        known = self.incarnation.mailbox_journal._sequences_of(SENDER)
        return {number for number in range(self.number) if number in known}

    @rule(waits=st.booleans())
    def lose_power(self, waits: bool) -> None:
        with self.disk._lock:
            after = self.disk.crash()
        self.incarnation.mailbox_journal.close()
        self.disk = after
        self.incarnation = Incarnation(after)
        self._given_again(waits)

    def _given_again(self, waits: bool) -> None:
        """In order; who it is for is there from the start, unless it waits."""
        self.plain.clear()  # a node remembers until it ends
        assert all(enter(self.incarnation.mailbox_journal, n) is None for n in self.settled)
        for number in sorted([*self.held, *self.entered]):
            self.incarnation.comes(number)
            self.again += 1
            if number in self.entered:
                enter(self.incarnation.mailbox_journal, number)  # if it was not safe, it is new
            elif not waits:
                self._take(number, durable=self.held.pop(number))
        left = {
            record.origin[1]
            for _, record in self.incarnation.mailbox_journal.pending_of("box")
            if record.origin
        }
        came = {*self.entered, *self.settled}
        assert came - self.handled <= left <= came

    @invariant()
    def is_bounded(self) -> None:
        self.most = max(self.most, len(self.held) + len(self.entered))
        for each in (
            self.incarnation.mailbox_journal._sequences_of(SENDER),
            self.incarnation.replay.history_of(SENDER),
        ):
            each.check()
            assert each.range_count <= FEW + self.again
            assert len(each.excluded) <= self.most + FEW

    def teardown(self) -> None:
        self.incarnation.mailbox_journal.close()


TestHeldBack = HeldBack.TestCase
TestHeldBack.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)


def alternately(incarnation: Incarnation) -> None:
    """Much that is sent later than 1: every other for a durable mailbox."""
    for number in range(2, 3 * RANGES_MAX):
        incarnation.comes(number)
        if number % 2:
            assert enter(incarnation.mailbox_journal, number) is not None
        incarnation.settle(number)


@pytest.mark.parametrize("incarnations", [1, 2])
def test_what_is_held_back_is_new_behind_any_number_of_others(incarnations: int) -> None:
    disk = MemoryDisk()
    incarnation = Incarnation(disk, RANGES_MAX)
    incarnation.comes(1)
    alternately(incarnation)
    if incarnations == 2:
        incarnation.mailbox_journal.close()
        incarnation = Incarnation(disk, RANGES_MAX)
        incarnation.comes(1)
    assert enter(incarnation.mailbox_journal, 1) is not None
    assert enter(incarnation.mailbox_journal, 1) is None
    assert enter(incarnation.mailbox_journal, 3) is None
    incarnation.mailbox_journal.close()


def test_what_comes_for_the_first_time_is_new_behind_any_number_of_others() -> None:
    """It took another way. What filled the gaps is known, so nothing was taken for settled."""
    incarnation = Incarnation(MemoryDisk(), RANGES_MAX)
    alternately(incarnation)
    incarnation.comes(1)
    assert enter(incarnation.mailbox_journal, 1) is not None
    incarnation.mailbox_journal.close()


def test_what_is_given_again_is_new_behind_others_that_are() -> None:
    """The first of them may be one gap too many. The next has not come yet, in this incarnation."""
    disk, taken = MemoryDisk(), range(2 * FEW, 4 * FEW, 2)
    incarnation = Incarnation(disk)
    for number in taken:
        assert enter(incarnation.mailbox_journal, number) is not None
    incarnation.mailbox_journal.close()
    incarnation = Incarnation(disk)
    given = range(2, 2 * FEW, 2)
    for number in given:
        incarnation.comes(number)
        assert enter(incarnation.mailbox_journal, number) is not None
    for number in (*given, *taken):
        assert enter(incarnation.mailbox_journal, number) is None
    incarnation.comes(8 * FEW)
    assert enter(incarnation.mailbox_journal, 8 * FEW) is not None
    assert (
        incarnation.mailbox_journal._sequences_of(SENDER).range_count <= FEW
    )  # all that was to come again has
    incarnation.mailbox_journal.close()


def test_wherever_the_journal_was_cut_what_is_known_is_there() -> None:
    """What was narrowed is noted behind the message that made it necessary."""
    disk, numbers = MemoryDisk(), range(2, 40, 2)
    mailbox_journal = MailboxJournal(disk, ranges_max=FEW)
    for number in numbers:
        assert enter(mailbox_journal, number) is not None
    mailbox_journal.flush()
    ((name, whole),) = ((n, bytes(f)) for n, f in disk.files.items() if n.endswith(".journal"))
    mailbox_journal.close()
    found = set[int]()
    for size in range(len(whole.rstrip(bytes(1)))):
        torn = MemoryDisk()
        torn.files[name] = bytearray(whole[:size])
        with opened(torn) as mailbox_journal:
            left = [
                record.origin[1] for _, record in mailbox_journal.pending_of("box") if record.origin
            ]
            assert left == [n for n in numbers if n in mailbox_journal._sequences_of(SENDER)]
            found.add(len(left))
    assert found == {*range(len(numbers))}  # it was never whole


def test_a_journal_without_notes_of_what_is_held_is_read_and_narrowed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As written before there were any: only what entered is known, however many gaps that makes."""
    disk = MemoryDisk()
    with monkeypatch.context() as patch:
        patch.setattr(MailboxJournal, "_compact_sequences", lambda *of: None)
        patch.setattr(journal, "Snapshot", _old_summary)
        with opened(disk, 2_000) as mailbox_journal:
            for number in range(2, 600, 2):
                entry = enter(mailbox_journal, number)
                assert entry is not None
                mailbox_journal.record_handled(entry)
                assert wait_until_synced(mailbox_journal) is None
    incarnation = Incarnation(disk)
    assert incarnation.mailbox_journal._sequences_of(SENDER).range_count > FEW
    incarnation.comes(1)
    incarnation.comes(602)
    assert enter(incarnation.mailbox_journal, 602) is not None
    assert incarnation.mailbox_journal._sequences_of(SENDER).range_count <= FEW
    assert all(enter(incarnation.mailbox_journal, number) is None for number in range(2, 600, 2))
    assert enter(incarnation.mailbox_journal, 1) is not None
    incarnation.mailbox_journal.close()


def _old_summary(following: int, origins: dict[bytes, Any]) -> tuple[Any, ...]:
    return (4, following, {each: (r.floor, r.starts, r.ends) for each, r in origins.items()})
