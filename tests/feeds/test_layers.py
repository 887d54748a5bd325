"""Single layers, between a layer above and one below that only write down what they are given."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from recado.feeds.block import BODY_INDEX, Block
from recado.feeds.boundary import (
    MessageBatch,
    MessageRange,
    PacketArrived,
    PacketRoute,
    PublishRequested,
    TimerFired,
)
from recado.feeds.layer import (
    BatchReleased,
    DownEvent,
    FragmentReleased,
    GapFilled,
    Layer,
    MemberContext,
    MessagesLost,
    PacketReceived,
    PublisherStartSet,
    PublishFragmented,
    SendPacket,
    UpEvent,
    ViewAgreed,
    ViewInstalled,
)
from recado.feeds.layers.fifo import SequencerLayer
from recado.feeds.layers.frag import FRAGMENT_OVERHEAD_BYTES, INCOMPLETE_TIMEOUT_S, FragLayer
from recado.feeds.layers.nak import NakMemberLayer, NakPublisherLayer
from recado.feeds.layers.publisher_heartbeat import PublisherHeartbeatLayer
from recado.feeds.layers.pull import PullLayer
from recado.feeds.layers.receive_buffer import ReceiveBuffer, order_publisher_id
from recado.feeds.layers.retransmit_buffer import RetransmitBuffer, find_missing
from recado.feeds.layers.sync import SyncLayer
from recado.feeds.layers.total import TotalLayer
from recado.feeds.layers.uniform import UniformLayer
from recado.feeds.member import FeedMember
from recado.feeds.options import FeedOptions, RecoveryPolicy
from recado.feeds.packet import (
    MAX_RANGES,
    ControlFragment,
    Data,
    DurableReport,
    Fragment,
    Nak,
    PublisherStatus,
    PullReply,
    PullRequest,
    RecoveryReply,
    RecoveryRequest,
    Unavailable,
)
from recado.feeds.stack import SUBSCRIBER_STACK, Stack
from recado.feeds.vector import MAX_SEQUENCE_ID, Vector
from recado.feeds.views import (
    NO_VIEW,
    Certainty,
    LostRange,
    MemberId,
    Role,
    View,
    ViewEntry,
    ViewId,
    ViewRecord,
)
from recado.feeds.wire import encode, encode_batch

ME, OTHER = MemberId("me", b"m" * 16), MemberId("other", b"o" * 16)
P = b"p" * 16


def begun(most: int = 10) -> ReceiveBuffer:
    receive_buffer = ReceiveBuffer(10_000, most)
    receive_buffer.start({}, 0.0)
    return receive_buffer


class Between:
    """A layer with nothing above and below but lists."""

    def __init__(self, make: Callable[[MemberContext], Layer], **options: object) -> None:
        chosen = FeedOptions(**options)  # type: ignore[arg-type]
        context = MemberContext(ME, Role.SUBSCRIBER, chosen, frozenset())
        self.layer = make(context)
        self.risen: list[UpEvent] = []
        self.fallen: list[DownEvent] = []
        self.layer.link(
            lambda event, now: self.risen.append(event),
            lambda event, now: self.fallen.append(event),
        )

    def packets(self) -> list[object]:
        return [event.packet for event in self.fallen if isinstance(event, SendPacket)]


@given(
    st.lists(st.binary(max_size=300), min_size=1, max_size=20),
    st.integers(120, 500),
    st.integers(0, 3),
)
def test_frag_gives_back_what_it_was_given(bodies: list[bytes], most: int, odd: int) -> None:
    sender = Between(FragLayer, max_packet_bytes=most)
    block = Block.build(bodies, keys=[b"k" * (i % 2 * odd) for i in range(len(bodies))])
    sender.layer.down(PublishRequested(block), 0.0)
    numbering = Between(SequencerLayer)
    for event in sender.fallen:
        assert isinstance(event, PublishRequested | PublishFragmented)
        numbering.layer.down(event, 0.0)
    receiver = Between(FragLayer, max_packet_bytes=most)
    for packet in numbering.packets():
        assert isinstance(packet, Data | Fragment)
        assert len(encode(packet)) <= most
        match packet:
            case Data(publisher, first, part):
                receiver.layer.up(BatchReleased(MessageBatch(publisher, first, part)), 0.0)
            case Fragment(publisher, sequence, index, total, piece):
                receiver.layer.up(FragmentReleased(publisher, sequence, index, total, piece), 0.0)
    batches = [event.batch for event in receiver.risen if isinstance(event, BatchReleased)]
    assert [body for batch in batches for body in batch.block.values(BODY_INDEX)] == bodies
    assert batches[0].first == 1
    assert batches[-1].last == len(bodies)


def answer(size: int) -> RecoveryReply:
    part = encode_batch(MessageBatch(P, 1, Block.build([b"x" * size]), NO_VIEW, Certainty.MISSED))
    return RecoveryReply(1, None, [part], 0, False, {})


@given(st.permutations(range(6)), st.integers(0, 5))
def test_pieces_on_a_are_joined_in_any_order(order: list[int], doubled: int) -> None:
    sender = Between(FragLayer, max_packet_bytes=200)
    sender.layer.down(SendPacket(answer(900), OTHER), 0.0)
    pieces = sender.packets()
    assert len(pieces) == 6
    receiver = Between(FragLayer)
    for i in [doubled, *order]:
        piece = pieces[i]
        assert isinstance(piece, ControlFragment)
        receiver.layer.up(PacketReceived(PacketRoute.ADDRESSED, OTHER, piece), 0.0)
    whole = [event.packet for event in receiver.risen if isinstance(event, PacketReceived)]
    assert whole == [answer(900)]


def test_pieces_that_stay_alone_are_dropped() -> None:
    frag = Between(FragLayer, buffer_bytes=FRAGMENT_OVERHEAD_BYTES + 100)
    frag.layer.up(
        PacketReceived(PacketRoute.ADDRESSED, OTHER, ControlFragment(1, 0, 2, b"x" * 60)), 1.0
    )
    assert frag.layer.deadline() == 1.0 + INCOMPLETE_TIMEOUT_S
    frag.layer.up(
        PacketReceived(PacketRoute.ADDRESSED, OTHER, ControlFragment(2, 0, 2, b"x" * 60)), 2.0
    )
    assert frag.layer.deadline() == 2.0 + INCOMPLETE_TIMEOUT_S, "the older one had to go"
    frag.layer.tick(2.0 + INCOMPLETE_TIMEOUT_S)
    assert frag.layer.deadline() is None


def test_what_is_joined_and_malformed_is_refused() -> None:
    frag = Between(FragLayer)
    frag.layer.up(
        PacketReceived(PacketRoute.ADDRESSED, OTHER, ControlFragment(1, 0, 1, b"nonsense")), 0.0
    )
    frag.layer.up(FragmentReleased(P, 1, 0, 1, b"nonsense"), 0.0)
    assert frag.layer.context.malformed_count == 2
    assert [event.batch.last for event in frag.risen if isinstance(event, BatchReleased)] == [1]


def test_a_publisher_repeats_what_it_keeps_and_says_what_it_does_not() -> None:
    nak = Between(NakPublisherLayer, has_total_order=False, retransmit_bytes=25)
    for first in (1, 2, 3):
        nak.layer.down(
            SendPacket(Data(ME.incarnation, first, Block.build([b"x"])), None, "", first), 0.0
        )
    nak.fallen.clear()
    nak.layer.up(
        PacketReceived(
            PacketRoute.BROADCAST,
            OTHER,
            Nak([MessageRange(ME.incarnation, 1, 3), MessageRange(P, 1, 9)]),
        ),
        1.0,
    )
    lack, *again = nak.packets()
    assert lack == Unavailable(ME.incarnation, 1, 2)
    assert [packet.first for packet in again if isinstance(packet, Data)] == [3]


def test_a_publisher_tells_its_last() -> None:
    """And its age; before its first message too."""
    pulse = Between(PublisherHeartbeatLayer, heartbeat_interval=1.0)
    pulse.layer.start(10.0)
    assert pulse.packets() == [PublisherStatus(ME.incarnation, 0, 0)]
    pulse.layer.down(
        SendPacket(Data(ME.incarnation, 1, Block.build([b"x"] * 3)), None, "", 3), 10.5
    )
    pulse.layer.tick(11.0)
    assert pulse.packets()[2:] == [PublisherStatus(ME.incarnation, 3, 1000)]
    assert pulse.layer.deadline() == 12.0


def test_where_it_casts_again_a_publisher_repeats_what_it_told() -> None:
    """The last few times: for those who have begun since, and have not heard it."""
    pulse = Between(PublisherHeartbeatLayer, heartbeat_interval=1.0, has_total_order=False)
    pulse.layer.start(10.0)
    for second in range(1, 7):
        pulse.layer.down(
            SendPacket(Data(ME.incarnation, second, Block.build([b"x"])), None, "", second),
            9.5 + second,
        )
        pulse.layer.tick(10.0 + second)
    told = [packet for packet in pulse.packets() if isinstance(packet, PublisherStatus)]
    assert told[1] == PublisherStatus(ME.incarnation, 1, 1000, ((1000, 0),))
    assert told[-1].earlier_reports == ((4000, 2), (3000, 3), (2000, 4), (1000, 5))


def test_the_window_is_bounded_and_knows_what_it_lacks() -> None:
    window = RetransmitBuffer(1000)
    for first in range(1, 11):
        window.add(MessageBatch(P, first, Block.build([b"x"])))
    wanted = MessageRange(P, 1, 12)
    found = window.find(wanted)
    assert [batch.first for batch in found] == list(range(found[0].first, 11))
    assert 1 < found[0].first <= 8
    assert find_missing(wanted, found) == [
        MessageRange(P, 1, found[0].first - 1),
        MessageRange(P, 11, 12),
    ]
    assert find_missing(MessageRange(P, 9, 9), window.find(MessageRange(P, 9, 9))) == []


def record(number: int, *archives: str) -> ViewRecord:
    seats = [ViewEntry(ME, Role.SUBSCRIBER)]
    seats += [ViewEntry(MemberId(name, name.encode() * 16), Role.ARCHIVE) for name in archives]
    return ViewRecord(View(ViewId(number, bytes(16)), tuple(seats)), Vector(), ())


def batch(first: int, count: int = 1, publisher: bytes = P) -> MessageBatch:
    return MessageBatch(publisher, first, Block.build([b"x"] * count))


def passed(between: Between) -> list[tuple[int, int]]:
    batches = [event.batch for event in between.risen if isinstance(event, BatchReleased)]
    return [(each.first, each.last) for each in batches]


def test_a_view_that_is_passed_over_demands_its_copies_too() -> None:
    """U1: the last one that is agreed to has fewer archives, but it is not the next."""
    uniform = Between(UniformLayer)
    views = [record(1, "a", "b", "c"), record(2, "a", "b", "c"), record(3, "a")]
    uniform.layer.up(ViewAgreed(views[0]), 0.0)
    uniform.layer.up(ViewInstalled(views[0]), 0.0)
    uniform.layer.up(BatchReleased(batch(1)), 0.0)
    uniform.layer.up(ViewAgreed(views[1]), 0.0)
    uniform.layer.up(ViewAgreed(views[2]), 0.0)
    uniform.layer.up(ViewInstalled(views[2]), 0.0)
    stable = DurableReport(views[0].view.id, {P: 1})
    uniform.layer.up(PacketReceived(PacketRoute.ADDRESSED, MemberId("a", b"a" * 16), stable), 0.0)
    assert passed(uniform) == []
    uniform.layer.up(PacketReceived(PacketRoute.ADDRESSED, MemberId("b", b"b" * 16), stable), 0.0)
    assert passed(uniform) == [(1, 1)]


def test_nobody_waits_for_the_place_of_what_does_not_come() -> None:
    """TO3: we begin behind 2 of P, and the order has places for it."""
    other = b"q" * 16
    total = Between(lambda context: TotalLayer(context, begun()))
    view = View(
        ViewId(1, bytes(16)), (ViewEntry(OTHER, Role.SUBSCRIBER), ViewEntry(ME, Role.SUBSCRIBER))
    )
    total.layer.up(ViewInstalled(ViewRecord(view, Vector(), ())), 0.0)
    places = [(P, 1, 2), (other, 1, 1), (P, 3, 1)]
    said = [p + first.to_bytes(8, "little") + n.to_bytes(4, "little") for p, first, n in places]
    total.layer.up(
        BatchReleased(MessageBatch(order_publisher_id(view.id), 1, Block.build(said))), 0.0
    )
    total.layer.up(BatchReleased(batch(1, publisher=other)), 0.0)
    assert passed(total) == []
    total.layer.up(PublisherStartSet(P, 2), 0.0)
    assert passed(total) == [(1, 1)]
    total.layer.up(BatchReleased(batch(3)), 0.0)
    assert passed(total) == [(1, 1), (3, 3)]


def test_places_that_are_malformed_or_have_no_room_are_not_waited_for() -> None:
    """TO4."""
    receive_buffer = begun(most=1)
    receive_buffer.note_known(P, 0, 0.0)
    total = Between(lambda context: TotalLayer(context, receive_buffer))
    view = View(
        ViewId(1, bytes(16)), (ViewEntry(OTHER, Role.SUBSCRIBER), ViewEntry(ME, Role.SUBSCRIBER))
    )
    total.layer.up(ViewInstalled(ViewRecord(view, Vector(), ())), 0.0)
    crowded, order = b"q" * 16, order_publisher_id(view.id)
    places = [(crowded, 1, 1), (P, 0, 1), (P, 1, 0), (P, 2**64 - 1, 1), (order, 9, 1), (P, 1, 1)]
    said = [p + first.to_bytes(8, "little") + n.to_bytes(4, "little") for p, first, n in places]
    total.layer.up(BatchReleased(MessageBatch(order, 1, Block.build([b"short", *said]))), 0.0)
    assert total.layer.context.malformed_count == 5
    assert receive_buffer.missing_ranges(P, 2) == [MessageRange(P, 1, 1)]
    assert list(receive_buffer.publishers) == [P]
    total.layer.up(BatchReleased(batch(1)), 0.0)
    assert passed(total) == [(1, 1)]


def test_an_answer_of_no_use_is_no_reason_to_ask_at_once() -> None:
    """P1."""
    receive_buffer = ReceiveBuffer(10_000)
    receive_buffer.start({}, 0.0)
    receive_buffer.note_known(P, 9, 0.0)
    receive_buffer.gaps[P].needs_pull = True
    pull = Between(lambda context: PullLayer(context, receive_buffer))
    pull.layer.context.agreed_view = record(1, "a").view
    pull.layer.tick(1.0)
    assert [type(packet) for packet in pull.packets()] == [PullRequest]
    useless = [encode_batch(batch(1, publisher=b"q" * 16))]
    pull.layer.up(PacketReceived(PacketRoute.ADDRESSED, OTHER, PullReply(1, useless, [])), 1.1)
    assert len(pull.packets()) == 1


def test_an_answer_of_use_is_followed_by_the_next_question() -> None:
    """P1: though NAK knows nothing yet of the gap behind it, as the answer filled the one that it knew."""
    receive_buffer = ReceiveBuffer(10_000)
    receive_buffer.start({}, 0.0)
    receive_buffer.note_known(P, 9, 0.0)
    receive_buffer.gaps[P].needs_pull = True
    pull = Between(lambda context: PullLayer(context, receive_buffer))

    def fall(event: DownEvent, now: float) -> None:
        if isinstance(event, GapFilled):
            receive_buffer.receive(event.batch, now)
        else:
            pull.fallen.append(event)

    pull.layer.link(lambda event, now: None, fall)
    pull.layer.context.agreed_view = record(1, "a").view
    pull.layer.tick(1.0)
    pull.layer.up(
        PacketReceived(PacketRoute.ADDRESSED, OTHER, PullReply(1, [encode_batch(batch(1))], [])),
        1.1,
    )
    asked = [packet.ranges for packet in pull.packets() if isinstance(packet, PullRequest)]
    assert asked == [[MessageRange(P, 1, 9)], [MessageRange(P, 2, 9)]]


def test_places_of_another_view_are_not_missing() -> None:
    receive_buffer = ReceiveBuffer(10_000)
    receive_buffer.start({}, 0.0)
    nak = Between(lambda context: NakMemberLayer(context, receive_buffer))
    nak.layer.context.agreed_view = record(1).view
    theirs, ours = (
        order_publisher_id(ViewId(9, bytes(16))),
        order_publisher_id(ViewId(1, bytes(16))),
    )
    for orders in (theirs, ours):
        nak.layer.up(
            PacketReceived(PacketRoute.BROADCAST, OTHER, PublisherStatus(orders, 3, 0)), 0.0
        )
    assert list(receive_buffer.gaps) == [ours]


@pytest.mark.parametrize("packet", [400, 60_000])
def test_what_is_asked_of_publishers_fits_in_packets(packet: int) -> None:
    """Nothing below cuts it into pieces."""
    receive_buffer = ReceiveBuffer(10_000_000)
    receive_buffer.start({}, 0.0)
    nak = Between(
        lambda context: NakMemberLayer(context, receive_buffer),
        has_total_order=False,
        max_packet_bytes=packet,
    )
    far = MAX_SEQUENCE_ID - 1_000
    for number in range(64):
        publisher = bytes([number] * 16)
        for sequence in range(far, far + 128, 2):
            receive_buffer.receive(batch(sequence, publisher=publisher), 0.0)
    nak.layer.tick(1.0)
    said = [packet for packet in nak.packets() if isinstance(packet, Nak)]
    assert max(len(encode(each)) for each in said) <= packet
    assert sum(len(each.ranges) for each in said) == MAX_RANGES


def test_what_is_missing_live_is_told_from_where_recovery_ended() -> None:
    receive_buffer = ReceiveBuffer(10_000)
    sync = Between(
        lambda context: SyncLayer(context, receive_buffer),
        recovery=RecoveryPolicy.VECTOR,
        start_vector=Vector({P: 5}),
    )
    sync.layer.up(ViewInstalled(record(1)), 0.0)
    sync.layer.up(MessagesLost(LostRange(P, 3, 8)), 0.1)
    sync.layer.up(
        PacketReceived(PacketRoute.ADDRESSED, OTHER, RecoveryReply(0, Vector(), [], 0, False, {})),
        0.2,
    )
    missing = [event for event in sync.risen if isinstance(event, MessagesLost)]
    assert missing == [MessagesLost(LostRange(P, 6, 8))]


def test_an_answer_that_comes_after_the_question_was_repeated_is_taken_once() -> None:
    """It may be large, and the way slow: if only the answer to the last repetition counted, none would."""
    sync = Between(
        lambda context: SyncLayer(context, ReceiveBuffer(10_000)),
        recovery=RecoveryPolicy.VECTOR,
        retry_interval=0.1,
    )
    sync.layer.context.agreed_view = record(1, "a", "b").view
    sync.layer.up(ViewInstalled(replace(record(1, "a", "b"), cut=Vector({P: 2}))), 0.0)
    for tenth in range(40):
        sync.layer.tick(tenth / 10)
    asked = [event for event in sync.fallen if isinstance(event, SendPacket)]
    assert len({each.to for each in asked}) == 2
    first = asked[0]
    assert isinstance(first.packet, RecoveryRequest)
    assert isinstance(first.to, MemberId)
    late = RecoveryReply(
        first.packet.request_number, Vector(), [encode_batch(batch(1))], 7, True, {P: 1}
    )
    sync.layer.up(PacketReceived(PacketRoute.ADDRESSED, first.to, late), 4.0)
    sync.layer.up(PacketReceived(PacketRoute.ADDRESSED, first.to, late), 4.0)
    assert passed(sync) == [(1, 1)]
    (*_, again) = (event for event in sync.fallen if isinstance(event, SendPacket))
    assert isinstance(again.packet, RecoveryRequest)
    assert (again.to, again.packet.offset, again.packet.after) == (first.to, 7, Vector({P: 1}))
    assert again.packet.request_number != first.packet.request_number
    rest = RecoveryReply(
        again.packet.request_number, Vector(), [encode_batch(batch(2))], 8, False, {P: 2}
    )
    sync.layer.up(PacketReceived(PacketRoute.ADDRESSED, first.to, rest), 4.1)
    assert passed(sync) == [(1, 1), (2, 2)]


@given(st.lists(st.tuples(st.sampled_from(PacketRoute), st.binary(max_size=60)), max_size=20))
def test_nothing_that_arrives_raises(arriving: list[tuple[PacketRoute, bytes]]) -> None:
    member = FeedMember(ME, Role.SUBSCRIBER, Stack.parse(SUBSCRIBER_STACK), FeedOptions())
    now = 0.0
    for channel, data in arriving:
        now += 0.1
        member.handle(PacketArrived(channel, OTHER, b"\xfd\x01" + data), now)
        member.handle(TimerFired(), now)
    assert member.malformed_count <= len(arriving)


def test_the_key_of_a_batch_is_on_its_cast() -> None:
    numbering = Between(SequencerLayer)
    numbering.layer.down(PublishRequested(Block.build([b"1", b"2"], keys=b"PETR4")), 0.0)
    numbering.layer.down(PublishRequested(Block.build([b"3", b"4"], keys=[b"a", b"b"])), 0.0)
    said = [event for event in numbering.fallen if isinstance(event, SendPacket)]
    assert [(one.key, one.last_sequence) for one in said] == [("PETR4", 2), ("", 4)]
