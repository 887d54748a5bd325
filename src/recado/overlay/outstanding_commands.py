"""The commands that were submitted at this node and have no answer yet.

OC1  A command is sent again, with the same id, until it is answered or its time is over. Then it is refused with
     `UNAVAILABLE`; it is never sent again, and no late copy of it is executed after a later command of this node on the
     same topic (AT2 of `answer_table`).
OC2  Of each topic one batch is under way at a time. Commands that are submitted meanwhile form the next batch. So the
     commands of a node on a topic are executed in the order of submission, although messages overtake each other.
OC3  The numbers of commands under way are within `OUTSTANDING_COMMANDS_MAX` of the lowest, which bounds the answer
     tables. Later commands wait.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from msgspec import structs

from .answer_table import OUTSTANDING_COMMANDS_MAX
from .command import Answer, CommandId, CommandRefusal, Operation, Refused, TopicCommand
from .identifier import topic_key
from .peer_address import PeerAddress

RETRY_S: Final = 0.5
BATCH_COMMANDS_MAX: Final = 256


class OutstandingCommand:
    __slots__ = (
        "attempts",
        "command",
        "deadline",
        "operation",
        "request",
        "retry_at",
        "roles",
        "topic",
    )

    def __init__(
        self,
        request: int,
        topic: str,
        operation: Operation,
        roles: tuple[str, ...],
        deadline: float,
    ) -> None:
        self.request = request
        self.topic = topic
        self.operation = operation
        self.roles = roles
        self.deadline = deadline
        self.command: TopicCommand | None = None
        """With its number, when it is sent for the first time."""
        self.retry_at = 0.0
        self.attempts = 0


class OutstandingCommands:
    def __init__(self, own: PeerAddress, retry_s: float = RETRY_S) -> None:
        self._own = own
        self._retry_s = retry_s
        self._next_number = 1
        self._under_way: dict[int, OutstandingCommand] = {}
        """By number, in ascending order."""
        self._batches: dict[str, set[int]] = {}
        self._waiting: dict[str, deque[OutstandingCommand]] = {}
        self._ready: dict[str, None] = {}
        """Topics whose next batch can be sent."""

    def __len__(self) -> int:
        return len(self._under_way) + sum(map(len, self._waiting.values()))

    def submit(self, command: OutstandingCommand) -> None:
        self._waiting.setdefault(command.topic, deque()).append(command)
        if command.topic not in self._batches:
            self._ready[command.topic] = None

    def answer(self, number: int, answer: Answer) -> OutstandingCommand | None:
        """Return the command that an answer is for, unless it was answered before.

        A refusal for lack of room or of an owner on the way is no answer: the command is tried again (OC1).
        """
        found = self._under_way.get(number)
        if found is None:
            return None
        if isinstance(answer, Refused) and answer.reason in (
            CommandRefusal.OVERLOADED,
            CommandRefusal.UNAVAILABLE,
        ):
            return None
        self._remove(number)
        return found

    def _remove(self, number: int) -> None:
        topic = self._under_way.pop(number).topic
        batch = self._batches[topic]
        batch.discard(number)
        if not batch:
            del self._batches[topic]
            if topic in self._waiting:
                self._ready[topic] = None

    def retries(self, now: float) -> list[TopicCommand]:
        """Return the commands to send again."""
        due = [each for each in self._under_way.values() if each.retry_at <= now]
        return [self._send(each, now) for each in due]

    def batches(self, now: float) -> list[TopicCommand]:
        """Return the commands to send for the first time."""
        commands: list[TopicCommand] = []
        for topic in list(self._ready):
            if not self._has_room():
                break
            del self._ready[topic]
            commands += self._start_batch(topic, now)
        return commands

    def _has_room(self) -> bool:
        lowest = next(iter(self._under_way), self._next_number)
        return self._next_number < lowest + OUTSTANDING_COMMANDS_MAX

    def _start_batch(self, topic: str, now: float) -> list[TopicCommand]:
        waiting = self._waiting[topic]
        batch = self._batches.setdefault(topic, set())
        commands = []
        while waiting and len(batch) < BATCH_COMMANDS_MAX and self._has_room():
            each = waiting.popleft()
            number = self._next_number
            self._next_number += 1
            batch.add(number)
            self._under_way[number] = each
            each.command = TopicCommand(
                CommandId(self._own, number), topic, topic_key(topic), each.operation, each.roles
            )
            commands.append(self._send(each, now))
        if not waiting:
            del self._waiting[topic]
        return commands

    def _send(self, each: OutstandingCommand, now: float) -> TopicCommand:
        assert each.command is not None
        each.retry_at = now + self._retry_s
        each.attempts += 1
        first = each.command
        floor = next(iter(self._under_way))
        wait_s = each.deadline - now
        each.command = structs.replace(first, answered_below=floor, wait_s=wait_s)
        return each.command

    def retry_soon(self) -> None:
        """Send all again at the next chance: the view of the network has changed."""
        for each in self._under_way.values():
            each.retry_at = 0.0

    def expire(self, now: float) -> list[OutstandingCommand]:
        """Remove and return the commands whose time is over."""
        expired = [number for number, each in self._under_way.items() if each.deadline <= now]
        found = []
        for number in expired:
            found.append(self._under_way[number])
            self._remove(number)
        for topic in list(self._waiting):
            waiting = self._waiting[topic]
            late = [each for each in waiting if each.deadline <= now]
            if late:
                found += late
                kept = deque(each for each in waiting if each.deadline > now)
                if kept:
                    self._waiting[topic] = kept
                else:
                    del self._waiting[topic]
                    self._ready.pop(topic, None)
        return found
