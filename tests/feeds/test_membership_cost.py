"""What membership costs: packets and bytes, counted in a world without a real clock or network.

A packet to all members counts once for each of them, as it is delivered so often.
"""

from __future__ import annotations

from typing import NamedTuple

import pytest

from recado.feeds.boundary import Broadcast, SendAddressed
from recado.feeds.views import Role

from .world import Node, World

TIMES = {
    "heartbeat_interval": 0.5,
    "failure_timeout": 2.0,
    "view_change_timeout": 1.0,
    "retry_interval": 0.2,
    "full_rate_members": 40,
}
IDLE_S = 10.0
STEP_S = 0.1


class Carried(NamedTuple):
    packets: int
    bytes: int


class Crowd(World):
    """Counts what is delivered to members."""

    def __init__(self, **options: object) -> None:
        super().__init__(**{**TIMES, **options})  # type: ignore[arg-type]
        self._packets = 0
        self._bytes = 0

    def _carry(self, node: Node, other: Node, event: object, safe: bool) -> None:
        super()._carry(node, other, event, safe)  # type: ignore[arg-type]
        self._packets += 1
        self._bytes += len(event.packet)  # type: ignore[attr-defined]

    def carried(self) -> Carried:
        """Since the last time."""
        found = Carried(self._packets, self._bytes)
        self._packets = self._bytes = 0
        for node in self.nodes:
            node.log.clear()
        return found


def together(world: World, *nodes: Node) -> bool:
    """Run until these, and no others, are in one view."""
    wanted = {node.me for node in nodes}
    for _ in range(round(20 / STEP_S)):
        world.run(STEP_S)
        views = {node.views[-1].view.id if node.views else None for node in nodes}
        agreed = len(views) == 1 and None not in views
        if agreed and set(nodes[0].views[-1].view.members()) == wanted:
            return True
    return False


def crowd(members: int, **options: object) -> tuple[Crowd, list[Node]]:
    """All of them start together."""
    world = Crowd(**options)
    nodes = [world.add(Role.SUBSCRIBER, f"s{number}") for number in range(members)]
    assert together(world, *nodes)
    return world, nodes


def grows_no_faster(small: Carried, large: Carried, times: float) -> bool:
    """Than in proportion to the size of the group, with half of it to spare."""
    return large.packets <= 1.5 * times * small.packets


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("members", [40, 160])
def test_packets_of_many_that_start_together_grow_in_proportion(
    members: int, ordered: bool
) -> None:
    world, _ = crowd(members, ordered=ordered)
    assert world.carried().packets < 20 * members


def test_packets_of_one_that_joins_grow_in_proportion() -> None:
    counted = {}
    for members in (40, 160):
        world, nodes = crowd(members)
        world.carried()
        assert together(world, *nodes, world.add(Role.SUBSCRIBER, "late"))
        counted[members] = world.carried()
    assert grows_no_faster(counted[40], counted[160], times=4)


def test_those_who_stay_are_told_only_what_changes() -> None:
    """The newcomer is told all members; the others are not."""
    world, nodes = crowd(160)
    world.carried()
    late = world.add(Role.SUBSCRIBER, "late")
    assert together(world, *nodes, late)
    sent = [effect for node in nodes for effect in node.log if isinstance(effect, SendAddressed)]
    to_all = [effect.packet for effect in sent if effect.to == "members"]
    assert max(map(len, to_all)) < 200
    assert max(len(effect.packet) for effect in sent if effect.to == late.me) > 160 * 20


def test_answers_name_only_publishers_of_whom_something_came_since_the_last_view() -> None:
    world, nodes = crowd(10)
    publishers = [world.add(Role.PUBLISHER) for _ in range(100)]
    for publisher in publishers:
        world.publish(publisher, b"x")
    world.run(1)
    for name in ("first", "second"):
        world.carried()
        nodes.append(world.add(Role.SUBSCRIBER, name))
        assert together(world, *nodes)
        sent = [e.packet for node in nodes[:10] for e in node.log if isinstance(e, SendAddressed)]
    assert nodes[0].views[-1].cut == {publisher.me.incarnation: 1 for publisher in publishers}
    assert sorted(map(len, sent))[-2] < 400, "all but the view for the newcomer"


def test_packets_of_idle_members_grow_in_proportion_and_not_beyond_a_limit() -> None:
    """Each sends a heartbeat and hears the coordinator's; in a large group more rarely."""
    counted = {}
    for members in (10, 40, 160):
        world, _ = crowd(members)
        world.run(5)
        world.carried()
        world.run(IDLE_S)
        counted[members] = world.carried()
    assert grows_no_faster(counted[10], counted[40], times=4)
    assert counted[160].packets <= 1.2 * counted[40].packets
    assert counted[160].packets / IDLE_S < 200


def test_an_idle_archive_tells_many_members_more_rarely_what_is_stable() -> None:
    counted = {}
    for members in (40, 160):
        world, nodes = crowd(members)
        publisher = world.add(Role.PUBLISHER)
        archiver = world.add(Role.ARCHIVE, "archiver")
        assert together(world, *nodes, archiver)
        world.publish(publisher, b"x")
        world.kill(publisher)
        world.run(5)
        world.carried()
        world.run(IDLE_S)
        assert not any(isinstance(effect, Broadcast) for effect in archiver.log)
        counted[members] = world.carried()
    assert counted[160].packets <= 1.5 * counted[40].packets


def test_a_coordinator_that_fails_is_replaced_as_fast_in_a_large_group() -> None:
    """Its deputies hear it at the full rate."""
    world, nodes = crowd(100)
    world.run(5)
    oldest = nodes[0].views[-1].view.entries[0].member
    failed = next(node for node in nodes if node.me == oldest)
    begun = world.now
    world.kill(failed)
    assert together(world, *(node for node in nodes if node is not failed))
    assert world.now - begun < 2.0 + 3 * 0.5


def test_all_deputies_may_fail_with_their_coordinator() -> None:
    world, nodes = crowd(80)
    world.run(5)
    oldest = {seat.member for seat in nodes[0].views[-1].view.entries[:20]}
    for node in nodes:
        if node.me in oldest:
            world.kill(node)
    assert together(world, *(node for node in nodes if node.me not in oldest))


def test_two_large_groups_become_one() -> None:
    world, nodes = crowd(60)
    left = {node.me for node in nodes[:30]}
    world.cut = lambda one, other: (one.me in left) != (other.me in left)
    assert together(world, *nodes[:30])
    assert together(world, *nodes[30:])
    world.cut = lambda one, other: False
    begun = world.now
    assert together(world, *nodes)
    assert world.now - begun < 3
