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
from recado.actors.remote.faults import BadFrame
from recado.actors.remote.transport import Settle
from recado.amqp import methods as m
from recado.amqp.deliveries import Delivered
from recado.client import Channel, ClientError, Connection, ConnectionEnded, Consumer, Delivery
from recado.client.messages import Source

from .acks import Acks
from .bridge import Bridge
from .handler import Arrivals
from .objects import make
from .parcel import TOGETHER, unwrap
from .restarting import CLOSE_SECONDS, Broke, Errand, Reads, Restarting

ACK_DELAY: Final = 0.01
"""Seconds. An ack for each message costs the broker as much as the message; and a node that dies may be given
again what it took in its last moments anyway, for no ack arrives at once."""
IDLE_DELAY: Final = 0.02
"""The same where nothing more comes: what comes later than ACK_DELAY takes the ack along, and nobody has to be
woken for it."""
WARN_DELAY: Final = 1.0  # seconds between two warnings of what is too large, at least

log = logging.getLogger("recado.actors")


class Shared:
    """A message of several frames is settled when all of them are; if one was refused, so is the message."""

    __slots__ = ("_left", "_settle", "_taken")

    def __init__(self, settle: Settle, frames: int) -> None:
        self._settle = settle
        self._left = frames
        self._taken = True

    def settle(self, taken: bool) -> None:
        self._taken = self._taken and taken
        self._left -= 1
        if not self._left:
            self._settle(self._taken)


class BridgeConsumer(Consumer):
    """Gives what comes to the bridge's handler at once, without a task that would wait for it."""

    def __init__(self, actor: ReadChannelActor, channel: Channel) -> None:
        super().__init__("recado-actors", actor.bridge.plan.queue, no_ack=False)
        self._actor = actor
        self._through = channel
        self._bridge = actor.bridge
        self._limit = actor.bridge.frame_limit
        self._dropped = 0  # messages with frames above the limit
        self._warns_from = 0.0
        self._acks = Acks()
        self._enough = max(1, actor.window // 4)
        self._timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self._told_at = 0.0
        self._source = Source(channel, self.tag, False, "", "", False)

    def delivered(self, channel: Channel, run: Delivered) -> None:
        headers: list[bytes] = []
        frames: list[bytes] = []
        settles: list[Settle] = []
        for tag, (header, body) in enumerate(
            zip(run.properties, run.bodies, strict=True), run.first
        ):
            within = self._frames(tag, body)
            if len(within) == 1:
                headers.append(header)
                frames += within
                settles.append(partial(self._settle, tag))
            elif within:
                shared = Shared(partial(self._settle, tag), len(within))
                headers += [header] * len(within)
                frames += within
                settles += [shared.settle] * len(within)
        self._bridge.is_quiet = len(frames) == 1
        if frames and self._bridge.handler.received(Arrivals(headers, frames, settles)):
            for settle in settles:
                settle(True)
        if self._timer is not None and self._loop.time() - self._told_at > ACK_DELAY:
            self.tell()

    def _frames(self, tag: int, body: bytes) -> list[bytes]:
        """What is in a message; nothing, and it is settled, if this node need not see it."""
        if not body:  # somebody asks whether we are there
            self._settle(tag, True)
            return []
        try:
            frames = unwrap(body)
        except BadFrame:
            frames = [body]  # no frame either: refused where all nonsense is, which counts it
        if len(body) > self._limit and max(map(len, frames)) > self._limit:
            self._drop(tag)
            return []
        return frames

    def _drop(self, tag: int) -> None:
        self._settle(tag, False)
        self._dropped += 1
        now = self._loop.time()
        if now >= self._warns_from:
            self._warns_from = now + WARN_DELAY
            what = "%s: dropped for frames above %d bytes: %d messages on this channel"
            log.warning(what, self.queue, self._limit, self._dropped)

    def _settle(self, tag: int, taken: bool) -> None:
        if taken:
            if self._acks.settle(tag) >= self._enough:
                self.tell()
            elif self._timer is None:
                self._timer = self._loop.call_later(IDLE_DELAY, self._idle)
        else:
            self._through.nack(self._delivery(tag), requeue=False)
            self._acks.told(tag)

    def _idle(self) -> None:
        self._timer = None
        self.tell()

    def tell(self) -> None:
        """One ack for all that was settled meanwhile, if it was in order."""
        self._told_at = self._loop.time()
        for tag, multiple in self._acks.take():
            self._through.ack(self._delivery(tag), multiple=multiple)

    def _delivery(self, tag: int) -> Delivery:
        return Delivery(self._source, tag, b"", b"")

    def end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self.tell()

    def channel_ended(self, error: Exception) -> None:
        """Also when only the consumer did, as when its queue is deleted."""
        super().channel_ended(error)
        self._actor.ended(self._through, error)


class ReadChannelActor(Restarting):
    def __init__(self, bridge: Bridge, connection: Connection, parent: ActorRef[Errand]) -> None:
        super().__init__(bridge, bridge.reading)
        self._connection = connection
        self._parent = parent
        # Messages that may come unsettled: each may be a parcel.
        self.window = max(1, bridge.settings.prefetch // TOGETHER)
        self._channel: Channel | None = None
        self._consumer: BridgeConsumer | None = None

    async def begin(self) -> None:
        plan = self.bridge.plan
        channel = self._channel = await self._connection.channel()
        for each in plan.reads:
            await make(channel, each)
        await channel.qos(self.window)
        consumer = self._consumer = BridgeConsumer(self, channel)
        method = m.BasicConsume(consumer.queue, consumer.tag, False, False, True)
        await channel.start_consumer(consumer, method)
        self.bridge.reads()
        self._parent.tell(Reads())

    def ended(self, channel: Channel, error: Exception) -> None:
        """With its connection, which is another actor's matter; or alone."""
        self.bridge.no_longer_reads(error)
        if not isinstance(error, ConnectionEnded):
            self.ref.tell(Broke(channel, error))

    def owns(self, what: Connection | Channel) -> bool:
        return what is self._channel

    async def leave(self) -> None:
        if self._consumer is not None:
            self._consumer.end()
        channel, self._channel = self._channel, None
        if channel is not None:
            with suppress(ClientError, TimeoutError):
                async with asyncio.timeout(CLOSE_SECONDS):
                    await channel.close()
