"""Wire tap, detour and message history."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from recado.patterns.management import (
    HISTORY_HEADER,
    Detour,
    HistoryEntry,
    MessageHistory,
    WireTap,
    history_of,
)
from recado.patterns.message import Message
from recado.patterns.step import Send


def test_wire_tap_copies_and_continues() -> None:
    message = Message(body=1, reply_to="r", priority=3, message_id="m")
    copy, continued = WireTap("audit").process(message)
    assert continued is message
    assert copy == Send("audit", message.replace(reply_to=None))
    assert list(WireTap("audit").destinations()) == ["audit"]


def test_wire_tap_with_a_condition() -> None:
    step = WireTap("audit", "priority > 3")
    assert list(step.process(Message(body=1))) == [Message(body=1)]
    assert len(list(step.process(Message(body=1, priority=4)))) == 2


def test_detour() -> None:
    step = Detour("validation", lambda message: message.body > 1)
    small, large = Message(body=1), Message(body=2)
    assert list(step.process(large)) == [large]
    step.open = True
    assert list(step.process(large)) == [Send("validation", large)]
    assert list(step.process(small)) == [small]
    assert list(step.destinations()) == ["validation"]
    assert list(Detour("validation", open=True).process(small)) == [Send("validation", small)]


def passed(message: Message[Any], *components: str) -> Message[Any]:
    for number, component in enumerate(components):
        step = MessageHistory(component, entries_max=3, clock=lambda at=number: at)  # type: ignore[misc]
        (output,) = step.process(message)
        assert isinstance(output, Message)
        message = output
    return message


def test_history_names_the_components_in_order() -> None:
    message = passed(Message(body=1, headers={"a": 1}), "gateway", "check")
    assert message.headers == {
        "a": 1,
        HISTORY_HEADER: [{"component": "gateway", "at": 0}, {"component": "check", "at": 1000}],
    }
    start = datetime(1970, 1, 1, tzinfo=UTC)
    assert history_of(message) == [
        HistoryEntry("gateway", start),
        HistoryEntry("check", start.replace(second=1)),
    ]


def test_history_is_bounded() -> None:
    message = passed(Message(body=1), *"abcde")
    assert [entry.component for entry in history_of(message)] == ["c", "d", "e"]


@pytest.mark.parametrize(
    "header",
    [None, "a", 3, {}, [1, {}, {"component": 1, "at": 1}, {"component": "a", "at": 1 << 62}]],
)
def test_headers_of_other_programs(header: Any) -> None:
    message = Message(body=1, headers={HISTORY_HEADER: header})
    assert history_of(message) == []
    assert history_of(passed(message, "a"))[-1].component == "a"
