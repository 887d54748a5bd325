"""Sequence headers: nesting, and headers of wrong types."""

from __future__ import annotations

from typing import Any

import pytest

from recado.patterns.errors import RejectMessageError
from recado.patterns.message import Message
from recado.patterns.message_sequence import (
    OUTER_SEQUENCES_HEADER,
    SEQUENCE_ID_HEADER,
    SEQUENCE_LEVELS_MAX,
    SEQUENCE_NUMBER_HEADER,
    SEQUENCE_SIZE_HEADER,
    MessageSequence,
    begin_sequence,
    end_sequence,
    sequence_of,
)


def test_sequences_nest() -> None:
    message = Message(body=1, headers={"colour": "red"})
    outer = begin_sequence(message, MessageSequence("order", 2, 3))
    inner = begin_sequence(outer, MessageSequence("line", 1))
    assert sequence_of(message) is None
    assert sequence_of(inner) == MessageSequence("line", 1, None)
    assert inner.headers == {
        "colour": "red",
        SEQUENCE_ID_HEADER: "line",
        SEQUENCE_NUMBER_HEADER: 1,
        OUTER_SEQUENCES_HEADER: [["order", 2, 3]],
    }
    assert end_sequence(inner) == outer
    assert end_sequence(outer) == message
    assert end_sequence(message) == message


def test_outer_sequence_of_unknown_size() -> None:
    outer = begin_sequence(Message(body=1), MessageSequence("order", 2))
    assert end_sequence(begin_sequence(outer, MessageSequence("line", 1, 1))) == outer


def test_nesting_is_limited() -> None:
    message = Message(body=1)
    for level in range(SEQUENCE_LEVELS_MAX):
        message = begin_sequence(message, MessageSequence(str(level), 1, 1))
    with pytest.raises(RejectMessageError, match="more than 8 nested sequences"):
        begin_sequence(message, MessageSequence("one more", 1, 1))
    for _ in range(SEQUENCE_LEVELS_MAX):
        message = end_sequence(message)
    assert sequence_of(message) is None


@pytest.mark.parametrize(
    "headers",
    [
        {SEQUENCE_ID_HEADER: 7, SEQUENCE_NUMBER_HEADER: 1},
        {SEQUENCE_ID_HEADER: "a"},
        {SEQUENCE_ID_HEADER: "a", SEQUENCE_NUMBER_HEADER: 0},
        {SEQUENCE_ID_HEADER: "a", SEQUENCE_NUMBER_HEADER: True},
        {SEQUENCE_ID_HEADER: "a", SEQUENCE_NUMBER_HEADER: "1"},
        {SEQUENCE_ID_HEADER: "a", SEQUENCE_NUMBER_HEADER: 1, SEQUENCE_SIZE_HEADER: 0},
        {SEQUENCE_ID_HEADER: "a", SEQUENCE_NUMBER_HEADER: 3, SEQUENCE_SIZE_HEADER: 2},
    ],
)
def test_wrong_headers_are_rejected(headers: dict[str, Any]) -> None:
    with pytest.raises(RejectMessageError):
        sequence_of(Message(body=1, headers=headers))


@pytest.mark.parametrize(
    "outer", ["a", [1], [[]], [["a"]], [["a", 1, 1, 1]], [["a", 0]], [["a", 1]] * 8]
)
def test_wrong_outer_sequences_are_rejected(outer: Any) -> None:
    with pytest.raises(RejectMessageError):
        end_sequence(Message(body=1, headers={OUTER_SEQUENCES_HEADER: outer}))
