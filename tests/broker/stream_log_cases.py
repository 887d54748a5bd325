"""Tests for every implementation of a stream log (in memory and on disk), and a state machine."""

from collections.abc import Callable

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from recado.amqp.frames import extract_body
from recado.amqp.properties import Properties
from recado.broker.run import Run
from recado.broker.stream_log import READ_BYTES, StreamLog

from .stage import run_of

NewLog = Callable[[int], StreamLog]


def bodies(runs: list[Run]) -> list[bytes]:
    return [extract_body(content) for run in runs for content in run.contents()]


def read_all(log: StreamLog, offset: int = 0, end: int | None = None) -> list[tuple[int, bytes]]:
    """Return offsets and bodies from an offset on."""
    end = log.next_offset if end is None else end
    found: list[tuple[int, bytes]] = []
    while runs := log.read(offset, end):
        for run in runs:
            assert run.stride == 1
            assert run.taken_count == 0
            found += enumerate(bodies([run]), run.first_position)
        offset = found[-1][0] + 1
    return found


def append(log: StreamLog, *texts: bytes, now: int = 0, alike: bool = False) -> None:
    log.append(run_of(texts, alike=alike), now)


class StreamLogCases:
    """Derive from this class, and provide the fixture `new_log`."""

    def test_offsets_count_messages_from_0(self, new_log: NewLog) -> None:
        log = new_log(4096)
        assert (log.first_offset, log.next_offset) == (0, 0)
        append(log, b"a", b"bb", b"")
        append(log, b"c", b"d", alike=True)
        assert (log.first_offset, log.next_offset) == (0, 5)
        assert read_all(log) == [(0, b"a"), (1, b"bb"), (2, b""), (3, b"c"), (4, b"d")]
        assert read_all(log, 1, 4) == [(1, b"bb"), (2, b""), (3, b"c")]
        assert log.read(5, 5) == []

    def test_what_was_read_is_as_it_was_published(self, new_log: NewLog) -> None:
        log = new_log(4096)
        properties = Properties(content_type="text/plain", headers={"a": 1}, message_id="7")
        for alike in (True, False):
            run = run_of([b"x", b"y"], properties, alike=alike, channel=7, frame_max=5000)
            wanted = run.contents()
            log.append(run, 0)
            (found,) = log.read(log.next_offset - 2, log.next_offset)
            assert found.contents() == wanted
            assert (found.channel, found.frame_max) == (7, 5000)
            assert (found.origin.exchange, found.origin.routing_key) == ("", "key")

    def test_readers_do_not_disturb_each_other(self, new_log: NewLog) -> None:
        log = new_log(4096)
        append(log, b"a", b"b", b"c")
        first, second = log.read(0, 3), log.read(0, 3)
        first[0].take(2)
        assert bodies(second) == [b"a", b"b", b"c"]
        append(log, b"d")
        assert bodies(second) == [b"a", b"b", b"c"]

    def test_little_is_read_at_a_time(self, new_log: NewLog) -> None:
        log = new_log(16 << 20)
        for i in range(40):
            append(log, b"x" * (READ_BYTES // 10), now=i)
        assert 10 <= len(bodies(log.read(5, 40))) < 15
        assert len(read_all(log)) == 40

    def test_what_came_when(self, new_log: NewLog) -> None:
        log = new_log(4096)
        assert log.offset_at(5) == 0
        for i in range(30):
            append(log, b"%d" % i * 300, b"+", now=10 * i)
        assert [log.offset_at(time) for time in (0, 1, 10, 149, 150, 290, 291)] == [
            0,
            2,
            2,
            30,
            30,
            58,
            60,
        ]

    def test_what_came_behind_something_large(self, new_log: NewLog) -> None:
        log = new_log(4096)
        append(log, b"x" * 500_000, now=5)
        append(log, b"y", now=6)
        assert log.offset_at(6) == 1
        assert read_all(log, 1) == [(1, b"y")]

    def test_time_does_not_go_backwards(self, new_log: NewLog) -> None:
        log = new_log(4096)
        for time in (50, 20, 60):
            append(log, b"x", now=time)
        assert [log.offset_at(time) for time in (20, 50, 51, 60)] == [0, 0, 2, 2]

    def test_the_oldest_go_when_there_are_too_many_bytes(self, new_log: NewLog) -> None:
        log = new_log(4096)
        for i in range(40):
            append(log, b"%03d" % i * 333)
        log.trim(None, None, log.next_offset)
        assert log.first_offset == 0
        log.trim(20_000, None, log.next_offset)
        assert 15 <= log.next_offset - log.first_offset < 25
        kept = read_all(log)
        assert kept == [(i, b"%03d" % i * 333) for i in range(log.first_offset, 40)]
        log.trim(0, None, log.next_offset)
        assert log.next_offset - log.first_offset <= 4
        assert read_all(log, 0) == kept[-(log.next_offset - log.first_offset) :]

    def test_the_oldest_go_when_their_time_has_come(self, new_log: NewLog) -> None:
        log = new_log(4096)
        for i in range(40):
            append(log, b"x" * 1000, now=i)
        newest = log.trim(None, 20, log.next_offset)
        assert 16 <= log.first_offset <= 20
        assert newest is not None
        assert 20 <= newest < 24
        assert log.trim(None, newest, log.next_offset) == newest
        assert log.trim(None, 1000, log.next_offset) is None
        assert 36 <= log.first_offset < 40

    def test_one_that_is_safe_stays(self, new_log: NewLog) -> None:
        log = new_log(4096)
        for i in range(40):
            append(log, b"x" * 1000, now=i)
        assert log.trim(0, 1000, 0) is None
        assert log.first_offset == 0
        log.trim(0, None, 20)
        assert 15 < log.first_offset < 20

    def test_a_message_larger_than_a_segment(self, new_log: NewLog) -> None:
        log = new_log(4096)
        for size in (10_000, 1, 200_000, 2):
            append(log, b"x" * size)
        assert [len(body) for _, body in read_all(log)] == [10_000, 1, 200_000, 2]


class StreamLogMachine(RuleBasedStateMachine):
    """A log against a list. Derive from this class, and provide `new_log`."""

    def __init__(self) -> None:
        super().__init__()
        self.log = self.new_log()
        self.model: list[tuple[int, bytes]] = []  # time and body by offset
        self.now = 1000

    def new_log(self) -> StreamLog:
        raise NotImplementedError

    @rule(
        count=st.integers(1, 5),
        size=st.sampled_from((0, 10, 500, 3000)),
        alike=st.booleans(),
        passed=st.sampled_from((-5, 0, 0, 1, 10)),
    )
    def append(self, count: int, size: int, alike: bool, passed: int) -> None:
        self.now += passed
        texts = [b"%05d" % (len(self.model) + i) + b"x" * size for i in range(count)]
        append(self.log, *texts, now=self.now, alike=alike)
        time = max(self.now, self.model[-1][0] if self.model else self.now)
        self.model += [(time, text) for text in texts]

    @rule(most=st.none() | st.integers(0, 30_000), age=st.none() | st.integers(0, 30))
    def trim(self, most: int | None, age: int | None) -> None:
        oldest = None if age is None else self.now - age
        before = self.log.first_offset
        newest = self.log.trim(most, oldest, self.log.next_offset)
        assert before <= self.log.first_offset <= max(self.log.next_offset - 1, 0)
        if most is None and oldest is None:
            assert self.log.first_offset == before
        elif most is None and oldest is not None:
            assert all(time < oldest for time, _ in self.model[before : self.log.first_offset])
        if newest is not None:
            assert newest in {time for time, _ in self.model[self.log.first_offset :]}

    @rule(share=st.floats(0, 1), length=st.integers(0, 20))
    def read(self, share: float, length: int) -> None:
        offset = int(share * len(self.model))
        end = min(offset + length, self.log.next_offset)
        wanted = range(max(offset, self.log.first_offset), end)
        assert read_all(self.log, offset, end) == [(i, self.model[i][1]) for i in wanted]

    @rule(back=st.integers(-10, 60))
    def look_up(self, back: int) -> None:
        time = self.now - back
        wanted = (
            i for i in range(self.log.first_offset, len(self.model)) if self.model[i][0] >= time
        )
        assert self.log.offset_at(time) == next(wanted, len(self.model))

    @invariant()
    def counts(self) -> None:
        assert self.log.next_offset == len(self.model)
