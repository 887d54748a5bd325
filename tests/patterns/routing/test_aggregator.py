"""The aggregator against a model (PAG1 to PAG3), and its options."""

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from recado.patterns.errors import CompositionError, RejectMessageError
from recado.patterns.message import Message
from recado.patterns.message_sequence import (
    MessageSequence,
    begin_sequence,
    end_sequence,
    sequence_of,
)
from recado.patterns.routing.aggregator import Aggregator
from recado.patterns.routing.splitter import Splitter
from tests.patterns.steps import StepDriver, bodies_of

GROUPS = st.sampled_from(["a", "b", "c"])
COUNT, TIMEOUT_S, GROUPS_MAX = 4, 10.0, 2


def join(messages: list[Message[Any]]) -> list[Any]:
    return [message.body["n"] for message in messages]


def has_end(messages: list[Message[Any]]) -> bool:
    return bool(messages[-1].body.get("end"))


class AggregatorMachine(RuleBasedStateMachine):
    """Messages of some groups, in any order, with kills before the commit and after it."""

    def __init__(self) -> None:
        super().__init__()
        self.driver = StepDriver(
            lambda: Aggregator(
                join,
                by="json.group",
                count=COUNT,
                complete=has_end,
                timeout=TIMEOUT_S,
                groups_max=GROUPS_MAX,
            )
        )
        self.number = 0
        self.groups: dict[str, list[int]] = {}
        self.deadlines: dict[str, float] = {}

    def finish(self, group: str) -> list[int]:
        del self.deadlines[group]
        return self.groups.pop(group)

    @rule(group=GROUPS, end=st.booleans(), killed=st.booleans())
    def send(self, group: str, end: bool, killed: bool) -> None:
        self.number += 1
        message = Message(body={"group": group, "n": self.number, "end": end})
        if group not in self.groups and len(self.groups) == GROUPS_MAX:
            with pytest.raises(RejectMessageError, match="groups_max"):
                self.driver.send(message)
            return
        if killed:
            self.driver.lose(message)
        outputs = self.driver.send(message)
        self.groups.setdefault(group, []).append(self.number)
        self.deadlines.setdefault(group, self.driver.clock.now + TIMEOUT_S)
        if end or len(self.groups[group]) == COUNT:
            assert bodies_of(outputs) == [self.finish(group)]
        else:
            assert outputs == []

    @rule()
    def restart(self) -> None:
        self.driver.restart()

    @rule(seconds=st.integers(1, 12))
    def wait(self, seconds: int) -> None:
        self.driver.clock.now += seconds
        due = sorted(
            (at, group) for group, at in self.deadlines.items() if at <= self.driver.clock.now
        )
        assert bodies_of(self.driver.expire()) == [self.finish(group) for _, group in due]

    @invariant()
    def stored(self) -> None:
        """Nothing else remains in the store."""
        held = sum(map(len, self.groups.values()))
        assert self.driver.entry_count == held + len(self.groups)
        assert self.driver.next_deadline == min(self.deadlines.values(), default=None)


TestAggregatorMachine = AggregatorMachine.TestCase
TestAggregatorMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def split(body: list[Any], **options: Any) -> list[Message[Any]]:
    whole = Message(body=body, message_id="whole", correlation_id="c")
    return [each for each in Splitter(**options).process(whole) if isinstance(each, Message)]


def test_the_parts_of_a_splitter_are_combined_in_their_order() -> None:
    driver = StepDriver(lambda: Aggregator(lambda parts: [part.body for part in parts]))
    first, second, third = split(["x", "y", "z"])
    assert driver.send(third) == []
    assert driver.send(first) == []
    assert driver.send(first) == []  # a part that came twice
    (combined,) = driver.send(second)
    assert isinstance(combined, Message)
    assert combined.body == ["x", "y", "z"]
    assert combined.correlation_id == "c"
    assert combined.message_id is None
    assert sequence_of(combined) is None


def test_nested_sequences_are_combined_one_after_another() -> None:
    driver = StepDriver(lambda: Aggregator(lambda parts: "".join(part.body for part in parts)))
    outer = begin_sequence(Message(body=""), MessageSequence("outer", 2, 3))
    inner = [
        begin_sequence(outer.with_body(body), MessageSequence("inner", number, 2))
        for number, body in ((1, "a"), (2, "b"))
    ]
    assert driver.send(inner[1]) == []
    (combined,) = driver.send(inner[0])
    assert isinstance(combined, Message)
    assert combined.body == "ab"
    assert sequence_of(combined) == MessageSequence("outer", 2, 3)
    assert sequence_of(end_sequence(combined)) is None


