"""The unsettled deliveries of a channel, against a dictionary of tags."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from recado.amqp.frames import extract_body
from recado.broker.run import Run
from recado.broker.unacked_deliveries import UnackedDeliveries

from .stage import run_of


class UnackedMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.unacked: UnackedDeliveries[str] = UnackedDeliveries()
        self.held: dict[int, tuple[str, int]] = {}  # holder and position by tag
        self.next_tag = 1

    @rule(
        count=st.sampled_from((1, 1, 2, 5)),
        step=st.sampled_from((1, 1, 2)),
        skipped=st.sampled_from((0, 0, 3)),
        holder=st.sampled_from("ab"),
    )
    def add(self, count: int, step: int, skipped: int, holder: str) -> None:
        """The tags in between belong to auto-ack consumers."""
        self.next_tag += skipped
        run = run_of([str(self.next_tag + i).encode() for i in range(count)])
        run.first_position, run.stride = self.next_tag * (1 if step == 1 else 10), step
        self.unacked.add(self.next_tag, run, holder)
        for i in range(count):
            self.held[self.next_tag + i] = (holder, run.first_position + i * step)
        self.next_tag += count

    @rule(first=st.integers(0, 60), length=st.integers(0, 9))
    def settle(self, first: int, length: int) -> None:
        """UD2: each outstanding tag of the range, once."""
        last = first + length
        wanted = {tag: held for tag, held in self.held.items() if first <= tag <= last}
        found: dict[int, tuple[str, int]] = {}
        for entry, low, high in self.unacked.spans(first, last):
            pieces = entry.unsettled_runs(low, high)
            for run in pieces:
                assert run.stride == 1 or len(run) == 1
                for i, body in enumerate(_bodies(run)):
                    found[int(body)] = (entry.holder, run.first_position + i)
            assert self.unacked.settle(entry, low, high) == sum(map(len, pieces))
        self.unacked.compact()
        assert found == wanted
        for tag in wanted:
            del self.held[tag]

    @precondition(lambda self: self.held)
    @rule(which=st.integers(0, 60))
    def settle_one(self, which: int) -> None:
        self.settle(list(self.held)[which % len(self.held)], 0)

    @invariant()
    def it_has_what_is_held(self) -> None:
        """UD1"""
        for tag in range(self.next_tag + 2):
            assert self.unacked.has(tag) is (tag in self.held)
        assert list(self.unacked.unsettled_tags(0, self.next_tag)) == list(self.held)
        oldest = self.unacked.oldest()
        assert (None if oldest is None else oldest.oldest_tag) == min(self.held, default=None)

    @invariant()
    def a_yes_is_right(self) -> None:
        for first in range(0, self.next_tag, 3):
            for last in (first, first + 2, first + 5):
                if self.unacked.certainly_holds_all(first, last):
                    assert all(tag in self.held for tag in range(first, last + 1))


def _bodies(run: Run) -> list[bytes]:
    return [extract_body(content) for content in run.contents()]


TestUnackedMachine = UnackedMachine.TestCase
TestUnackedMachine.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)


def test_what_came_as_a_run_is_surely_held() -> None:
    unacked: UnackedDeliveries[str] = UnackedDeliveries()
    unacked.add(1, run_of([b"1", b"2"]), "a")
    unacked.add(3, run_of([b"3", b"4"]), "b")
    assert unacked.certainly_holds_all(1, 4)
    assert unacked.certainly_holds_all(2, 3)
    assert not unacked.certainly_holds_all(0, 2)
    assert not unacked.certainly_holds_all(3, 5)


def test_what_comes_one_by_one_is_one_entry() -> None:
    unacked: UnackedDeliveries[str] = UnackedDeliveries()
    for tag in range(1, 101):
        run = run_of([b"x"])
        run.first_position = tag
        unacked.add(tag, run, "a")
    assert [(low, high) for _, low, high in unacked.spans(3, 70)] == [(2, 64), (0, 6)]


def test_one_message_kept_for_ever_does_not_keep_the_rest() -> None:
    unacked: UnackedDeliveries[str] = UnackedDeliveries()
    for tag in range(1, 1002):
        unacked.add(tag, run_of([b"x"]), "a")
    for tag in range(2, 1002):
        for entry, low, high in list(unacked.spans(tag, tag)):
            unacked.settle(entry, low, high)
        unacked.compact()
    assert list(unacked.unsettled_tags(0, 2000)) == [1]
    assert len(unacked._entries) < 200  # not observable otherwise


def test_a_range_reaches_to_the_end_of_so_many_entries() -> None:
    unacked: UnackedDeliveries[str] = UnackedDeliveries()
    assert unacked.last_tag_within(0, 9, 2) == 9
    for first in (1, 4, 7):
        unacked.add(first, run_of([b"1", b"2", b"3"]), "holder")
    assert unacked.last_tag_within(0, 9, 1) == 3
    assert unacked.last_tag_within(2, 9, 2) == 6
    assert unacked.last_tag_within(2, 5, 2) == 5
    assert unacked.last_tag_within(0, 9, 3) == 9


def test_messages_are_let_go_when_they_are_settled() -> None:
    """Not in `compact`: freeing tens of thousands at once takes as long as a turn."""
    unacked: UnackedDeliveries[str] = UnackedDeliveries()
    for tag in range(1, 1001):
        run = run_of([b"x"])
        run.first_position = 2 * tag
        unacked.add(tag, run, "a")
    entries = list(unacked.spans(1, 1000))
    for entry, low, high in (*entries[:100], *entries[500:600]):
        unacked.settle(entry, low, high)
        assert not entry.run.payloads
    unacked.compact()
    assert list(unacked.unsettled_tags(1, 1000)) == [*range(101, 501), *range(601, 1001)]


def test_tags_that_were_settled_out_of_order_are_left_out() -> None:
    unacked: UnackedDeliveries[str] = UnackedDeliveries()
    unacked.add(1, run_of([b"1", b"2", b"3"]), "a")
    for entry, low, high in list(unacked.spans(2, 2)):
        unacked.settle(entry, low, high)
    assert list(unacked.unsettled_tags(0, 9)) == [1, 3]
