"""MEMBERSHIP of a publisher: sends heartbeats with its last sequence and its age.

From the sequence, a member that missed the last message detects the gap although no message follows. From the
age, a member that hears the publisher for the first time knows which of the two started first. On transports
where publishers resend messages (UDP), a heartbeat repeats the last few reports (time and last sequence), so
that a member that started after them knows which messages were published before its own start.
"""

from collections import deque

from ..layer import DownEvent, Layer, MemberContext, SendPacket
from ..packet import Data, Fragment, PublisherStatus

_RESUMED_AGE_S = 1e6  # older than any member that can hear it
SENT_REPORT_COUNT = 4  # docs/feeds.md states this number: four heartbeats


class PublisherHeartbeatLayer(Layer):
    def __init__(self, context: MemberContext) -> None:
        super().__init__(context)
        self._last_sequence = context.options.resume_after
        self._next_heartbeat = 0.0
        self._started_at = 0.0
        self._earlier_reports: deque[tuple[float, int]] = deque(maxlen=SENT_REPORT_COUNT)

    def start(self, now: float) -> None:
        # A resumed publisher is as old as its first incarnation: a member that does not know it has missed
        # earlier messages.
        self._started_at = now - _RESUMED_AGE_S if self.context.options.resume_after else now
        self._next_heartbeat = now + self.context.options.heartbeat_interval
        self._send_status(now)

    def down(self, event: DownEvent, now: float) -> None:
        if isinstance(event, SendPacket) and isinstance(event.packet, Data | Fragment):
            self._last_sequence = max(self._last_sequence, event.last_sequence)
        self._pass_down(event, now)

    def tick(self, now: float) -> None:
        if now >= self._next_heartbeat:
            self._next_heartbeat = now + self.context.options.heartbeat_interval
            self._send_status(now)

    def _send_status(self, now: float) -> None:
        age = int(1000 * (now - self._started_at))
        earlier = tuple((int(1000 * (now - at)), last) for at, last in self._earlier_reports)
        self.send(
            PublisherStatus(self.context.member_id.incarnation, self._last_sequence, age, earlier),
            None,
            now,
        )
        if not self.context.options.has_total_order:  # publishers resend messages
            self._earlier_reports.append((now, self._last_sequence))

    def adjust_for_stall(self, seconds: float) -> None:
        """Move our start and the earlier reports back. Otherwise members would consider us younger than we are,
        and would deliver our old messages to newer subscribers."""
        self._started_at -= seconds
        self._earlier_reports = deque(
            ((at - seconds, last) for at, last in self._earlier_reports), maxlen=SENT_REPORT_COUNT
        )

    def deadline(self) -> float | None:
        return self._next_heartbeat
