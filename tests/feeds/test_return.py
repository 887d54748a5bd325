"""What a name that returns may have been given before, where archives lag, were away, or hear not everybody."""

import pytest

from recado.feeds.block import Block
from recado.feeds.boundary import (
    Effect,
    PacketArrived,
    PacketRoute,
    SendAddressed,
)
from recado.feeds.options import RecoveryPolicy
from recado.feeds.packet import Data, DurableReport, PullRequest
from recado.feeds.views import Certainty, Role, ViewRecord
from recado.feeds.wire import decode, encode

from .test_recovery import numbers, say, scene
from .world import Node, World, together

LIVE, MISSED, UNCERTAIN = Certainty.LIVE, Certainty.MISSED, Certainty.UNCERTAIN


def classes(node: Node, publisher: Node) -> dict[int, Certainty]:
    """What each message is called."""
    batches = [batch for batch in node.got if batch.publisher == publisher.me.incarnation]
    return {n: batch.certainty for batch in batches for n in range(batch.first, batch.last + 1)}


def test_what_the_archive_did_not_know_of_is_not_called_live() -> None:
    """SY5: the cut of the view of the return is behind what the last incarnation was given."""
    world, publisher, (archiver,) = scene(ordered=False)
    x = world.add(Role.SUBSCRIBER, "x")
    assert together(world, x, archiver)
    say(world, publisher, 1, 5)
    world.run(0.5)
    world.cut = lambda one, other: one is publisher and other is archiver
    say(world, publisher, 6, 7)
    assert x.bodies() == numbers(1, 7)
    world.kill(x)
    again = world.add(Role.SUBSCRIBER, "x", recovery=RecoveryPolicy.PESSIMISTIC)
    assert together(world, again, archiver)
    say(world, publisher, 8, 9)
    world.run(0.3)
    assert again.views[-1].cut.last_of(publisher.me.incarnation) == 5
    assert again.bodies()[-4:] == numbers(6, 9)
    assert {classes(again, publisher)[n] for n in (6, 7)} == {UNCERTAIN}
    world.cut = lambda one, other: False
    world.run(5)
    say(world, publisher, 10, 12)
    assert {classes(again, publisher)[n] for n in (10, 11, 12)} == {LIVE}
    assert not again.gaps


def test_what_comes_of_a_publisher_that_the_archive_has_not_heard_is_not_called_live() -> None:
    """SY6: x and a publisher that is new were cut off together, and x is back first."""
    world, publisher, (archiver,) = scene(ordered=False)
    x = world.add(Role.SUBSCRIBER, "x")
    assert together(world, x, archiver)
    world.run(1)
    late = world.add(Role.PUBLISHER)
    machine = (x, late)
    world.cut = lambda one, other: (one in machine) != (other in machine)
    say(world, late, 1, 5)
    assert x.bodies() == numbers(1, 5)
    world.kill(x)
    assert together(world, archiver)
    world.run(2)
    world.cut = lambda one, other: one is late
    again = world.add(Role.SUBSCRIBER, "x", recovery=RecoveryPolicy.PESSIMISTIC)
    assert together(world, again, archiver)
    world.run(2)
    say(world, publisher, 1, 2)
    assert set(classes(again, publisher).values()) == {LIVE}, "its bound is known"
    world.cut = lambda one, other: False
    world.run(1)
    assert classes(again, late) == dict.fromkeys(range(1, 6), UNCERTAIN)
    say(world, late, 6, 7)
    assert {classes(again, late)[n] for n in (6, 7)} == {LIVE}, "the archive has told"


def test_a_publisher_that_begins_after_the_return_is_live() -> None:
    """SY6."""
    world, publisher, (archiver,) = scene(ordered=False)
    x = world.add(Role.SUBSCRIBER, "x")
    assert together(world, x, archiver)
    say(world, publisher, 1, 3)
    world.kill(x)
    again = world.add(Role.SUBSCRIBER, "x", recovery=RecoveryPolicy.PESSIMISTIC)
    assert together(world, again, archiver)
    world.run(5)
    young = world.add(Role.PUBLISHER)
    world.run(0.01)
    say(world, young, 1, 3)
    assert classes(again, young) == dict.fromkeys(range(1, 4), LIVE)


