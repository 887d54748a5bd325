"""The consumers of a queue that can receive messages, in round-robin order.

Consumers of the highest priority come first; among equals the order is round-robin. A consumer without
credit sleeps outside the ring and costs nothing until it is woken, so that a queue can have thousands of
consumers.
"""

from bisect import bisect_left, insort
from collections import deque

from .consumer import Consumer


class ConsumerRing:
    __slots__ = ("_groups", "_priorities", "front_group")

    def __init__(self) -> None:
        self.front_group: deque[Consumer] | None = None
        """The awake consumers of the highest priority, next one first; None if all sleep."""
        self._groups: dict[int, deque[Consumer]] = {}
        self._priorities: list[int] = []  # of the groups, lowest first

    def wake(self, consumer: Consumer) -> None:
        """Put a consumer into the ring, behind those of its priority."""
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
