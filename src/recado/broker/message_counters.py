"""How much has gone through the broker since it began.

Channels count what they have to know anyway: the last tag that was given, the last message that was
confirmed. So nothing is counted a second time; what a channel had counted is added here when it ends.
"""

from collections.abc import Iterable

from .channel import Channel


class MessageCounters:
    """Of messages. What was given to several queues or consumers was published once and delivered to each."""

    __slots__ = ("acknowledged", "confirmed", "delivered", "published")

    def __init__(self) -> None:
        self.published = 0
        self.confirmed = 0
        self.delivered = 0
        self.acknowledged = 0

    def add_channel(self, channel: Channel) -> None:
        """All that went through a channel that has ended, or ends now."""
        self.published += channel.publisher.published
        self.confirmed += channel.publisher.confirmed
        self.delivered += channel.next_tag - 1
        self.acknowledged += channel.acknowledged_count

    def total_with(self, channels: Iterable[Channel]) -> "MessageCounters":
        """And with what went through those that are still open."""
        total = MessageCounters()
        total.published, total.confirmed = self.published, self.confirmed
        total.delivered, total.acknowledged = self.delivered, self.acknowledged
        for channel in channels:
            total.add_channel(channel)
        return total
