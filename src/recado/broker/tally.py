"""How much has gone through the broker since it began.

Channels count what they have to know anyway: the last tag that was given, the last message that was
confirmed. So nothing is counted a second time; what a channel had counted is added here when it ends.
"""

from collections.abc import Iterable

from .channel import Channel


class Tally:
    """Of messages. What was given to several queues or consumers was published once and delivered to each."""

    __slots__ = ("acknowledged", "confirmed", "delivered", "published")

    def __init__(self) -> None:
        self.published = 0
        self.confirmed = 0
        self.delivered = 0
        self.acknowledged = 0

    def add(self, channel: Channel) -> None:
        """All that went through a channel that has ended, or ends now."""
        self.published += channel.publisher.published
        self.confirmed += channel.publisher.confirmed
        self.delivered += channel.next_tag - 1
        self.acknowledged += channel.acknowledged

    def together_with(self, channels: Iterable[Channel]) -> "Tally":
        """And with what went through those that are still open."""
        both = Tally()
        both.published, both.confirmed = self.published, self.confirmed
        both.delivered, both.acknowledged = self.delivered, self.acknowledged
        for channel in channels:
            both.add(channel)
        return both
