"""The answers of executed commands: a command that arrives again is not executed again.

The table is part of the replicated state of a range: it is copied when the range is split, and joined when ranges are
merged. An origin tells with each command below which number it waits for no answer any more (`answered_below`) and
keeps that within `OUTSTANDING_COMMANDS_MAX` of its newest command; so the table is bounded by that for each origin.

AT1  A command is executed at most once. Its answer is in the table until the origin has told that it needs no answer
     any more; after that the number is below the floor and is refused.
AT2  The commands of an origin on one topic are executed in the order of their numbers. So if the origin has given up a
     command, and a later one on the topic was executed, then a late copy of the former is refused.
AT3  A later start of the origin invalidates all commands of earlier ones.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from .command import OUT_OF_ORDER, Answer, TopicCommand
from .identifier import NodeId

OUTSTANDING_COMMANDS_MAX: Final = 1024
PRUNE_ANSWERS_COUNT: Final = 64
"""Answers below the floor are removed when an origin has so many, not at each command."""


class KnownAnswer(Struct, frozen=True, array_like=True):
    topic: str
    answer: Answer


class OriginRecord(Struct, array_like=True):
    """What is known of the commands of one origin."""

    node: NodeId
    incarnation: int
    floor: int
    """The origin needs no answer to commands with smaller numbers."""
    answers: dict[int, KnownAnswer]
    newest: dict[str, int]
    """The highest executed number of each topic, where it is not below the floor."""
    prune_at: int = PRUNE_ANSWERS_COUNT

    def copy(self) -> OriginRecord:
        return OriginRecord(
            self.node,
            self.incarnation,
            self.floor,
            dict(self.answers),
            dict(self.newest),
            self.prune_at,
        )

    def prune(self) -> None:
        floor = self.floor
        self.answers = {number: known for number, known in self.answers.items() if number >= floor}
        self.newest = {topic: number for topic, number in self.newest.items() if number >= floor}
        self.prune_at = max(PRUNE_ANSWERS_COUNT, 2 * len(self.answers))


class AnswerTable:
    def __init__(self) -> None:
        self._origins: dict[NodeId, OriginRecord] = {}

    def __len__(self) -> int:
        """Return the number of stored answers."""
        return sum(len(record.answers) for record in self._origins.values())

    def find(self, command: TopicCommand) -> Answer | None:
        """Return the answer if the command has been executed or must not be executed any more, otherwise None."""
        origin, number = command.id.origin, command.id.number
        record = self._origins.get(origin.node_id)
        if record is None or origin.incarnation > record.incarnation:
            return None
        if origin.incarnation < record.incarnation:
            return OUT_OF_ORDER
        known = record.answers.get(number)
        if known is not None:
            return known.answer
        if number < record.floor or number < record.newest.get(command.topic, 0):
            return OUT_OF_ORDER
        return None

    def record(self, command: TopicCommand, answer: Answer) -> None:
        """Store the answer of a command for which `find` has returned None."""
        origin, number = command.id.origin, command.id.number
        record = self._origins.get(origin.node_id)
        if record is None or origin.incarnation > record.incarnation:
            record = OriginRecord(origin.node_id, origin.incarnation, 0, {}, {})
            self._origins[origin.node_id] = record
        record.answers[number] = KnownAnswer(command.topic, answer)
        record.newest[command.topic] = number
        record.floor = max(record.floor, command.answered_below)
        if len(record.answers) >= record.prune_at:
            record.prune()

    def replace(self, node: NodeId, incarnation: int, number: int, answer: Answer) -> None:
        """Replace a stored answer, if it is still there."""
        record = self._origins.get(node)
        if record is not None and record.incarnation == incarnation and number in record.answers:
            record.answers[number] = KnownAnswer(record.answers[number].topic, answer)

    def copy(self) -> AnswerTable:
        table = AnswerTable()
        table._origins = {node: record.copy() for node, record in self._origins.items()}
        return table

    def join(self, other: AnswerTable) -> None:
        """Add the answers of another range with other topics."""
        for node, record in other._origins.items():
            own = self._origins.get(node)
            if own is None or own.incarnation < record.incarnation:
                self._origins[node] = record.copy()
            elif own.incarnation == record.incarnation:
                own.floor = max(own.floor, record.floor)
                own.answers |= record.answers
                own.newest |= {
                    topic: max(number, own.newest.get(topic, 0))
                    for topic, number in record.newest.items()
                }

    def records(self) -> list[OriginRecord]:
        """Return copies of the records, to send them to another node."""
        return [record.copy() for record in self._origins.values()]

    def restore(self, record: OriginRecord) -> None:
        self._origins[record.node] = record.copy()
