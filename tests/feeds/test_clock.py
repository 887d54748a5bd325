"""The clock of a member leaves out the time in which its loop did not run; ages of publishers do not."""

from math import inf

from recado.feeds.boundary import Broadcast
from recado.feeds.clock import MemberClock
from recado.feeds.packet import PublisherStatus
from recado.feeds.views import Role
from recado.feeds.wire import decode

from .world import Node, World, together


def test_a_timer_that_is_late_shows_a_stall() -> None:
    clock = MemberClock(0.25)
    assert clock.expect(1.0) == 1.0
    assert clock.observe(1.2) == 0.0
    assert clock.member_time(1.2) == 1.2
    assert clock.observe(11.0) == 10.0
    assert clock.member_time(11.0) == 1.0
    assert clock.observe(11.1) == 0.0, "it is counted once"
    assert clock.expect(2.0) == 12.0
    clock.expect(inf)
    assert clock.observe(1e9) == 0.0, "a loop with nothing to do may rest"


def age_told(node: Node) -> int:
    told = [decode(effect.packet) for effect in node.log if isinstance(effect, Broadcast)]
    return [packet.age_ms for packet in told if isinstance(packet, PublisherStatus)][-1]


def test_the_age_that_a_publisher_tells_is_real() -> None:
    world = World()
    publisher = world.add(Role.PUBLISHER)
    world.run(1)
    publisher.member.adjust_for_stall(30.0)
    world.run(1)
    assert 31_000 <= age_told(publisher) <= 32_100


def test_a_publisher_that_began_while_we_were_stopped_is_younger_than_we_are() -> None:
    """All that it has published is for us, though nobody tells us of it before."""
    world = World(ordered=False)
    nodes = [world.add(Role.SUBSCRIBER, name) for name in "ab"]
    assert together(world, *nodes)
    publisher = world.add(Role.PUBLISHER)
    world.cut = lambda one, other: nodes[1] in (one, other)
    world.run(0.3)
    world.publish(publisher, b"1", b"2")
    world.run(0.1)
    nodes[1].member.adjust_for_stall(10.0)  # in world.now it is not
    publisher.member.adjust_for_stall(5.0)
    world.cut = lambda one, other: False
    world.run(3)
    assert nodes[1].bodies() == [b"1", b"2"]