def test_where_the_archive_keeps_up_what_comes_live_is_live() -> None:
    world, publisher, (archiver,) = scene()
    x = world.add(Role.SUBSCRIBER, "x")
    assert together(world, x, archiver)
    say(world, publisher, 1, 5)
    world.kill(x)
    again = world.add(Role.SUBSCRIBER, "x", recovery=RecoveryPolicy.PESSIMISTIC)
    assert together(world, again, archiver)
    world.run(0.2)
    say(world, publisher, 6, 9)
    assert {classes(again, publisher)[n] for n in range(6, 10)} == {LIVE}


def test_an_archive_that_was_away_does_not_know_what_another_one_gave() -> None:
    """IH3."""
    world, publisher, archivers = scene(archives=2, ordered=False)
    x = world.add(Role.SUBSCRIBER, "x")
    assert together(world, x, *archivers)
    world.run(1)
    world.kill(archivers[1])
    assert together(world, x, archivers[0])
    say(world, publisher, 1, 5)
    assert x.bodies() == numbers(1, 5)
    world.kill(x)
    world.kill(archivers[0])
    world.run(2)
    back = world.add(Role.ARCHIVE, "archive-1", disk=archivers[1].disk)
    assert together(world, back)
    world.run(3)
    say(world, publisher, 6, 7)
    world.run(2)
    again = world.add(Role.SUBSCRIBER, "x", recovery=RecoveryPolicy.PESSIMISTIC)
    assert together(world, again, back)
    world.run(2)
    assert again.bodies() == numbers(1, 7)
    assert {classes(again, publisher)[n] for n in range(1, 6)} == {UNCERTAIN}
    world.kill(again)
    assert together(world, back)
    world.run(3)
    say(world, publisher, 8, 9)
    world.run(1)
    third = world.add(Role.SUBSCRIBER, "x", recovery=RecoveryPolicy.PESSIMISTIC)
    assert together(world, third, back)
    world.run(2)
    assert {classes(third, publisher)[n] for n in (8, 9)} == {MISSED}, "since then it was there"


@pytest.mark.parametrize("ordered", [True, False])
def test_an_archive_that_was_away_learns_from_one_that_was_there(ordered: bool) -> None:
    world, publisher, archivers = scene(archives=3, ordered=ordered)
    x = world.add(Role.SUBSCRIBER, "x")
    assert together(world, x, *archivers)
    world.run(1)
    say(world, publisher, 1, 3)
    world.kill(x)
    assert together(world, *archivers)
    world.run(2)
    say(world, publisher, 4, 6)
    world.kill(archivers[0])
    assert together(world, *archivers[1:])
    say(world, publisher, 7, 8)
    back = world.add(Role.ARCHIVE, "archive-0", disk=archivers[0].disk)
    assert together(world, back, *archivers[1:])
    world.run(3)
    world.kill(archivers[1])
    assert together(world, back, archivers[2])
    again = world.add(Role.SUBSCRIBER, "x", recovery=RecoveryPolicy.PESSIMISTIC)
    assert together(world, again, back, archivers[2])
    world.run(2)
    assert again.bodies()[-5:] == numbers(4, 8)
    assert {classes(again, publisher)[n] for n in range(4, 9)} == {MISSED}


# --- without recovery ---


def test_who_starts_alone_begins_with_what_is_published_when_it_hears() -> None:
    """RB4: its publisher was there before."""
    world = World(ordered=False)
    publisher = world.add(Role.PUBLISHER)
    say(world, publisher, 1, 5)
    world.cut = lambda one, other: one is publisher
    x = world.add(Role.SUBSCRIBER, "x")
    assert together(world, x)
    say(world, publisher, 6, 7)
    world.run(1)
    world.cut = lambda one, other: False
    world.run(0.5)
    say(world, publisher, 8, 9)
    world.run(1)
    assert x.bodies() == numbers(8, 9)
    assert not x.gaps
    world.publish(publisher, b"10")
    world.run(2)
    assert x.member.vector == {publisher.me.incarnation: 10}


