"""Joining on a machine that is slow: packets wait until the process of their receiver has time for them.

Members share processes, each of which handles one event after the other. If the packets that members send while
they wait made those that they wait for slower still, no common view would come about.
"""

from __future__ import annotations

from heapq import heappop, heappush
from math import inf
from random import Random

import pytest

from recado.feeds.boundary import Event, TimerFired
from recado.feeds.clock import MemberClock
from recado.feeds.views import Role

from .world import Node, World

BEAT_S = 0.5
TIMES = {
    "heartbeat_interval": BEAT_S,
    "failure_timeout": 2.0,
    "view_change_timeout": 1.0,
    "retry_interval": 0.2,
    "full_rate_members": 40,
}
EVENT_S = 0.005
MEMBERS = 80
PROCESSES = 4
START_S = 3.0
LIMIT_S = 25.0


class SlowWorld(World):
    """Each process needs `EVENT_S` for an event; a member has the time of its `MemberClock`."""

    def __init__(self) -> None:
        super().__init__(**TIMES)  # type: ignore[arg-type]
        self._free_at = [0.0] * PROCESSES
        self._clocks: dict[bytes, MemberClock] = {}

    def start(self, name: str, at: float) -> Node:
        self.now = at
        node = self.add(Role.SUBSCRIBER, name)
        self._clocks[node.me.incarnation] = MemberClock(BEAT_S / 2)
        return node

    def do(self, node: Node, event: Event) -> None:
        clock = self._clocks[node.me.incarnation]
        stalled = clock.observe(self.now)
        if stalled:
            node.member.adjust_for_stall(stalled)
        now = clock.member_time(self.now)
        if isinstance(event, TimerFired):
            clock.expect(inf)
        for effect in node.member.handle(event, now):
            self._act(node, effect)
        due = node.member.deadline()
        if due is not None and (node.wakes is None or due + clock.stalled_seconds < node.wakes):
            node.wakes = max(clock.expect(max(due, now)), self.now)
            self._push(node.wakes - self.now, node, TimerFired())

    def run_to(self, end: float) -> None:
        while self._heap and self._heap[0][0] <= end:
            self.now, order, node, event = heappop(self._heap)
            process = node.me.incarnation[-1] % PROCESSES
            if self._free_at[process] > self.now:
                heappush(self._heap, (self._free_at[process], order, node, event))
                continue
            self._free_at[process] = self.now + EVENT_S
            if isinstance(event, TimerFired):
                node.wakes = None
            self.do(node, event)
        self.now = end


@pytest.mark.parametrize("seed", [2, 3])
def test_many_that_start_on_a_slow_machine_come_to_one_view(seed: int) -> None:
    world, random = SlowWorld(), Random(seed)
    starts = sorted(random.uniform(0, START_S) for _ in range(MEMBERS))
    nodes = []
    for number, at in enumerate(starts):
        world.run_to(at)
        nodes.append(world.start(f"s{number}", at))
    while world.now < LIMIT_S:
        world.run_to(world.now + BEAT_S)
        views = {node.views[-1].view for node in nodes if node.views}
        sizes = {len(view.entries) for view in views}
        if len(views) == 1 and sizes == {MEMBERS} and all(node.views for node in nodes):
            return
    pytest.fail(f"{len(views)} views of {sorted(sizes)} members")