def test_late_parts_are_sent_elsewhere_until_the_group_is_forgotten() -> None:
    driver = StepDriver(lambda: Aggregator(len, remember=60, late_to="late"))
    part, another = split(["x", "y"])
    driver.send(part)
    assert bodies_of(driver.send(another)) == [2]
    assert bodies_of(driver.send(part)) == [("late", "x")]
    driver.clock.now += 60
    assert driver.expire() == []
    assert driver.entry_count == 0
    assert driver.send(part) == []  # begins a new group


def test_late_parts_are_dropped_by_default() -> None:
    driver = StepDriver(lambda: Aggregator(len))
    (part,) = split(["x"])
    assert bodies_of(driver.send(part)) == [1]
    assert driver.send(part) == []


def test_the_messages_of_an_incomplete_group_can_be_sent_elsewhere() -> None:
    driver = StepDriver(
        lambda: Aggregator(len, by="json.g", count=3, timeout=5, incomplete_to="incomplete")
    )
    first, second = Message(body={"g": 1, "n": 1}), Message(body={"g": 1, "n": 2})
    driver.send(first)
    driver.send(second)
    driver.clock.now += 5
    assert bodies_of(driver.expire()) == [("incomplete", first.body), ("incomplete", second.body)]
    assert driver.entry_count == 0


def test_a_combined_message_is_returned_as_it_is() -> None:
    combined = Message(body="all", key="k", message_id="m")
    driver = StepDriver(lambda: Aggregator(lambda messages: combined, by="key", count=1))
    assert driver.send(Message(body="x", key="g")) == [combined]


def test_a_group_is_bounded() -> None:
    """PAG2"""
    driver = StepDriver(lambda: Aggregator(len, by="key", timeout=5, group_max=2))
    message = Message(body="x", key="g")
    driver.send(message)
    driver.send(message)
    with pytest.raises(RejectMessageError, match="has 2 messages"):
        driver.send(message)
    driver.clock.now += 5
    assert bodies_of(driver.expire()) == [2]


@pytest.mark.parametrize("value", [None, {}, [], ""])
def test_a_message_without_its_group_is_rejected(value: Any) -> None:
    driver = StepDriver(lambda: Aggregator(len, by="json.g", count=2))
    with pytest.raises(RejectMessageError, match=r"json\.g is"):
        driver.send(Message(body={"g": value}))
    with pytest.raises(RejectMessageError, match="not part of a sequence"):
        StepDriver(lambda: Aggregator(len)).send(Message(body=""))


def test_groups_are_named_by_any_text_number_or_function() -> None:
    driver = StepDriver(lambda: Aggregator(len, by=lambda message: message.body, count=2))
    for value in ("x" * 5000, "a\0b", "a", 7, 1.5, True):
        message = Message(body=value)
        assert driver.send(message) == []
        assert bodies_of(driver.send(message)) == [2]


def test_texts_that_are_not_utf_8_name_groups() -> None:
    driver = StepDriver(lambda: Aggregator(len, by="key", count=2))
    message = Message(body=1, key="\udc80", correlation_id="\udcff")
    assert driver.send(message) == []
    (combined,) = driver.send(message)
    assert isinstance(combined, Message)
    assert (combined.key, combined.correlation_id) == (message.key, message.correlation_id)


def test_headers_and_properties_name_groups() -> None:
    for field in ("headers.g", "headers.t.g", "correlation_id", "json.x.y"):
        driver = StepDriver(lambda field=field: Aggregator(len, by=field, count=2))  # type: ignore[misc]
        message = Message(
            body={"x": {"y": 1}}, headers={"g": "1", "t": {"g": 2}}, correlation_id="c"
        )
        assert driver.send(message) == []
        assert bodies_of(driver.send(message)) == [2]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"by": "key"}, "needs count, complete or timeout"),
        ({"by": "key", "count": 0}, "count is 0"),
        ({"by": "key", "count": 11, "group_max": 10}, "at most group_max"),
        ({"incomplete_to": "x"}, "needs a timeout"),
        ({"by": "colour", "count": 1}, "unknown field 'colour'"),
        ({"by": "json", "count": 1}, "unknown field 'json'"),
        ({"by": "json..a", "count": 1}, r"unknown field 'json\.\.a'"),
    ],
)
def test_aggregators_that_cannot_work_are_refused(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(CompositionError, match=problem):
        Aggregator(len, **options)


def test_destinations_are_known() -> None:
    step = Aggregator(len, timeout=1, incomplete_to="a", late_to="b")
    assert sorted(map(str, step.destinations())) == ["a", "b"]