def test_it_has_all_of_a_publisher_that_is_younger() -> None:
    world = World(ordered=False)
    x = world.add(Role.SUBSCRIBER, "x")
    assert together(world, x)
    world.run(1)
    world.cut = lambda one, other: one.role is Role.PUBLISHER
    publisher = world.add(Role.PUBLISHER)
    say(world, publisher, 1, 3)
    world.cut = lambda one, other: False
    say(world, publisher, 4, 5)
    world.run(1)
    assert x.bodies() == numbers(1, 5)


@pytest.mark.parametrize("ordered", [True, False])
def test_a_new_publisher_is_heard_at_once(ordered: bool) -> None:
    """It says that it is new, before its first message."""
    world = World(ordered=ordered)
    x = world.add(Role.SUBSCRIBER, "x")
    assert together(world, x)
    publisher = world.add(Role.PUBLISHER)
    world.publish(publisher, b"1")
    world.kill(publisher)
    world.run(0.05)
    assert x.bodies() == numbers(1, 1)


def test_a_unsynced_publisher_that_never_tells_its_age_is_taken_as_it_comes() -> None:
    world = World(ordered=False)
    publisher = world.add(Role.PUBLISHER)
    say(world, publisher, 1, 5)
    world.cut = lambda one, other: one is publisher
    x = world.add(Role.SUBSCRIBER, "x")
    assert together(world, x)
    world.cut = lambda one, other: False
    world.publish(publisher, b"6")
    world.kill(publisher)
    world.run(2)
    assert x.bodies() == numbers(6, 6)
    assert not x.gaps


def test_who_was_alone_begins_at_the_cut_of_those_it_meets() -> None:
    """FI4. What its archives are told of it begins there too."""
    world, publisher, (archiver,) = scene(ordered=True)
    assert together(world, archiver)
    say(world, publisher, 1, 5)
    world.cut = lambda one, other: x in (one, other)
    x = world.add(Role.SUBSCRIBER, "x")
    assert together(world, x)
    say(world, publisher, 6, 7)
    world.cut = lambda one, other: one is publisher and other is x
    assert together(world, x, archiver)
    world.cut = lambda one, other: False
    say(world, publisher, 8, 9)
    world.run(2)
    assert x.bodies() == numbers(8, 9)
    assert archiver.disk is not None
    acks = [ack for ack in archiver.disk.state().acknowledgements if ack.member == x.me]
    assert {ack.start.last_of(publisher.me.incarnation) for ack in acks} == {7}


def test_who_begins_listens_first_where_archives_may_lag() -> None:
    """MB8."""
    world, publisher, (archiver,) = scene(ordered=False)
    assert together(world, archiver)
    say(world, publisher, 1, 5)
    world.cut = lambda one, other: one is publisher and other is archiver
    say(world, publisher, 6, 7)
    x = world.add(Role.SUBSCRIBER, "x")
    assert together(world, archiver, x)
    say(world, publisher, 8, 9)
    world.run(0.5)
    assert x.bodies() == numbers(8, 9)


def test_who_begins_where_archives_do_not_hear_begins_when_it_hears() -> None:
    """FI4: the group is cut off from the publisher, and knows less than x was given before."""
    world, publisher, (archiver,) = scene(ordered=False)
    assert together(world, archiver)
    say(world, publisher, 1, 5)
    world.cut = lambda one, other: one is publisher
    say(world, publisher, 6, 7)
    x = world.add(Role.SUBSCRIBER, "x")
    assert together(world, archiver, x)
    world.run(1)
    world.cut = lambda one, other: False
    world.run(1)
    say(world, publisher, 8, 9)
    world.run(1)
    assert x.bodies() == numbers(8, 9)
    assert not x.gaps


