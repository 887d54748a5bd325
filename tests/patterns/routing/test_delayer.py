"""The delayer (PDL1)."""

import pytest

from recado.patterns.errors import CompositionError, RejectMessageError
from recado.patterns.message import Message
from recado.patterns.routing.delayer import Delayer
from tests.patterns.steps import StepDriver, bodies_of


def test_messages_continue_in_the_order_of_their_times() -> None:
    driver = StepDriver(lambda: Delayer(lambda message: message.body))
    for delay in (5, 3, 8, 0, -1):
        outputs = driver.send(Message(body=delay))
        assert bodies_of(outputs) == ([delay] if delay <= 0 else [])
    driver.restart()
    driver.clock.now += 2.9
    assert driver.expire() == []
    driver.clock.now += 2.1
    assert bodies_of(driver.expire()) == [3, 5]
    assert driver.expire() == []
    assert driver.next_deadline == driver.clock.now + 3
    driver.clock.now += 100
    assert bodies_of(driver.expire()) == [8]
    assert driver.entry_count == 0


def test_a_message_that_is_lost_before_the_commit_is_delayed_once() -> None:
    driver = StepDriver(lambda: Delayer(10))
    driver.lose(Message(body="x"))
    driver.send(Message(body="x"))
    driver.clock.now += 10
    assert bodies_of(driver.expire()) == ["x"]


def test_delays_are_finite_and_positive() -> None:
    with pytest.raises(CompositionError, match="greater than 0"):
        Delayer(0)
    for delay in (float("inf"), float("nan")):
        driver = StepDriver(lambda delay=delay: Delayer(lambda message: delay))  # type: ignore[misc]
        with pytest.raises(RejectMessageError, match="the delay of the message is"):
            driver.send(Message(body=1))
