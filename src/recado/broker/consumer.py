"""A consumer: who gets a queue's messages, how many at a time, and how they are written for it."""

from typing import TYPE_CHECKING, Protocol

from recado.amqp.errors import ClosesChannel
from recado.amqp.frames import DELIVER_ID
from recado.amqp.runs import render

from .arguments import ConsumerSettings
from .delivery_count import counted
from .run import Run

if TYPE_CHECKING:
    from .channel import Channel
    from .queue import Queue

UNLIMITED = 1 << 30
DEAL_BYTES = 256 * 1024  # rendered at a time, so that back-pressure is felt before all is written
LARGE = 4096  # from here on copying a body twice costs more than a second write


class Outlet(Protocol):
    """What the broker needs of a connection."""

    frame_max: int
    congested: bool  # the peer does not keep up
    told_of_cancel: bool  # the peer wants to know when its consumers are removed
    noted: bool  # its keeper notes what is just being written to it, and has to do so before the peer sees it

    def write(self, data: bytes) -> None: ...

    def close_channel(self, number: int, error: ClosesChannel, now: int) -> None:
        """Close a channel that did nothing just now, and tell the peer why."""


class Consumer:
    __slots__ = (
        "_prefixes",
        "_start",
        "awake",
        "channel",
        "exclusive",
        "limit",
        "no_ack",
        "outstanding",
        "queue",
        "settings",
        "tag",
    )

    def __init__(
        self,
        channel: "Channel",
        queue: "Queue",
        tag: str,
        settings: ConsumerSettings,
        *,
        no_ack: bool,
        exclusive: bool,
        limit: int,
    ) -> None:
        self.channel = channel
        self.queue = queue
        self.tag = tag
        self.settings = settings
        self.no_ack = no_ack
        self.exclusive = exclusive
        self.limit = limit  # prefetch; 0 is none
        self.outstanding = 0
        self.awake = False  # in the queue's rota
        name = tag.encode()
        self._start = DELIVER_ID + bytes((len(name),)) + name
        self._prefixes: dict[int, bytes] = {}

    def room(self) -> int:
        """How many more messages it may be given now."""
        channel = self.channel
        if channel.outlet.congested:
            return 0
        shared = channel.limit - channel.outstanding if channel.limit else UNLIMITED
        if self.no_ack:  # does not count for the limit of the channel, but stops when it is reached
            return UNLIMITED if shared > 0 else 0
        return min(self.limit - self.outstanding, shared) if self.limit else shared

    def deliver(self, run: Run) -> None:
        """Write the messages to the peer, and hold them until they are settled unless nobody will."""
        channel = self.channel
        outlet = channel.outlet
        shown = counted(run) if run.returns else run
        head, tails = shown.head, shown.tails
        if run.channel != channel.number or outlet.frame_max < run.frame_max:
            head, tails = shown.fitted(channel.number, outlet.frame_max)
        end = run.origin.again if run.redelivered else run.origin.first_time
        prefix = self._prefixes.get(len(end)) or self._prefix(len(end))
        count = len(tails)
        first = channel.next_tag
        channel.next_tag = first + count
        if len(tails[0]) < LARGE:
            if count == 1:
                outlet.write(prefix + first.to_bytes(8, "big") + end + head + tails[0])
            else:
                outlet.write(render(prefix, end + head, first, tails))
        else:
            for tag, tail in enumerate(tails, first):
                outlet.write(prefix + tag.to_bytes(8, "big") + end + head)
                outlet.write(tail)
        if not self.no_ack:
            channel.unacked.add(first, run, self)
            channel.outstanding += count
            if channel.limit:
                channel.served(self)
            self.outstanding += count
            self.queue.unacked += count
            if run.kept:
                outlet.noted = True
                self.queue.note_delivered(run)
        elif run.kept and not self.settings.wire_tap:
            outlet.noted = True
            self.queue.settle(run)

    def show(self, run: Run) -> None:
        """Deliver copies to a wire tap, which never acks; one that does not keep up misses some."""
        if not self.channel.outlet.congested:
            self.deliver(run)

    def release(self, count: int) -> None:
        """So many of its messages were settled."""
        self.outstanding -= count
        self.channel.outstanding -= count
        self.queue.unacked -= count

    def _prefix(self, size: int) -> bytes:
        """All of a deliver frame before the tag, where `size` bytes (with the end byte) follow it."""
        length = len(self._start) + 8 + size - 1
        prefix = b"\x01" + self.channel.number.to_bytes(2, "big") + length.to_bytes(4, "big")
        self._prefixes[size] = prefix + self._start
        return self._prefixes[size]
