"""FRAG: packets that are too large for the transport travel in pieces.

A batch is first cut between messages, so that each packet is of use by itself; only a message that is too
large alone travels in fragments, which FIFO brings in order and without gaps. What layers above say on A
travels in pieces that may get lost: then the whole is dropped after a while, and who asked asks again.

FR1  A message put together from fragments is the message that was published.
FR2  Of each publisher at most one message is being put together, and none that is larger than a block may be;
     of all at most as much as `MAX_REASSEMBLED_BLOCKS` of the largest, or the first begun is given up and told as lost.
     Of pieces on A there are at most `held` bytes in all.
"""

from ..block import MAX_BLOCK_BYTES, Block, MalformedDataError
from ..boundary import MessageBatch, PublishRequested
from ..layer import (
    BatchReleased,
    DownEvent,
    FragmentReleased,
    Layer,
    MemberContext,
    MessagesLost,
    PacketReceived,
    PublishFragmented,
    SendPacket,
    UpEvent,
)
from ..packet import (
    CONTROL_FRAGMENT_HEADER_BYTES,
    DATA_HEADER_BYTES,
    FRAGMENT_HEADER_BYTES,
    MAX_FRAGMENTS,
    ControlFragment,
    PullReply,
    RecordsReply,
    RecordsSummary,
    RecoveryReply,
)
from ..views import LostRange, MemberId
from ..wire import decode, encode

INCOMPLETE_TIMEOUT_S = 10.0  # seconds after which pieces without their others are dropped
FRAGMENT_OVERHEAD_BYTES = 200  # bytes that it takes beside its own
MAX_REASSEMBLED_BLOCKS = 16


