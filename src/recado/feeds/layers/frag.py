"""FRAG: splits packets that are too large for the transport, and reassembles them.

FRAG is above FIFO. A publisher splits a batch before FIFO numbers it, between messages, so that each packet is
useful by itself. Only a message that is too large alone is sent in fragments; all have the sequence of the
message. At a member FIFO releases them in order, and FRAG reassembles the message. Addressed packets of the
layers above FRAG are sent in control fragments, which may get lost: incomplete packets are dropped after a
timeout, and the requesting member retries.

FR1  A reassembled message equals the published one. An empty message stands in for a malformed one.
FR2  Of each publisher at most one message is reassembled at a time, and none larger than a block; in total the
     buffers hold at most MAX_REASSEMBLED_BLOCKS blocks, beyond which the oldest message is dropped and reported
     as lost. Control fragments hold at most `buffer_bytes`.
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

INCOMPLETE_TIMEOUT_S = 10.0  # control packets that are still incomplete then are dropped
FRAGMENT_OVERHEAD_BYTES = 200  # memory per fragment besides its data
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
        max_bytes = self.context.options.max_packet_bytes
        match event:
            case PublishRequested(block) if len(block.data) + DATA_HEADER_BYTES > max_bytes:
                self._split_block(block, max_bytes, now)
            case SendPacket(
                RecoveryReply() | PullReply() | RecordsReply() | RecordsSummary() as packet, to
            ) if to is not None:
                data = encode(packet)
                if len(data) <= max_bytes:
                    self._pass_down(event, now)
                    return
                self._last_packet_number += 1
                fragments = _split_bytes(data, max_bytes - CONTROL_FRAGMENT_HEADER_BYTES)
                for i, fragment in enumerate(fragments):
                    self.send(
                        ControlFragment(self._last_packet_number, i, len(fragments), fragment),
                        to,
                        now,
                    )
            case _:
                self._pass_down(event, now)

    def _split_block(self, block: Block, max_bytes: int, now: float) -> None:
        start, max_block_bytes = 0, max_bytes - DATA_HEADER_BYTES
        sizes = block.message_sizes()
        while start < block.count:
            stop, size = start + 1, sizes[start]
            while stop < block.count and size + sizes[stop] <= max_block_bytes:
                size += sizes[stop]
                stop += 1
            part = block.slice(start, stop)
            if len(part.data) <= max_block_bytes:
                self._pass_down(PublishRequested(part), now)
            else:
                fragments = _split_bytes(part.data, max_bytes - FRAGMENT_HEADER_BYTES)
                self._pass_down(PublishFragmented(tuple(fragments)), now)
            start = stop

    def up(self, event: UpEvent, now: float) -> None:
        match event:
            case FragmentReleased():
                self._reassemble(event, now)
            case BatchReleased(batch):
                # PULL may have received the whole message in a batch.
                self._drop_message(batch.publisher)
                self._pass_up(event, now)
            case PacketReceived(_, _, ControlFragment() as fragment):
                self._collect_control(event, fragment, now)
            case _:
                self._pass_up(event, now)

    def _reassemble(self, part: FragmentReleased, now: float) -> None:
        publisher = part.publisher
        if part.index == 0:
            self._drop_message(publisher)
            self._reassembling[publisher] = _FragmentedMessage()
        message = self._reassembling.get(publisher)
        if message is not None:
            self._reassembling_bytes += message.add(part.data)
            while self._reassembling_bytes > MAX_REASSEMBLED_BLOCKS * MAX_BLOCK_BYTES:
                self._drop_message(next(iter(self._reassembling)))
        if part.index + 1 < part.count:
            return
        self._drop_message(publisher)
        if message is None:
            self._pass_up(MessagesLost(LostRange(publisher, part.sequence, part.sequence)), now)
            return
        try:
            block = Block.parse(b"".join(message.fragments), 1)
        except MalformedDataError:
            self.context.malformed_count += 1
            block = Block.build(
                [b""]
            )  # the sequence has passed FIFO, so a message has to stand in for it
        batch = MessageBatch(publisher, part.sequence, block, self.context.installed_view_id)
        self._pass_up(BatchReleased(batch), now)

    def _drop_message(self, publisher: bytes) -> None:
        message = self._reassembling.pop(publisher, None)
        if message is not None:
            self._reassembling_bytes -= message.buffered_bytes

    def _collect_control(
        self, event: PacketReceived, fragment: ControlFragment, now: float
    ) -> None:
        key = (event.sender, fragment.packet_number)
        partial = self._control_packets.get(key)
        if partial is None:
            partial = self._control_packets[key] = _PartialPacket(fragment.count, now)
        if fragment.count != partial.count or fragment.index in partial.fragments:
            return
        partial.fragments[fragment.index] = fragment.data
        self._control_bytes += FRAGMENT_OVERHEAD_BYTES + len(fragment.data)
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
            FRAGMENT_OVERHEAD_BYTES + len(fragment) for fragment in partial.fragments.values()
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
        )  # insertion order: the first one is the oldest


class _FragmentedMessage:
    """A message whose fragments have arrived up to some index."""

    __slots__ = ("buffered_bytes", "fragments", "total_bytes")

    def __init__(self) -> None:
        self.fragments: list[bytes] = []
        self.total_bytes = 0
        self.buffered_bytes = 0

    def add(self, fragment: bytes) -> int:
        """Add a fragment; return the change of the buffered bytes. A message larger than MAX_BLOCK_BYTES is not
        buffered; it counts as malformed when its last fragment arrives, and an empty message replaces it."""
        before = self.buffered_bytes
        self.total_bytes += len(fragment)
        if self.total_bytes > MAX_BLOCK_BYTES:
            self.fragments.clear()
            self.buffered_bytes = 0
        else:
            self.fragments.append(fragment)
            self.buffered_bytes += FRAGMENT_OVERHEAD_BYTES + len(fragment)
        return self.buffered_bytes - before


class _PartialPacket:
    __slots__ = ("count", "fragments", "started_at")

    def __init__(self, count: int, now: float) -> None:
        self.count = count
        self.started_at = now
        self.fragments: dict[int, bytes] = {}


def _split_bytes(data: bytes, size: int) -> list[bytes]:
    fragments = [data[i : i + size] for i in range(0, len(data), size)]
    assert len(fragments) <= MAX_FRAGMENTS
    return fragments
