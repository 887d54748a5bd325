"""Whose turn it is: the consumers of a queue that may be given messages, in order.

Consumers of the highest priority come first; among equals each gets one in turn. A consumer without room sleeps
and costs nothing until it is woken, so a queue may have thousands.
"""

from bisect import bisect_left, insort
from collections import deque

from .consumer import Consumer


class ConsumerRing:
    __slots__ = ("_groups", "_priorities", "front_group")

    def __init__(self) -> None:
        self.front_group: deque[Consumer] | None = None
        """Those whose turn it is, of the highest priority; None if nobody is awake."""
        self._groups: dict[int, deque[Consumer]] = {}
        self._priorities: list[int] = []  # of those groups, lowest first

    def wake(self, consumer: Consumer) -> None:
        """Give it a turn again, behind those who wait already."""
        if consumer.is_awake:
            return
        consumer.is_awake = True
        priority = consumer.settings.priority
        group = self._groups.get(priority)
        if group is None:
            group = self._groups[priority] = deque()
            insort(self._priorities, priority)
            self._update_front_group()
        group.append(consumer)

    def sleep(self, consumer: Consumer) -> None:
        if not consumer.is_awake:
            return
        consumer.is_awake = False
        priority = consumer.settings.priority
        group = self._groups[priority]
        group.remove(consumer)
        if not group:
            del self._groups[priority]
            del self._priorities[bisect_left(self._priorities, priority)]
            self._update_front_group()

    def _update_front_group(self) -> None:
        self.front_group = self._groups[self._priorities[-1]] if self._priorities else None
