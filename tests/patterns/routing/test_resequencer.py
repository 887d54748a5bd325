"""The resequencer against a model (PRS1 to PRS3), and its options."""

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from recado.patterns.errors import CompositionError, RejectMessageError
from recado.patterns.message import Message
from recado.patterns.routing.resequencer import Resequencer
from recado.patterns.routing.splitter import Splitter
from tests.patterns.steps import StepDriver, bodies_of

WAIT_S, HELD_MAX, FORGET_S = 10.0, 3, 100.0


class GroupModel:
    """The numbers of one group: released up to `next`, held above."""

    def __init__(self) -> None:
        self.next = 1
        self.held: set[int] = set()
        self.gap_until = 0.0
        self.last_at = 0.0

    def release(self, now: float) -> list[int]:
        released = []
        while self.next in self.held:
            self.held.remove(self.next)
            released.append(self.next)
            self.next += 1
        if released:
            self.gap_until = now + WAIT_S
        return released

    def skip(self, now: float) -> list[int]:
        self.next = min(self.held)
        return self.release(now)

    def deadline(self) -> float:
        return self.gap_until if self.held else self.last_at + FORGET_S


class ResequencerMachine(RuleBasedStateMachine):
    """Numbers of two groups in any order, repeated and missing, with kills and waits."""

    def __init__(self) -> None:
        super().__init__()
        self.driver = StepDriver(
            lambda: Resequencer(
                by="json.group",
                sequence="json.n",
                wait=WAIT_S,
                held_max=HELD_MAX,
                forget=FORGET_S,
                late_to="late",
            )
        )
        self.groups: dict[str, GroupModel] = {}

    @rule(group=st.sampled_from("ab"), ahead=st.integers(-2, 5), killed=st.booleans())
    def send(self, group: str, ahead: int, killed: bool) -> None:
        now = self.driver.clock.now
        model = self.groups.get(group) or GroupModel()
        number = max(1, model.next + ahead)
        message = Message(body={"group": group, "n": number})
        if killed:
            self.driver.lose(message)
        outputs = bodies_of(self.driver.send(message))
        if number < model.next or number in model.held:
            assert outputs == [("late", message.body)]
            return
        self.groups[group] = model
        expected = []
        if number == model.next:
            model.next += 1
            expected = [number, *model.release(now)]
        else:
            if not model.held:
                model.gap_until = now + WAIT_S
            model.held.add(number)
            if len(model.held) > HELD_MAX:
                expected = model.skip(now)
        model.last_at = now
        assert [body["n"] for body in outputs] == expected

    @rule(seconds=st.sampled_from([1, 5, 11, 120]))
    def wait(self, seconds: int) -> None:
        self.driver.clock.now += seconds
        now = self.driver.clock.now
        due = [
            (model.deadline(), group)
            for group, model in self.groups.items()
            if model.deadline() <= now
        ]
        expected = []
        for _, group in sorted(due):
            model = self.groups[group]
            if model.held:
                expected += [{"group": group, "n": number} for number in model.skip(now)]
                model.last_at = now
            else:
                del self.groups[group]
        assert bodies_of(self.driver.expire()) == expected

    @invariant()
    def stored(self) -> None:
        held = sum(len(model.held) for model in self.groups.values())
        assert self.driver.entry_count == held + len(self.groups)
        deadlines = [model.deadline() for model in self.groups.values()]
        assert self.driver.next_deadline == min(deadlines, default=None)
        assert all(len(model.held) <= HELD_MAX for model in self.groups.values())


TestResequencerMachine = ResequencerMachine.TestCase
TestResequencerMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_the_parts_of_a_splitter_continue_in_their_order() -> None:
    driver = StepDriver(Resequencer)
    whole = Message(body=["x", "y", "z"], message_id="w")
    first, second, third = [each for each in Splitter().process(whole) if isinstance(each, Message)]
    assert driver.send(third) == []
    assert driver.send(second) == []
    assert bodies_of(driver.send(first)) == ["x", "y", "z"]
    assert driver.send(first) == []  # late


def test_a_group_begins_at_its_start() -> None:
    driver = StepDriver(lambda: Resequencer(by="json.g", sequence="json.n", start=0))
    assert driver.send(Message(body={"g": "a", "n": 1.0})) == []
    outputs = driver.send(Message(body={"g": "a", "n": 0}))
    assert [body["n"] for body in bodies_of(outputs)] == [0, 1]


@pytest.mark.parametrize("number", [None, "1", 1.5, True, -1, 10**18, float("nan")])
def test_a_message_without_a_number_is_rejected(number: Any) -> None:
    driver = StepDriver(lambda: Resequencer(by="json.g", sequence="json.n"))
    with pytest.raises(RejectMessageError, match="not a whole number"):
        driver.send(Message(body={"g": "a", "n": number}))
    with pytest.raises(RejectMessageError, match="not part of a sequence"):
        StepDriver(Resequencer).send(Message(body=1))


def test_both_fields_are_needed() -> None:
    with pytest.raises(CompositionError, match="needs both"):
        Resequencer(by="json.g")
    assert list(Resequencer(late_to="late").destinations()) == ["late"]
    assert list(Resequencer().destinations()) == []
