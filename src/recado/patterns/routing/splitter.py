"""Splitter: a message for each part of a message."""

from collections.abc import Callable, Iterable
from itertools import islice
from secrets import token_hex
from typing import Any, Final, Literal, TypeAlias

import msgspec

from ..errors import RejectMessageError
from ..message import Message
from ..message_sequence import SEQUENCE_NUMBER_HEADER, MessageSequence, begin_sequence
from ..step import FlowStep, Outputs

MAX_PARTS_COUNT: Final = 10_000

EmptyPolicy: TypeAlias = Literal["dead_letter", "keep", "drop"]


class Splitter(FlowStep):
    """Make one message of each part of a body.

        Splitter(lambda order: order.lines)

    `split` is a function of the body that returns the parts. Each becomes the body of a message with the
    properties of the whole. The headers of `message_sequence` number the parts from 1. The sequence id is the
    message id of the whole, or a random one; the message ids of the parts are that id with the suffix `#1`,
    `#2`, …, so they are the same when the message is redelivered.

    `empty` says what happens to a message without parts, as in pipelines: it is dead-lettered, continues
    (`keep`) or is dropped. A message with more than `parts_max` parts is dead-lettered.
    """

    def __init__(
        self,
        split: Callable[[Any], Iterable[Any]] = iter,
        *,
        empty: EmptyPolicy = "dead_letter",
        parts_max: int = MAX_PARTS_COUNT,
    ) -> None:
        self._split = split
        self._empty = empty
        self._parts_max = parts_max

    def process(self, message: Message[Any]) -> Outputs:
        parts = list(islice(self._split(message.body), self._parts_max + 1))
        if len(parts) > self._parts_max:
            raise RejectMessageError(
                f"the message has more than {self._parts_max} parts (parts_max)"
            )
        if not parts:
            if self._empty == "dead_letter":
                raise RejectMessageError("the message has no parts")
            return (message,) if self._empty == "keep" else ()
        whole = message.message_id or token_hex(8)
        first = begin_sequence(message, MessageSequence(whole, 1, len(parts)))
        replace = msgspec.structs.replace
        return [
            replace(
                first,
                body=part,
                message_id=f"{whole}#{number}",
                headers={**first.headers, SEQUENCE_NUMBER_HEADER: number},
            )
            for number, part in enumerate(parts, 1)
        ]
