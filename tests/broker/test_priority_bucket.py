"""A priority bucket against a sorted list: messages leave in order of position, and return to it."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from recado.amqp.frames import extract_body
from recado.broker.priority_bucket import PriorityBucket, ReadLimits
from recado.broker.run import Run

from .stage import run_of


def messages(run: Run) -> list[tuple[int, bytes]]:
    return [
        (run.first_position + i * run.stride, extract_body(content))
        for i, content in enumerate(run.contents())
    ]


def runs_of(count: int) -> ReadLimits:
    return ReadLimits(message_count=1 << 20, byte_count=1 << 20, run_count=count)


class PriorityBucketMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.bucket = PriorityBucket()
        self.waiting: list[tuple[int, bytes]] = []
        self.out: list[Run] = []
        self.shared: list[tuple[Run, int]] = []
        self.next_position = 0

    @rule(count=st.sampled_from((1, 2, 20)), alike=st.booleans(), shared=st.booleans())
    def append(self, count: int, alike: bool, shared: bool) -> None:
        """Some runs share their payloads with other queues."""
        run = run_of([b"%05d" % (self.next_position + i) for i in range(count)], alike=alike)
        if shared:
            self.shared.append((run, count))
            run = run.copy_for_queue()
        run.first_position = self.next_position
        self.next_position += count
        self.waiting += messages(run)
        self.bucket.append(run)

    @precondition(lambda self: self.waiting)
    @rule(count=st.sampled_from((1, 2, 3, 50)))
    def take(self, count: int) -> None:
        """BKT1"""
        run = self.bucket.take(count)
        taken = messages(run)
        assert 0 < len(taken) <= count
        assert taken == sorted(self.waiting)[: len(taken)]
        self.waiting = sorted(self.waiting)[len(taken) :]
        self.out.append(run)

    @precondition(lambda self: self.out)
    @rule(which=st.integers(0, 9), cut=st.integers(0, 3))
    def put_back(self, which: int, cut: int) -> None:
        """Completely, or without the first few, which are settled."""
        run = self.out.pop(which % len(self.out))
        if cut < len(run):
            rest = run.slice(cut, len(run)) if cut else run
            self.waiting += messages(rest)
            self.bucket.requeue(rest)

    @rule(at=st.integers(0, 30), run_count=st.integers(1, 3), every=st.integers(0, 3))
    def read(self, at: int, run_count: int, every: int) -> None:
        """From some position on; perhaps every second or third message is removed."""
        wanted = sorted(self.waiting)[at:]
        position = wanted[0][0] if wanted else self.next_position
        runs = self.bucket.read(position, runs_of(run_count))
        seen = [message for run in runs or () for message in messages(run)]
        assert runs is not None or not wanted
        assert seen == wanted[: len(seen)]
        removed = []
        if every:
            for run in runs or ():
                removed += [run.slice(i, i + 1) for i in range(0, len(run), every)]
        if removed:
            self.bucket.remove(removed)
            for run in removed:
                self.waiting.remove(*messages(run))

    @rule()
    def clear(self) -> None:
        self.bucket.clear()
        self.waiting.clear()
        self.out.clear()

    @invariant()
    def the_head_is_first(self) -> None:
        """BKT2"""
        front = self.bucket.front
        if self.waiting:
            assert front is not None
            assert messages(front)[0] == min(self.waiting)
        else:
            assert front is None

    @invariant()
    def what_others_have_is_untouched(self) -> None:
        for run, count in self.shared:
            assert len(run.payloads) == count


TestPriorityBucketMachine = PriorityBucketMachine.TestCase
TestPriorityBucketMachine.settings = settings(
    max_examples=80, stateful_step_count=40, deadline=None
)


def test_short_runs_join() -> None:
    bucket = PriorityBucket()
    for position in range(100):
        run = run_of([b"x"]).copy_for_queue()
        run.first_position = position
        bucket.append(run)
    assert len(bucket.take(100)) == 100


def test_what_is_paged_out_is_fetched_when_it_is_needed() -> None:
    """BKT3"""
    stored = [run_of([b"%d" % position]) for position in range(4)]
    for position, run in enumerate(stored):
        run.first_position = position
    bucket = PriorityBucket(lambda: [stored.pop(0)])
    for run in stored:
        bucket.count_paged_out(run)
    size = bucket.paged_out_bytes // 4
    assert size == stored[0].memory_bytes()
    first = bucket.take(1)
    assert messages(first) == [(0, b"0")]
    bucket.requeue(first)
    assert [messages(run) for run in bucket.runs()] == [[(0, b"0")]]
    assert (bucket.paged_out_count, bucket.paged_out_bytes) == (3, 3 * size)
    assert [messages(bucket.take(9)) for _ in range(4)] == [[(i, b"%d" % i)] for i in range(4)]
    assert (bucket.paged_out_count, bucket.paged_out_bytes) == (0, 0)
    assert bucket.fresh_positions == (0, 0)


def bucket_of(fresh: list[int], requeued: list[int]) -> PriorityBucket:
    """Return a bucket with runs of one message, which cannot join."""
    bucket = PriorityBucket()
    for position in fresh:
        bucket.append(one(position))
    for position in requeued:
        bucket.requeue(one(position))
    return bucket


def one(position: int) -> Run:
    run = run_of([b"%d" % position])
    run.first_position = position
    run.channel = position  # so that runs are not joined
    return run


def positions(runs: list[Run] | None) -> list[int] | None:
    return None if runs is None else [run.first_position for run in runs]


def test_requeued_runs_are_read_in_portions() -> None:
    """BKT1, also if some of them are merged already."""
    bucket = bucket_of([5, 6, 7], [4, 2, 0, 3])
    assert positions(bucket.read(0, runs_of(2))) == [0, 2]
    assert [bucket.take(1).first_position for _ in range(2)] == [0, 2]
    assert positions(bucket.read(3, runs_of(1))) == [3]
    assert positions(bucket.read(4, runs_of(2))) == [4, 5]
    assert positions(bucket.read(7, runs_of(2))) == [7]
    assert bucket.read(8, runs_of(2)) is None
    assert [bucket.take(1).first_position for _ in range(5)] == [3, 4, 5, 6, 7]


def test_what_returns_behind_the_reader_is_not_read() -> None:
    bucket = bucket_of([4, 6], [0, 2])
    assert positions(bucket.read(0, runs_of(9))) == [0, 2, 4, 6]
    early = bucket.take(1), bucket.take(1)
    for run in early:
        bucket.requeue(run)
    assert positions(bucket.read(5, runs_of(1))) == [], "2 is still among the requeued ones"
    assert positions(bucket.read(5, runs_of(1))) == [6]


def test_requeued_runs_return_between_fresh_ones() -> None:
    """A run whose consumer was slow returns between others that were merged before."""
    bucket = bucket_of([9], [1, 5])
    assert positions(bucket.read(0, runs_of(9))) == [1, 5, 9]
    for position in (7, 3, 0):
        bucket.requeue(one(position))
    gaps = [bucket.has_gaps]
    assert positions(bucket.read(0, runs_of(9))) == [0, 1, 3, 5, 7, 9]
    bucket.clear()
    assert [*gaps, bucket.has_gaps] == [True, False]
    assert bucket.read(0, runs_of(9)) is None


def test_removed_messages_leave_memory() -> None:
    bucket = PriorityBucket(list)
    run = run_of([b"0", b"1", b"2", b"3", b"4"], alike=True)
    bucket.append(run)
    before = bucket.memory_bytes
    bucket.remove([run.slice(1, 2), run.slice(3, 4)])
    assert bucket.memory_bytes == before * 3 // 5
    assert [messages(bucket.take(9)) for _ in range(3)] == [[(i, b"%d" % i)] for i in (0, 2, 4)]
    assert bucket.memory_bytes == 0


def test_runs_between_removed_ones_stay() -> None:
    bucket = bucket_of([0, 1, 2, 3], [])
    runs = bucket.read(1, runs_of(9))
    assert runs is not None
    bucket.remove([runs[0], runs[2]])
    assert positions(bucket.read(0, runs_of(9))) == [0, 2]


@pytest.mark.parametrize(
    ("message_count", "byte_count", "expected"),
    [(2, 1 << 20, [[0], [1]]), (5, 1 << 20, [[0], [1], [2, 3, 4]]), (9, 1, [[0]])],
)
def test_a_portion_is_limited(
    message_count: int, byte_count: int, expected: list[list[int]]
) -> None:
    bucket = bucket_of([0, 1], [])
    long = run_of([b"x" * 10] * 10, alike=True)
    long.first_position = 2
    bucket.append(long)
    runs = bucket.read(0, ReadLimits(message_count, byte_count, 9))
    assert runs is not None
    assert [list(range(run.first_position, run.end_position)) for run in runs] == expected


def test_a_run_that_does_not_fit_is_read_next() -> None:
    bucket = bucket_of([0], [])
    size = one(0).memory_bytes()
    large = run_of([b"x" * 1000] * 4, alike=True)
    large.first_position = 1
    bucket.append(large)
    limits = ReadLimits(message_count=9, byte_count=size + 100, run_count=9)
    assert positions(bucket.read(0, limits)) == [0]
    parts = bucket.read(1, limits)
    assert parts is not None
    assert [(part.first_position, len(part)) for part in parts] == [(1, 1)], "at least one message"
    parts = bucket.read(1, ReadLimits(9, 2 * large.memory_bytes() // 4, 9))
    assert parts is not None
    assert [len(part) for part in parts] == [2]


def test_an_estimate_of_the_paged_out_size_is_never_negative() -> None:
    stored = [run_of([bytes(1000)]), run_of([bytes(1000)])]
    bucket = PriorityBucket(lambda: [stored.pop(0)])
    bucket.paged_out_count, bucket.paged_out_bytes = 2, 500
    bucket.take(1)
    assert (bucket.paged_out_count, bucket.paged_out_bytes) == (1, 0)


def test_single_messages_of_runs_with_gaps_are_joined_at_their_positions() -> None:
    """Two consumers had received every second message."""
    first, second = run_of([b"0", b"1", b"2", b"3"]).split_round_robin(2)
    bucket, other = PriorityBucket(), PriorityBucket()
    for run in (first.slice(0, 1), second.slice(0, 1), first.slice(1, 2), second.slice(1, 2)):
        bucket.requeue(run)
    assert bucket.merge_requeued(9)
    while (popped := bucket.pop()) is not None:
        other.insert(popped)
    (joined,) = other.runs()
    assert messages(joined) == [(0, b"0"), (1, b"1"), (2, b"2"), (3, b"3")]


def test_popped_runs_are_complete_and_in_order() -> None:
    bucket = PriorityBucket(list)
    for position in (3, 6):
        run = run_of([b"%d" % (position + i) for i in range(3)], alike=True, channel=position)
        run.first_position = position
        bucket.append(run)
    assert len(bucket.take(1)) == 1
    bucket.requeue(one(1))
    popped = list(iter(bucket.pop, None))
    assert [messages(run) for run in popped] == [
        [(1, b"1")],
        [(4, b"4"), (5, b"5")],
        [(6, b"6"), (7, b"7"), (8, b"8")],
    ]
    assert [run.taken_count for run in popped] == [0, 0, 0]
    assert bucket.memory_bytes == 0
