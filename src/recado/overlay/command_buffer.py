"""Commands that wait at a node: for the hand-over of a range, or for a node that knows it.

LuaPS buffers commands at a node that joins until it has the topics, and at a node that leaves until its neighbours have
them (A. L. Lima Rodrigues, *LuaPS*, chapter 4, figures 4.5 and 4.6). Here every node does so while no owner can be
reached.

CB1  The buffer is bounded, and each command has a deadline. A command that does not fit or waits for too long is
     answered with a refusal.
CB2  Commands leave in the order of arrival.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from msgspec import structs

from .command import TopicCommand

BUFFERED_COMMANDS_MAX: Final = 10_000
BUFFERED_BYTES_MAX: Final = 16 << 20
BUFFERED_S: Final = 5.0


class CommandBuffer:
    def __init__(
        self,
        commands_max: int = BUFFERED_COMMANDS_MAX,
        bytes_max: int = BUFFERED_BYTES_MAX,
        wait_s: float = BUFFERED_S,
    ) -> None:
        self._waiting: deque[tuple[float, TopicCommand]] = deque()
        self._size_bytes = 0
        self._commands_max = commands_max
        self._bytes_max = bytes_max
        self._wait_s = wait_s

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, command: TopicCommand, now: float) -> bool:
        """Buffer a command; return False if it does not fit."""
        size = command.size_bytes
        if len(self._waiting) >= self._commands_max or self._size_bytes + size > self._bytes_max:
            return False
        self._waiting.append((now, command))
        self._size_bytes += size
        return True

    def _deadline(self, since: float, command: TopicCommand) -> float:
        return since + min(self._wait_s, command.wait_s)

    def expire(self, now: float) -> list[TopicCommand]:
        """Remove and return the commands whose deadline has passed."""
        expired = self._remove(lambda since, command: self._deadline(since, command) <= now)
        return [command for _, command in expired]

    def take(self, can_proceed: Callable[[TopicCommand], bool], now: float) -> list[TopicCommand]:
        """Remove and return the commands that need not wait any more, in the order of arrival (CB2)."""
        taken = self._remove(
            lambda since, command: now < self._deadline(since, command) and can_proceed(command)
        )
        return [
            structs.replace(command, wait_s=command.wait_s - (now - since))
            for since, command in taken
        ]

    def _remove(
        self, is_removed: Callable[[float, TopicCommand], bool]
    ) -> list[tuple[float, TopicCommand]]:
        kept: deque[tuple[float, TopicCommand]] = deque()
        removed = []
        for since, command in self._waiting:
            if is_removed(since, command):
                removed.append((since, command))
                self._size_bytes -= command.size_bytes
            else:
                kept.append((since, command))
        self._waiting = kept
        return removed

    def keys(self) -> list[int]:
        """Return the keys of the waiting commands, each once, in the order of arrival."""
        return list(dict.fromkeys(int(command.key) for _, command in self._waiting))
