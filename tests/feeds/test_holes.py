"""A message that was passed over is not delivered: it is a hole in vectors and acknowledgements, and whoever
can recover it waits for archives, or gets it later."""

import pytest

from recado.feeds.block import Block
from recado.feeds.boundary import LeaveRequested, MessageBatch
from recado.feeds.delivery_records import DeliveryRecords
from recado.feeds.layers.archiver import ArchiverLayer
from recado.feeds.options import RecoveryPolicy
from recado.feeds.vector import Vector
from recado.feeds.views import Certainty, FoundRange, LostRange, Role

from .test_recovery import numbers, say
from .world import Disk, Node, World, together

RECOVERIES = (RecoveryPolicy.VECTOR, RecoveryPolicy.PESSIMISTIC, RecoveryPolicy.ARCHIVE)


def alone_with_archive(
    policy: RecoveryPolicy, gap_timeout: float | None = None
) -> tuple[World, Node, Node, Node]:
    """A subscriber has 1 to 3, lacks 4 to 6 and knows 7; only an archive that has stopped has all of them."""
    world = World(ordered=False, retransmit_bytes=0)
    publisher = world.add(Role.PUBLISHER)
    archiver = world.add(Role.ARCHIVE, "archive")
    x = world.add(Role.SUBSCRIBER, "x", recovery=policy, gap_timeout=gap_timeout)
    assert together(world, archiver, x)
    assert world.run(5, lambda: x.recovered is not None)
    say(world, publisher, 1, 3)
    world.run(0.2)
    world.cut = lambda one, other: x in (one, other)
    say(world, publisher, 4, 6)
    world.run(0.2)
    world.kill(archiver)
    world.cut = lambda one, other: False
    say(world, publisher, 7, 7)
    world.kill(publisher)
    return world, publisher, archiver, x


@pytest.mark.parametrize("policy", RECOVERIES)
def test_with_recovery_an_archive_that_is_away_is_waited_for(policy: RecoveryPolicy) -> None:
    world, _, archiver, x = alone_with_archive(policy)
    world.run(20)
    assert x.bodies() == numbers(1, 3)
    assert x.gaps == []
    again = world.add(Role.ARCHIVE, "archive", archiver.disk)
    assert together(world, again, x)
    world.run(1)
    assert x.bodies() == numbers(1, 7)
    assert x.gaps == []
    assert not x.member.vector.holes


def test_who_does_not_want_to_wait_is_told_that_it_fails() -> None:
    world, publisher, _, x = alone_with_archive(RecoveryPolicy.VECTOR, gap_timeout=5.0)
    assert not world.run(4, lambda: x.failed is not None)
    assert world.run(6, lambda: x.failed is not None)
    reason = x.failed or ""
    assert reason.startswith(f"message 4 of publisher {publisher.me.incarnation.hex()} is missing")
    assert "gap_timeout" in reason
    assert x.gaps == []


def certainty(disk: Disk | None, publisher: Node, first: int, last: int) -> list[Certainty]:
    assert disk is not None
    state = disk.state()
    table = DeliveryRecords([*state.views, *state.stability, *state.acknowledgements])
    found = table.delivery_status("x").split(publisher.me.incarnation, first, last)
    return [each for low, high, each in found for _ in range(low, high + 1)]


def test_without_recovery_it_is_told_and_is_not_called_delivered() -> None:
    world, publisher, archiver, x = alone_with_archive(RecoveryPolicy.NONE)
    who = publisher.me.incarnation
    world.run(20)
    assert x.gaps == [LostRange(who, 4, 6)]
    assert x.bodies() == [*numbers(1, 3), b"7"]
    assert x.member.vector == Vector({who: 7}, {who: [(4, 6)]})
    again = world.add(Role.ARCHIVE, "archive", archiver.disk)
    assert together(world, again, x)
    world.run(2)
    world.do(x, LeaveRequested())
    world.kill(x)
    world.run(2)
    is_delivered = [each is Certainty.DELIVERED for each in certainty(again.disk, publisher, 1, 7)]
    assert is_delivered == [True] * 3 + [False] * 3 + [True]
    back = world.add(Role.SUBSCRIBER, "x", recovery=RecoveryPolicy.PESSIMISTIC)
    assert world.run(10, lambda: back.recovered is not None)
    assert back.bodies() == numbers(4, 6)
    assert back.member.vector == {who: 7}


def test_what_archives_have_recorded_as_lost_is_passed_over() -> None:
    world = World(ordered=False, retransmit_bytes=0)
    publisher = world.add(Role.PUBLISHER)
    archivers = [world.add(Role.ARCHIVE, name) for name in ("one", "two")]
    x = world.add(Role.SUBSCRIBER, "x", recovery=RecoveryPolicy.VECTOR)
    assert together(world, x, *archivers)
    assert world.run(5, lambda: x.recovered is not None)
    who = publisher.me.incarnation
    say(world, publisher, 1, 1)
    world.cut = lambda one, other: one is publisher
    say(world, publisher, 2, 2)
    world.cut = lambda one, other: False
    say(world, publisher, 3, 3)
    world.kill(publisher)
    world.run(20)
    assert x.bodies() == [b"1", b"3"]
    assert x.gaps == [LostRange(who, 2, 2)]
    assert x.member.vector == Vector({who: 3}, {who: [(2, 2)]})


