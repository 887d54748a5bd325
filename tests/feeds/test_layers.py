"""Single layers, between a layer above and one below that only write down what they are given."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from recado.feeds.block import BODY, Block
from recado.feeds.boundary import Arrived, Batch, Channel, Options, Policy, Publish, Range, Ticked
from recado.feeds.layer import (
    Accepted,
    Changed,
    Falling,
    Filled,
    Heard,
    Layer,
    Messages,
    Met,
    Missing,
    Part,
    Pieces,
    Rising,
    Say,
    Site,
)
from recado.feeds.layers.fifo import Numbering
from recado.feeds.layers.frag import OF_A_PIECE, STALE, Frag
from recado.feeds.layers.nak import NakMember, NakPublisher
from recado.feeds.layers.pull import PullLayer
from recado.feeds.layers.pulse import Pulse
from recado.feeds.layers.reception import Reception, order_id
from recado.feeds.layers.sync import Sync
from recado.feeds.layers.total import Total
from recado.feeds.layers.uniform import Uniform
from recado.feeds.layers.window import Window, lacking
from recado.feeds.member import Member
from recado.feeds.packet import (
    MAX_RANGES,
    Answer,
    Data,
    Fragment,
    Lack,
    Last,
    Nak,
    Piece,
    Pull,
    Pulled,
    Recover,
    Stable,
)
from recado.feeds.stack import SUBSCRIBER, Stack
from recado.feeds.vector import MAX_SEQUENCE, Vector
from recado.feeds.views import (
    NO_VIEW,
    Certainty,
    Lost,
    MemberId,
    Role,
    Seat,
    View,
    ViewId,
    ViewRecord,
)
from recado.feeds.wire import carry, encode

ME, OTHER = MemberId("me", b"m" * 16), MemberId("other", b"o" * 16)
P = b"p" * 16


def begun(most: int = 10) -> Reception:
    reception = Reception(10_000, most)
    reception.begin({}, 0.0)
    return reception


class Between:
    """A layer with nothing above and below but lists."""

    def __init__(self, make: Callable[[Site], Layer], **options: object) -> None:
        site = Site(ME, Role.SUBSCRIBER, Options(**options), frozenset())  # type: ignore[arg-type]
        self.layer = make(site)
        self.risen: list[Rising] = []
        self.fallen: list[Falling] = []
        self.layer.link(
            lambda event, now: self.risen.append(event),
            lambda event, now: self.fallen.append(event),
        )

    def packets(self) -> list[object]:
        return [event.packet for event in self.fallen if isinstance(event, Say)]


@given(
    st.lists(st.binary(max_size=300), min_size=1, max_size=20),
    st.integers(120, 500),
    st.integers(0, 3),
)
def test_frag_gives_back_what_it_was_given(bodies: list[bytes], most: int, odd: int) -> None:
    sender = Between(Frag, packet=most)
    block = Block.of(bodies, keys=[b"k" * (i % 2 * odd) for i in range(len(bodies))])
    sender.layer.down(Publish(block), 0.0)
    numbering = Between(Numbering)
    for event in sender.fallen:
        assert isinstance(event, Publish | Pieces)
        numbering.layer.down(event, 0.0)
    receiver = Between(Frag, packet=most)
    for packet in numbering.packets():
        assert isinstance(packet, Data | Fragment)
        assert len(encode(packet)) <= most
        match packet:
            case Data(publisher, first, part):
                receiver.layer.up(Messages(Batch(publisher, first, part)), 0.0)
            case Fragment(publisher, sequence, index, total, piece):
                receiver.layer.up(Part(publisher, sequence, index, total, piece), 0.0)
    batches = [event.batch for event in receiver.risen if isinstance(event, Messages)]
    assert [body for batch in batches for body in batch.block.values(BODY)] == bodies
    assert batches[0].first == 1
    assert batches[-1].last == len(bodies)


def answer(size: int) -> Answer:
    part = carry(Batch(P, 1, Block.of([b"x" * size]), NO_VIEW, Certainty.MISSED))
    return Answer(1, None, [part], 0, False, {})


@given(st.permutations(range(6)), st.integers(0, 5))
def test_pieces_on_a_are_joined_in_any_order(order: list[int], doubled: int) -> None:
    sender = Between(Frag, packet=200)
    sender.layer.down(Say(answer(900), OTHER), 0.0)
    pieces = sender.packets()
    assert len(pieces) == 6
    receiver = Between(Frag)
    for i in [doubled, *order]:
        piece = pieces[i]
        assert isinstance(piece, Piece)
        receiver.layer.up(Heard(Channel.A, OTHER, piece), 0.0)
    whole = [event.packet for event in receiver.risen if isinstance(event, Heard)]
    assert whole == [answer(900)]


def test_pieces_that_stay_alone_are_dropped() -> None:
    frag = Between(Frag, held=OF_A_PIECE + 100)
    frag.layer.up(Heard(Channel.A, OTHER, Piece(1, 0, 2, b"x" * 60)), 1.0)
    assert frag.layer.deadline() == 1.0 + STALE
    frag.layer.up(Heard(Channel.A, OTHER, Piece(2, 0, 2, b"x" * 60)), 2.0)
    assert frag.layer.deadline() == 2.0 + STALE, "the older one had to go"
    frag.layer.tick(2.0 + STALE)
    assert frag.layer.deadline() is None


def test_what_is_joined_and_malformed_is_refused() -> None:
    frag = Between(Frag)
    frag.layer.up(Heard(Channel.A, OTHER, Piece(1, 0, 1, b"nonsense")), 0.0)
    frag.layer.up(Part(P, 1, 0, 1, b"nonsense"), 0.0)
    assert frag.layer.site.refused == 2
    assert [event.batch.last for event in frag.risen if isinstance(event, Messages)] == [1]


def test_a_publisher_repeats_what_it_keeps_and_says_what_it_does_not() -> None:
    nak = Between(NakPublisher, ordered=False, window=25)
    for first in (1, 2, 3):
        nak.layer.down(Say(Data(ME.incarnation, first, Block.of([b"x"])), None, "", first), 0.0)
    nak.fallen.clear()
    nak.layer.up(Heard(Channel.P, OTHER, Nak([Range(ME.incarnation, 1, 3), Range(P, 1, 9)])), 1.0)
    lack, *again = nak.packets()
    assert lack == Lack(ME.incarnation, 1, 2)
    assert [packet.first for packet in again if isinstance(packet, Data)] == [3]


def test_a_publisher_tells_its_last() -> None:
    """And its age; before its first message too."""
    pulse = Between(Pulse, beat=1.0)
    pulse.layer.start(10.0)
    assert pulse.packets() == [Last(ME.incarnation, 0, 0)]
    pulse.layer.down(Say(Data(ME.incarnation, 1, Block.of([b"x"] * 3)), None, "", 3), 10.5)
    pulse.layer.tick(11.0)
    assert pulse.packets()[2:] == [Last(ME.incarnation, 3, 1000)]
    assert pulse.layer.deadline() == 12.0


def test_where_it_casts_again_a_publisher_repeats_what_it_told() -> None:
    """The last few times: for those who have begun since, and have not heard it."""
    pulse = Between(Pulse, beat=1.0, ordered=False)
    pulse.layer.start(10.0)
    for second in range(1, 7):
        pulse.layer.down(
            Say(Data(ME.incarnation, second, Block.of([b"x"])), None, "", second), 9.5 + second
        )
        pulse.layer.tick(10.0 + second)
    told = [packet for packet in pulse.packets() if isinstance(packet, Last)]
    assert told[1] == Last(ME.incarnation, 1, 1000, ((1000, 0),))
    assert told[-1].earlier == ((4000, 2), (3000, 3), (2000, 4), (1000, 5))


def test_the_window_is_bounded_and_knows_what_it_lacks() -> None:
    window = Window(1000)
    for first in range(1, 11):
        window.keep(Batch(P, first, Block.of([b"x"])))
    wanted = Range(P, 1, 12)
    found = window.find(wanted)
    assert [batch.first for batch in found] == list(range(found[0].first, 11))
    assert 1 < found[0].first <= 8
    assert lacking(wanted, found) == [Range(P, 1, found[0].first - 1), Range(P, 11, 12)]
    assert lacking(Range(P, 9, 9), window.find(Range(P, 9, 9))) == []


def record(number: int, *archives: str) -> ViewRecord:
    seats = [Seat(ME, Role.SUBSCRIBER)]
    seats += [Seat(MemberId(name, name.encode() * 16), Role.ARCHIVE) for name in archives]
    return ViewRecord(View(ViewId(number, bytes(16)), tuple(seats)), Vector(), ())


def batch(first: int, count: int = 1, publisher: bytes = P) -> Batch:
    return Batch(publisher, first, Block.of([b"x"] * count))


def passed(between: Between) -> list[tuple[int, int]]:
    batches = [event.batch for event in between.risen if isinstance(event, Messages)]
    return [(each.first, each.last) for each in batches]


def test_a_view_that_is_passed_over_demands_its_copies_too() -> None:
    """U1: the last one that is agreed to has fewer archives, but it is not the next."""
    uniform = Between(Uniform)
    views = [record(1, "a", "b", "c"), record(2, "a", "b", "c"), record(3, "a")]
    uniform.layer.up(Accepted(views[0]), 0.0)
    uniform.layer.up(Changed(views[0]), 0.0)
    uniform.layer.up(Messages(batch(1)), 0.0)
    uniform.layer.up(Accepted(views[1]), 0.0)
    uniform.layer.up(Accepted(views[2]), 0.0)
    uniform.layer.up(Changed(views[2]), 0.0)
    stable = Stable(views[0].view.id, {P: 1})
    uniform.layer.up(Heard(Channel.A, MemberId("a", b"a" * 16), stable), 0.0)
    assert passed(uniform) == []
    uniform.layer.up(Heard(Channel.A, MemberId("b", b"b" * 16), stable), 0.0)
    assert passed(uniform) == [(1, 1)]


def test_nobody_waits_for_the_place_of_what_does_not_come() -> None:
    """TO3: we begin behind 2 of P, and the order has places for it."""
    other = b"q" * 16
    total = Between(lambda site: Total(site, begun()))
    view = View(ViewId(1, bytes(16)), (Seat(OTHER, Role.SUBSCRIBER), Seat(ME, Role.SUBSCRIBER)))
    total.layer.up(Changed(ViewRecord(view, Vector(), ())), 0.0)
    places = [(P, 1, 2), (other, 1, 1), (P, 3, 1)]
    said = [p + first.to_bytes(8, "little") + n.to_bytes(4, "little") for p, first, n in places]
    total.layer.up(Messages(Batch(order_id(view.id), 1, Block.of(said))), 0.0)
    total.layer.up(Messages(batch(1, publisher=other)), 0.0)
    assert passed(total) == []
    total.layer.up(Met(P, 2), 0.0)
    assert passed(total) == [(1, 1)]
    total.layer.up(Messages(batch(3)), 0.0)
    assert passed(total) == [(1, 1), (3, 3)]


def test_places_that_are_malformed_or_have_no_room_are_not_waited_for() -> None:
    """TO4."""
    reception = begun(most=1)
    reception.learn(P, 0, 0.0)
    total = Between(lambda site: Total(site, reception))
    view = View(ViewId(1, bytes(16)), (Seat(OTHER, Role.SUBSCRIBER), Seat(ME, Role.SUBSCRIBER)))
    total.layer.up(Changed(ViewRecord(view, Vector(), ())), 0.0)
    crowded, order = b"q" * 16, order_id(view.id)
    places = [(crowded, 1, 1), (P, 0, 1), (P, 1, 0), (P, 2**64 - 1, 1), (order, 9, 1), (P, 1, 1)]
    said = [p + first.to_bytes(8, "little") + n.to_bytes(4, "little") for p, first, n in places]
    total.layer.up(Messages(Batch(order, 1, Block.of([b"short", *said]))), 0.0)
    assert total.layer.site.refused == 5
    assert reception.missing(P, 2) == [Range(P, 1, 1)]
    assert list(reception.tracks) == [P]
    total.layer.up(Messages(batch(1)), 0.0)
    assert passed(total) == [(1, 1)]


def test_an_answer_of_no_use_is_no_reason_to_ask_at_once() -> None:
    """P1."""
    reception = Reception(10_000)
    reception.begin({}, 0.0)
    reception.learn(P, 9, 0.0)
    reception.gaps[P].pull = True
    pull = Between(lambda site: PullLayer(site, reception))
    pull.layer.site.view = record(1, "a").view
    pull.layer.tick(1.0)
    assert [type(packet) for packet in pull.packets()] == [Pull]
    useless = [carry(batch(1, publisher=b"q" * 16))]
    pull.layer.up(Heard(Channel.A, OTHER, Pulled(1, useless, [])), 1.1)
    assert len(pull.packets()) == 1


def test_an_answer_of_use_is_followed_by_the_next_question() -> None:
    """P1: though NAK knows nothing yet of the gap behind it, as the answer filled the one that it knew."""
    reception = Reception(10_000)
    reception.begin({}, 0.0)
    reception.learn(P, 9, 0.0)
    reception.gaps[P].pull = True
    pull = Between(lambda site: PullLayer(site, reception))

    def fall(event: Falling, now: float) -> None:
        if isinstance(event, Filled):
            reception.take(event.batch, now)
        else:
            pull.fallen.append(event)

    pull.layer.link(lambda event, now: None, fall)
    pull.layer.site.view = record(1, "a").view
    pull.layer.tick(1.0)
    pull.layer.up(Heard(Channel.A, OTHER, Pulled(1, [carry(batch(1))], [])), 1.1)
    asked = [packet.ranges for packet in pull.packets() if isinstance(packet, Pull)]
    assert asked == [[Range(P, 1, 9)], [Range(P, 2, 9)]]


def test_places_of_another_view_are_not_missing() -> None:
    reception = Reception(10_000)
    reception.begin({}, 0.0)
    nak = Between(lambda site: NakMember(site, reception))
    nak.layer.site.view = record(1).view
    theirs, ours = order_id(ViewId(9, bytes(16))), order_id(ViewId(1, bytes(16)))
    for orders in (theirs, ours):
        nak.layer.up(Heard(Channel.P, OTHER, Last(orders, 3, 0)), 0.0)
    assert list(reception.gaps) == [ours]


@pytest.mark.parametrize("packet", [400, 60_000])
def test_what_is_asked_of_publishers_fits_in_packets(packet: int) -> None:
    """Nothing below cuts it into pieces."""
    reception = Reception(10_000_000)
    reception.begin({}, 0.0)
    nak = Between(lambda site: NakMember(site, reception), ordered=False, packet=packet)
    far = MAX_SEQUENCE - 1_000
    for number in range(64):
        publisher = bytes([number] * 16)
        for sequence in range(far, far + 128, 2):
            reception.take(batch(sequence, publisher=publisher), 0.0)
    nak.layer.tick(1.0)
    said = [packet for packet in nak.packets() if isinstance(packet, Nak)]
    assert max(len(encode(each)) for each in said) <= packet
    assert sum(len(each.ranges) for each in said) == MAX_RANGES


def test_what_is_missing_live_is_told_from_where_recovery_ended() -> None:
    reception = Reception(10_000)
    sync = Between(
        lambda site: Sync(site, reception), recovery=Policy.VECTOR, vector=Vector({P: 5})
    )
    sync.layer.up(Changed(record(1)), 0.0)
    sync.layer.up(Missing(Lost(P, 3, 8)), 0.1)
    sync.layer.up(Heard(Channel.A, OTHER, Answer(0, Vector(), [], 0, False, {})), 0.2)
    missing = [event for event in sync.risen if isinstance(event, Missing)]
    assert missing == [Missing(Lost(P, 6, 8))]


def test_an_answer_that_comes_after_the_question_was_repeated_is_taken_once() -> None:
    """It may be large, and the way slow: if only the answer to the last repetition counted, none would."""
    sync = Between(lambda site: Sync(site, Reception(10_000)), recovery=Policy.VECTOR, again=0.1)
    sync.layer.site.view = record(1, "a", "b").view
    sync.layer.up(Changed(replace(record(1, "a", "b"), cut=Vector({P: 2}))), 0.0)
    for tenth in range(40):
        sync.layer.tick(tenth / 10)
    asked = [event for event in sync.fallen if isinstance(event, Say)]
    assert len({each.to for each in asked}) == 2
    first = asked[0]
    assert isinstance(first.packet, Recover)
    assert isinstance(first.to, MemberId)
    late = Answer(first.packet.number, Vector(), [carry(batch(1))], 7, True, {P: 1})
    sync.layer.up(Heard(Channel.A, first.to, late), 4.0)
    sync.layer.up(Heard(Channel.A, first.to, late), 4.0)
    assert passed(sync) == [(1, 1)]
    (*_, again) = (event for event in sync.fallen if isinstance(event, Say))
    assert isinstance(again.packet, Recover)
    assert (again.to, again.packet.offset, again.packet.after) == (first.to, 7, Vector({P: 1}))
    assert again.packet.number != first.packet.number
    rest = Answer(again.packet.number, Vector(), [carry(batch(2))], 8, False, {P: 2})
    sync.layer.up(Heard(Channel.A, first.to, rest), 4.1)
    assert passed(sync) == [(1, 1), (2, 2)]


@given(st.lists(st.tuples(st.sampled_from(Channel), st.binary(max_size=60)), max_size=20))
def test_nothing_that_arrives_raises(arriving: list[tuple[Channel, bytes]]) -> None:
    member = Member(ME, Role.SUBSCRIBER, Stack.parse(SUBSCRIBER), Options())
    now = 0.0
    for channel, data in arriving:
        now += 0.1
        member.handle(Arrived(channel, OTHER, b"\xfd\x01" + data), now)
        member.handle(Ticked(), now)
    assert member.refused <= len(arriving)


def test_the_key_of_a_batch_is_on_its_cast() -> None:
    numbering = Between(Numbering)
    numbering.layer.down(Publish(Block.of([b"1", b"2"], keys=b"PETR4")), 0.0)
    numbering.layer.down(Publish(Block.of([b"3", b"4"], keys=[b"a", b"b"])), 0.0)
    said = [event for event in numbering.fallen if isinstance(event, Say)]
    assert [(one.key, one.number) for one in said] == [("PETR4", 2), ("", 4)]
