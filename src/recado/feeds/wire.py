"""Encoding and decoding of packets and records; `packet` draws the formats.

Invalid bytes of a peer raise `MalformedDataError`, here or in `Block.parse`, and no other exception: sizes and
numbers are checked before use.
"""

from struct import Struct as Layout
from typing import Any, Final

from msgspec import MsgspecError, convert
from msgspec.msgpack import Decoder, Encoder

from .block import MAX_MESSAGE_COUNT, Block, MalformedDataError
from .boundary import MessageBatch
from .packet import (
    CONTROL_FRAGMENT_HEADER_BYTES,
    DATA_HEADER_BYTES,
    FRAGMENT_HEADER_BYTES,
    HEADER_BYTES,
    MAGIC_CODE,
    MAX_FRAGMENTS,
    MAX_PACKET_BYTES,
    VERSION,
    Acknowledgement,
    ControlFragment,
    Data,
    DeliveryBound,
    DeliveryBoundRequest,
    DurableReport,
    EncodedBatch,
    EncodedVector,
    Fragment,
    Heartbeat,
    MembersRequest,
    Nak,
    NewView,
    Packet,
    PacketKind,
    Prepare,
    Prepared,
    PublisherStatus,
    PullReply,
    PullRequest,
    RecordsReply,
    RecordsSummary,
    RecoveryOffer,
    RecoveryReply,
    RecoveryRequest,
    Unavailable,
    ViewDelta,
)
from .vector import MAX_SEQUENCE_ID, Vector
from .views import ArchiveRecord

# The first three bytes are magic, version and kind, as in all packets.
_DATA_LAYOUT: Final = Layout("<3B16sQI")
_FRAGMENT_LAYOUT: Final = Layout("<3B16sQHH")
_CONTROL_FRAGMENT_LAYOUT: Final = Layout("<3BQHH")

_KIND_BY_TYPE: Final[dict[type, PacketKind]] = {
    PublisherStatus: PacketKind.PUBLISHER_STATUS,
    Nak: PacketKind.NAK,
    Unavailable: PacketKind.UNAVAILABLE,
    Heartbeat: PacketKind.HEARTBEAT,
    Prepare: PacketKind.PREPARE,
    Prepared: PacketKind.PREPARED,
    NewView: PacketKind.VIEW,
    ViewDelta: PacketKind.VIEW_DELTA,
    MembersRequest: PacketKind.MEMBERS_REQUEST,
    Acknowledgement: PacketKind.ACK,
    RecoveryRequest: PacketKind.RECOVERY_REQUEST,
    RecoveryReply: PacketKind.RECOVERY_REPLY,
    RecoveryOffer: PacketKind.RECOVERY_OFFER,
    DeliveryBoundRequest: PacketKind.DELIVERY_BOUND_REQUEST,
    DeliveryBound: PacketKind.DELIVERY_BOUND,
    DurableReport: PacketKind.DURABLE_REPORT,
    PullRequest: PacketKind.PULL_REQUEST,
    PullReply: PacketKind.PULL_REPLY,
    RecordsSummary: PacketKind.RECORDS_SUMMARY,
    RecordsReply: PacketKind.RECORDS_REPLY,
}


def _encode_vector(value: object) -> object:
    assert isinstance(value, Vector)
    plain: dict[bytes, int | list[int]] = dict(value)
    for publisher, spans in value.holes.items():
        plain[publisher] = [value.last_of(publisher), *(bound for span in spans for bound in span)]
    return plain


def _decode_vector(type_: type, value: object) -> object:
    """Raises `ValueError`, which msgspec converts into its own exception."""
    assert type_ is Vector
    entries: dict[bytes, int] = {}
    holes: dict[bytes, list[tuple[int, int]]] = {}
    for publisher, encoded in convert(value, EncodedVector).items():
        if isinstance(encoded, int):
            entries[publisher] = encoded
            continue
        entries[publisher], *bounds = encoded
        holes[publisher] = list(zip(bounds[::2], bounds[1::2], strict=True))
        if any(not 1 <= low <= high for low, high in holes[publisher]):
            raise ValueError(f"invalid holes {bounds}")
    return Vector(entries, holes)


_HEADER_BY_TYPE: Final = {
    cls: bytes((MAGIC_CODE, VERSION, kind)) for cls, kind in _KIND_BY_TYPE.items()
}
_DECODERS: Final[dict[int, Decoder[Packet]]] = {
    kind: Decoder(cls, dec_hook=_decode_vector) for cls, kind in _KIND_BY_TYPE.items()
}
_ENCODER: Final = Encoder(enc_hook=_encode_vector)
_RECORD_DECODER: Final[Decoder[ArchiveRecord]] = Decoder(ArchiveRecord, dec_hook=_decode_vector)


