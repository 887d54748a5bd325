"""The live flow: order, gaps, doubles, large messages, with and without loss."""

import pytest

from recado.feeds.views import Role

from .world import World, together


def test_what_is_published_is_delivered_in_order() -> None:
    world = World()
    publisher = world.add(Role.PUBLISHER)
    one, other = world.add(Role.SUBSCRIBER, "one"), world.add(Role.SUBSCRIBER, "other")
    assert together(world, one, other)
    for i in range(10):
        world.publish(publisher, b"%d" % i, b"+")
        world.run(0.01)
    world.run(1)
    expected = [body for i in range(10) for body in (b"%d" % i, b"+")]
    assert one.bodies() == other.bodies() == expected
    assert publisher.member.last_sequence == 20
    assert one.member.vector == {publisher.me.incarnation: 20}


@pytest.mark.parametrize("seed", range(20))
def test_loss_doubles_and_overtaking_do_not_show(seed: int) -> None:
    world = World(seed, loss=0.2, double=0.1, jitter=0.05, ordered=False, max_packet_bytes=400)
    publishers = [world.add(Role.PUBLISHER) for _ in range(2)]
    subscribers = [world.add(Role.SUBSCRIBER, name) for name in ("a", "b", "c")]
    world.run(3)
    for i in range(40):
        for publisher in publishers:
            world.publish(publisher, b"%d" % i, b"x" * (i * 40))
        world.run(0.02)
    world.run(20)
    for node in subscribers:
        assert not node.gaps
        for publisher in publishers:
            assert node.sequences(publisher.me.incarnation) == list(range(1, 81))
        assert sorted(node.bodies()) == sorted(
            2 * [body for i in range(40) for body in (b"%d" % i, b"x" * (i * 40))]
        )
