"""Deliveries that nobody acknowledges: the channel that holds one for too long is closed, as RabbitMQ does.

Nothing is noted when a message is delivered, so this costs deliveries nothing. About once a minute every
channel that consumes is looked at, and the tag that it will give next is a mark: what is still out below a mark
was delivered before it. Only the oldest delivery of a channel counts. It is never found late by more than two
minutes, nor early.
"""

from collections import deque
from typing import TYPE_CHECKING

from recado.amqp.errors import PreconditionFailedError

if TYPE_CHECKING:
    from .channel import Channel
    from .queue import Queue

CHECK_INTERVAL_MS = 60_000  # milliseconds
CLOSED_CHANNELS_MAX = 32  # in one turn, because all that a channel holds returns: 1,500 with 100 messages each took 1.5 s


class DeliveryAge:
    """For how long one channel has had its oldest delivery."""

    __slots__ = ("_marks",)

    def __init__(self) -> None:
        self._marks: deque[tuple[int, int]] = deque()  # (time, lower tags were given before)

    def age_ms(self, oldest_tag: int, next_tag: int, now: int) -> int:
        """Milliseconds, for sure; `oldest` is the tag, `next_tag` if nothing is out."""
        marks = self._marks
        while marks and marks[0][1] <= oldest_tag:
            marks.popleft()
        if oldest_tag < next_tag and (not marks or marks[-1][1] < next_tag):
            marks.append((now, next_tag))
        return now - marks[0][0] if marks else 0


class ConsumerTimeouts:
    def __init__(self) -> None:
        self.default_ms = 0
        """In milliseconds, for queues that have none of their own; 0 is none."""
        self._channels: dict[Channel, DeliveryAge] = {}
        self._unchecked: list[Channel] = []  # in the look that is under way
        self.next_check: int | None = None
        """When to look at the channels, if there is any."""

    def watch(self, channel: "Channel", now: int) -> None:
        """The channel may hold deliveries from now on."""
        if channel not in self._channels:
            self._channels[channel] = DeliveryAge()
            if self.next_check is None:
                self.next_check = now + CHECK_INTERVAL_MS

    def forget(self, channel: "Channel") -> None:
        self._channels.pop(channel, None)
        if not self._channels:
            self.next_check = None
            self._unchecked.clear()

    def check(self, now: int) -> None:
        """Close those that are late, if it is time to look."""
        if self.next_check is None or now < self.next_check:
            return
        self.next_check = now + CHECK_INTERVAL_MS
        unchecked = self._unchecked = self._unchecked or list(reversed(self._channels))
        left = CLOSED_CHANNELS_MAX
        while unchecked and left:
            channel = unchecked.pop()
            if channel in self._channels and (timeout := self._exceeded_timeout_ms(channel, now)):
                channel.connection.close_channel(
                    channel.number, _timeout_error(channel, timeout), now
                )
                left -= 1
        if unchecked:
            self.next_check = now + 1

    def _exceeded_timeout_ms(self, channel: "Channel", now: int) -> int:
        """The timeout that a channel has outstayed; 0 is none."""
        entry = channel.unacked.oldest()
        next_tag = channel.next_tag
        oldest_tag = next_tag if entry is None else entry.oldest_tag
        age = self._channels[channel].age_ms(oldest_tag, next_tag, now)
        timeout = 0 if entry is None else self._timeout_ms(entry.holder.queue)
        return timeout if timeout <= age else 0

    def _timeout_ms(self, queue: "Queue") -> int:
        """Nothing that a stream delivers is missing there, so it may be held for ever."""
        if queue.settings.queue_type == "stream":
            return 0
        own_ms = queue.settings.consumer_timeout
        return self.default_ms if own_ms is None else own_ms


def _timeout_error(channel: "Channel", timeout_ms: int) -> PreconditionFailedError:
    return PreconditionFailedError(
        f"delivery acknowledgement on channel {channel.number} timed out. Timeout value used:"
        f" {timeout_ms} ms. This timeout value can be configured, see consumers doc guide to learn more"
    )
