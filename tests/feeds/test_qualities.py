"""UNIFORM and TOTAL: what they add, under loss and failures."""

from functools import partial

import pytest

from recado.feeds.block import Block
from recado.feeds.boundary import MessageBatch
from recado.feeds.layers.pull import PullLayer
from recado.feeds.options import RecoveryPolicy
from recado.feeds.views import LostRange, Role

from .sim.instead import ask_nobody
from .world import Disk, Node, World, together

UNIFORM = {
    Role.SUBSCRIBER: "DISPATCH:SYNC:UNIFORM:PULL:FRAG:FIFO:NAK:MEMBERSHIP:AMQP",
    Role.ARCHIVE: "DISPATCH:SYNC:ARCHIVER:UNIFORM:PULL:FRAG:FIFO:NAK:MEMBERSHIP:AMQP",
}
TOTAL = {
    Role.SUBSCRIBER: "DISPATCH:SYNC:TOTAL:PULL:FRAG:FIFO:NAK:MEMBERSHIP:AMQP",
    Role.ARCHIVE: "DISPATCH:SYNC:ARCHIVER:TOTAL:PULL:FRAG:FIFO:NAK:MEMBERSHIP:AMQP",
}


@pytest.mark.parametrize("seed", range(5))
def test_uniform_delivers_only_what_a_majority_has(seed: int) -> None:
    world = World(seed, loss=0.1, jitter=0.02, ordered=False, stacks=UNIFORM, archive_count=3)
    publisher = world.add(Role.PUBLISHER)
    archivers = [world.add(Role.ARCHIVE, f"archive-{i}") for i in range(3)]
    x = world.add(Role.SUBSCRIBER, "x")
    assert together(world, x, *archivers)
    for i in range(40):
        world.publish(publisher, b"%d" % i)
        world.run(0.02)
        if i == 20:
            world.kill(archivers[0])
        for batch in x.got:
            having = [
                k
                for k in archivers
                if k.disk and k.disk.vector.get(batch.publisher, 0) >= batch.last
            ]
            assert len(having) >= 2
    world.run(5)
    assert x.bodies() == [b"%d" % i for i in range(40)]


def test_uniform_waits_while_there_are_too_few_archives() -> None:
    world = World(stacks=UNIFORM, archive_count=3)
    publisher = world.add(Role.PUBLISHER)
    archiver = world.add(Role.ARCHIVE, "archive-0")
    x = world.add(Role.SUBSCRIBER, "x")
    assert together(world, x, archiver)
    world.publish(publisher, b"1")
    world.run(3)
    assert x.bodies() == []
    other = world.add(Role.ARCHIVE, "archive-1")
    assert together(world, x, archiver, other)
    world.run(3)
    assert x.bodies() == [b"1"]


def test_an_archive_that_restarts_is_not_a_second_copy() -> None:
    world = World(stacks=UNIFORM, archive_count=3)
    publisher = world.add(Role.PUBLISHER)
    archiver, x = world.add(Role.ARCHIVE, "archive-0"), world.add(Role.SUBSCRIBER, "x")
    assert together(world, x, archiver)
    world.publish(publisher, b"1")
    world.run(1)
    world.kill(archiver)
    again = world.add(Role.ARCHIVE, "archive-0", disk=archiver.disk)
    assert world.run(5, lambda: x.member.view == again.member.view)
    world.run(2)
    late = world.add(Role.SUBSCRIBER, "late", recovery=RecoveryPolicy.PESSIMISTIC)
    world.run(3)
    assert x.bodies() == late.bodies() == []


def test_uniform_is_bounded() -> None:
    world = World(stacks=UNIFORM, buffer_bytes=5_000)
    publisher, x = world.add(Role.PUBLISHER), world.add(Role.SUBSCRIBER, "x")
    assert together(world, x)
    for _ in range(20):
        world.publish(publisher, b"x" * 1000)
    world.run(1)
    assert x.failed is not None
    assert "archives" in x.failed


