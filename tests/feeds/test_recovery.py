"""A subscriber that returns, by each policy; archives that are slow, fail, and repair each other."""

import pytest

from recado.feeds.block import Block
from recado.feeds.boundary import LeaveRequested, MessageBatch
from recado.feeds.options import RecoveryPolicy
from recado.feeds.packet import MAX_BATCHES
from recado.feeds.vector import Vector
from recado.feeds.views import Certainty, Role

from .world import Disk, Node, World, together


def scene(seed: int = 0, archives: int = 1, **options: object) -> tuple[World, Node, list[Node]]:
    world = World(seed, **options)  # type: ignore[arg-type]
    publisher = world.add(Role.PUBLISHER)
    archivers = [world.add(Role.ARCHIVE, f"archive-{i}") for i in range(archives)]
    return world, publisher, archivers


def say(world: World, publisher: Node, low: int, high: int, pause: float = 0.01) -> None:
    for i in range(low, high + 1):
        world.publish(publisher, b"%d" % i)
        world.run(pause)


def numbers(low: int, high: int) -> list[bytes]:
    return [b"%d" % i for i in range(low, high + 1)]


@pytest.mark.parametrize(
    "policy",
    [
        RecoveryPolicy.VECTOR,
        RecoveryPolicy.PESSIMISTIC,
        RecoveryPolicy.ARCHIVE,
        RecoveryPolicy.NONE,
    ],
)
@pytest.mark.parametrize("seed", range(5))
def test_a_returning_subscriber_has_all_in_order(policy: RecoveryPolicy, seed: int) -> None:
    world, publisher, archivers = scene(seed, loss=0.1, jitter=0.02, ordered=False)
    first = world.add(Role.SUBSCRIBER, "x")
    assert together(world, first, *archivers)
    say(world, publisher, 1, 20)
    world.run(0.5)
    world.kill(first)
    had = first.member.vector
    assert together(world, *archivers)
    world.run(3)
    say(world, publisher, 21, 40)
    world.run(1)
    again = world.add(Role.SUBSCRIBER, "x", recovery=policy, start_vector=had)
    say(world, publisher, 41, 60)
    assert together(world, again, *archivers)
    say(world, publisher, 61, 70)
    world.run(5)
    assert not again.gaps
    got = again.sequences(publisher.me.incarnation)
    assert got == list(range(got[0], 71))
    match policy:
        case RecoveryPolicy.VECTOR:
            assert got[0] == had.last_of(publisher.me.incarnation) + 1
        case RecoveryPolicy.NONE:
            assert got[0] > 40
        case _:
            assert got[0] <= had.last_of(publisher.me.incarnation) + 1
            for batch in again.got:
                repeated = batch.first <= had.last_of(publisher.me.incarnation)
                assert not repeated or batch.certainty is Certainty.UNCERTAIN
            assert any(batch.certainty is Certainty.MISSED for batch in again.got)


def test_after_leaving_in_order_nothing_is_uncertain() -> None:
    world, publisher, archivers = scene()
    first = world.add(Role.SUBSCRIBER, "x")
    assert together(world, first, *archivers)
    say(world, publisher, 1, 5)
    world.do(first, LeaveRequested())
    world.kill(first)
    say(world, publisher, 6, 9)
    again = world.add(Role.SUBSCRIBER, "x", recovery=RecoveryPolicy.PESSIMISTIC)
    assert together(world, again, *archivers)
    world.run(2)
    assert again.bodies() == numbers(6, 9)
    assert {batch.certainty for batch in again.got} == {Certainty.MISSED}


def test_a_newcomer_gets_everything() -> None:
    world, publisher, archivers = scene()
    assert together(world, *archivers)
    say(world, publisher, 1, 50)
    late = world.add(Role.SUBSCRIBER, "late", recovery=RecoveryPolicy.PESSIMISTIC)
    say(world, publisher, 51, 80)
    world.run(3)
    assert late.bodies() == numbers(1, 80)
    assert late.recovered is not None


@pytest.mark.parametrize("uniform", [True, False])
def test_many_small_batches_come_in_several_answers(uniform: bool) -> None:
    """More than there is room for in one: the rest is not told as lost."""
    archive = "DISPATCH:SYNC:ARCHIVER:UNIFORM:PULL:FRAG:FIFO:NAK:MEMBERSHIP:AMQP"
    stacks = {Role.ARCHIVE: archive, Role.SUBSCRIBER: archive} if uniform else None
    disk = Disk()
    one, other = bytes([1] * 16), bytes([2] * 16)
    block = Block.build([b"."])
    disk.append([MessageBatch(one, number, block) for number in range(1, MAX_BATCHES + 1_001)])
    disk.append([MessageBatch(other, 1, block)])
    world = World(stacks=stacks)
    archiver = world.add(Role.ARCHIVE, "archive", disk)
    assert together(world, archiver)
    x = world.add(Role.SUBSCRIBER, "x", recovery=RecoveryPolicy.VECTOR)
    assert world.run(10, lambda: x.recovered is not None)
    assert x.gaps == []
    assert x.sequences(one) == list(range(1, MAX_BATCHES + 1_001))
    assert x.sequences(other) == [1]


