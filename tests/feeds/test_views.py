"""Views: joining, failing, leaving, partitions; and what they say about who got what."""

import pytest

from recado.feeds.boundary import Left
from recado.feeds.vector import Vector
from recado.feeds.views import (
    Acknowledged,
    Certainty,
    MemberId,
    Role,
    Seat,
    Settled,
    Table,
    View,
    ViewId,
    ViewRecord,
)

from .world import Node, World, together

P = b"p" * 16
MISSED, UNCERTAIN, DELIVERED = Certainty.MISSED, Certainty.UNCERTAIN, Certainty.DELIVERED


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
    oldest = nodes[0].views[-1].view.seats[0].member
    dead = next(node for node in nodes if node.me == oldest)
    rest = [node for node in nodes if node is not dead]
    world.kill(dead)
    assert together(world, *rest)
    numbers = [installed.view.id.number for installed in rest[0].views]
    assert numbers == sorted(set(numbers))


def test_who_leaves_is_left_out_at_once() -> None:
    world = World(suspect=100.0)
    a, b = world.add(Role.SUBSCRIBER, "a"), world.add(Role.SUBSCRIBER, "b")
    assert together(world, a, b)
    world.do(a, Left())
    world.kill(a)
    assert together(world, b)
    assert world.now < 3


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
            later = [v.cut.of(batch.publisher) for v in node.views if v.view.id <= batch.view]
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
        assert node.member.vector == {publisher.me.incarnation: 3}


# --- the table ---


def member(name: str, life: int = 1) -> MemberId:
    return MemberId(name, bytes([life]) * 16)


def view(number: int, cut: int, *members: MemberId, previous: int | None = -1) -> ViewRecord:
    seats = tuple(Seat(m, Role.SUBSCRIBER) for m in members)
    before = number - 1 if previous == -1 else previous
    ids = (ViewId(before, bytes(16)),) if before else ()
    return ViewRecord(View(ViewId(number, bytes(16)), seats), Vector({P: cut}), ids)


def settled(number: int, reach: int) -> Settled:
    return Settled(ViewId(number, bytes(16)), Vector({P: reach}))


def ack(who: MemberId, number: int, start: int, upto: int, final: bool = False) -> Acknowledged:
    return Acknowledged(
        who, ViewId(number, bytes(16)), Vector({P: start}), Vector({P: upto}), final
    )


X, Y, AGAIN = member("x"), member("y"), member("y", 2)


def test_the_three_classes() -> None:
    table = Table([
        view(1, 0, X, Y), view(2, 10, X, Y), view(3, 20, Y), settled(3, 22), view(4, 30, Y),
        ack(X, 2, 0, 10),
    ])  # fmt: skip
    assert table.standing("x").split(P, 1, 40) == [
        (1, 10, DELIVERED),
        (11, 22, UNCERTAIN),
        (23, 40, MISSED),
    ]
    assert table.start("x") == {P: 10}


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        ([view(1, 0, X), view(2, 10, Y)], [(1, 40, UNCERTAIN)]),
        (
            [view(1, 0, X, Y), view(2, 10, Y), settled(2, 12)],
            [(1, 12, UNCERTAIN), (13, 40, MISSED)],
        ),
        ([view(1, 0, X, Y), view(2, 10, AGAIN), settled(2, 12)], [(1, 40, UNCERTAIN)]),
        (
            [view(1, 0, X, Y), view(2, 9, Y, AGAIN), view(3, 10, AGAIN), settled(3, 12)],
            [(1, 12, UNCERTAIN), (13, 40, MISSED)],
        ),
        ([view(1, 0, X), ack(X, 1, 0, 5, True)], [(1, 5, DELIVERED), (6, 40, MISSED)]),
        ([view(1, 0, Y)], [(1, 40, MISSED)]),
        ([view(5, 9, Y)], [(1, 40, UNCERTAIN)]),
        (
            [view(5, 9, Y), view(6, 9, Y), settled(5, 9), settled(6, 20)],
            [(1, 9, UNCERTAIN), (10, 40, MISSED)],
        ),
    ],
    ids=[
        "not settled yet",
        "never acknowledged",
        "left out by one that was not there before",
        "left out by one that joined those who were",
        "left in order",
        "never seen",
        "views before are unknown, and nothing is settled",
        "views before are unknown",
    ],
)
def test_what_is_not_known_is_uncertain(
    records: list[ViewRecord | Settled | Acknowledged],
    expected: list[tuple[int, int, Certainty]],
) -> None:
    assert Table(records).standing("x").split(P, 1, 40) == expected


def test_the_present_life_does_not_count() -> None:
    second = member("x", 2)
    table = Table(
        [view(1, 0, X, Y), view(2, 10, Y), settled(2, 10), view(3, 20, Y, second), ack(X, 1, 0, 4)]
    )
    assert table.standing("x", second).split(P, 1, 40) == [
        (1, 4, DELIVERED),
        (5, 10, UNCERTAIN),
        (11, 40, MISSED),
    ]
    assert table.knows(second)


def test_when_the_name_is_back_its_earlier_life_is_over() -> None:
    table = Table(
        [view(1, 0, X, Y), view(5, 20, AGAIN, member("x", 2), previous=1), settled(5, 25)]
    )
    expected = [(1, 25, UNCERTAIN), (26, 40, MISSED)]
    assert table.standing("x", member("x", 2)).split(P, 1, 40) == expected


def test_a_view_that_came_to_be_replaces_the_question_about_it() -> None:
    asked = ViewRecord(view(2, 0, X).view, Vector(), (), provisional=True)
    table = Table([asked])
    assert table.add(view(2, 5, Y))
    assert not table.add(asked)
    assert not table.knows(X)


def test_the_farther_end_is_the_safer() -> None:
    table = Table([view(1, 0, X), settled(1, 5), settled(1, 9)])
    assert not table.add(settled(1, 7))
    assert table.settled[ViewId(1, bytes(16))].reach == {P: 9}
