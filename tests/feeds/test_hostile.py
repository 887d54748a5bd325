"""What anybody may send who reaches a feed: nothing of it makes a member fall over or costs much (F10, M2)."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from recado.feeds import packet as pk
from recado.feeds.block import MAX_BLOCK, Block
from recado.feeds.boundary import (
    ArchiveState,
    Arrived,
    Batch,
    Cast,
    Channel,
    Deliver,
    Effect,
    Event,
    Options,
    Policy,
    Publish,
    Range,
    Recall,
    Recalled,
    Send,
    Store,
    Ticked,
)
from recado.feeds.layers.frag import Frag
from recado.feeds.layers.reception import order_id
from recado.feeds.member import Member
from recado.feeds.stack import Stack
from recado.feeds.vector import MAX_SEQUENCE, Vector
from recado.feeds.views import (
    NO_VIEW,
    Acknowledged,
    Certainty,
    Lost,
    MemberId,
    Role,
    Seat,
    Settled,
    View,
    ViewId,
    ViewRecord,
)
from recado.feeds.wire import decode, encode, record_from_bytes, record_to_bytes

ME = MemberId("me", bytes([1]) * 16)
OTHERS = [ME, MemberId("x", bytes([2]) * 16), MemberId("me", bytes([3]) * 16)]
EVERY = "DISPATCH:SYNC:ARCHIVER:UNIFORM:TOTAL:PULL:FRAG:FIFO:NAK:REACH"

# Few of each, so that what is sent has to do with what was sent before.
ids = st.sampled_from([*(bytes([n]) * 16 for n in range(1, 5)), order_id(NO_VIEW)])
members = st.sampled_from(OTHERS)
edges = [0, 1, 2, 3, 2**32, 2**32 + 1, MAX_SEQUENCE - 65_536, MAX_SEQUENCE - 1, MAX_SEQUENCE]
counts = st.sampled_from(edges) | st.integers(0, 9)
sequences = counts.map(lambda n: max(n, 1))
starts = sequences.map(lambda n: min(n, MAX_SEQUENCE - 65_536))
entries = st.dictionaries(ids, counts, max_size=3)
vectors = st.builds(Vector, entries)
view_ids = st.builds(
    ViewId, st.integers(0, 4) | counts, st.sampled_from([m.incarnation for m in OTHERS])
)
ranges = st.lists(st.builds(Range, ids, sequences, sequences), max_size=3)
roles = st.sampled_from(Role)
flags = st.booleans()
seats = st.lists(st.builds(Seat, members, roles), max_size=3).map(tuple)
views = st.builds(View, view_ids, seats)
blocks = st.sampled_from([Block.of([b"x" * 28]), Block.of([b"", b"y"], timestamps=-(2**63))])
carried = st.builds(
    lambda who, first, block, view, certainty: pk.Carried(
        who, first, block.count, view, certainty, block.data
    ),
    *(ids, sequences, blocks, view_ids, st.sampled_from(Certainty)),
)
carrieds = st.lists(carried, max_size=2)
records = st.one_of(
    st.builds(ViewRecord, views, vectors, st.lists(view_ids, max_size=2).map(tuple), flags, flags),
    st.builds(Settled, view_ids, vectors),
    st.builds(Acknowledged, members, view_ids, vectors, vectors, flags),
    st.builds(Lost, ids, sequences, sequences),
)
packets: st.SearchStrategy[Any] = st.one_of(
    st.builds(pk.Data, ids, starts, blocks),
    st.builds(
        pk.Fragment, ids, starts, st.integers(0, 1), st.integers(2, 3), st.binary(max_size=3)
    ),
    st.builds(pk.Last, ids, counts, counts),
    st.builds(pk.Nak, ranges),
    st.builds(pk.Lack, ids, sequences, sequences),
    st.builds(pk.Beat, roles, view_ids, counts, flags),
    st.builds(pk.Prepare, view_ids, st.lists(members, max_size=4)),
    st.builds(pk.Prepared, view_ids, roles, view_ids, counts, entries, st.sampled_from(pk.Outlook)),
    st.builds(
        pk.NewView,
        *(views, st.lists(counts, max_size=3), entries, st.lists(view_ids, max_size=2)),
        flags,
    ),
    st.builds(pk.Ack, view_ids, entries, entries, flags),
    st.builds(pk.Pull, counts, ranges),
    st.builds(pk.Pulled, counts, carrieds, ranges),
    st.builds(pk.Recover, counts, st.none() | entries, counts),
    st.builds(pk.Answer, counts, st.none() | entries, carrieds, counts, flags, entries),
    st.builds(pk.Offer, entries),
    st.just(pk.Doubt()),
    st.builds(pk.Bound, entries),
    st.builds(pk.Stable, view_ids, entries),
    st.builds(pk.Known, st.lists(view_ids, max_size=2), st.just([]), st.just([])),
    st.builds(pk.Records, st.lists(records, max_size=3)),
    st.builds(pk.Piece, counts, st.integers(0, 1), st.integers(2, 3), st.binary(max_size=3)),
)
arrivals = st.builds(Arrived, st.sampled_from(Channel), members, packets.map(encode))
happenings = st.lists(
    st.tuples(
        st.one_of(arrivals, arrivals, st.just(Ticked())), st.sampled_from([0.0, 0.1, 1.0, 9.0])
    ),
    max_size=60,
)


def member(
    role: Role,
    transport: str = "AMQP",
    policy: Policy = Policy.NONE,
    stack: str = EVERY,
    held: int = 20_000,
) -> Member:
    me = MemberId("", ME.incarnation) if role is Role.PUBLISHER else ME
    options = Options(ordered=transport == "AMQP", recovery=policy, held=held, window=20_000)
    stored = ArchiveState(Vector()) if role is Role.ARCHIVE else None
    return Member(me, role, Stack.parse(f"{stack}:{transport}"), options, stored)


def arrived(packet: Any, channel: Channel = Channel.A, sender: MemberId = OTHERS[1]) -> Arrived:
    return Arrived(channel, sender, encode(packet))


def answered(one: Member, event: Event, now: float) -> list[Effect]:
    """Its effects, also when its store has answered."""
    effects = one.handle(event, now)
    for effect in list(effects):
        if isinstance(effect, Recall):
            effects += one.handle(Recalled(effect.number, [], False, Vector()), now)
    one.deadline()
    return effects


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.sampled_from(Role), st.sampled_from(["AMQP", "UDP"]), st.sampled_from(Policy), happenings)
def test_nothing_that_arrives_makes_a_member_fall_over(
    role: Role, transport: str, policy: Policy, story: list[tuple[Event, float]]
) -> None:
    one = member(role, transport, policy if role is Role.SUBSCRIBER else Policy.NONE)
    now = 100.0
    for event, passed in story:
        now += passed
        for effect in answered(one, event, now):
            match effect:
                case Cast(packet) | Send(_, packet):
                    decode(packet)  # what it says itself others understand
                case Store(stored):
                    for entry in stored:
                        if isinstance(entry, ViewRecord | Settled | Acknowledged | Lost):
                            record_from_bytes(record_to_bytes(entry))
                case _:
                    pass


def in_a_view(one: Member, now: float = 100.0) -> float:
    """Time passes until it has made a view of its own."""
    for _ in range(40):
        now += 0.1
        one.handle(Ticked(), now)
    assert one.view is not None
    return now


@pytest.mark.parametrize("role", [Role.SUBSCRIBER, Role.ARCHIVE])
def test_a_range_that_ends_before_it_begins_is_nothing(role: Role) -> None:
    one = member(role, stack="DISPATCH:SYNC:ARCHIVER:PULL:FRAG:FIFO:NAK:REACH")
    now = in_a_view(one)
    who = bytes([7]) * 16
    one.handle(arrived(pk.Data(who, 1, Block.of([b"x"] * 9)), Channel.P), now)
    effects = one.handle(arrived(pk.Pull(1, [Range(who, 8, 2)])), now)
    assert [decode(each.packet) for each in effects if isinstance(each, Send)] == [
        pk.Pulled(1, [], [])
    ]


def test_a_loss_may_be_larger_than_a_place_in_the_order() -> None:
    one = member(Role.ARCHIVE, stack="DISPATCH:SYNC:ARCHIVER:TOTAL:PULL:FRAG:FIFO:NAK:REACH")
    now = in_a_view(one)
    who, far = bytes([7]) * 16, 2**40
    one.handle(arrived(pk.Data(who, far, Block.of([b"x"])), Channel.P), now)
    effects: list[Effect] = []
    for _ in range(200):
        now += 0.1
        done = one.handle(Ticked(), now)
        for cast in [
            each for each in done if isinstance(each, Cast)
        ]:  # comes back in our own queue
            done += one.handle(Arrived(Channel.P, one.site.me, cast.packet), now)
        effects += done
    stored = [entry for each in effects if isinstance(each, Store) for entry in each.entries]
    lost = [entry for entry in stored if isinstance(entry, Lost)]
    assert [entry.first for entry in stored if isinstance(entry, Batch)] == [far]
    assert (lost[0].first, lost[-1].last) == (1, far - 1)


@pytest.mark.parametrize("role", [Role.SUBSCRIBER, Role.ARCHIVE])
def test_nobody_ends_all_views_by_the_last_number_there_is(role: Role) -> None:
    one = member(role, stack="DISPATCH:SYNC:ARCHIVER:PULL:FRAG:FIFO:NAK:REACH")
    now = in_a_view(one)
    last = ViewId(MAX_SEQUENCE, bytes([2]) * 16)
    effects = one.handle(arrived(pk.Beat(Role.SUBSCRIBER, last, 0)), now)
    effects += one.handle(arrived(pk.Prepare(last, [ME, OTHERS[1]])), now)
    forged = ViewRecord(View(last, (Seat(ME, role),)), Vector(), ())
    effects += one.handle(arrived(pk.Records([forged])), now)
    assert not [each for each in effects if isinstance(each, Store)]
    one.handle(arrived(pk.Beat(Role.SUBSCRIBER, NO_VIEW, 0)), now)
    for _ in range(40):
        now += 0.1
        one.handle(Ticked(), now)
    assert one.view is not None
    assert one.view.id.number < 100


def test_an_archive_finds_out_for_itself_what_is_lost() -> None:
    one = member(Role.ARCHIVE, stack="DISPATCH:SYNC:ARCHIVER:PULL:FRAG:FIFO:NAK:REACH")
    now = in_a_view(one)
    effects = one.handle(arrived(pk.Records([Lost(bytes([7]) * 16, 1, MAX_SEQUENCE)])), now)
    assert not [each for each in effects if isinstance(each, Store)]


def test_a_question_brings_what_is_kept_once() -> None:
    one = member(Role.PUBLISHER, "UDP", stack="DISPATCH:FRAG:FIFO:NAK:REACH")
    now = 100.0
    for _ in range(5):
        one.handle(Publish(Block.of([b"x" * 100] * 3)), now)  # 1–3, 4–6, …, 13–15
    me = ME.incarnation

    def cast(*asked: tuple[int, int]) -> list[int]:
        nak = pk.Nak([Range(me, first, last) for first, last in asked])
        found = one.handle(arrived(nak, Channel.P), now)
        return [each.number for each in found if isinstance(each, Cast)]

    assert cast(*[(1, MAX_SEQUENCE)] * 4_096) == [3, 6, 9, 12, 15]
    assert cast((5, 5), (5, 8), (14, 14)) == [6, 9, 15]
    assert cast((15, 15), (1, 1)) == [3, 15]
    assert cast((9, 2), (16, 20)) == []


def test_a_message_of_fragments_has_a_largest_size() -> None:
    stack = "DISPATCH:SYNC:PULL:FRAG:FIFO:NAK:REACH"
    one = member(Role.SUBSCRIBER, stack=stack, held=64 << 20)
    now = in_a_view(one)
    who, piece = bytes([7]) * 16, bytes(MAX_BLOCK // 8)
    frag = next(layer for layer in one._layers if isinstance(layer, Frag))
    one.handle(arrived(pk.Last(who, 0, 0), Channel.P), now)  # it begins now
    for index in range(30):
        one.handle(arrived(pk.Fragment(who, 1, index, 31, piece), Channel.P), now)
        assert sum(len(piece) for piece in frag._joining[who].pieces) <= MAX_BLOCK
    effects = one.handle(arrived(pk.Fragment(who, 1, 30, 31, piece), Channel.P), now)
    assert [e.batch.block for e in effects if isinstance(e, Deliver)] == [Block.of([b""])]
    assert one.refused == 1


def test_empty_pieces_take_room_too() -> None:
    one = member(Role.SUBSCRIBER, stack="DISPATCH:SYNC:PULL:FRAG:FIFO:NAK:REACH")  # held: 20,000
    frag = next(layer for layer in one._layers if isinstance(layer, Frag))
    for number in range(1_000):
        one.handle(arrived(pk.Piece(number, 0, 2, b"")), 100.0)
    assert len(frag._pieces) <= 100
