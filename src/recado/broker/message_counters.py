"""Totals of messages since the broker was started.

Channels maintain the numbers anyway: the last delivery tag, the last confirmed message. They are read when
needed, and added here when a channel closes, so that nothing is counted twice.
"""

from collections.abc import Iterable

from .channel import Channel


class MessageCounters:
    """A message to several queues or consumers is published once and delivered several times."""

    __slots__ = ("acknowledged", "confirmed", "delivered", "published")

    def __init__(self) -> None:
        self.published = 0
        self.confirmed = 0
        self.delivered = 0
        self.acknowledged = 0

    def add_channel(self, channel: Channel) -> None:
        """Add the totals of a channel that is being closed."""
        self.published += channel.publisher.published
        self.confirmed += channel.publisher.confirmed
        self.delivered += channel.next_tag - 1
        self.acknowledged += channel.acknowledged_count

    def total_with(self, channels: Iterable[Channel]) -> "MessageCounters":
        """Return the totals including those of open channels."""
        total = MessageCounters()
        total.published, total.confirmed = self.published, self.confirmed
        total.delivered, total.acknowledged = self.delivered, self.acknowledged
        for channel in channels:
            total.add_channel(channel)
        return total
