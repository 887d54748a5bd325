"""A feed with more publishers than anybody follows, true or invented: all goes on but for who is new (RB5)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from recado.feeds import packet as pk
from recado.feeds.block import MAX_BLOCK_BYTES, Block
from recado.feeds.boundary import (
    Broadcast,
    MessageBatch,
    PacketArrived,
    PacketRoute,
    ReportLoss,
    SendAddressed,
    TimerFired,
)
from recado.feeds.delivery_records import MAX_VIEWS
from recado.feeds.layer import BatchReleased, FragmentReleased, MessagesLost
from recado.feeds.layers.dispatch import MAX_ACKNOWLEDGED_HOLES
from recado.feeds.layers.frag import MAX_REASSEMBLED_BLOCKS, FragLayer
from recado.feeds.layers.receive_buffer import (
    IDLE_PUBLISHER_TIMEOUT_S,
    MAX_ORDER_PUBLISHERS,
    ReceiveBuffer,
    max_publishers,
    order_publisher_id,
)
from recado.feeds.member import FeedMember
from recado.feeds.options import FeedOptions
from recado.feeds.stack import Stack
from recado.feeds.vector import MAX_PUBLISHERS, MAX_VECTOR_ENTRIES, Vector
from recado.feeds.views import (
    NO_VIEW,
    AcknowledgementRecord,
    ArchiveRecord,
    MemberId,
    Role,
    View,
    ViewEntry,
    ViewId,
    ViewRecord,
    ViewStability,
)
from recado.feeds.wire import decode, encode

from .world import Node, World, together

DATAGRAM = 60_000
STRANGER = MemberId("", b"s" * 16)


def publisher(number: int) -> bytes:
    return b"publisher" + number.to_bytes(7)


def batch(who: bytes, first: int) -> MessageBatch:
    return MessageBatch(who, first, Block.build([b"x"]))


def full(most: int = 3) -> ReceiveBuffer:
    """Each has published one message."""
    receive_buffer = ReceiveBuffer(1 << 20, most)
    receive_buffer.start({}, 0.0)
    receive_buffer.release_limit = None
    for number in range(most):
        assert receive_buffer.receive(batch(publisher(number), 1), 1.0)
    return receive_buffer


# --- what is received ------------------------------------------------------------------------------


def test_who_is_new_is_turned_away_and_the_others_go_on() -> None:
    receive_buffer = full()
    assert receive_buffer.receive(batch(publisher(3), 1), 2.0) == []
    receive_buffer.note_status(publisher(3), 1, 0.0, 2.0)
    receive_buffer.note_known(publisher(3), 1, 2.0)
    assert receive_buffer.receive(batch(publisher(0), 2), 3.0)
    assert receive_buffer.received_sequences() == {
        publisher(0): 2,
        publisher(1): 1,
        publisher(2): 1,
    }
    assert receive_buffer.rejected_count == 3
    receive_buffer.check()


def test_a_cut_does_not_wait_for_whom_there_is_no_room() -> None:
    receive_buffer = full()
    cut = {publisher(0): 1, publisher(9): 5}
    for who, last in cut.items():
        receive_buffer.note_known(who, last, 2.0)
    assert receive_buffer.has_reached(cut)
    assert not receive_buffer.has_reached({publisher(0): 2})


def test_who_has_published_nothing_and_is_silent_makes_room() -> None:
    receive_buffer = ReceiveBuffer(1 << 20, 3)
    receive_buffer.start({}, 0.0)
    receive_buffer.release_limit = None
    for number in range(3):
        receive_buffer.note_status(
            publisher(number), number, 0.0, 1.0
        )  # the first has published nothing
    assert not receive_buffer.receive(batch(publisher(3), 1), 2.0)
    assert receive_buffer.receive(batch(publisher(3), 1), 2.0 + IDLE_PUBLISHER_TIMEOUT_S)
    assert list(receive_buffer.publishers) == [publisher(1), publisher(2), publisher(3)]
    receive_buffer.check()


def test_to_begin_with_the_publishers_of_the_view_go_before_those_that_were_only_heard() -> None:
    receive_buffer = ReceiveBuffer(1 << 20, 3)
    for number in range(3):
        receive_buffer.receive(batch(publisher(number), 1), 1.0)
    receive_buffer.start({publisher(2): 1, publisher(7): 4, publisher(8): 4, publisher(9): 4}, 2.0)
    assert list(receive_buffer.publishers) == [publisher(2), publisher(7), publisher(8)]
    receive_buffer.check()


def test_the_order_of_all_has_room_when_there_is_none() -> None:
    receive_buffer = full()
    assert receive_buffer.receive(batch(order_publisher_id(NO_VIEW), 1), 2.0)
    receive_buffer.check()


# --- what a member says ----------------------------------------------------------------------------


def test_as_many_as_there_may_be_fit_in_what_is_read() -> None:
    vector = Vector(
        {number.to_bytes(16): 2**63 - 1 for number in range(MAX_PUBLISHERS + MAX_ORDER_PUBLISHERS)}
    )
    ack = pk.Acknowledgement(NO_VIEW, vector, vector, is_final=False)
    assert decode(encode(ack)) == ack
    assert len(Vector.from_text(vector.to_text())) == len(vector)


def test_where_there_is_no_broker_they_fit_in_a_datagram() -> None:
    most = max_publishers(FeedOptions(has_total_order=False, max_packet_bytes=DATAGRAM))
    vector = {number.to_bytes(16): 2**63 - 1 for number in range(most)}
    holes = {number.to_bytes(16): [(2**62, 2**62)] for number in range(MAX_ACKNOWLEDGED_HOLES)}
    had = Vector(vector, holes)
    assert len(encode(pk.Acknowledgement(NO_VIEW, had, had, is_final=False))) <= DATAGRAM
    seats = tuple(ViewEntry(MemberId("n" * 20, bytes(16)), Role.SUBSCRIBER) for _ in range(100))
    view = View(ViewId(1, bytes(16)), seats)
    assert len(encode(pk.NewView(view, [1] * 100, vector, [], is_complete=True))) <= DATAGRAM


def forgeries(count: int, view: ViewId) -> Iterator[PacketArrived]:
    """All ways in which a publisher is heard of."""
    sender = MemberId("x", b"x" * 16)
    for number in range(count):
        who = b"forged" + number.to_bytes(10)
        yield PacketArrived(PacketRoute.BROADCAST, sender, encode(pk.PublisherStatus(who, 0, 0)))
        yield PacketArrived(
            PacketRoute.BROADCAST, sender, encode(pk.PublisherStatus(b"E" + who[1:], 3, 0))
        )
        yield PacketArrived(
            PacketRoute.BROADCAST, sender, encode(pk.Data(b"F" + who[1:], 1, Block.build([b"x"])))
        )
        part = pk.Fragment(b"G" + who[1:], 1, 0, 2, b"x")
        yield PacketArrived(PacketRoute.BROADCAST, sender, encode(part))
        yield PacketArrived(
            PacketRoute.ADDRESSED, sender, encode(pk.DurableReport(view, {b"H" + who[1:]: 1}))
        )


@pytest.mark.parametrize("role", [Role.SUBSCRIBER, Role.ARCHIVE])
def test_who_invents_publishers_takes_no_memory_and_stops_nobody(role: Role) -> None:
    world = World(ordered=False, max_packet_bytes=DATAGRAM)
    true = world.add(Role.PUBLISHER)
    one = world.add(role, "one")
    other = world.add(Role.SUBSCRIBER, "other")
    assert together(world, one, other)
    world.publish(true, b"1")
    world.run(1)
    for event in forgeries(1_500, one.views[-1].view.id):
        world.do(one, event)
    room = max_publishers(one.member.context.options)
    assert one.member.publisher_counts == (room, room)
    assert one.member.rejected_count > 0
    world.publish(true, b"2")
    third = world.add(Role.SUBSCRIBER, "third")
    assert together(world, one, other, third), "views are still made"
    world.publish(true, b"3")
    world.run(1)
    assert other.sequences(true.me.incarnation) == [1, 2, 3]
    assert third.sequences(true.me.incarnation)[-1:] == [3]
    assert fits(one), "it says nothing that does not fit"


def fits(node: Node) -> bool:
    packets = [each.packet for each in node.log if isinstance(each, Broadcast | SendAddressed)]
    return bool(packets) and max(map(len, packets)) <= DATAGRAM


def test_two_groups_with_all_that_they_can_follow_make_one_view() -> None:
    world = World(ordered=False, max_packet_bytes=DATAGRAM)
    one, other = world.add(Role.SUBSCRIBER, "one"), world.add(Role.SUBSCRIBER, "other")
    world.cut = lambda a, b: True
    world.run(3)
    room = max_publishers(one.member.context.options)
    for node, start in ((one, 0), (other, room)):
        for number in range(start, start + room):
            data = pk.Data(publisher(number), 1, Block.build([b"x"]))
            world.do(
                node,
                PacketArrived(
                    PacketRoute.BROADCAST,
                    STRANGER,
                    encode(pk.PublisherStatus(publisher(number), 0, 0)),
                ),
            )
            world.do(node, PacketArrived(PacketRoute.BROADCAST, STRANGER, encode(data)))
        assert node.member.publisher_counts == (room, room)
    world.cut = lambda a, b: False
    assert together(world, one, other)
    assert fits(one)
    assert fits(other)
    assert len(one.views[-1].cut) <= room + MAX_ORDER_PUBLISHERS


def test_archives_compare_as_many_views_as_they_remember() -> None:
    world = World(ordered=False, max_packet_bytes=DATAGRAM)
    one, other = world.add(Role.ARCHIVE, "one"), world.add(Role.ARCHIVE, "other")
    assert together(world, one, other)
    views = [
        View(ViewId(n, b"c" * 16), (ViewEntry(one.me, Role.ARCHIVE),)) for n in range(9, MAX_VIEWS)
    ]
    records: list[ArchiveRecord] = [ViewRecord(view, Vector(), ()) for view in views]
    records += [ViewStability(view.id, Vector({publisher(1): 2**62})) for view in views]
    records += [
        AcknowledgementRecord(
            MemberId(f"s{n}", n.to_bytes(16)), NO_VIEW, Vector(), Vector({publisher(1): 1})
        )
        for n in range(MAX_VIEWS)
    ]
    for at in range(0, len(records), 100):
        told = encode(pk.RecordsReply(records[at : at + 100]))
        world.do(one, PacketArrived(PacketRoute.ADDRESSED, MemberId("x", b"x" * 16), told))
    world.run(3)
    assert fits(one)
    assert other.disk is not None
    assert {r.view.id for r in other.disk.records if isinstance(r, ViewRecord)} >= {
        view.id for view in views
    }


def test_a_vector_of_too_many_is_refused_by_name() -> None:
    text = ",".join(f"{number:032x}:1" for number in range(MAX_VECTOR_ENTRIES + 1))
    with pytest.raises(ValueError, match=r"131,073 publishers exceeds the limit of 131,072"):
        Vector.from_text(text)


# --- messages in pieces ----------------------------------------------------------------------------


def test_what_is_put_together_is_bounded_whoever_begins_messages() -> None:
    member = FeedMember(
        MemberId("one", b"1" * 16), Role.SUBSCRIBER,
        Stack.parse("DISPATCH:SYNC:PULL:FRAG:FIFO:NAK:MEMBERSHIP:UDP"), FeedOptions(has_total_order=False),
    )  # fmt: skip
    member.handle(TimerFired(), 1.0)
    frag = next(layer for layer in member._layers if isinstance(layer, FragLayer))
    passed: list[object] = []
    frag.link(lambda event, _: passed.append(event), lambda *_: None)
    piece = bytes(MAX_BLOCK_BYTES // 2)
    for number in range(3 * MAX_REASSEMBLED_BLOCKS):
        frag.up(FragmentReleased(publisher(number), 1, 0, 2, piece), 1.0)
        kept = sum(
            len(each) for joining in frag._reassembling.values() for each in joining.fragments
        )
        assert kept <= MAX_REASSEMBLED_BLOCKS * MAX_BLOCK_BYTES
    frag.up(FragmentReleased(publisher(0), 1, 1, 2, b""), 2.0)
    lost = passed.pop()
    assert isinstance(lost, MessagesLost)
    assert (lost.lost.publisher, lost.lost.first, lost.lost.last) == (publisher(0), 1, 1)
    whole = Block.build([b"y" * 100]).data
    frag.up(FragmentReleased(publisher(0), 2, 0, 2, whole[:50]), 3.0)
    frag.up(FragmentReleased(publisher(0), 2, 1, 2, whole[50:]), 3.0)
    assert isinstance(passed[-1], BatchReleased), "the next one is whole"
    assert not [each for each in passed if isinstance(each, ReportLoss)]