def test_it_does_not_take_what_was_published_before_it_for_a_loss_on_the_way() -> None:
    """RB4: it hears the publisher as soon as it has joined."""
    world, publisher, (archiver,) = scene(ordered=False)
    assert together(world, archiver)
    say(world, publisher, 1, 5)
    world.cut = lambda one, other: one is publisher
    say(world, publisher, 6, 7)
    x = world.add(Role.SUBSCRIBER, "x")
    assert together(world, archiver, x)
    world.cut = lambda one, other: False
    say(world, publisher, 8, 9)
    world.run(1)
    assert x.bodies() == numbers(8, 9)
    assert not x.gaps


def test_what_is_lost_on_the_way_when_it_has_joined_is_not_older_than_it() -> None:
    """RB4: the publisher tells what it had published when x began."""
    world, publisher, (archiver,) = scene(ordered=False)
    assert together(world, archiver)
    say(world, publisher, 1, 5)
    world.cut = lambda one, other: one is publisher and other is x
    x = world.add(Role.SUBSCRIBER, "x")
    assert together(world, archiver, x)
    say(world, publisher, 6, 7)
    world.run(0.1)
    world.cut = lambda one, other: False
    world.run(1)
    assert x.bodies() == numbers(6, 7)


@pytest.mark.parametrize("tells_first", [True, False])
def test_who_joins_one_that_lags_begins_when_it_hears(tells_first: bool) -> None:
    """FI4, where nothing is cast again: the broker has nothing for x that is older than its queue."""
    world, publisher, (archiver,) = scene(ordered=True)
    y = world.add(Role.SUBSCRIBER, "y")
    assert together(world, archiver, y)
    say(world, publisher, 1, 5)
    world.cut = lambda one, other: y in (one, other)
    assert together(world, y)
    say(world, publisher, 6, 7)
    world.cut = lambda one, other: one is publisher or archiver in (one, other)
    x = world.add(Role.SUBSCRIBER, "x")
    assert together(world, x, y)
    world.cut = lambda one, other: archiver in (one, other)
    if tells_first:
        world.run(0.15)
    world.publish(publisher, b"8")
    world.run(0.01)
    assert x.bodies() == numbers(8, 8), "at once"
    world.cut = lambda one, other: False
    assert together(world, x, y, archiver)
    say(world, publisher, 9, 9)
    world.run(1)
    assert x.bodies() == numbers(8, 9)
    assert y.bodies() == numbers(1, 9)
    assert not x.gaps
    assert x.member.vector == {publisher.me.incarnation: 9}
    assert archiver.disk is not None
    acks = [ack for ack in archiver.disk.state().acknowledgements if ack.member == x.me]
    assert {ack.start.last_of(publisher.me.incarnation) for ack in acks} == {7}


def test_with_one_that_only_others_hear_it_begins_behind_what_they_have() -> None:
    """RB4: it would be waited for in vain, and with TOTAL all that comes behind it in the order."""
    world, publisher, (archiver,) = scene(ordered=False)
    assert together(world, archiver)
    say(world, publisher, 1, 5)
    x = world.add(Role.SUBSCRIBER, "x")
    world.cut = lambda one, other: {one, other} == {publisher, x}
    assert together(world, archiver, x)
    say(world, publisher, 6, 7)
    world.run(1)
    assert not x.bodies()
    say(world, publisher, 8, 9)
    world.run(1)
    assert x.bodies() == numbers(8, 9)