@pytest.mark.parametrize("ordered", [True, False])
def test_gaps_of_a_publisher_wait_together(ordered: bool) -> None:
    """FI3: each gap waits for `loss_timeout` from when it became known, not from when the one before it was
    closed."""
    world = World(ordered=ordered, retransmit_bytes=0)
    publisher = world.add(Role.PUBLISHER)
    archiver = world.add(Role.ARCHIVE, "archive")
    x = world.add(Role.SUBSCRIBER, "x")
    assert together(world, archiver, x)
    who = publisher.me.incarnation
    say(world, publisher, 1, 1)
    gaps = (2, 4, 6, 8)
    for gap in gaps:
        world.cut = lambda one, other: one is publisher
        say(world, publisher, gap, gap)
        world.cut = lambda one, other: False
        say(world, publisher, gap + 1, gap + 1)
    world.kill(publisher)
    loss_timeout = 2.0
    assert world.run(2 * loss_timeout, lambda: len(x.gaps) == len(gaps))
    assert x.gaps == [LostRange(who, gap, gap) for gap in gaps]
    assert x.bodies() == [b"1", b"3", b"5", b"7", b"9"]
    assert archiver.disk is not None
    world.run(loss_timeout / 2)
    assert archiver.disk.lost() == x.gaps


def filled(disk: Disk, who: bytes, *spans: tuple[int, int], lost: tuple[int, int]) -> Disk:
    """With these messages, and a record of what is lost, in the order of sequences."""
    for low, high in sorted([*spans, lost]):
        if (low, high) == lost:
            disk.append([LostRange(who, low, high)])
        else:
            disk.append([MessageBatch(who, low, Block.build(numbers(low, high)))])
    return disk


WHO = bytes([7]) * 16


@pytest.mark.parametrize("ordered", [True, False])
def test_archives_repair_what_one_of_them_has_recorded_as_lost(ordered: bool) -> None:
    world = World(ordered=ordered)
    wrong = filled(Disk(), WHO, (1, 3), (7, 9), lost=(4, 6))
    right = filled(Disk(), WHO, (1, 3), (4, 6), (7, 8), lost=(9, 9))
    one = world.add(Role.ARCHIVE, "one", wrong)
    two = world.add(Role.ARCHIVE, "two", right)
    assert together(world, one, two)
    world.run(5)
    assert FoundRange(WHO, 4, 6) in wrong.records
    assert FoundRange(WHO, 9, 9) in right.records
    assert wrong.lost() == right.lost() == []
    world.kill(one)
    world.kill(two)
    again = world.add(Role.ARCHIVE, "one", wrong)
    x = world.add(Role.SUBSCRIBER, "x", recovery=RecoveryPolicy.VECTOR)
    assert together(world, again, x)
    assert world.run(5, lambda: x.recovered is not None)
    assert x.bodies() == numbers(1, 9), "in order, though the archive has them in another"
    assert x.gaps == []


def test_another_archive_is_asked_for_what_one_has_recorded_as_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        ArchiverLayer, "_request_lost", lambda *_: None
    )  # so that x is there before
    world = World()
    wrong = filled(Disk(), WHO, (1, 3), (7, 9), lost=(4, 6))
    right = filled(Disk(), WHO, (1, 6), (7, 8), lost=(9, 9))
    archivers = [world.add(Role.ARCHIVE, "one", wrong), world.add(Role.ARCHIVE, "two", right)]
    x = world.add(Role.SUBSCRIBER, "x", recovery=RecoveryPolicy.VECTOR)
    assert together(world, x, *archivers)
    assert world.run(5, lambda: x.recovered is not None)
    assert wrong.lost() == [LostRange(WHO, 4, 6)]
    assert x.bodies() == numbers(1, 9)
    assert x.gaps == []


def test_a_vector_with_holes_gets_what_is_in_them_and_what_is_behind() -> None:
    world = World()
    disk = filled(Disk(), WHO, (1, 4), (6, 9), lost=(5, 5))
    archiver = world.add(Role.ARCHIVE, "archive", disk)
    vector = Vector({WHO: 7}, {WHO: [(2, 3), (5, 5)]})
    x = world.add(Role.SUBSCRIBER, "x", recovery=RecoveryPolicy.VECTOR, start_vector=vector)
    assert together(world, archiver, x)
    assert world.run(5, lambda: x.recovered is not None)
    assert x.bodies() == [b"2", b"3", b"8", b"9"]
    assert x.gaps == [], "it has been told before"
    assert x.member.vector == Vector({WHO: 9}, {WHO: [(5, 5)]})


@pytest.mark.parametrize("ordered", [True, False])
def test_without_recovery_an_archive_that_returns_brings_no_history(ordered: bool) -> None:
    world = World(ordered=ordered)
    disk = filled(Disk(), WHO, (1, 9), lost=(10, 10))
    plain = [world.add(Role.SUBSCRIBER, name) for name in "ab"]
    assert together(world, *plain)
    publisher = world.add(Role.PUBLISHER)
    say(world, publisher, 1, 3)
    archiver = world.add(Role.ARCHIVE, "archive", disk)
    assert together(world, archiver, *plain)
    say(world, publisher, 4, 6)
    world.run(2)
    for node in plain:
        assert node.sequences(WHO) == []
        assert node.sequences(publisher.me.incarnation) == [1, 2, 3, 4, 5, 6]
        assert node.gaps == []
