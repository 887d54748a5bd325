"""PULL: requests messages that their publisher could not resend. It asks archives and other members for them,
and answers such requests.

PU1  One request is open at a time; the next one follows at once only if the reply filled part of a gap. FIFO
     handles the messages of a reply as if they had just arrived.
PU2  PULL notes which members report that they lack a message, so that FIFO knows when no member has it. An
     archive also reports that its log has passed a message: it has recorded the message as lost, or deleted it.
PU3  The retransmit buffer and the size of a reply are bounded.
"""

from collections.abc import Sequence

from ..block import MalformedDataError
from ..boundary import MessageRange, PacketRoute
from ..layer import BatchReleased, GapFilled, Layer, MemberContext, PacketReceived, UpEvent
from ..packet import PullReply, PullRequest
from ..vector import Span
from ..views import MemberId, Role
from ..wire import decode_batch, encode_batch
from .receive_buffer import ReceiveBuffer
from .retransmit_buffer import RetransmitBuffer, find_missing

MAX_PULL_RANGES = 256
MAX_REPLY_BYTES = 1024 * 1024  # of messages, plus one batch


class PullLayer(Layer):
    def __init__(self, context: MemberContext, receive_buffer: ReceiveBuffer) -> None:
        super().__init__(context)
        self.receive_buffer = receive_buffer
        self.retransmit_buffer = RetransmitBuffer(context.options.retransmit_bytes)
        self._request_number = 0
        self._attempt = 0
        self._retry_at: float | None = None

    def up(self, event: UpEvent, now: float) -> None:
        match event:
            case BatchReleased(batch):
                self.retransmit_buffer.add(batch)
                self._pass_up(event, now)
            case PacketReceived(_, sender, PullRequest(number, ranges)):
                self._handle_request(sender, number, ranges, now)
            case PacketReceived(_, sender, PullReply() as answer):
                self._handle_reply(sender, answer, now)
                # In an archive, it may be the reply to a request of the layer ARCHIVER.
                if self.context.role is Role.ARCHIVE:
                    self._pass_up(event, now)
            case _:
                self._pass_up(event, now)

    # --- requesting ---

    def tick(self, now: float) -> None:
        if self._retry_at is None:
            self._request(now)
        elif now >= self._retry_at:
            self._attempt += 1
            self._retry_at = None
            self._request(now)

    def deadline(self) -> float | None:
        gaps = self.receive_buffer.gaps
        if self._retry_at is None and gaps and any(gap.needs_pull for gap in gaps.values()):
            return 0.0
        return self._retry_at

    def _request(self, now: float) -> None:
        wanted: list[MessageRange] = []
        for publisher, gap in self.receive_buffer.gaps.items():
            if gap.needs_pull and len(wanted) < MAX_PULL_RANGES:
                wanted += self.receive_buffer.missing_ranges(publisher, 16)
        members = self.context.other_members()
        if not wanted:
            return
        self._retry_at = now + self.context.options.retry_interval
        if members:
            self._request_number += 1
            to = members[self._attempt % len(members)]
            self.send(PullRequest(self._request_number, wanted[:MAX_PULL_RANGES]), to, now)

    def _handle_reply(self, sender: MemberId, reply: PullReply, now: float) -> None:
        before = self._gap_positions()
        for encoded in reply.batches:
            try:
                batch = decode_batch(encoded)
            except MalformedDataError:
                self.context.malformed_count += 1
                continue
            self._pass_down(GapFilled(batch), now)
        for publisher, spans in _group_by_publisher(reply.missing).items():
            self.receive_buffer.note_lacked(publisher, spans, sender.incarnation, now)
        for publisher, spans in _group_by_publisher(reply.lost).items():
            self.receive_buffer.note_lost(publisher, spans, sender.incarnation)
        if reply.request_number == self._request_number and self._gap_positions() != before:
            for encoded in reply.batches:
                # The sender may have the rest, too: NAK need not try first.
                self.receive_buffer.request_pull(encoded.publisher)
            self._retry_at = None
            self._request(now)

    def _gap_positions(self) -> dict[bytes, int]:
        return {publisher: gap.first_missing for publisher, gap in self.receive_buffer.gaps.items()}

    # --- answering ---

    def _handle_request(
        self, sender: MemberId, number: int, ranges: list[MessageRange], now: float
    ) -> None:
        found, missing, size = [], [], 0
        for wanted in ranges[:MAX_PULL_RANGES]:
            if size > MAX_REPLY_BYTES:
                break
            if wanted.first > wanted.last:  # invalid; no member of ours requests this
                continue
            here = self.retransmit_buffer.find(wanted)
            buffered = self.receive_buffer.find_held(wanted.publisher, wanted.first, wanted.last)
            here = sorted([*here, *buffered], key=lambda batch: batch.first)
            missing += find_missing(wanted, here)
            for batch in here:
                if size <= MAX_REPLY_BYTES:
                    found.append(encode_batch(batch))
                    size += len(batch.block.data)
        if self.context.role is Role.ARCHIVE and missing and not found:
            # The messages may be in its store: ARCHIVER looks there and answers.
            packet = PullRequest(number, missing[:MAX_PULL_RANGES])
            self._pass_up(PacketReceived(PacketRoute.ADDRESSED, sender, packet), now)
            return
        # Messages that an archive lacks in its buffers may be in its store: the next request for them is passed up.
        certainly_missing = missing if self.context.role is not Role.ARCHIVE else []
        self.send(PullReply(number, found, certainly_missing[:MAX_PULL_RANGES]), sender, now)


def _group_by_publisher(ranges: Sequence[MessageRange]) -> dict[bytes, list[Span]]:
    found: dict[bytes, list[Span]] = {}
    for each in ranges:
        found.setdefault(each.publisher, []).append((each.first, each.last))
    return found