def test_an_archive_that_has_agreed_to_its_first_view_counts_the_archives_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It lacks messages before the cut, so it cannot begin the view yet; a subscriber asks it for messages that
    no second archive has."""
    monkeypatch.setattr(PullLayer, "_request", ask_nobody)  # archives do not repair each other
    world = World(stacks=UNIFORM)
    archivers = []
    for number in range(3):
        disk = Disk()
        disk.append([MessageBatch(bytes([number + 1]) * 16, 1, Block.build([b"1", b"2"]))])
        archivers.append(world.add(Role.ARCHIVE, f"archive-{number}", disk))
    x = world.add(Role.SUBSCRIBER, "x", recovery=RecoveryPolicy.VECTOR)
    everybody = {node.me for node in (*archivers, x)}

    def shares_view() -> bool:
        view = x.member.view
        return view is not None and set(view.members()) == everybody

    assert world.run(5, shares_view)
    world.run(1)
    assert not any(archiver.views for archiver in archivers)
    assert x.bodies() == []


def test_recovery_waits_if_the_archives_of_the_first_two_views_are_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """F8: in the view of the archive that is left, one copy would be a majority. The subscriber has not begun
    that view: what it recovers comes before the first one that it has agreed to."""
    monkeypatch.setattr(PullLayer, "_request", ask_nobody)  # archives do not repair each other
    world = World(stacks=UNIFORM)
    archivers = []
    for number in range(3):
        disk = Disk()
        disk.append([MessageBatch(bytes([number + 1]) * 16, 1, Block.build([b"1", b"2"]))])
        archivers.append(world.add(Role.ARCHIVE, f"archive-{number}", disk))
    x = world.add(Role.SUBSCRIBER, "x", recovery=RecoveryPolicy.VECTOR)

    def shares_view(*archives: Node) -> bool:
        view = x.member.view
        return view is not None and set(view.members()) == {node.me for node in (*archives, x)}

    for left in (3, 2, 1):
        assert world.run(5, partial(shares_view, *archivers[:left]))
        world.run(1)
        world.kill(archivers[left - 1])
        assert x.bodies() == []


def test_recovery_gives_only_what_is_uniform() -> None:
    world = World(stacks=UNIFORM, archive_count=3)
    publisher = world.add(Role.PUBLISHER)
    archiver = world.add(Role.ARCHIVE, "archive-0")
    assert together(world, archiver)
    world.publish(publisher, b"1")
    world.run(1)
    x = world.add(Role.SUBSCRIBER, "x", recovery=RecoveryPolicy.PESSIMISTIC)
    assert together(world, archiver, x) or x.bodies() == []
    assert x.bodies() == []
    world.add(Role.ARCHIVE, "archive-1")
    world.run(5)
    assert x.bodies() == [b"1"]


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("seed", range(5))
def test_one_that_is_left_out_does_not_change_the_order_of_the_others(
    seed: int, ordered: bool
) -> None:
    """F9: it is taken for failed though it is alive, and orders by itself until it is back."""
    world = World(seed, jitter=0.05, ordered=ordered, stacks=TOTAL)
    publishers = [world.add(Role.PUBLISHER) for _ in range(3)]
    nodes = [world.add(Role.SUBSCRIBER, name) for name in "abc"]
    assert together(world, *nodes)
    oldest = nodes[0].views[-1].view.entries[0].member
    left_out = next(node for node in nodes if node.me == oldest)
    others = [node for node in nodes if node is not left_out]
    shared = [node.views[-1].view.id for node in nodes]
    world.cut = lambda one, other: (
        left_out in (one, other) and not ({one.role, other.role} & {Role.PUBLISHER})
    )
    for i in range(60):
        world.publish(publishers[i % 3], b"%d" % i)
        world.run(0.02)
    world.cut = lambda one, other: False
    assert together(world, *nodes)
    world.run(5)
    for node in nodes:
        assert sorted(node.bodies()) == sorted(b"%d" % i for i in range(60))
        assert node.views[-1].view.id > shared[0]
    assert others[0].bodies() == others[1].bodies()


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("seed", range(10))
def test_total_order_is_one_order(seed: int, ordered: bool) -> None:
    world = World(seed, loss=0.1, jitter=0.05, ordered=ordered, stacks=TOTAL)
    publishers = [world.add(Role.PUBLISHER) for _ in range(3)]
    nodes = [world.add(Role.SUBSCRIBER, name) for name in "abc"]
    archiver = world.add(Role.ARCHIVE, "archive")
    assert together(world, archiver, *nodes)
    world.run(1)  # the view is complete: no other follows that some may not hear of
    alive = list(nodes)
    for i in range(60):
        world.publish(publishers[i % 3], b"%d" % i)
        world.run(0.01)
        if i == 30:
            oldest = nodes[0].views[-1].view.entries[0].member
            dead = next(n for n in (*nodes, archiver) if n.me == oldest)
            world.kill(dead)
            alive = [n for n in alive if n is not dead]
    world.run(10)
    for node in alive:
        assert sorted(node.bodies()) == sorted(b"%d" % i for i in range(60))
        assert node.bodies() == alive[0].bodies()


def test_a_place_in_the_order_shows_a_message_that_is_missing() -> None:
    """TO4: only the coordinator has heard the publisher, which fails; no later packet shows the gap."""
    world = World(ordered=False, stacks=TOTAL)
    publisher, other = world.add(Role.PUBLISHER), world.add(Role.PUBLISHER)
    x = world.add(Role.SUBSCRIBER, "x")
    assert together(world, x)
    archiver, y = world.add(Role.ARCHIVE, "archive"), world.add(Role.SUBSCRIBER, "y")
    assert together(world, x, archiver, y)
    world.run(2)  # the view is complete: no other follows, whose cut would show the gap
    assert x.views[-1].view.entries[0].member == x.me
    views = [node.views[-1].view.id for node in (x, y, archiver)]
    world.cut = lambda one, two: publisher in (one, two) and x not in (one, two)
    world.publish(publisher, b"1")
    assert world.run(1, lambda: x.bodies() == [b"1"])
    world.kill(publisher)
    world.publish(other, b"2")
    world.run(5)
    assert archiver.disk is not None
    assert archiver.disk.vector == {publisher.me.incarnation: 1, other.me.incarnation: 1}
    assert x.bodies() == [b"1", b"2"]
    assert y.bodies() == [b"1", b"2"]
    assert [node.views[-1].view.id for node in (x, y, archiver)] == views


def test_a_place_in_the_order_shows_a_message_that_is_lost() -> None:
    """TO4: the coordinator has only heard of a message, and gives it up; other members have heard nothing."""
    world = World(ordered=False, stacks=TOTAL)
    publisher, other = world.add(Role.PUBLISHER), world.add(Role.PUBLISHER)
    x = world.add(Role.SUBSCRIBER, "x")
    assert together(world, x)
    archiver = world.add(Role.ARCHIVE, "archive")
    assert together(world, x, archiver)
    world.run(2)
    assert x.views[-1].view.entries[0].member == x.me
    world.cut = lambda one, _: one is publisher
    world.publish(publisher, b"1")
    world.run(0.01)
    world.cut = lambda one, two: publisher in (one, two) and (one, two) != (publisher, x)
    world.run(0.5)
    world.kill(publisher)
    assert world.run(5, lambda: x.gaps == [LostRange(publisher.me.incarnation, 1, 1)])
    world.publish(other, b"2")
    world.run(5)
    assert archiver.disk is not None
    assert archiver.disk.lost() == [LostRange(publisher.me.incarnation, 1, 1)]
    assert archiver.disk.vector[other.me.incarnation] == 1
    assert x.bodies() == [b"2"]