def encode(packet: Packet) -> bytes:
    match packet:
        case Data(publisher, first, block):
            return (
                _DATA_LAYOUT.pack(
                    MAGIC_CODE, VERSION, PacketKind.DATA, publisher, first, block.count
                )
                + block.data
            )
        case Fragment(publisher, sequence, index, count, data):
            return _fragment_header(publisher, sequence, index, count) + data
        case ControlFragment(number, index, count, data):
            return (
                _CONTROL_FRAGMENT_LAYOUT.pack(
                    MAGIC_CODE, VERSION, PacketKind.CONTROL_FRAGMENT, number, index, count
                )
                + data
            )
        case _:
            return _HEADER_BY_TYPE[type(packet)] + _ENCODER.encode(packet)


def decode(data: bytes) -> Packet:
    """Decode a packet; raise `MalformedDataError` if it is invalid."""
    if len(data) < HEADER_BYTES or data[0] != MAGIC_CODE or data[1] != VERSION:
        raise MalformedDataError("not a feed packet of this version")
    if len(data) > MAX_PACKET_BYTES:
        raise MalformedDataError(f"packet of {len(data)} bytes")
    kind = data[2]
    decoder = _DECODERS.get(kind)
    if decoder is not None:
        try:
            return decoder.decode(memoryview(data)[HEADER_BYTES:])
        except (MsgspecError, UnicodeDecodeError) as error:
            raise MalformedDataError(f"packet of kind {kind}: {error}") from error
    match kind:
        case PacketKind.DATA:
            publisher, first, count = _unpack_header(_DATA_LAYOUT, data)
            _check_sequences(first, count, MAX_MESSAGE_COUNT)
            return Data(publisher, first, Block.parse(data[DATA_HEADER_BYTES:], count))
        case PacketKind.FRAGMENT:
            publisher, sequence, index, total = _unpack_header(_FRAGMENT_LAYOUT, data)
            _check_sequences(sequence, total, MAX_FRAGMENTS)
            if index >= total:
                raise MalformedDataError(f"fragment {index} of {total}")
            return Fragment(publisher, sequence, index, total, data[FRAGMENT_HEADER_BYTES:])
        case PacketKind.CONTROL_FRAGMENT:
            number, index, total = _unpack_header(_CONTROL_FRAGMENT_LAYOUT, data)
            if index >= total:
                raise MalformedDataError(f"control fragment {index} of {total}")
            return ControlFragment(number, index, total, data[CONTROL_FRAGMENT_HEADER_BYTES:])
        case _:
            raise MalformedDataError(f"packet of unknown kind {kind}")


def encode_record(record: ArchiveRecord) -> bytes:
    return _ENCODER.encode(record)


def decode_record(data: bytes) -> ArchiveRecord:
    """Decode a record; raise `MalformedDataError` if it is invalid."""
    try:
        return _RECORD_DECODER.decode(data)
    except (MsgspecError, UnicodeDecodeError) as error:
        raise MalformedDataError(f"record of {len(data)} bytes: {error}") from error


def read_message_extent(data: bytes) -> tuple[bytes, int] | None:
    """Return publisher and last sequence of a packet with messages or a fragment, None for other kinds. The
    packet is not validated: for malformed bytes the result is arbitrary."""
    if len(data) < FRAGMENT_HEADER_BYTES or data[2] not in (PacketKind.DATA, PacketKind.FRAGMENT):
        return None
    if data[2] == PacketKind.FRAGMENT:
        publisher, sequence, _, _ = _unpack_header(_FRAGMENT_LAYOUT, data)
        return publisher, sequence
    publisher, first, count = _unpack_header(_DATA_LAYOUT, data)
    return publisher, first + count - 1


def encode_batch(batch: MessageBatch) -> EncodedBatch:
    return EncodedBatch(
        batch.publisher, batch.first, batch.count, batch.view, batch.certainty, batch.block.data
    )


def decode_batch(batch: EncodedBatch) -> MessageBatch:
    """Decode a batch; raise `MalformedDataError` if it is invalid."""
    _check_sequences(batch.first, batch.count, MAX_MESSAGE_COUNT)
    block = Block.parse(batch.block, batch.count)
    return MessageBatch(batch.publisher, batch.first, block, batch.view, batch.certainty)


def _fragment_header(publisher: bytes, sequence: int, index: int, count: int) -> bytes:
    return _FRAGMENT_LAYOUT.pack(
        MAGIC_CODE, VERSION, PacketKind.FRAGMENT, publisher, sequence, index, count
    )


def _unpack_header(layout: Layout, data: bytes) -> list[Any]:
    """Return the fields of a layout after magic, version and kind."""
    if len(data) < layout.size:
        raise MalformedDataError(f"packet of kind {data[2]} in {len(data)} bytes")
    _, _, _, *fields = layout.unpack_from(data)
    return fields


def _check_sequences(first: int, count: int, max_count: int) -> None:
    """Check the first sequence of a packet, and its number of messages or fragments."""
    if not 1 <= first <= MAX_SEQUENCE_ID - max_count or not 1 <= count <= max_count:
        raise MalformedDataError(f"sequence {first} with a count of {count}")