def assumed_scene(*, ordered: bool) -> tuple[World, Node, Node, Node, tuple[Node, Node, Node]]:
    """A publisher that has ended, an archive that is away and has 1 to 7 of it, as an earlier incarnation of x had,
    and x, y, z in one view: x was told by y, which has 1 to 3, where to begin."""
    world, publisher, (archiver,) = scene(ordered=ordered)
    first = world.add(Role.SUBSCRIBER, "x")
    y = world.add(Role.SUBSCRIBER, "y")
    assert together(world, archiver, first, y)
    say(world, publisher, 1, 3)
    world.cut = lambda one, other: y in (one, other)
    say(world, publisher, 4, 7)
    assert first.bodies() == numbers(1, 7)
    for node in (publisher, archiver, first):
        world.kill(node)
    x, z = world.add(Role.SUBSCRIBER, "x"), world.add(Role.SUBSCRIBER, "z")
    assert together(world, x, z)
    world.cut = lambda one, other: False
    assert together(world, x, y, z)
    world.run(2)
    assert x.member.vector.last_of(publisher.me.incarnation) == 3
    return world, publisher, archiver, x, (x, y, z)


@pytest.mark.parametrize("ordered", [True, False])
def test_an_assumed_beginning_moves_to_the_cut_when_an_archive_returns(ordered: bool) -> None:
    """RB4: x gets nothing that was published before it began."""
    world, publisher, archiver, x, members = assumed_scene(ordered=ordered)
    back = world.add(Role.ARCHIVE, "archive-0", disk=archiver.disk)
    assert together(world, *members, back)
    world.run(3)
    assert members[1].bodies() == numbers(1, 7)
    assert not x.bodies()
    assert not x.gaps
    assert x.member.vector.last_of(publisher.me.incarnation) == 7


@pytest.mark.parametrize("ordered", [True, False])
def test_an_archive_outside_the_view_shows_no_gap_behind_an_assumed_beginning(
    ordered: bool,
) -> None:
    """RB4: a member that recovers may have those messages, and would give them to x."""
    world, publisher, archiver, x, (_, y, _) = assumed_scene(ordered=ordered)
    stable = encode(DurableReport(x.views[-1].view.id, {publisher.me.incarnation: 7}))
    before = len(x.log)
    world.do(x, PacketArrived(PacketRoute.ADDRESSED, archiver.me, stable))
    world.run(1)
    assert not questions(x.log[before:])
    world.do(x, PacketArrived(PacketRoute.ADDRESSED, y.me, stable))
    world.run(1)
    assert questions(x.log[before:]), "a member of the view has new messages"


def test_an_assumed_beginning_stays_when_messages_have_come() -> None:
    """RB4, FI1: behind a message that was given, nothing is left out."""
    world, publisher, archiver, x, members = assumed_scene(ordered=False)
    block = Block.build([b"4"])
    world.do(
        x,
        PacketArrived(
            PacketRoute.BROADCAST, publisher.me, encode(Data(publisher.me.incarnation, 4, block))
        ),
    )
    assert x.bodies() == numbers(4, 4)
    back = world.add(Role.ARCHIVE, "archive-0", disk=archiver.disk)
    assert together(world, *members, back)
    world.run(3)
    assert x.bodies() == numbers(4, 7)


@pytest.mark.parametrize("is_killed", [True, False])
@pytest.mark.parametrize("ordered", [True, False])
def test_reports_that_were_delayed_do_not_make_a_publisher_younger(
    ordered: bool, is_killed: bool
) -> None:
    """RB4: the publisher began before x. Its reports wait, on a broker that is stopped or in the socket of x,
    and arrive when they are so old that the publisher seems to have begun after x."""
    world, publisher, (archiver,) = scene(ordered=ordered)
    first = world.add(Role.SUBSCRIBER, "x")
    assert together(world, archiver, first)
    say(world, publisher, 1, 5)
    assert first.bodies() == numbers(1, 5)
    world.kill(first)
    world.cut = lambda one, other: publisher is one or archiver in (one, other)
    x = world.add(Role.SUBSCRIBER, "x")
    assert together(world, x)
    world.cut = lambda one, other: archiver in (one, other)
    world.delay(3)
    say(world, publisher, 6, 7)
    world.run(0.2)
    if is_killed:
        world.kill(publisher)
    world.run(3)
    world.cut = lambda one, other: False
    assert together(world, x, archiver)
    world.run(3)
    # Without a broker they may have been cast again: x begins at most four beats before it heard the publisher.
    assert x.bodies() == (numbers(6, 7) if ordered or is_killed else [])
    assert not x.gaps


