"""A priority bucket against a sorted list: messages leave in order of position, and return to it."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from recado.amqp.frames import extract_body
from recado.broker.priority_bucket import PriorityBucket
from recado.broker.run import Run

from .stage import run_of


def messages(run: Run) -> list[tuple[int, bytes]]:
    return [
        (run.first_position + i * run.stride, extract_body(content))
        for i, content in enumerate(run.contents())
    ]


class LaneMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.lane = PriorityBucket()
        self.waiting: list[tuple[int, bytes]] = []
        self.out: list[Run] = []
        self.shared: list[tuple[Run, int]] = []
        self.place = 0

    @rule(count=st.sampled_from((1, 2, 20)), alike=st.booleans(), shared=st.booleans())
    def append(self, count: int, alike: bool, shared: bool) -> None:
        """Some runs share their payloads with other queues."""
        run = run_of([b"%05d" % (self.place + i) for i in range(count)], alike=alike)
        if shared:
            self.shared.append((run, count))
            run = run.copy_for_queue()
        run.first_position = self.place
        self.place += count
        self.waiting += messages(run)
        self.lane.append(run)

    @precondition(lambda self: self.waiting)
    @rule(count=st.sampled_from((1, 2, 3, 50)))
    def take(self, count: int) -> None:
        """BKT1"""
        run = self.lane.take(count)
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
            self.lane.requeue(rest)

    @rule()
    def clear(self) -> None:
        self.lane.clear()
        self.waiting.clear()
        self.out.clear()

    @invariant()
    def the_head_is_first(self) -> None:
        """BKT2"""
        front = self.lane.front
        if self.waiting:
            assert front is not None
            assert messages(front)[0] == min(self.waiting)
        else:
            assert front is None

    @invariant()
    def what_others_have_is_untouched(self) -> None:
        for run, count in self.shared:
            assert len(run.payloads) == count


TestLaneMachine = LaneMachine.TestCase
TestLaneMachine.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)


def test_short_runs_join() -> None:
    bucket = PriorityBucket()
    for place in range(100):
        run = run_of([b"x"]).copy_for_queue()
        run.first_position = place
        bucket.append(run)
    assert len(bucket.take(100)) == 100


def test_what_is_shelved_is_fetched_when_it_is_needed() -> None:
    """BKT3"""
    shelf = [run_of([b"%d" % place]) for place in range(4)]
    for place, run in enumerate(shelf):
        run.first_position = place
    bucket = PriorityBucket(lambda: [shelf.pop(0)])
    bucket.paged_out_count = len(shelf)
    first = bucket.take(1)
    assert messages(first) == [(0, b"0")]
    bucket.requeue(first)
    assert [messages(run) for run in bucket.runs()] == [[(0, b"0")]]
    assert bucket.paged_out_count == 3
    assert [messages(bucket.take(9)) for _ in range(4)] == [[(i, b"%d" % i)] for i in range(4)]
    assert bucket.paged_out_count == 0
    assert bucket.fresh_positions == (0, 0)
