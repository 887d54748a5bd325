"""Subscribers whose stack has no MEMBERSHIP: there are no views, so they take part from the start."""

import pytest

from recado.feeds.block import Block
from recado.feeds.boundary import PacketArrived, PacketRoute
from recado.feeds.packet import Data, DurableReport, Fragment, PublisherStatus
from recado.feeds.vector import Vector
from recado.feeds.views import NO_VIEW, Role
from recado.feeds.wire import encode

from .world import Node, World

STACKS = dict.fromkeys((Role.PUBLISHER, Role.SUBSCRIBER), "DISPATCH:FRAG:FIFO:NAK:UDP")
PUBLISHER_ID = bytes(15) + b"p"


def arrive(
    world: World, node: Node, packet: object, channel: PacketRoute = PacketRoute.BROADCAST
) -> None:
    world.do(node, PacketArrived(channel, world.nodes[0].me, encode(packet)))  # type: ignore[arg-type]


@pytest.mark.parametrize("ordered", [True, False])
def test_a_subscriber_of_a_quiet_feed_takes_part_at_once(ordered: bool) -> None:
    world = World(ordered=ordered, stacks=STACKS)
    desk = world.add(Role.SUBSCRIBER, "desk")
    world.run(0.0)
    assert desk.recovered == Vector()
    publisher = world.add(Role.PUBLISHER)
    world.publish(publisher, b"first")
    world.publish(publisher, b"second")
    world.run(1.0)
    assert desk.bodies() == [b"first", b"second"]
    assert desk.gaps == []


@pytest.mark.parametrize("ordered", [True, False])
def test_a_publisher_begins_with_its_first_message_that_arrives(ordered: bool) -> None:
    world = World(ordered=ordered, stacks=STACKS)
    publisher = world.add(Role.PUBLISHER)
    world.publish(publisher, b"before")
    world.run(1.0)
    desk = world.add(Role.SUBSCRIBER, "desk")
    world.run(1.0)
    world.publish(publisher, b"after")
    world.run(5.0)
    assert desk.bodies() == [b"after"]
    assert desk.gaps == []


def test_a_gap_is_filled_by_the_publisher() -> None:
    world = World(ordered=False, stacks=STACKS)
    publisher, desk = world.add(Role.PUBLISHER), world.add(Role.SUBSCRIBER, "desk")
    world.publish(publisher, b"1")
    world.run(0.1)
    world.cut = lambda one, other: one is publisher
    world.publish(publisher, b"2")
    world.run(0.1)
    world.cut = lambda one, other: False
    world.publish(publisher, b"3")
    assert world.run(5.0, lambda: len(desk.got) == 3)
    assert desk.bodies() == [b"1", b"2", b"3"]


def test_a_gap_that_nobody_can_fill_is_reported_as_lost() -> None:
    world = World(stacks=STACKS)
    publisher, desk = world.add(Role.PUBLISHER), world.add(Role.SUBSCRIBER, "desk")
    world.publish(publisher, b"1")
    world.run(0.1)
    for sequence in (2, 4):
        arrive(
            world, desk, Data(publisher.me.incarnation, sequence, Block.build([b"%d" % sequence]))
        )
    assert desk.bodies() == [b"1", b"2"]
    world.run(10.0)
    assert desk.bodies() == [b"1", b"2", b"4"]
    assert [(lost.first, lost.last) for lost in desk.gaps] == [(3, 3)]


def test_reports_about_an_unknown_publisher_do_not_move_its_beginning() -> None:
    """They may overtake messages that are on their way to us."""
    world = World(stacks=STACKS)
    desk = world.add(Role.SUBSCRIBER, "desk")
    world.run(0.0)
    arrive(world, desk, DurableReport(NO_VIEW, {PUBLISHER_ID: 2}), PacketRoute.ADDRESSED)
    arrive(world, desk, PublisherStatus(PUBLISHER_ID, 2, 0))
    arrive(world, desk, Data(PUBLISHER_ID, 1, Block.build([b"1", b"2"])))
    assert desk.bodies() == [b"1", b"2"]
    arrive(world, desk, Data(PUBLISHER_ID, 3, Block.build([b"3"])))
    assert desk.bodies() == [b"1", b"2", b"3"]


def test_a_message_whose_first_fragments_were_sent_before_is_left_out() -> None:
    world = World(stacks=STACKS)
    desk = world.add(Role.SUBSCRIBER, "desk")
    world.run(0.0)
    arrive(world, desk, Fragment(PUBLISHER_ID, 7, 1, 2, b"end"))
    arrive(world, desk, Data(PUBLISHER_ID, 8, Block.build([b"next"])))
    assert desk.bodies() == [b"next"]
    world.run(10.0)
    assert desk.gaps == []