@pytest.mark.parametrize("ordered", [True, False])
def test_an_archive_that_returns_does_not_make_a_publisher_younger(ordered: bool) -> None:
    """FI4: it knows the publisher from before, and joins while that one's age is not certain."""
    world, publisher, (archiver,) = scene(ordered=ordered, failure_timeout=1.0)
    first = world.add(Role.SUBSCRIBER, "x")
    assert together(world, archiver, first)
    say(world, publisher, 1, 5)
    for node in (first, archiver):
        world.kill(node)
    world.cut = lambda one, other: publisher is one
    x, y = world.add(Role.SUBSCRIBER, "x"), world.add(Role.SUBSCRIBER, "y")
    assert together(world, x, y)
    world.cut = lambda one, other: False
    world.delay(3)
    say(world, publisher, 6, 7)
    world.kill(publisher)
    world.run(3)
    back = world.add(Role.ARCHIVE, "archive-0", disk=archiver.disk)
    assert together(world, x, y, back)
    world.run(3)
    assert x.bodies() == numbers(6, 7)


def test_a_publisher_that_began_while_we_were_cut_off_is_followed_from_its_first_message() -> None:
    """RB4, on a broker: its first report was not heard, and later ones come at its pace."""
    world, _, (archiver,) = scene(ordered=True)
    x = world.add(Role.SUBSCRIBER, "x")
    assert together(world, archiver, x)
    world.cut = lambda one, other: x in (one, other)
    young = world.add(Role.PUBLISHER)
    say(world, young, 1, 3)
    world.run(0.2)
    world.cut = lambda one, other: False
    say(world, young, 4, 5)
    world.run(1)
    assert x.bodies() == numbers(1, 5)


def questions(log: list[Effect]) -> list[PullRequest]:
    packets = [decode(effect.packet) for effect in log if isinstance(effect, SendAddressed)]
    return [packet for packet in packets if isinstance(packet, PullRequest)]


# --- which views are complete ---


def last_view(node: Node) -> ViewRecord:
    assert node.disk is not None
    return [record for record in node.disk.state().views if not record.provisional][-1]


def test_a_view_is_complete_when_all_others_are_silent() -> None:
    """MB6."""
    world, _, (archiver,) = scene()
    x = world.add(Role.SUBSCRIBER, "x")
    assert together(world, archiver, x)
    assert not last_view(archiver).complete, "nobody has listened for long"
    world.run(1)
    assert last_view(archiver).complete
    y = world.add(Role.SUBSCRIBER, "y")
    assert together(world, archiver, x, y)
    assert last_view(archiver).complete
    world.kill(x)
    assert together(world, archiver, y)
    assert last_view(archiver).complete


def test_who_is_left_out_and_heard_makes_it_incomplete() -> None:
    """MB6: one of them hears x, though the coordinator does not."""
    world, _, archivers = scene(archives=2)
    assert together(world, *archivers)
    x = world.add(Role.SUBSCRIBER, "x")
    assert together(world, x, *archivers)
    world.run(1)
    oldest = last_view(archivers[0]).view.entries[0].member
    world.cut = lambda one, other: one is x and other.me == oldest
    assert together(world, *archivers)
    assert not last_view(archivers[0]).complete
    world.kill(x)
    world.run(2)
    assert last_view(archivers[0]).complete


def test_a_view_that_one_makes_who_hears_nothing_is_not_complete() -> None:
    """MB7: it may be deaf."""
    world, _, archivers = scene(archives=2)
    assert together(world, *archivers)
    world.run(1)
    world.cut = lambda one, other: archivers[1] in (one, other)
    assert together(world, archivers[1])
    world.run(2)
    assert not last_view(archivers[1]).complete
    assert last_view(archivers[0]).complete, "it hears the publisher"
