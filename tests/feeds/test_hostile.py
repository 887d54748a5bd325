"""What anybody may send who reaches a feed: nothing of it makes a member fall over or costs much (F10, M2)."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from recado.feeds import packet as pk
from recado.feeds.block import MAX_BLOCK_BYTES, Block
from recado.feeds.boundary import (
    ArchiveRead,
    ArchiveState,
    Broadcast,
    DeliverBatch,
    Effect,
    Event,
    MessageBatch,
    MessageRange,
    PacketArrived,
    PacketRoute,
    PublishRequested,
    ReadArchive,
    SendAddressed,
    StoreEntries,
    TimerFired,
)
from recado.feeds.layers.frag import FragLayer
from recado.feeds.layers.receive_buffer import order_publisher_id
from recado.feeds.member import FeedMember
from recado.feeds.options import FeedOptions, RecoveryPolicy
from recado.feeds.stack import Stack
from recado.feeds.vector import MAX_SEQUENCE_ID, Vector
from recado.feeds.views import (
    NO_VIEW,
    AcknowledgementRecord,
    Certainty,
    LostRange,
    MemberId,
    Role,
    View,
    ViewEntry,
    ViewId,
    ViewRecord,
    ViewStability,
)
from recado.feeds.wire import decode, decode_record, encode, encode_record

ME = MemberId("me", bytes([1]) * 16)
OTHERS = [ME, MemberId("x", bytes([2]) * 16), MemberId("me", bytes([3]) * 16)]
EVERY = "DISPATCH:SYNC:ARCHIVER:UNIFORM:TOTAL:PULL:FRAG:FIFO:NAK:MEMBERSHIP"

# Few of each, so that what is sent has to do with what was sent before.
ids = st.sampled_from([*(bytes([n]) * 16 for n in range(1, 5)), order_publisher_id(NO_VIEW)])
members = st.sampled_from(OTHERS)
edges = [
    0,
    1,
    2,
    3,
    2**32,
    2**32 + 1,
    MAX_SEQUENCE_ID - 65_536,
    MAX_SEQUENCE_ID - 1,
    MAX_SEQUENCE_ID,
]
counts = st.sampled_from(edges) | st.integers(0, 9)
sequences = counts.map(lambda n: max(n, 1))
starts = sequences.map(lambda n: min(n, MAX_SEQUENCE_ID - 65_536))
entries = st.dictionaries(ids, counts, max_size=3)
vectors = st.builds(Vector, entries)
view_ids = st.builds(
    ViewId, st.integers(0, 4) | counts, st.sampled_from([m.incarnation for m in OTHERS])
)
ranges = st.lists(st.builds(MessageRange, ids, sequences, sequences), max_size=3)
roles = st.sampled_from(Role)
flags = st.booleans()
seats = st.lists(st.builds(ViewEntry, members, roles), max_size=3).map(tuple)
views = st.builds(View, view_ids, seats)
blocks = st.sampled_from([Block.build([b"x" * 28]), Block.build([b"", b"y"], timestamps=-(2**63))])
carried = st.builds(
    lambda who, first, block, view, certainty: pk.EncodedBatch(
        who, first, block.count, view, certainty, block.data
    ),
    *(ids, sequences, blocks, view_ids, st.sampled_from(Certainty)),
)
carrieds = st.lists(carried, max_size=2)
records = st.one_of(
    st.builds(ViewRecord, views, vectors, st.lists(view_ids, max_size=2).map(tuple), flags, flags),
    st.builds(ViewStability, view_ids, vectors),
    st.builds(AcknowledgementRecord, members, view_ids, vectors, vectors, flags),
    st.builds(LostRange, ids, sequences, sequences),
)
packets: st.SearchStrategy[Any] = st.one_of(
    st.builds(pk.Data, ids, starts, blocks),
    st.builds(
        pk.Fragment, ids, starts, st.integers(0, 1), st.integers(2, 3), st.binary(max_size=3)
    ),
    st.builds(pk.PublisherStatus, ids, counts, counts),
    st.builds(pk.Nak, ranges),
    st.builds(pk.Unavailable, ids, sequences, sequences),
    st.builds(pk.Heartbeat, roles, view_ids, counts, flags),
    st.builds(pk.Prepare, view_ids, st.lists(members, max_size=4)),
    st.builds(
        pk.Prepared, view_ids, roles, view_ids, counts, entries, st.sampled_from(pk.OutsiderReport)
    ),
    st.builds(
        pk.NewView,
        *(views, st.lists(counts, max_size=3), entries, st.lists(view_ids, max_size=2)),
        flags,
    ),
    st.builds(pk.Acknowledgement, view_ids, entries, entries, flags),
    st.builds(pk.PullRequest, counts, ranges),
    st.builds(pk.PullReply, counts, carrieds, ranges),
    st.builds(pk.RecoveryRequest, counts, st.none() | entries, counts),
    st.builds(pk.RecoveryReply, counts, st.none() | entries, carrieds, counts, flags, entries),
    st.builds(pk.RecoveryOffer, entries),
    st.just(pk.DeliveryBoundRequest()),
    st.builds(pk.DeliveryBound, entries),
    st.builds(pk.DurableReport, view_ids, entries),
    st.builds(pk.RecordsSummary, st.lists(view_ids, max_size=2), st.just([]), st.just([])),
    st.builds(pk.RecordsReply, st.lists(records, max_size=3)),
    st.builds(
        pk.ControlFragment, counts, st.integers(0, 1), st.integers(2, 3), st.binary(max_size=3)
    ),
)
arrivals = st.builds(PacketArrived, st.sampled_from(PacketRoute), members, packets.map(encode))
happenings = st.lists(
    st.tuples(
        st.one_of(arrivals, arrivals, st.just(TimerFired())), st.sampled_from([0.0, 0.1, 1.0, 9.0])
    ),
    max_size=60,
)


def member(
    role: Role,
    transport: str = "AMQP",
    policy: RecoveryPolicy = RecoveryPolicy.NONE,
    stack: str = EVERY,
    held: int = 20_000,
) -> FeedMember:
    me = MemberId("", ME.incarnation) if role is Role.PUBLISHER else ME
    options = FeedOptions(
        has_total_order=transport == "AMQP",
        recovery=policy,
        buffer_bytes=held,
        retransmit_bytes=20_000,
    )
    stored = ArchiveState(Vector()) if role is Role.ARCHIVE else None
    return FeedMember(me, role, Stack.parse(f"{stack}:{transport}"), options, stored)


def arrived(
    packet: Any, channel: PacketRoute = PacketRoute.ADDRESSED, sender: MemberId = OTHERS[1]
) -> PacketArrived:
    return PacketArrived(channel, sender, encode(packet))


def answered(one: FeedMember, event: Event, now: float) -> list[Effect]:
    """Its effects, also when its store has answered."""
    effects = one.handle(event, now)
    for effect in list(effects):
        if isinstance(effect, ReadArchive):
            effects += one.handle(ArchiveRead(effect.query_number, [], False, Vector()), now)
    one.deadline()
    return effects


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(
    st.sampled_from(Role),
    st.sampled_from(["AMQP", "UDP"]),
    st.sampled_from(RecoveryPolicy),
    happenings,
)
def test_nothing_that_arrives_makes_a_member_fall_over(
    role: Role, transport: str, policy: RecoveryPolicy, story: list[tuple[Event, float]]
) -> None:
    one = member(role, transport, policy if role is Role.SUBSCRIBER else RecoveryPolicy.NONE)
    now = 100.0
    for event, passed in story:
        now += passed
        for effect in answered(one, event, now):
            match effect:
                case Broadcast(packet) | SendAddressed(_, packet):
                    decode(packet)  # what it says itself others understand
                case StoreEntries(stored):
                    for entry in stored:
                        if isinstance(
                            entry, ViewRecord | ViewStability | AcknowledgementRecord | LostRange
                        ):
                            decode_record(encode_record(entry))
                case _:
                    pass


def in_a_view(one: FeedMember, now: float = 100.0) -> float:
    """Time passes until it has made a view of its own."""
    for _ in range(40):
        now += 0.1
        one.handle(TimerFired(), now)
    assert one.view is not None
    return now


@pytest.mark.parametrize("role", [Role.SUBSCRIBER, Role.ARCHIVE])
def test_a_range_that_ends_before_it_begins_is_nothing(role: Role) -> None:
    one = member(role, stack="DISPATCH:SYNC:ARCHIVER:PULL:FRAG:FIFO:NAK:MEMBERSHIP")
    now = in_a_view(one)
    who = bytes([7]) * 16
    one.handle(arrived(pk.Data(who, 1, Block.build([b"x"] * 9)), PacketRoute.BROADCAST), now)
    effects = one.handle(arrived(pk.PullRequest(1, [MessageRange(who, 8, 2)])), now)
    assert [decode(each.packet) for each in effects if isinstance(each, SendAddressed)] == [
        pk.PullReply(1, [], [])
    ]


def test_a_loss_may_be_larger_than_a_place_in_the_order() -> None:
    one = member(Role.ARCHIVE, stack="DISPATCH:SYNC:ARCHIVER:TOTAL:PULL:FRAG:FIFO:NAK:MEMBERSHIP")
    now = in_a_view(one)
    who, far = bytes([7]) * 16, 2**40
    one.handle(arrived(pk.Data(who, far, Block.build([b"x"])), PacketRoute.BROADCAST), now)
    effects: list[Effect] = []
    for _ in range(200):
        now += 0.1
        done = one.handle(TimerFired(), now)
        for cast in [
            each for each in done if isinstance(each, Broadcast)
        ]:  # comes back in our own queue
            done += one.handle(
                PacketArrived(PacketRoute.BROADCAST, one.context.member_id, cast.packet), now
            )
        effects += done
    stored = [entry for each in effects if isinstance(each, StoreEntries) for entry in each.entries]
    lost = [entry for entry in stored if isinstance(entry, LostRange)]
    assert [entry.first for entry in stored if isinstance(entry, MessageBatch)] == [far]
    assert (lost[0].first, lost[-1].last) == (1, far - 1)


@pytest.mark.parametrize("role", [Role.SUBSCRIBER, Role.ARCHIVE])
def test_nobody_ends_all_views_by_the_last_number_there_is(role: Role) -> None:
    one = member(role, stack="DISPATCH:SYNC:ARCHIVER:PULL:FRAG:FIFO:NAK:MEMBERSHIP")
    now = in_a_view(one)
    last = ViewId(MAX_SEQUENCE_ID, bytes([2]) * 16)
    effects = one.handle(arrived(pk.Heartbeat(Role.SUBSCRIBER, last, 0)), now)
    effects += one.handle(arrived(pk.Prepare(last, [ME, OTHERS[1]])), now)
    forged = ViewRecord(View(last, (ViewEntry(ME, role),)), Vector(), ())
    effects += one.handle(arrived(pk.RecordsReply([forged])), now)
    assert not [each for each in effects if isinstance(each, StoreEntries)]
    one.handle(arrived(pk.Heartbeat(Role.SUBSCRIBER, NO_VIEW, 0)), now)
    for _ in range(40):
        now += 0.1
        one.handle(TimerFired(), now)
    assert one.view is not None
    assert one.view.id.number < 100


def test_an_archive_finds_out_for_itself_what_is_lost() -> None:
    one = member(Role.ARCHIVE, stack="DISPATCH:SYNC:ARCHIVER:PULL:FRAG:FIFO:NAK:MEMBERSHIP")
    now = in_a_view(one)
    effects = one.handle(
        arrived(pk.RecordsReply([LostRange(bytes([7]) * 16, 1, MAX_SEQUENCE_ID)])), now
    )
    assert not [each for each in effects if isinstance(each, StoreEntries)]


def test_a_question_brings_what_is_kept_once() -> None:
    one = member(Role.PUBLISHER, "UDP", stack="DISPATCH:FRAG:FIFO:NAK:MEMBERSHIP")
    now = 100.0
    for _ in range(5):
        one.handle(PublishRequested(Block.build([b"x" * 100] * 3)), now)  # 1–3, 4–6, …, 13–15
    me = ME.incarnation

    def cast(*asked: tuple[int, int]) -> list[int]:
        nak = pk.Nak([MessageRange(me, first, last) for first, last in asked])
        found = one.handle(arrived(nak, PacketRoute.BROADCAST), now)
        return [each.last_sequence for each in found if isinstance(each, Broadcast)]

    assert cast(*[(1, MAX_SEQUENCE_ID)] * 4_096) == [3, 6, 9, 12, 15]
    assert cast((5, 5), (5, 8), (14, 14)) == [6, 9, 15]
    assert cast((15, 15), (1, 1)) == [3, 15]
    assert cast((9, 2), (16, 20)) == []


def test_a_message_of_fragments_has_a_largest_size() -> None:
    stack = "DISPATCH:SYNC:PULL:FRAG:FIFO:NAK:MEMBERSHIP"
    one = member(Role.SUBSCRIBER, stack=stack, held=64 << 20)
    now = in_a_view(one)
    who, piece = bytes([7]) * 16, bytes(MAX_BLOCK_BYTES // 8)
    frag = next(layer for layer in one._layers if isinstance(layer, FragLayer))
    one.handle(arrived(pk.PublisherStatus(who, 0, 0), PacketRoute.BROADCAST), now)  # it begins now
    for index in range(30):
        one.handle(arrived(pk.Fragment(who, 1, index, 31, piece), PacketRoute.BROADCAST), now)
        assert sum(len(piece) for piece in frag._reassembling[who].fragments) <= MAX_BLOCK_BYTES
    effects = one.handle(arrived(pk.Fragment(who, 1, 30, 31, piece), PacketRoute.BROADCAST), now)
    assert [e.batch.block for e in effects if isinstance(e, DeliverBatch)] == [Block.build([b""])]
    assert one.malformed_count == 1


def test_empty_pieces_take_room_too() -> None:
    one = member(
        Role.SUBSCRIBER, stack="DISPATCH:SYNC:PULL:FRAG:FIFO:NAK:MEMBERSHIP"
    )  # held: 20,000
    frag = next(layer for layer in one._layers if isinstance(layer, FragLayer))
    for number in range(1_000):
        one.handle(arrived(pk.ControlFragment(number, 0, 2, b"")), 100.0)
    assert len(frag._control_packets) <= 100
