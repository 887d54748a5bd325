"""FRAG: packets that are too large for the transport travel in pieces.

A batch is first cut between messages, so that each packet is of use by itself; only a message that is too
large alone travels in fragments, which FIFO brings in order and without gaps. What layers above say on A
travels in pieces that may get lost: then the whole is dropped after a while, and who asked asks again.

FR1  A message put together from fragments is the message that was published.
FR2  Of each publisher at most one message is being put together, and none that is larger than a block may be;
     of all at most as much as `MOST_JOINING` of the largest, or the first begun is given up and told as lost.
     Of pieces on A there are at most `held` bytes in all.
"""

from ..block import MAX_BLOCK, Block, Malformed
from ..boundary import Batch, Publish
from ..layer import Falling, Heard, Layer, Messages, Missing, Part, Pieces, Rising, Say, Site
from ..packet import (
    DATA_HEAD,
    FRAGMENT_HEAD,
    MAX_PIECES,
    PIECE_HEAD,
    Answer,
    Known,
    Piece,
    Pulled,
    Records,
)
from ..views import Lost, MemberId
from ..wire import decode, encode

STALE = 10.0  # seconds after which pieces without their others are dropped
OF_A_PIECE = 200  # bytes that it takes beside its own
MOST_JOINING = 16


class Frag(Layer):
    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self._number = 0
        self._joining: dict[bytes, _Joining] = {}
        self._joining_size = 0
        self._pieces: dict[tuple[MemberId, int], _Partial] = {}
        self._size = 0

    def down(self, event: Falling, now: float) -> None:
        most = self.site.options.packet
        match event:
            case Publish(block) if len(block.data) + DATA_HEAD > most:
                self._cut(block, most, now)
            case Say(Answer() | Pulled() | Records() | Known() as packet, to) if to is not None:
                data = encode(packet)
                if len(data) <= most:
                    self._below(event, now)
                    return
                self._number += 1
                pieces = _split(data, most - PIECE_HEAD)
                for i, piece in enumerate(pieces):
                    self.say(Piece(self._number, i, len(pieces), piece), to, now)
            case _:
                self._below(event, now)

    def _cut(self, block: Block, most: int, now: float) -> None:
        start, room = 0, most - DATA_HEAD
        sizes = block.sizes()
        while start < block.count:
            stop, size = start + 1, sizes[start]
            while stop < block.count and size + sizes[stop] <= room:
                size += sizes[stop]
                stop += 1
            part = block.slice(start, stop)
            if len(part.data) <= room:
                self._below(Publish(part), now)
            else:
                pieces = _split(part.data, most - FRAGMENT_HEAD)
                self._below(Pieces(tuple(pieces)), now)
            start = stop

    def up(self, event: Rising, now: float) -> None:
        match event:
            case Part():
                self._join(event, now)
            case Messages(batch):
                self._end(batch.publisher)
                self._above(event, now)
            case Heard(_, _, Piece() as piece):
                self._gather(event, piece, now)
            case _:
                self._above(event, now)

    def _join(self, part: Part, now: float) -> None:
        publisher = part.publisher
        if part.index == 0:
            self._end(publisher)
            self._joining[publisher] = _Joining()
        joining = self._joining.get(publisher)
        if joining is not None:
            self._joining_size += joining.add(part.piece)
            while self._joining_size > MOST_JOINING * MAX_BLOCK:
                self._end(next(iter(self._joining)))
        if part.index + 1 < part.total:
            return
        self._end(publisher)
        if joining is None:
            self._above(Missing(Lost(publisher, part.sequence, part.sequence)), now)
            return
        try:
            block = Block.parse(b"".join(joining.pieces), 1)
        except Malformed:
            self.site.refused += 1
            block = Block.of([b""])  # its sequence is passed, so something has to stand there
        batch = Batch(publisher, part.sequence, block, self.site.current)
        self._above(Messages(batch), now)

    def _end(self, publisher: bytes) -> None:
        joining = self._joining.pop(publisher, None)
        if joining is not None:
            self._joining_size -= joining.room

    def _gather(self, event: Heard, piece: Piece, now: float) -> None:
        key = (event.sender, piece.number)
        partial = self._pieces.get(key)
        if partial is None:
            partial = self._pieces[key] = _Partial(piece.total, now)
        if piece.total != partial.total or piece.index in partial.parts:
            return
        partial.parts[piece.index] = piece.piece
        self._size += OF_A_PIECE + len(piece.piece)
        if len(partial.parts) == partial.total:
            self._forget(key)
            data = b"".join(partial.parts[i] for i in range(partial.total))
            try:
                packet = decode(data)
            except Malformed:
                self.site.refused += 1
                return
            if not isinstance(packet, Piece):
                self._above(Heard(event.channel, event.sender, packet), now)
        while self._size > self.site.options.held:
            self._forget(next(iter(self._pieces)))

    def _forget(self, key: tuple[MemberId, int]) -> None:
        partial = self._pieces.pop(key)
        self._size -= sum(OF_A_PIECE + len(piece) for piece in partial.parts.values())

    def tick(self, now: float) -> None:
        for key, partial in list(self._pieces.items()):
            if now >= partial.since + STALE:
                self._forget(key)

    def deadline(self) -> float | None:
        if not self._pieces:
            return None
        return next(iter(self._pieces.values())).since + STALE  # the oldest was the first


class _Joining:
    """A message of which fragments have come, all up to some index."""

    __slots__ = ("pieces", "room", "size")

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.size = 0
        self.room = 0

    def add(self, piece: bytes) -> int:
        """How much more room it takes. What becomes larger than any message is not kept, and is refused at its
        end."""
        before = self.room
        self.size += len(piece)
        if self.size > MAX_BLOCK:
            self.pieces.clear()
            self.room = 0
        else:
            self.pieces.append(piece)
            self.room += OF_A_PIECE + len(piece)
        return self.room - before


class _Partial:
    __slots__ = ("parts", "since", "total")

    def __init__(self, total: int, now: float) -> None:
        self.total = total
        self.since = now
        self.parts: dict[int, bytes] = {}


def _split(data: bytes, size: int) -> list[bytes]:
    pieces = [data[i : i + size] for i in range(0, len(data), size)]
    assert len(pieces) <= MAX_PIECES
    return pieces
