"""The channel that reads, as an actor: it has the queue, its bindings, and the consumer.

RD1  What the handler is given and did not settle comes again, on the next channel.
RD2  A message is settled when all of its frames are, so one that was not brings the others along when it comes
     again: those are known, and not processed twice in the life of a node.
RD3  A queue has one reader: a second node of the same name is refused by the broker.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from functools import partial
from typing import Final

from recado.actors.ref import ActorRef
from recado.actors.remote.errors import InvalidFrameError
from recado.actors.remote.transport import Settle
from recado.amqp import methods as m
from recado.amqp.deliveries import Delivered
from recado.client import (
    Channel,
    ClientError,
    Connection,
    ConnectionClosedError,
    Consumer,
    Delivery,
)
from recado.client.messages import DeliverySource

from .acks import AckBatch
from .bridge import Bridge
from .frame_batch import BATCH_MAX_FRAMES, decode_batch
from .handler import DeliveredFrames
from .restart import (
    CHANNEL_CLOSE_TIMEOUT_S,
    BridgeActor,
    BridgeActorMessage,
    ReaderReady,
    ResourceClosed,
)
from .topology import declare

ACK_DELAY_S: Final = 0.01
"""Seconds. An ack for each message costs the broker as much as the message; and a node that dies may be given
again what it took in its last moments anyway, for no ack arrives at once."""
IDLE_ACK_DELAY_S: Final = 0.02
"""The same where nothing more comes: what comes later than ACK_DELAY takes the ack along, and nobody has to be
woken for it."""
WARNING_INTERVAL_S: Final = 1.0  # seconds between two warnings of what is too large, at least

log = logging.getLogger("recado.actors")


class SharedSettle:
    """A message of several frames is settled when all of them are; if one was refused, so is the message."""

    __slots__ = ("_accepted", "_settle", "_unsettled_count")

    def __init__(self, settle: Settle, frames: int) -> None:
        self._settle = settle
        self._unsettled_count = frames
        self._accepted = True

    def settle(self, accepted: bool) -> None:
        self._accepted = self._accepted and accepted
        self._unsettled_count -= 1
        if not self._unsettled_count:
            self._settle(self._accepted)


class BridgeConsumer(Consumer):
    """Gives what comes to the bridge's handler at once, without a task that would wait for it."""

    def __init__(self, actor: ReadChannelActor, channel: Channel) -> None:
        super().__init__("recado-actors", actor.bridge.topology.queue, no_ack=False)
        self._actor = actor
        self._ack_channel = channel
        self._bridge = actor.bridge
        self._max_frame_bytes = actor.bridge.max_frame_bytes
        self._dropped_count = 0  # messages with frames above the limit
        self._next_warning_at = 0.0
        self._acks = AckBatch()
        self._ack_batch_count = max(1, actor.prefetch_count // 4)
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
        self._bridge.send_at_once = len(frames) == 1
        if frames and self._bridge.handler.frames_delivered(
            DeliveredFrames(headers, frames, settles)
        ):
            for settle in settles:
                settle(True)
        if self._ack_timer is not None and self._loop.time() - self._acked_at > ACK_DELAY_S:
            self.flush_acks()

    def _unpack(self, tag: int, body: bytes) -> list[bytes]:
        """What is in a message; nothing, and it is settled, if this node need not see it."""
        if not body:  # somebody asks whether we are there
            self._settle(tag, True)
            return []
        try:
            frames = decode_batch(body)
        except InvalidFrameError:
            frames = [body]  # no frame either: refused where all nonsense is, which counts it
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
            what = "%s: dropped for frames above %d bytes: %d messages on this channel"
            log.warning(what, self.queue, self._max_frame_bytes, self._dropped_count)

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
        """One ack for all that was settled meanwhile, if it was in order."""
        self._acked_at = self._loop.time()
        for tag, multiple in self._acks.take_acks():
            self._ack_channel.ack(self._delivery(tag), multiple=multiple)

    def _delivery(self, tag: int) -> Delivery:
        return Delivery(self._source, tag, b"", b"")

    def stop_acking(self) -> None:
        if self._ack_timer is not None:
            self._ack_timer.cancel()
        self.flush_acks()

    def handle_channel_closed(self, error: Exception) -> None:
        """Also when only the consumer did, as when its queue is deleted."""
        super().handle_channel_closed(error)
        self._actor.channel_closed(self._ack_channel, error)


class ReadChannelActor(BridgeActor):
    def __init__(
        self, bridge: Bridge, connection: Connection, parent: ActorRef[BridgeActorMessage]
    ) -> None:
        super().__init__(bridge, bridge.read_retries)
        self._connection = connection
        self._parent = parent
        # Messages that may come unsettled: each may be a parcel.
        self.prefetch_count = max(1, bridge.settings.prefetch // BATCH_MAX_FRAMES)
        self._channel: Channel | None = None
        self._consumer: BridgeConsumer | None = None

    async def open_resources(self) -> None:
        plan = self.bridge.topology
        channel = self._channel = await self._connection.channel()
        for each in plan.read_objects:
            await declare(channel, each)
        await channel.qos(self.prefetch_count)
        consumer = self._consumer = BridgeConsumer(self, channel)
        method = m.BasicConsume(consumer.queue, consumer.tag, False, False, True)
        await channel.start_consumer(consumer, method)
        self.bridge.reading_started()
        self._parent.tell(ReaderReady())

    def channel_closed(self, channel: Channel, error: Exception) -> None:
        """With its connection, which is another actor's matter; or alone."""
        self.bridge.reading_stopped(error)
        if not isinstance(error, ConnectionClosedError):
            self.ref.tell(ResourceClosed(channel, error))

    def owns(self, resource: Connection | Channel) -> bool:
        return resource is self._channel

    async def close_resources(self) -> None:
        if self._consumer is not None:
            self._consumer.stop_acking()
        channel, self._channel = self._channel, None
        if channel is not None:
            with suppress(ClientError, TimeoutError):
                async with asyncio.timeout(CHANNEL_CLOSE_TIMEOUT_S):
                    await channel.close()
