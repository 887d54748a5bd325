"""The first archive of a feed comes when others are there already: what was published before its time is copied
from whoever still keeps it, the rest is stored as lost, and nobody who recovers waits for it in vain."""

import pytest

from recado.feeds.options import RecoveryPolicy
from recado.feeds.views import LostRange, Role

from .world import Node, World, together

RECOVERIES = (RecoveryPolicy.PESSIMISTIC, RecoveryPolicy.VECTOR, RecoveryPolicy.ARCHIVE)


def published(world: World, *bodies: bytes) -> Node:
    """By one who ends then."""
    publisher = world.add(Role.PUBLISHER)
    world.run(0.3)
    for body in bodies:
        world.publish(publisher, body)
    world.run(0.3)
    world.kill(publisher)
    return publisher


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("policy", RECOVERIES)
def test_it_copies_what_members_keep(policy: RecoveryPolicy, ordered: bool) -> None:
    world = World(ordered=ordered)
    a = world.add(Role.SUBSCRIBER, "a")
    assert together(world, a)
    publisher = published(world, b"x", b"y")
    assert a.bodies() == [b"x", b"y"]
    archiver = world.add(Role.ARCHIVE, "archive")
    assert together(world, a, archiver)
    b = world.add(Role.SUBSCRIBER, "b", recovery=policy)
    assert world.run(5, lambda: b.recovered is not None)
    assert b.bodies() == [b"x", b"y"]
    assert archiver.disk is not None
    assert archiver.disk.vector == {publisher.me.incarnation: 2}


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("policy", RECOVERIES)
def test_what_nobody_keeps_is_lost_without_patience(policy: RecoveryPolicy, ordered: bool) -> None:
    """Whoever was away never had this archive's word for it."""
    world = World(ordered=ordered, retransmit_bytes=0, loss_timeout=60.0)
    a = world.add(Role.SUBSCRIBER, "a")
    assert together(world, a)
    publisher = published(world, b"x", b"y").me.incarnation
    archiver = world.add(Role.ARCHIVE, "archive")
    assert together(world, a, archiver)
    b = world.add(Role.SUBSCRIBER, "b", recovery=policy)
    assert world.run(5, lambda: b.recovered is not None)
    assert b.gaps == [LostRange(publisher, 1, 2)]
    assert archiver.disk is not None
    assert archiver.disk.vector == {publisher: 2}
    later = world.add(Role.PUBLISHER)
    world.publish(later, b"z")
    world.run(1)
    assert b.bodies() == [b"z"]


@pytest.mark.parametrize("ordered", [True, False])
def test_one_that_is_alone_stores_what_came_before_its_first_view(ordered: bool) -> None:
    world = World(ordered=ordered, loss_timeout=60.0)
    publisher = world.add(Role.PUBLISHER, retransmit_bytes=0)
    world.publish(publisher, b"nobody hears this")
    world.run(0.5)
    archiver = world.add(Role.ARCHIVE, "archive")
    world.run(0.05)
    world.publish(publisher, b"early")
    assert not archiver.views
    world.run(0.05)
    world.kill(publisher)
    assert together(world, archiver)
    b = world.add(Role.SUBSCRIBER, "b", recovery=RecoveryPolicy.PESSIMISTIC)
    assert world.run(5, lambda: b.recovered is not None)
    assert b.gaps == [LostRange(publisher.me.incarnation, 1, 1)]
    assert b.bodies() == [b"early"]


@pytest.mark.parametrize("ordered", [True, False])
def test_what_waited_for_an_archive_to_come_is_given(ordered: bool) -> None:
    world = World(ordered=ordered, recovery_timeout=60.0)
    b = world.add(Role.SUBSCRIBER, "b", recovery=RecoveryPolicy.PESSIMISTIC)
    world.run(1)
    published(world, b"x", b"y")
    assert b.bodies() == []
    world.add(Role.ARCHIVE, "archive")
    assert world.run(5, lambda: b.recovered is not None)
    assert b.bodies() == [b"x", b"y"]
    assert b.gaps == []
