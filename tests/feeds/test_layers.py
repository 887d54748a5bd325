"""Single layers, between a layer above and one below that only write down what they are given."""

from hypothesis import given
from hypothesis import strategies as st

from recado.feeds.block import BODY, Block
from recado.feeds.boundary import Arrived, Batch, Channel, Options, Publish, Range, Ticked
from recado.feeds.layer import Falling, Heard, Layer, Messages, Part, Pieces, Rising, Say, Site
from recado.feeds.layers.fifo import Numbering
from recado.feeds.layers.frag import STALE, Frag
from recado.feeds.layers.nak import NakPublisher
from recado.feeds.layers.pulse import Pulse
from recado.feeds.layers.window import Window, lacking
from recado.feeds.member import Member
from recado.feeds.packet import Answer, Data, Fragment, Lack, Last, Nak, Piece
from recado.feeds.stack import SUBSCRIBER, Stack
from recado.feeds.views import NO_VIEW, Certainty, MemberId, Role
from recado.feeds.wire import carry, encode

ME, OTHER = MemberId("me", b"m" * 16), MemberId("other", b"o" * 16)
P = b"p" * 16


class Between:
    """A layer with nothing above and below but lists."""

    def __init__(self, make: type[Layer], **options: object) -> None:
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
    frag = Between(Frag, held=100)
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
    pulse = Between(Pulse, beat=1.0)
    assert pulse.layer.deadline() is None
    pulse.layer.down(Say(Data(ME.incarnation, 1, Block.of([b"x"] * 3)), None, "", 3), 0.0)
    pulse.layer.tick(1.0)
    assert pulse.packets()[1:] == [Last(ME.incarnation, 3)]
    assert pulse.layer.deadline() == 2.0


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
