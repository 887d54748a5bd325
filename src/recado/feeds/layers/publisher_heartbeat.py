"""REACH in a publisher: it tells from time to time that it lives, the last it has published, and its age.

So who missed the end of what it published knows, though nothing comes behind it; and who hears it for the first
time knows which of the two was there before. Where it casts again what others lack it repeats what it told the
last few times: so who has begun meanwhile, and missed that, knows what is older than itself.
"""

from collections import deque

from ..layer import DownEvent, Layer, MemberContext, SendPacket
from ..packet import Data, Fragment, PublisherStatus

_RESUMED_AGE_S = 1e6
MAX_EARLIER_REPORTS = 4


class PublisherHeartbeatLayer(Layer):
    def __init__(self, context: MemberContext) -> None:
        super().__init__(context)
        self._last_sequence = context.options.resume_after
        self._next_heartbeat = 0.0
        self._started_at = 0.0
        self._earlier_reports: deque[tuple[float, int]] = deque(maxlen=MAX_EARLIER_REPORTS)

    def start(self, now: float) -> None:
        # One that goes on is as old as its first life: who knows it not missed what was before.
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
        if not self.context.options.has_total_order:
            self._earlier_reports.append((now, self._last_sequence))

    def adjust_for_stall(self, seconds: float) -> None:
        """Others would take us for younger than we are, and give our old messages to those who came since."""
        self._started_at -= seconds
        self._earlier_reports = deque(
            ((at - seconds, last) for at, last in self._earlier_reports), maxlen=MAX_EARLIER_REPORTS
        )

    def deadline(self) -> float | None:
        return self._next_heartbeat
