"""A message per part, numbered; nested, empty and endless wholes."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest

from recado.patterns.errors import RejectMessageError
from recado.patterns.message import Message
from recado.patterns.message_sequence import MessageSequence, end_sequence, sequence_of
from recado.patterns.routing import Splitter


def split(step: Splitter, message: Message[Any]) -> list[Any]:
    return list(step.process(message))


def test_parts_are_numbered() -> None:
    whole = Message(
        body={"lines": ["a", "b"]}, message_id="m", headers={"colour": "red"}, reply_to="r"
    )
    first, second = split(Splitter(lambda body: body["lines"]), whole)
    assert (first.body, first.message_id) == ("a", "m#1")
    assert (second.body, second.message_id) == ("b", "m#2")
    assert sequence_of(second) == MessageSequence("m", 2, 2)
    assert second.headers["colour"] == "red"
    assert second.reply_to == "r"
    assert end_sequence(first) == whole.replace(body="a", message_id="m#1")
    assert split(Splitter(lambda body: body["lines"]), whole) == [first, second]


def test_parts_are_split_again() -> None:
    whole = Message(body=[[1, 2], [3]], message_id="m")
    parts = [inner for outer in split(Splitter(), whole) for inner in split(Splitter(), outer)]
    assert [part.body for part in parts] == [1, 2, 3]
    assert [part.message_id for part in parts] == ["m#1#1", "m#1#2", "m#2#1"]
    assert sequence_of(parts[1]) == MessageSequence("m#1", 2, 2)
    assert sequence_of(end_sequence(parts[1])) == MessageSequence("m", 1, 2)


def test_a_message_without_id_gets_a_random_one() -> None:
    first, second = split(Splitter(), Message(body=[1, 2]))
    sequences = sequence_of(first), sequence_of(second)
    assert sequences[0] is not None
    assert sequences[1] is not None
    assert sequences[0].id == sequences[1].id
    assert first.message_id == f"{sequences[0].id}#1"
    other = sequence_of(split(Splitter(), Message(body=[1]))[0])
    assert other is not None
    assert other.id != sequences[0].id


def test_empty_messages() -> None:
    empty = Message[list[int]](body=[])
    with pytest.raises(RejectMessageError, match="no parts"):
        Splitter().process(empty)
    assert split(Splitter(empty="keep"), empty) == [empty]
    assert split(Splitter(empty="drop"), empty) == []


def test_parts_are_bounded() -> None:
    assert len(split(Splitter(parts_max=3), Message(body=range(3)))) == 3
    with pytest.raises(RejectMessageError, match="more than 3 parts"):
        Splitter(parts_max=3).process(Message(body=count()))
