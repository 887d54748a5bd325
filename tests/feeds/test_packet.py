"""Packets, blocks and vectors: what is written is read back; what is not theirs is refused, never worse."""

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recado.feeds import packet as pk
from recado.feeds import wire
from recado.feeds.block import (
    ALL_EMPTY_CODE,
    BODY_INDEX,
    CONSTANT_CODE,
    HEADERS_INDEX,
    KEY_INDEX,
    MAX_MESSAGE_COUNT,
    Block,
    MalformedDataError,
    join_blocks,
)
from recado.feeds.boundary import MessageBatch, MessageRange
from recado.feeds.vector import Vector
from recado.feeds.views import (
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

ids = st.binary(min_size=16, max_size=16)
sequences = st.integers(1, 2**40)
texts = st.binary(max_size=5)
view_ids = st.builds(ViewId, st.integers(0, 99), ids)
members = st.builds(MemberId, st.text(max_size=8), ids)
entries = st.dictionaries(ids, sequences, max_size=4)
vectors = st.builds(Vector, entries)
ranges = st.builds(MessageRange, ids, sequences, sequences)
roles = st.sampled_from(Role)
views = st.builds(
    View, view_ids, st.lists(st.builds(ViewEntry, members, roles), max_size=3).map(tuple)
)


@st.composite
def blocks(draw: st.DrawFn) -> Block:
    count = draw(st.integers(1, 6))
    column = st.one_of(texts, st.lists(texts, min_size=count, max_size=count))
    return Block.build(
        draw(st.lists(texts, min_size=count, max_size=count)),
        timestamps=draw(st.lists(st.integers(0, 2**60), min_size=count, max_size=count)),
        keys=draw(column),
        message_ids=draw(column),
        headers=draw(column),
        properties=draw(column),
    )


batches = st.builds(MessageBatch, ids, sequences, blocks(), view_ids, st.sampled_from(Certainty))
acknowledged = st.builds(AcknowledgementRecord, members, view_ids, vectors, vectors, st.booleans())
records = st.one_of(
    st.builds(
        *(ViewRecord, views, vectors, st.lists(view_ids, max_size=2).map(tuple)),
        *(st.booleans(), st.booleans()),
    ),
    st.builds(ViewStability, view_ids, vectors),
    acknowledged,
    st.builds(LostRange, ids, sequences, sequences),
)
packets = st.one_of(
    st.builds(pk.Data, ids, sequences, blocks()),
    st.builds(pk.Fragment, ids, sequences, st.integers(0, 3), st.integers(4, 9), texts),
    st.builds(pk.ControlFragment, sequences, st.integers(0, 3), st.integers(4, 9), texts),
    st.builds(pk.PublisherStatus, ids, sequences, sequences),
    st.builds(pk.Nak, st.lists(ranges, max_size=3)),
    st.builds(pk.Unavailable, ids, sequences, sequences),
    st.builds(pk.Heartbeat, roles, view_ids, st.integers(0, 9), st.booleans()),
    st.builds(pk.Prepare, view_ids, st.lists(members, max_size=3)),
    st.builds(pk.Prepared, view_ids, roles, view_ids, st.integers(0, 9), entries,
              st.sampled_from(pk.OutsiderReport)),
    st.builds(pk.NewView, views, st.lists(st.integers(0, 9)), entries, st.lists(view_ids, max_size=2),
              st.booleans()),
    st.builds(pk.Acknowledgement, view_ids, entries, entries, st.booleans()),
    st.builds(pk.RecoveryRequest, sequences, st.none() | entries, st.integers(0, 9)),
    st.builds(pk.RecoveryReply, sequences, st.none() | entries,
              st.lists(batches.map(wire.encode_batch), max_size=2),
              st.integers(0, 9), st.booleans(), entries),
    st.builds(pk.RecoveryOffer, entries),
    st.builds(pk.DeliveryBoundRequest),
    st.builds(pk.DeliveryBound, entries),
    st.builds(pk.DurableReport, view_ids, entries),
    st.builds(pk.PullRequest, sequences, st.lists(ranges, max_size=3)),
    st.builds(pk.PullReply, sequences, st.lists(batches.map(wire.encode_batch), max_size=2), st.lists(ranges)),
    st.builds(pk.RecordsSummary, st.lists(view_ids), st.lists(st.tuples(view_ids, sequences)),
              st.lists(st.tuples(members, sequences), max_size=2)),
    st.builds(pk.RecordsReply, st.lists(records, max_size=3)),
)  # fmt: skip


@given(packets)
def test_packets_are_read_back(packet: pk.Packet) -> None:
    assert wire.decode(wire.encode(packet)) == packet


@given(packets, st.data())
def test_no_bytes_do_worse_than_be_refused(packet: pk.Packet, data: st.DataObject) -> None:
    raw = bytearray(wire.encode(packet))
    for _ in range(data.draw(st.integers(0, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    wrong = bytes(raw[: data.draw(st.integers(0, len(raw)))])
    with contextlib.suppress(MalformedDataError):
        wire.decode(wrong)
    wire.read_message_extent(wrong)


@given(records)
def test_records_are_read_back(
    record: ViewRecord | ViewStability | AcknowledgementRecord | LostRange,
) -> None:
    assert wire.decode_record(wire.encode_record(record)) == record


@pytest.mark.parametrize(
    "data", [b"", b"\xc1", b"\x93\x01\x02\x03", wire.encode_record(LostRange(bytes(16), 1, 2))[:-1]]
)
def test_damaged_records_are_refused(data: bytes) -> None:
    with pytest.raises(MalformedDataError):
        wire.decode_record(data)


@given(batches)
def test_batches_are_carried(batch: MessageBatch) -> None:
    assert wire.decode_batch(wire.encode_batch(batch)) == batch


def test_a_carried_block_is_checked() -> None:
    good = wire.encode_batch(MessageBatch(bytes(16), 1, Block.build([b"a", b"b"])))
    bad = pk.EncodedBatch(good.publisher, 1, 3, good.view, good.certainty, good.block)
    with pytest.raises(MalformedDataError):
        wire.decode_batch(bad)


def test_extent() -> None:
    block = Block.build([b"a", b"b", b"c"])
    assert wire.read_message_extent(wire.encode(pk.Data(b"p" * 16, 7, block))) == (b"p" * 16, 9)
    assert wire.read_message_extent(wire.encode(pk.Fragment(b"p" * 16, 7, 0, 2, b"x"))) == (
        b"p" * 16,
        7,
    )
    assert wire.read_message_extent(wire.encode(pk.PublisherStatus(b"p" * 16, 7, 0))) is None


@given(blocks())
def test_a_block_is_parsed_as_it_was_made(block: Block) -> None:
    again = Block.parse(block.data, block.count)
    assert again == block
    assert again.timestamps() == block.timestamps()
    assert [again.values(c) for c in range(5)] == [block.values(c) for c in range(5)]


@given(blocks(), st.data())
def test_slices_have_their_messages_and_join_again(block: Block, data: st.DataObject) -> None:
    cut = data.draw(st.integers(1, block.count))
    parts = [block.slice(0, cut)] + ([block.slice(cut, block.count)] if cut < block.count else [])
    for c in range(5):
        assert [v for part in parts for v in part.values(c)] == block.values(c)
    assert [t for part in parts for t in part.timestamps()] == list(block.timestamps())
    whole = join_blocks(parts)
    assert [whole.values(c) for c in range(5)] == [block.values(c) for c in range(5)]
    assert Block.parse(parts[0].data, parts[0].count) == parts[0]
    assert len(block.message_sizes()) == block.count


@pytest.mark.parametrize(
    "wrong",
    [{"bodies": []}, {"bodies": [b"a", b"b"], "keys": [b"k"]}, {"bodies": [b"a"] * 65_537}],
)
def test_what_is_no_block_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"block|every column"):
        Block.build(**wrong)


def test_a_small_block_does_not_say_more_than_a_machine_can_hold() -> None:
    value, count = b"x" * 5_000, MAX_MESSAGE_COUNT
    with pytest.raises(ValueError, match="block with values of"):
        Block.build([b""] * count, headers=value)
    column = bytes([CONSTANT_CODE]) + len(value).to_bytes(4, "little") + value
    data = (
        bytes(8 * count)
        + bytes([ALL_EMPTY_CODE, ALL_EMPTY_CODE])
        + column
        + bytes([ALL_EMPTY_CODE, ALL_EMPTY_CODE])
    )
    with pytest.raises(MalformedDataError, match="65536 messages with values of more than"):
        Block.parse(data, count)
    assert Block.parse(data[-len(column) - 4 - 8 :], 1).values(HEADERS_INDEX) == [value]


def test_columns_are_as_small_as_their_values_allow() -> None:
    block = Block.build([b"x", b"x"], keys=[b"k", b"l"])
    assert block.column(BODY_INDEX).mode == 1
    assert block.column(KEY_INDEX) == (2, (1, 1), b"kl")


@given(vectors, vectors)
def test_vectors(one: Vector, other: Vector) -> None:
    both = one.merge(other)
    assert both.covers(one)
    assert both.covers(other)
    assert one.covers(one.intersect(other))
    assert Vector.from_text(one.to_text()) == one
    assert all(both.last_of(p) == max(one.last_of(p), other.last_of(p)) for p in both)
    assert hash(Vector(dict(one))) == hash(one)


@pytest.mark.parametrize("text", ["x", "00:1", "00" * 16 + ":-1", "00" * 16 + ":x", "00" * 16])
def test_what_is_no_vector_is_named(text: str) -> None:
    with pytest.raises(ValueError, match="hex digits"):
        Vector.from_text(text)


@given(members)
def test_member_ids_as_text(member: MemberId) -> None:
    assert MemberId.parse(str(member)) == member
    with pytest.raises(ValueError, match="32 hex digits"):
        MemberId.parse("name@00")
