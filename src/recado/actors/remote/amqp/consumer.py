"""The consumer of a bridge: receives frames from the broker, and acknowledges them in batches.

A message may hold several frames, and is settled when all of them are. So the redelivery of one frame brings
the others of its message along; those are recognised as duplicates.

RD1  Frames that were not settled are redelivered on the next channel.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Final

from recado.actors.remote.errors import InvalidFrameError
from recado.actors.remote.transport import Settle
from recado.amqp.deliveries import Delivered
from recado.client import Channel, Consumer, Delivery
from recado.client.messages import DeliverySource

from .acks import AckBatch
from .bridge import Bridge, DeliveredFrames
from .frame_batch import decode_batch

ACK_DELAY_S: Final = 0.01
"""An ack for each message would cost the broker as much as the message. Delaying it loses nothing: acks in
flight are lost too when a node dies, and the messages redelivered."""
IDLE_ACK_DELAY_S: Final = 0.02
"""The timer for acks when no further message arrives. While messages arrive, the first one after ACK_DELAY_S
sends the acks; the timer is longer, so that it seldom has to wake the process."""
WARNING_INTERVAL_S: Final = 1.0  # between two warnings of dropped messages, at least

log = logging.getLogger("recado.actors")


class SharedSettle:
    """Settles a message when all of its frames are; as rejected if one of them was."""

    __slots__ = ("_accepted", "_settle", "_unsettled_count")

    def __init__(self, settle: Settle, frame_count: int) -> None:
        self._settle = settle
        self._unsettled_count = frame_count
        self._accepted = True

    def settle(self, accepted: bool) -> None:
        self._accepted = self._accepted and accepted
        self._unsettled_count -= 1
        if not self._unsettled_count:
            self._settle(self._accepted)


class BridgeConsumer(Consumer):
    """Passes frames to the handler of the bridge within the delivery, without a task that waits for them."""

    def __init__(
        self,
        bridge: Bridge,
        channel: Channel,
        prefetch_count: int,
        on_closed: Callable[[Channel, Exception], None],
    ) -> None:
        super().__init__("recado-actors", bridge.topology.queue, no_ack=False)
        self._bridge = bridge
        self._ack_channel = channel
        self._on_closed = on_closed
        self._max_frame_bytes = bridge.max_frame_bytes
        self._dropped_count = 0  # messages with frames above the limit
        self._next_warning_at = 0.0
        self._acks = AckBatch()
        self._ack_batch_count = max(1, prefetch_count // 4)
        self._ack_timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self._acked_at = 0.0
        self._source = DeliverySource(channel, self.tag, False, "", "", False)

    def handle_deliveries(self, channel: Channel, run: Delivered) -> None:
        headers: list[bytes] = []
        frames: list[bytes] = []
        settles: list[Settle] = []
        for tag, (header, body) in enumerate(
            zip(run.properties, run.bodies, strict=True), run.first_tag
        ):
            unpacked = self._unpack(tag, body)
            if len(unpacked) == 1:
                headers.append(header)
                frames += unpacked
                settles.append(partial(self._settle, tag))
            elif unpacked:
                shared = SharedSettle(partial(self._settle, tag), len(unpacked))
                headers += [header] * len(unpacked)
                frames += unpacked
                settles += [shared.settle] * len(unpacked)
        self._bridge.send_at_once = len(frames) == 1  # the next frame is probably its answer
        # True: the handler leaves it to us to settle all of them.
        if frames and self._bridge.handler.frames_delivered(
            DeliveredFrames(headers, frames, settles)
        ):
            for settle in settles:
                settle(True)
        if self._ack_timer is not None and self._loop.time() - self._acked_at > ACK_DELAY_S:
            self.flush_acks()

    def _unpack(self, tag: int, body: bytes) -> list[bytes]:
        """Return the frames of a message; settle a probe or an oversized message here, and return none."""
        if not body:  # the probe of another node (WriteChannelActor)
            self._settle(tag, True)
            return []
        try:
            frames = decode_batch(body)
        except InvalidFrameError:
            frames = [body]  # not a frame either: refused, and counted, by the inbound handler
        if len(body) > self._max_frame_bytes and max(map(len, frames)) > self._max_frame_bytes:
            self._drop(tag)
            return []
        return frames

    def _drop(self, tag: int) -> None:
        self._settle(tag, False)
        self._dropped_count += 1
        now = self._loop.time()
        if now >= self._next_warning_at:
            self._next_warning_at = now + WARNING_INTERVAL_S
            log.warning(
                "dropping message: frame too large (queue=%s max_frame_bytes=%d dropped_on_channel=%d)",
                self.queue,
                self._max_frame_bytes,
                self._dropped_count,
            )

    # ── settling ──────────────────────────────────────────────────────────────────────────────────────────

    def _settle(self, tag: int, accepted: bool) -> None:
        if accepted:
            if self._acks.settle(tag) >= self._ack_batch_count:
                self.flush_acks()
            elif self._ack_timer is None:
                self._ack_timer = self._loop.call_later(IDLE_ACK_DELAY_S, self._ack_idle)
        else:
            self._ack_channel.nack(self._delivery(tag), requeue=False)
            self._acks.mark_rejected(tag)

    def _ack_idle(self) -> None:
        self._ack_timer = None
        self.flush_acks()

    def flush_acks(self) -> None:
        """Send the acks for all settled messages."""
        self._acked_at = self._loop.time()
        for tag, multiple in self._acks.take_acks():
            self._ack_channel.ack(self._delivery(tag), multiple=multiple)

    def _delivery(self, tag: int) -> Delivery:
        return Delivery(self._source, tag, b"", b"")

    def stop_acking(self) -> None:
        """Flush the acks before the channel is closed."""
        if self._ack_timer is not None:
            self._ack_timer.cancel()
        self.flush_acks()

    def handle_channel_closed(self, error: Exception) -> None:
        super().handle_channel_closed(error)
        self._on_closed(self._ack_channel, error)

    def handle_broker_cancel(self, error: Exception) -> None:
        """Treat a cancelled consumer, for instance of a deleted queue, like a closed channel."""
        super().handle_broker_cancel(error)
        self._on_closed(self._ack_channel, error)