class FragLayer(Layer):
    def __init__(self, context: MemberContext) -> None:
        super().__init__(context)
        self._last_packet_number = 0
        self._reassembling: dict[bytes, _FragmentedMessage] = {}
        self._reassembling_bytes = 0
        self._control_packets: dict[tuple[MemberId, int], _PartialPacket] = {}
        self._control_bytes = 0

    def down(self, event: DownEvent, now: float) -> None:
        most = self.context.options.max_packet_bytes
        match event:
            case PublishRequested(block) if len(block.data) + DATA_HEADER_BYTES > most:
                self._split_block(block, most, now)
            case SendPacket(
                RecoveryReply() | PullReply() | RecordsReply() | RecordsSummary() as packet, to
            ) if to is not None:
                data = encode(packet)
                if len(data) <= most:
                    self._pass_down(event, now)
                    return
                self._last_packet_number += 1
                fragments = _split_bytes(data, most - CONTROL_FRAGMENT_HEADER_BYTES)
                for i, piece in enumerate(fragments):
                    self.send(
                        ControlFragment(self._last_packet_number, i, len(fragments), piece), to, now
                    )
            case _:
                self._pass_down(event, now)

    def _split_block(self, block: Block, most: int, now: float) -> None:
        start, room = 0, most - DATA_HEADER_BYTES
        sizes = block.message_sizes()
        while start < block.count:
            stop, size = start + 1, sizes[start]
            while stop < block.count and size + sizes[stop] <= room:
                size += sizes[stop]
                stop += 1
            part = block.slice(start, stop)
            if len(part.data) <= room:
                self._pass_down(PublishRequested(part), now)
            else:
                fragments = _split_bytes(part.data, most - FRAGMENT_HEADER_BYTES)
                self._pass_down(PublishFragmented(tuple(fragments)), now)
            start = stop

    def up(self, event: UpEvent, now: float) -> None:
        match event:
            case FragmentReleased():
                self._reassemble(event, now)
            case BatchReleased(batch):
                self._drop_message(batch.publisher)
                self._pass_up(event, now)
            case PacketReceived(_, _, ControlFragment() as piece):
                self._collect_control(event, piece, now)
            case _:
                self._pass_up(event, now)

    def _reassemble(self, part: FragmentReleased, now: float) -> None:
        publisher = part.publisher
        if part.index == 0:
            self._drop_message(publisher)
            self._reassembling[publisher] = _FragmentedMessage()
        joining = self._reassembling.get(publisher)
        if joining is not None:
            self._reassembling_bytes += joining.add(part.data)
            while self._reassembling_bytes > MAX_REASSEMBLED_BLOCKS * MAX_BLOCK_BYTES:
                self._drop_message(next(iter(self._reassembling)))
        if part.index + 1 < part.count:
            return
        self._drop_message(publisher)
        if joining is None:
            self._pass_up(MessagesLost(LostRange(publisher, part.sequence, part.sequence)), now)
            return
        try:
            block = Block.parse(b"".join(joining.fragments), 1)
        except MalformedDataError:
            self.context.malformed_count += 1
            block = Block.build([b""])  # its sequence is passed, so something has to stand there
        batch = MessageBatch(publisher, part.sequence, block, self.context.installed_view_id)
        self._pass_up(BatchReleased(batch), now)

    def _drop_message(self, publisher: bytes) -> None:
        joining = self._reassembling.pop(publisher, None)
        if joining is not None:
            self._reassembling_bytes -= joining.buffered_bytes

    def _collect_control(self, event: PacketReceived, piece: ControlFragment, now: float) -> None:
        key = (event.sender, piece.packet_number)
        partial = self._control_packets.get(key)
        if partial is None:
            partial = self._control_packets[key] = _PartialPacket(piece.count, now)
        if piece.count != partial.count or piece.index in partial.fragments:
            return
        partial.fragments[piece.index] = piece.data
        self._control_bytes += FRAGMENT_OVERHEAD_BYTES + len(piece.data)
        if len(partial.fragments) == partial.count:
            self._drop_control(key)
            data = b"".join(partial.fragments[i] for i in range(partial.count))
            try:
                packet = decode(data)
            except MalformedDataError:
                self.context.malformed_count += 1
                return
            if not isinstance(packet, ControlFragment):
                self._pass_up(PacketReceived(event.route, event.sender, packet), now)
        while self._control_bytes > self.context.options.buffer_bytes:
            self._drop_control(next(iter(self._control_packets)))

    def _drop_control(self, key: tuple[MemberId, int]) -> None:
        partial = self._control_packets.pop(key)
        self._control_bytes -= sum(
            FRAGMENT_OVERHEAD_BYTES + len(piece) for piece in partial.fragments.values()
        )

    def tick(self, now: float) -> None:
        for key, partial in list(self._control_packets.items()):
            if now >= partial.started_at + INCOMPLETE_TIMEOUT_S:
                self._drop_control(key)

    def deadline(self) -> float | None:
        if not self._control_packets:
            return None
        return (
            next(iter(self._control_packets.values())).started_at + INCOMPLETE_TIMEOUT_S
        )  # the oldest was the first


class _FragmentedMessage:
    """A message of which fragments have come, all up to some index."""

    __slots__ = ("buffered_bytes", "fragments", "total_bytes")

    def __init__(self) -> None:
        self.fragments: list[bytes] = []
        self.total_bytes = 0
        self.buffered_bytes = 0

    def add(self, piece: bytes) -> int:
        """How much more room it takes. What becomes larger than any message is not kept, and is refused at its
        end."""
        before = self.buffered_bytes
        self.total_bytes += len(piece)
        if self.total_bytes > MAX_BLOCK_BYTES:
            self.fragments.clear()
            self.buffered_bytes = 0
        else:
            self.fragments.append(piece)
            self.buffered_bytes += FRAGMENT_OVERHEAD_BYTES + len(piece)
        return self.buffered_bytes - before


class _PartialPacket:
    __slots__ = ("count", "fragments", "started_at")

    def __init__(self, total: int, now: float) -> None:
        self.count = total
        self.started_at = now
        self.fragments: dict[int, bytes] = {}


def _split_bytes(data: bytes, size: int) -> list[bytes]:
    fragments = [data[i : i + size] for i in range(0, len(data), size)]
    assert len(fragments) <= MAX_FRAGMENTS
    return fragments
