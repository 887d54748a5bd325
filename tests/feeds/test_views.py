"""Views: joining, failing, leaving, partitions."""

import pytest

from recado.feeds.boundary import Effect, LeaveRequested, SendAddressed, TimerFired
from recado.feeds.clock import MemberClock
from recado.feeds.packet import Prepare
from recado.feeds.vector import Vector
from recado.feeds.views import Role, ViewId
from recado.feeds.wire import decode

from .world import Node, World, together


def test_members_find_each_other() -> None:
    world = World()
    nodes = [world.add(Role.SUBSCRIBER, name) for name in "abc"]
    assert together(world, *nodes)
    assert world.now < 2


def test_one_more_joins_without_a_pause_for_the_others() -> None:
    world = World()
    publisher = world.add(Role.PUBLISHER)
    first = world.add(Role.SUBSCRIBER, "first")
    assert together(world, first)
    world.publish(publisher, b"1", b"2")
    world.run(0.1)
    late = world.add(Role.SUBSCRIBER, "late")
    assert together(world, first, late)
    assert late.views[-1].cut == {publisher.me.incarnation: 2}
    world.publish(publisher, b"3")
    world.run(0.1)
    assert first.bodies() == [b"1", b"2", b"3"]
    assert late.bodies() == [b"3"]


def test_who_fails_is_left_out_and_the_oldest_that_lives_goes_on() -> None:
    world = World()
    nodes = [world.add(Role.SUBSCRIBER, name) for name in "abc"]
    assert together(world, *nodes)
    oldest = nodes[0].views[-1].view.entries[0].member
    dead = next(node for node in nodes if node.me == oldest)
    rest = [node for node in nodes if node is not dead]
    world.kill(dead)
    assert together(world, *rest)
    numbers = [installed.view.id.number for installed in rest[0].views]
    assert numbers == sorted(set(numbers))


def test_who_leaves_is_left_out_at_once() -> None:
    world = World(failure_timeout=100.0)
    a, b = world.add(Role.SUBSCRIBER, "a"), world.add(Role.SUBSCRIBER, "b")
    assert together(world, a, b)
    world.do(a, LeaveRequested())
    world.kill(a)
    assert together(world, b)
    assert world.now < 3


def test_who_comes_right_after_another_does_not_wait_for_a_beat() -> None:
    world = World(heartbeat_interval=5.0, failure_timeout=20.0)
    first = world.add(Role.SUBSCRIBER, "first")
    world.run(11)
    begun = world.now
    second = world.add(Role.SUBSCRIBER, "second")
    assert together(world, first, second)
    third = world.add(Role.SUBSCRIBER, "third")
    assert together(world, first, second, third)
    assert world.now - begun < 1


def test_who_made_a_view_meanwhile_is_asked_again_at_once() -> None:
    """MB5: it did not answer because it was cut off, and is back."""
    world = World(failure_timeout=2.0, view_change_timeout=0.3)
    nodes = [world.add(Role.SUBSCRIBER, name) for name in "abc"]
    assert together(world, *nodes)
    oldest = nodes[0].views[-1].view.entries[0].member
    away = next(node for node in nodes if node.me != oldest)
    world.cut = lambda one, other: away in (one, other)
    late = world.add(Role.SUBSCRIBER, "late")
    there = [*(node for node in nodes if node is not away), late]
    assert together(world, *there)
    assert together(world, away)
    world.cut = lambda one, other: False
    begun = world.now
    assert together(world, away, *there)
    assert world.now - begun < 1


def asked(effects: list[Effect]) -> bool:
    """Whether a view is to be made."""
    return any(
        isinstance(e, SendAddressed) and isinstance(decode(e.packet), Prepare) for e in effects
    )


def test_who_was_stalled_does_not_take_the_others_for_failed() -> None:
    """MB7."""
    world = World()
    nodes = [world.add(Role.SUBSCRIBER, name) for name in "ab"]
    assert together(world, *nodes)
    world.run(1)
    oldest = nodes[0].views[-1].view.entries[0].member
    stalled = next(node.member for node in nodes if node.me == oldest)
    clock, due = MemberClock(0.05), stalled.deadline()
    assert due is not None
    clock.expect(due)
    stalled.adjust_for_stall(clock.observe(world.now + 30))
    now = clock.member_time(world.now + 30)
    assert not asked(stalled.handle(TimerFired(), now))
    while not asked(stalled.handle(TimerFired(), now)):
        now += 0.1
    assert now >= world.now + 0.3, (
        "it has listened for almost as long as it takes since it runs again"
    )


@pytest.mark.parametrize("loss", [0.0, 0.3])
def test_who_has_just_joined_waits_for_the_others_to_beat(loss: float) -> None:
    """MB7: a view names its members; that they were not heard by themselves yet says nothing."""
    world = World(
        1, loss=loss, heartbeat_interval=0.4, failure_timeout=2.0, view_change_timeout=1.0
    )
    nodes = [world.add(Role.SUBSCRIBER, name) for name in "abc"]
    assert together(world, *nodes)
    late = world.add(Role.SUBSCRIBER, "late")
    assert together(world, *nodes, late)
    assert all(len(installed.view.entries) == 4 for installed in late.views)


