"""How packets and records are written as bytes and read back; `packet` draws them.

Whatever a peer sent wrongly raises Malformed here, and only here: sizes and numbers are checked before they
are used.
"""

from struct import Struct as Layout
from typing import Any, Final

from msgspec import MsgspecError, convert
from msgspec.msgpack import Decoder, Encoder

from .block import MAX_COUNT, Block, Malformed
from .boundary import Batch
from .packet import (
    DATA_HEAD,
    FRAGMENT_HEAD,
    HEAD,
    MAGIC,
    MAX_PACKET,
    MAX_PIECES,
    PIECE_HEAD,
    VERSION,
    Ack,
    Answer,
    Beat,
    Bound,
    Carried,
    Data,
    Doubt,
    Fragment,
    Kind,
    Known,
    Lack,
    Last,
    Nak,
    NewView,
    NextView,
    Offer,
    Packet,
    Piece,
    Prepare,
    Prepared,
    Pull,
    Pulled,
    Records,
    Recover,
    Roll,
    Stable,
    VectorEntries,
)
from .vector import MAX_SEQUENCE, Vector
from .views import Record

_DATA: Final = Layout("<3B16sQI")
_FRAGMENT: Final = Layout("<3B16sQHH")
_PIECE: Final = Layout("<3BQHH")


_KINDS: Final[dict[type, Kind]] = {
    Last: Kind.LAST,
    Nak: Kind.NAK,
    Lack: Kind.LACK,
    Beat: Kind.BEAT,
    Prepare: Kind.PREPARE,
    Prepared: Kind.PREPARED,
    NewView: Kind.VIEW,
    NextView: Kind.NEXT_VIEW,
    Roll: Kind.ROLL,
    Ack: Kind.ACK,
    Recover: Kind.RECOVER,
    Answer: Kind.ANSWER,
    Offer: Kind.OFFER,
    Doubt: Kind.DOUBT,
    Bound: Kind.BOUND,
    Stable: Kind.STABLE,
    Pull: Kind.PULL,
    Pulled: Kind.PULLED,
    Known: Kind.KNOWN,
    Records: Kind.RECORDS,
}


def _plain(value: object) -> object:
    assert isinstance(value, Vector)
    plain: dict[bytes, int | list[int]] = dict(value)
    for publisher, spans in value.holes.items():
        plain[publisher] = [value.of(publisher), *(bound for span in spans for bound in span)]
    return plain


def _special(wanted: type, value: object) -> object:
    """Raises ValueError, which msgspec turns into its own."""
    assert wanted is Vector
    entries: dict[bytes, int] = {}
    holes: dict[bytes, list[tuple[int, int]]] = {}
    for publisher, told in convert(value, VectorEntries).items():
        if isinstance(told, int):
            entries[publisher] = told
            continue
        entries[publisher], *bounds = told
        holes[publisher] = list(zip(bounds[::2], bounds[1::2], strict=True))
        if any(not 1 <= low <= high for low, high in holes[publisher]):
            raise ValueError(f"holes {bounds}")
    return Vector(entries, holes)


_HEADS: Final = {cls: bytes((MAGIC, VERSION, kind)) for cls, kind in _KINDS.items()}
_DECODERS: Final[dict[int, Decoder[Packet]]] = {
    kind: Decoder(cls, dec_hook=_special) for cls, kind in _KINDS.items()
}
_ENCODER: Final = Encoder(enc_hook=_plain)
_RECORD: Final[Decoder[Record]] = Decoder(Record, dec_hook=_special)


def encode(packet: Packet) -> bytes:
    match packet:
        case Data(publisher, first, block):
            return _DATA.pack(MAGIC, VERSION, Kind.DATA, publisher, first, block.count) + block.data
        case Fragment(publisher, sequence, index, total, piece):
            return _fragment_head(publisher, sequence, index, total) + piece
        case Piece(number, index, total, piece):
            return _PIECE.pack(MAGIC, VERSION, Kind.PIECE, number, index, total) + piece
        case _:
            return _HEADS[type(packet)] + _ENCODER.encode(packet)


def decode(data: bytes) -> Packet:
    """Raises Malformed."""
    if len(data) < HEAD or data[0] != MAGIC or data[1] != VERSION:
        raise Malformed("not a packet of a feed in this version")
    if len(data) > MAX_PACKET:
        raise Malformed(f"a packet of {len(data)} bytes")
    kind = data[2]
    decoder = _DECODERS.get(kind)
    if decoder is not None:
        try:
            return decoder.decode(memoryview(data)[HEAD:])
        except (MsgspecError, UnicodeDecodeError) as error:
            raise Malformed(f"a packet of kind {kind}: {error}") from error
    match kind:
        case Kind.DATA:
            publisher, first, count = _numbers(_DATA, data)
            _check(first, count, MAX_COUNT)
            return Data(publisher, first, Block.parse(data[DATA_HEAD:], count))
        case Kind.FRAGMENT:
            publisher, sequence, index, total = _numbers(_FRAGMENT, data)
            _check(sequence, total, MAX_PIECES)
            if index >= total:
                raise Malformed(f"fragment {index} of {total}")
            return Fragment(publisher, sequence, index, total, data[FRAGMENT_HEAD:])
        case Kind.PIECE:
            number, index, total = _numbers(_PIECE, data)
            if index >= total:
                raise Malformed(f"piece {index} of {total}")
            return Piece(number, index, total, data[PIECE_HEAD:])
        case _:
            raise Malformed(f"a packet of unknown kind {kind}")


def record_to_bytes(record: Record) -> bytes:
    return _ENCODER.encode(record)


def record_from_bytes(data: bytes) -> Record:
    """Raises Malformed."""
    try:
        return _RECORD.decode(data)
    except (MsgspecError, UnicodeDecodeError) as error:
        raise Malformed(f"a record of {len(data)} bytes: {error}") from error


def extent(data: bytes) -> tuple[bytes, int] | None:
    """Publisher and last sequence of a packet with messages or a part of one; None for all others. Of bytes
    that `decode` may refuse it says anything."""
    if len(data) < FRAGMENT_HEAD or data[2] not in (Kind.DATA, Kind.FRAGMENT):
        return None
    if data[2] == Kind.FRAGMENT:
        publisher, sequence, _, _ = _numbers(_FRAGMENT, data)
        return publisher, sequence
    publisher, first, count = _numbers(_DATA, data)
    return publisher, first + count - 1


def carry(batch: Batch) -> Carried:
    return Carried(
        batch.publisher, batch.first, batch.count, batch.view, batch.certainty, batch.block.data
    )


def carried(batch: Carried) -> Batch:
    """Raises Malformed."""
    _check(batch.first, batch.count, MAX_COUNT)
    block = Block.parse(batch.block, batch.count)
    return Batch(batch.publisher, batch.first, block, batch.view, batch.certainty)


def _fragment_head(publisher: bytes, sequence: int, index: int, total: int) -> bytes:
    return _FRAGMENT.pack(MAGIC, VERSION, Kind.FRAGMENT, publisher, sequence, index, total)


def _numbers(layout: Layout, data: bytes) -> tuple[Any, ...]:
    if len(data) < layout.size:
        raise Malformed(f"a packet of kind {data[2]} in {len(data)} bytes")
    return layout.unpack_from(data)[HEAD:]


def _check(first: int, count: int, most: int) -> None:
    if not 1 <= first <= MAX_SEQUENCE - most or not 1 <= count <= most:
        raise Malformed(f"{count} messages from sequence {first}")
