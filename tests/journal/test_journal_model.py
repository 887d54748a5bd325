"""The journal against a list, on a disk that loses power, fills up and fails: whatever the order of events."""

from __future__ import annotations

import contextlib
import errno
from itertools import pairwise

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from recado.journal.journal import Journal
from recado.simulator.disk import SimulatedDisk

SEGMENT = 200
payloads = st.binary(max_size=90)


class JournalMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.disk = SimulatedDisk()
        self.groups: list[list[tuple[int, bytes]]] = []
        self.ends: list[int] = []  # of the groups
        self.dropped: list[tuple[int, int]] = []
        self.gone = 0  # how many of these cannot come back: their removal is synced
        self.failed = False
        self.journal = Journal(self.disk, segment_bytes=SEGMENT)
        assert list(self.journal.recover()) == []

    def expected(self, start: int, end: int) -> list[tuple[int, bytes]]:
        records = [record for group in self.groups for record in group]
        return [(at, payload) for at, payload in records if start <= at < end and not self.lost(at)]

    def lost(self, position: int) -> bool:
        return any(base <= position < end for base, end in self.dropped)

    @rule(records=st.lists(payloads, min_size=1, max_size=4))
    def append(self, records: list[bytes]) -> None:
        positions = self.journal.append(*records)
        self.groups.append(list(zip(positions, records, strict=True)))
        self.ends.append(self.journal.position)

    @rule()
    def write(self) -> None:
        try:
            self.journal.write()
        except OSError as error:
            self.failed = self.failed or error.errno == errno.EIO

    @rule()
    def sync(self) -> None:
        before = self.journal.durable_position
        try:
            position = self.journal.sync()
        except OSError:
            self.failed = True
            assert self.journal.durable_position == before
        else:
            assert not self.failed
            assert before <= position == self.journal.durable_position <= self.journal.position
            self.gone = len(self.dropped)

    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        segments = self.journal.segments
        done = [part for part in segments if part.end < self.journal.durable_position]
        if done:
            segment = data.draw(st.sampled_from(done))
            self.journal.drop(segment.base)
            self.dropped.append((segment.base, segment.end))

    @rule(room=st.integers(0, 400))
    def fill(self, room: int) -> None:
        self.disk.fill(room)

    @rule()
    def make_room(self) -> None:
        self.disk.fill(None)

    @rule(after=st.integers(0, 3))
    def fail_sync(self, after: int) -> None:
        self.disk.fail_sync(after)

    @rule(data=st.data())
    def scan(self, data: st.DataObject) -> None:
        records = self.expected(0, self.journal.position)
        starts = [at for at, _ in records] + [part.base for part in self.journal.segments]
        if starts:
            start = data.draw(st.sampled_from(starts))
            end = data.draw(st.integers(start, self.journal.position + 1))
            assert list(self.journal.scan(start, end)) == self.expected(start, end)

    @rule(chance=st.integers(0, 1000))
    def lose_power(self, chance: int) -> None:
        self.disk = self.disk.crash(chance)
        self.reopen()

    @rule()
    def kill(self) -> None:
        """The process ends; its writes are still in the page cache."""
        self.disk.fill(None)
        self.reopen(self.journal.durable_position)

    @rule()
    def close(self) -> None:
        self.disk.fill(None)
        with contextlib.suppress(OSError):
            self.journal.close()
        self.reopen()

    def reopen(self, sure: int | None = None) -> None:
        durable = self.journal.durable_position
        self.journal = Journal(self.disk, segment_bytes=SEGMENT)
        while True:
            try:
                found = list(self.journal.recover())
                break
            except OSError:  # a sync that was to fail; the next will not
                self.journal = Journal(self.disk, segment_bytes=SEGMENT)
        self.failed = False
        # A removal that was not synced may be undone.
        back = {at for at, _ in found}
        self.dropped = [
            (base, end)
            for number, (base, end) in enumerate(self.dropped)
            if number < self.gone or not any(base <= at < end for at in back)
        ]
        self.gone = len(self.dropped)
        count = sum(end <= self.journal.position for end in self.ends)
        del self.groups[count:], self.ends[count:]
        assert found == self.expected(0, self.journal.position)
        assert self.journal.durable_position == self.journal.position >= durable

    @invariant()
    def everything_can_be_read(self) -> None:
        for position, payload in self.expected(0, self.journal.position)[-5:]:
            assert self.journal.read(position) == payload

    @invariant()
    def segments_are_in_order(self) -> None:
        segments = self.journal.segments
        assert all(part.sealed for part in segments[:-1])
        for before, after in pairwise(segments):
            assert before.end <= after.base
        for part in segments:
            assert self.journal.segment_base(part.base) == part.base
            assert self.journal.segment_base(part.end - 1) == part.base


JournalMachine.TestCase.settings = settings(max_examples=40)
TestJournal = JournalMachine.TestCase