@pytest.mark.parametrize("seed", range(10))
def test_two_groups_become_one_again(seed: int) -> None:
    world = World(seed, loss=0.1, jitter=0.02, ordered=False)
    publisher = world.add(Role.PUBLISHER)
    nodes = [world.add(Role.SUBSCRIBER, name) for name in "abcd"]
    assert together(world, *nodes)
    left = {nodes[0].me, nodes[1].me, publisher.me}

    def cut(one: Node, other: Node) -> bool:
        return (one.me in left) != (other.me in left)

    world.cut = cut
    for i in range(20):
        world.publish(publisher, b"%d" % i)
        world.run(0.1)
    assert together(world, nodes[0], nodes[1])
    assert together(world, nodes[2], nodes[3])
    world.cut = lambda one, other: False
    assert together(world, *nodes)
    world.run(3)
    for node in nodes:
        assert node.bodies() == [b"%d" % i for i in range(20)]
        assert not node.gaps


@pytest.mark.parametrize("seed", range(10))
def test_members_of_a_view_have_delivered_the_same_before_the_next(seed: int) -> None:
    world = World(seed, loss=0.15, jitter=0.05, ordered=False)
    publishers = [world.add(Role.PUBLISHER) for _ in range(2)]
    nodes = [world.add(Role.SUBSCRIBER, name) for name in "abc"]
    assert together(world, *nodes)
    for i in range(30):
        world.publish(publishers[i % 2], b"%d" % i)
        world.run(0.01)
        if i == 10:
            nodes.append(world.add(Role.SUBSCRIBER, "late"))
        if i == 20:
            world.kill(nodes.pop(1))
    assert together(world, *nodes)
    cuts: dict[ViewId, Vector] = {}
    for node in nodes:
        for installed in node.views:
            assert cuts.setdefault(installed.view.id, installed.cut) == installed.cut
        for batch in node.got:
            later = [v.cut.last_of(batch.publisher) for v in node.views if v.view.id <= batch.view]
            assert batch.first > max(later), "a message is behind the cut of its view"


def test_a_gap_that_nobody_can_fill_is_told() -> None:
    world = World(ordered=False)
    publisher = world.add(Role.PUBLISHER)
    nodes = [world.add(Role.SUBSCRIBER, name) for name in "ab"]
    assert together(world, *nodes)
    world.publish(publisher, b"1")
    world.run(0.1)
    world.cut = lambda one, other: one is publisher
    world.publish(publisher, b"2")
    world.run(0.01)
    world.cut = lambda one, other: False
    world.publish(publisher, b"3")
    world.kill(publisher)
    world.run(10)
    for node in nodes:
        assert node.bodies() == [b"1", b"3"]
        assert [(lost.first, lost.last) for lost in node.gaps] == [(2, 2)]
        me = publisher.me.incarnation
        assert node.member.vector == Vector({me: 3}, {me: [(2, 2)]}), "and is a hole"


def test_a_gap_stays_while_somebody_is_heard_who_is_not_in_the_view() -> None:
    """FI3: it may be the one who has what is missing."""
    world = World()
    publisher = world.add(Role.PUBLISHER)
    x = world.add(Role.SUBSCRIBER, "x")
    assert together(world, x)
    archiver = world.add(Role.ARCHIVE, "archiver")
    assert together(world, x, archiver)
    world.publish(publisher, b"1")
    world.run(0.1)
    world.cut = lambda one, other: x in (one, other)
    assert together(world, x)
    world.publish(publisher, b"2")
    world.run(0.1)
    world.cut = lambda one, other: one is x
    world.publish(publisher, b"3")
    world.run(4)
    assert x.views[-1].view.members() == [x.me]
    assert x.bodies() == [b"1"]
    assert not x.gaps
    world.cut = lambda one, other: False
    assert together(world, x, archiver)
    world.run(0.1)
    assert x.bodies() == [b"1", b"2", b"3"]
    assert not x.gaps


def test_it_is_told_when_nobody_else_was_heard_for_long() -> None:
    """FI3."""
    world = World()
    publisher = world.add(Role.PUBLISHER)
    x, y = world.add(Role.SUBSCRIBER, "x"), world.add(Role.SUBSCRIBER, "y")
    assert together(world, x, y)
    world.cut = lambda one, other: x in (one, other)
    assert together(world, x)
    world.publish(publisher, b"1")
    world.run(0.1)
    world.cut = lambda one, other: one is x
    world.publish(publisher, b"2")
    world.run(1)
    world.kill(y)
    world.run(1.8)
    assert not x.gaps
    world.run(0.4)
    assert x.bodies() == [b"2"]
    assert [(lost.first, lost.last) for lost in x.gaps] == [(1, 1)]
