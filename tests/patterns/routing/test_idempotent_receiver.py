"""The idempotent receiver against a model (PIR1)."""

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from recado.patterns.errors import CompositionError, RejectMessageError
from recado.patterns.message import Message
from recado.patterns.routing.idempotent_receiver import IdempotentReceiver
from tests.patterns.steps import StepDriver, bodies_of

WITHIN_S, KEYS_MAX = 10.0, 3


class ReceiverMachine(RuleBasedStateMachine):
    """Some keys in any order, with kills, waits and restarts."""

    def __init__(self) -> None:
        super().__init__()
        self.driver = StepDriver(
            lambda: IdempotentReceiver(within=WITHIN_S, keys_max=KEYS_MAX, duplicates_to="again")
        )
        self.seen: dict[str, float] = {}  # until when, oldest first

    @rule(key=st.sampled_from("abcdef"), killed=st.booleans())
    def send(self, key: str, killed: bool) -> None:
        now = self.driver.clock.now
        message = Message(body=1, message_id=key)
        if killed:
            self.driver.lose(message)
        outputs = bodies_of(self.driver.send(message))
        if self.seen.get(key, 0.0) > now:
            assert outputs == [("again", 1)]
            return
        assert outputs == [1]
        self.seen.pop(key, None)
        if len(self.seen) == KEYS_MAX:
            del self.seen[next(iter(self.seen))]
        self.seen[key] = now + WITHIN_S

    @rule(seconds=st.integers(1, 6))
    def wait(self, seconds: int) -> None:
        self.driver.clock.now += seconds

    @rule()
    def expire(self) -> None:
        assert self.driver.expire() == []
        self.seen = {
            key: until for key, until in self.seen.items() if until > self.driver.clock.now
        }

    @invariant()
    def stored(self) -> None:
        assert self.driver.entry_count == 2 * len(self.seen)
        assert self.driver.next_deadline == min(self.seen.values(), default=None)


TestReceiverMachine = ReceiverMachine.TestCase
TestReceiverMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_repeated_messages_are_dropped_by_any_field() -> None:
    driver = StepDriver(lambda: IdempotentReceiver("json.payment"))
    message: Message[Any] = Message(body={"payment": 7})
    assert driver.send(message) == [message]
    assert driver.send(message) == []
    with pytest.raises(RejectMessageError, match="cannot be correlated"):
        driver.send(Message(body={}))


@pytest.mark.parametrize("options", [{"within": 0}, {"keys_max": 0}])
def test_receivers_that_recognise_nothing_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(CompositionError, match="no message would be recognised"):
        IdempotentReceiver(**options)
    assert list(IdempotentReceiver(duplicates_to="d").destinations()) == ["d"]