def test_a_vector_that_is_ahead_of_the_others_is_not_repeated() -> None:
    world, publisher, archivers = scene()
    assert together(world, *archivers)
    say(world, publisher, 1, 5)
    ahead = Vector({publisher.me.incarnation: 8})
    x = world.add(Role.SUBSCRIBER, "x", recovery=RecoveryPolicy.VECTOR, start_vector=ahead)
    assert together(world, x, *archivers)
    say(world, publisher, 6, 12)
    world.run(1)
    assert x.bodies() == numbers(9, 12)


def test_who_wants_nothing_back_is_live_at_once() -> None:
    world, publisher, archivers = scene()
    assert together(world, *archivers)
    say(world, publisher, 1, 5)
    x = world.add(Role.SUBSCRIBER, "x")
    assert together(world, x, *archivers)
    assert x.recovered == Vector({publisher.me.incarnation: 5})


def test_without_an_archive_recovery_fails_with_a_hint() -> None:
    world = World()
    x = world.add(Role.SUBSCRIBER, "x", recovery=RecoveryPolicy.PESSIMISTIC)
    world.run(10)
    assert x.failed is not None
    assert "start one" in x.failed
    assert x.member.deadline() is None


def test_or_goes_live_if_told_so() -> None:
    world = World()
    publisher = world.add(Role.PUBLISHER)
    x = world.add(
        Role.SUBSCRIBER, "x", recovery=RecoveryPolicy.PESSIMISTIC, live_without_archive=True
    )
    world.run(10)
    world.publish(publisher, b"1")
    world.run(1)
    assert x.failed is None
    assert x.bodies() == [b"1"]


def test_the_archive_that_fails_during_recovery_is_replaced() -> None:
    world, publisher, archivers = scene(archives=2)
    assert together(world, *archivers)
    for i in range(60):
        world.publish(publisher, b"%d" % i + b" " * 100_000)
        world.run(0.01)
    x = world.add(Role.SUBSCRIBER, "x", recovery=RecoveryPolicy.VECTOR)
    assert world.run(5, lambda: bool(x.got))
    assert not x.recovered
    world.kill(archivers[0])
    world.run(10)
    assert x.sequences(publisher.me.incarnation) == list(range(1, 61))


def test_what_comes_live_during_recovery_is_bounded() -> None:
    world, publisher, archivers = scene()
    assert together(world, *archivers)
    say(world, publisher, 1, 10)
    x = world.add(Role.SUBSCRIBER, "x", recovery=RecoveryPolicy.PESSIMISTIC, buffer_bytes=2_000)
    say(world, publisher, 11, 100, pause=0.0005)
    assert x.recovered is None, "all this comes during recovery"
    world.run(5)
    assert x.sequences(publisher.me.incarnation) == list(range(1, 101))


@pytest.mark.parametrize("ordered", [True, False])
def test_archives_repair_each_other(ordered: bool) -> None:
    world, publisher, archivers = scene(archives=3, ordered=ordered)
    assert together(world, *archivers)
    say(world, publisher, 1, 10)
    away = archivers[1]
    world.kill(away)
    say(world, publisher, 11, 30)
    world.run(2)
    assert away.disk is not None
    back = world.add(Role.ARCHIVE, "archive-1", disk=away.disk)
    alive = [archivers[0], back, archivers[2]]
    assert together(world, *alive)
    say(world, publisher, 31, 40)
    world.run(5)
    vectors = [node.disk.vector for node in alive if node.disk]
    assert vectors == [{publisher.me.incarnation: 40}] * 3
    tables = [
        {r.view.id for r in n.disk.state().views if not r.provisional} for n in alive if n.disk
    ]
    assert tables[0] == tables[1] == tables[2]


def test_a_new_archive_copies_what_the_others_have() -> None:
    world, publisher, archivers = scene()
    assert together(world, *archivers)
    say(world, publisher, 1, 30)
    new = world.add(Role.ARCHIVE, "new")
    assert together(world, new, *archivers)
    world.run(3)
    assert new.disk is not None
    assert new.disk.vector == {publisher.me.incarnation: 30}


def test_an_archive_restarts_alone_and_goes_on() -> None:
    world, publisher, (archiver,) = scene()
    x = world.add(Role.SUBSCRIBER, "x")
    assert together(world, archiver, x)
    say(world, publisher, 1, 10)
    world.kill(archiver)
    say(world, publisher, 11, 20)
    world.run(2)
    back = world.add(Role.ARCHIVE, "archive-0", disk=archiver.disk)
    assert together(world, back, x)
    say(world, publisher, 21, 30)
    world.run(3)
    assert x.bodies() == numbers(1, 30)
    assert back.disk is not None
    assert back.disk.vector == {publisher.me.incarnation: 30}
