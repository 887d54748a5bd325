"""Consumer timeouts: close channels that do not acknowledge a delivery in time, as RabbitMQ does.

Nothing is recorded per delivery, so that deliveries cost nothing extra. About once a minute, every
consuming channel is checked, and its next delivery tag is recorded as a mark: deliveries with lower tags
were made before the time of the mark. Only the oldest delivery of a channel counts. A timeout fires up to
two minutes late and never early.
"""

from collections import deque
from typing import TYPE_CHECKING

from recado.amqp.errors import PreconditionFailedError

if TYPE_CHECKING:
    from .channel import Channel
    from .queue import Queue

CHECK_INTERVAL_MS = 60_000
# Per turn, because their messages are requeued: 1,500 channels with 100 messages each took 1.5 s.
CLOSED_CHANNELS_MAX = 32


class DeliveryAge:
    """The age of the oldest unacknowledged delivery of one channel."""

    __slots__ = ("_marks",)

    def __init__(self) -> None:
        self._marks: deque[tuple[int, int]] = deque()  # (time, the next tag at that time)

    def age_ms(self, oldest_tag: int, next_tag: int, now: int) -> int:
        """Return a lower bound of the age in milliseconds.

        `oldest_tag` is equal to `next_tag` if nothing is unacknowledged.
        """
        marks = self._marks
        while marks and marks[0][1] <= oldest_tag:
            marks.popleft()
        if oldest_tag < next_tag and (not marks or marks[-1][1] < next_tag):
            marks.append((now, next_tag))
        return now - marks[0][0] if marks else 0


class ConsumerTimeouts:
    def __init__(self) -> None:
        self.default_ms = 0
        """For queues without a timeout of their own, in milliseconds; 0: no timeout."""
        self._channels: dict[Channel, DeliveryAge] = {}
        self._unchecked: list[Channel] = []  # channels left in the current round
        self.next_check: int | None = None
        """Time of the next check, or None if no channel consumes."""

    @property
    def channels(self) -> list["Channel"]:
        """The open channels that may have unacknowledged deliveries."""
        return list(self._channels)

    def watch(self, channel: "Channel", now: int) -> None:
        """Check the channel from now on."""
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
        """Close the channels that exceed their timeout, if a check is due."""
        if self.next_check is None or now < self.next_check:
            return
        self.next_check = now + CHECK_INTERVAL_MS
        unchecked = self._unchecked = self._unchecked or list(reversed(self._channels))
        closes_left = CLOSED_CHANNELS_MAX
        while unchecked and closes_left:
            channel = unchecked.pop()
            if channel in self._channels and (timeout := self._exceeded_timeout_ms(channel, now)):
                channel.connection.close_channel(
                    channel.number, _timeout_error(channel, timeout), now
                )
                closes_left -= 1
        if unchecked:
            self.next_check = now + 1

    def _exceeded_timeout_ms(self, channel: "Channel", now: int) -> int:
        """Return the timeout that a channel exceeds, or 0."""
        entry = channel.unacked.oldest()
        next_tag = channel.next_tag
        oldest_tag = next_tag if entry is None else entry.oldest_tag
        age = self._channels[channel].age_ms(oldest_tag, next_tag, now)
        timeout = 0 if entry is None else self._timeout_ms(entry.holder.queue)
        return timeout if timeout <= age else 0

    def _timeout_ms(self, queue: "Queue") -> int:
        """Return the timeout of a queue. Streams have none, because a delivery removes nothing from them."""
        if queue.settings.queue_type == "stream":
            return 0
        own_ms = queue.settings.consumer_timeout_ms
        return self.default_ms if own_ms is None else own_ms


def _timeout_error(channel: "Channel", timeout_ms: int) -> PreconditionFailedError:
    return PreconditionFailedError(
        f"delivery acknowledgement on channel {channel.number} timed out. Timeout value used:"
        f" {timeout_ms} ms. This timeout value can be configured, see consumers doc guide to learn more"
    )
