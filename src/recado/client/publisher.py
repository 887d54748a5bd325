"""The publishing half of a plain channel: frames, sequence numbers, confirms."""

from collections.abc import Sequence

from .protocol import ConnectionProtocol
from .publish_encoding import encode_publish, encode_publishes
from .waiters import ConfirmWaiters, OnConfirm


class ChannelPublisher:
    """Publishes messages; once confirms are selected, they have the sequence numbers 1, 2, …"""

    def __init__(self, protocol: ConnectionProtocol, channel: int) -> None:
        self._protocol = protocol
        self._channel = channel
        self._confirm_waiters: ConfirmWaiters | None = None
        self.on_confirm: OnConfirm | None = None

    @property
    def is_confirming(self) -> bool:
        return self._confirm_waiters is not None

    @property
    def unconfirmed_count(self) -> int:
        return (
            self._confirm_waiters.tracker.unconfirmed_count
            if self._confirm_waiters is not None
            else 0
        )

    def start_confirms(self) -> None:
        """Assign sequence numbers to messages from now on."""
        confirms = self._protocol.session.start_confirms(self._channel)
        self._confirm_waiters = ConfirmWaiters(confirms, self._protocol.wait_counter)

    def publish(
        self, exchange: str, routing_key: str, body: bytes, properties: bytes, mandatory: bool
    ) -> int:
        """Write a message; return its sequence number, 0 without confirms."""
        session = self._protocol.session
        session.write(
            encode_publish(
                self._channel, exchange, routing_key, body, properties, mandatory, session.frame_max
            )
        )
        if self._confirm_waiters is None:
            return 0
        self._confirm_waiters.tracker.published_count += 1
        return self._confirm_waiters.tracker.published_count

    def publish_many(
        self,
        exchange: str,
        routing_key: str,
        bodies: Sequence[bytes],
        properties: bytes,
        mandatory: bool,
    ) -> range:
        """Write messages; return their sequence numbers, an empty range without confirms."""
        if len(bodies) == 1:
            number = self.publish(exchange, routing_key, bodies[0], properties, mandatory)
            return range(number, number + (number > 0))
        session = self._protocol.session
        session.write(
            *encode_publishes(
                self._channel,
                exchange,
                routing_key,
                bodies,
                properties,
                mandatory,
                session.frame_max,
            )
        )
        if self._confirm_waiters is None:
            return range(0)
        first = self._confirm_waiters.tracker.published_count + 1
        self._confirm_waiters.tracker.published_count += len(bodies)
        return range(first, first + len(bodies))

    def confirm_waiters(self) -> ConfirmWaiters:
        """Return the object that waits for confirms; raises `ValueError` if confirms are not enabled."""
        if self._confirm_waiters is None:
            raise ValueError("the channel has no publisher confirms: open it with confirms=True")
        return self._confirm_waiters

    def handle_confirms(self, sequence_numbers: range, *, acked: bool) -> None:
        """The broker acked or nacked messages."""
        if self._confirm_waiters is not None:
            self._confirm_waiters.handle_confirms(sequence_numbers, acked=acked)
        if self.on_confirm is not None:
            self.on_confirm(sequence_numbers, acked)

    def fail(self, error: Exception) -> None:
        """Raise the error in all waits for confirms."""
        if self._confirm_waiters is not None:
            self._confirm_waiters.fail(error)
